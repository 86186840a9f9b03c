"""What chapter 03 states about rows of bounded spread: it holds, it is attained, and no ascent gets past it."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from adatemp import dispersion

SEED = st.integers(0, 2**32 - 1)
SIZE = st.integers(2, 60)
CONTRAST = st.floats(1.0, 2_000.0)
# Rounding of a float64 softmax of up to 60 items, relative to what is compared.
ROUNDING = 1e-12


def softmax(logits, temperature=1.0):
    powers = np.exp((logits - logits.max(-1, keepdims=True)) / temperature)
    return powers / powers.sum(-1, keepdims=True)


def distance(weights):
    """Total variation distance from uniform, by its definition."""
    return 0.5 * np.abs(weights - 1 / weights.shape[-1]).sum(-1)


def rows_within(n, spread, seed):
    """Rows within a spread: evenly drawn, near the ends, and of two levels with every count."""
    draw = np.random.default_rng(seed)
    levels = spread * np.tril(np.ones((n, n)))
    inside, ends = draw.uniform(0, spread, (4, n)), spread * draw.beta(0.05, 0.05, (4, n))
    return np.concatenate([inside, ends, levels]) + draw.normal()


def ascend(value_and_slope, n, spread, seed, starts=12):
    """The largest value that a quasi-Newton ascent within the spread finds, from random rows."""
    draw = np.random.default_rng(seed)

    def negative(row):
        value, slope = value_and_slope(row)
        return -value, -slope

    found = [
        minimize(negative, start, jac=True, method="L-BFGS-B", bounds=[(0.0, spread)] * n)
        for power in np.geomspace(0.2, 60, starts)  # from rows that are mostly high to rows that are mostly low
        for start in [spread * draw.uniform(size=n) ** power]
    ]
    return max(-result.fun for result in found)


ATTACKED = [(3, 2.0, 1.0), (8, 4.0, 0.8), (17, 3.0, 2.0), (40, 6.0, 1.0)]


@pytest.mark.result("thm-ch03-tight")
@pytest.mark.parametrize(("n", "spread", "temperature"), ATTACKED)
def test_no_ascent_lifts_or_lowers_a_weight_beyond_the_tight_bounds(n, spread, temperature):
    low, high = dispersion.weight_bounds(n, spread, temperature)

    def log_first(row, sign):
        weights = softmax(row, temperature)
        return sign * np.log(weights[0]), sign * (np.eye(n)[0] - weights) / temperature

    highest = np.exp(ascend(lambda row: log_first(row, 1), n, spread, n))
    lowest = np.exp(-ascend(lambda row: log_first(row, -1), n, spread, n))
    assert highest <= high * (1 + ROUNDING) and lowest >= low * (1 - ROUNDING)
    # The search is not a weak one: it arrives. L-BFGS-B stops at a relative change of 1e-9 or so.
    assert highest == pytest.approx(high, rel=1e-6) and lowest == pytest.approx(low, rel=1e-6)


@pytest.mark.result("cor-ch03-theta")
@given(st.floats(0.05, 12.0), st.floats(0.2, 5.0))
def test_constants_of_the_rate_are_approached_and_not_reached(scaled, temperature):
    spread, contrast = scaled * temperature, np.exp(scaled)
    sizes = 2.0 ** np.arange(1, 45)
    low, high = dispersion.weight_bounds(sizes, spread, temperature)
    # n p = κ/(1 + (κ − 1)/n) exactly, so at n = 2⁴⁴ it is within κ/10¹³ of κ; the rest is rounding.
    assert (sizes * high <= contrast * (1 + ROUNDING)).all() and (sizes * low >= (1 - ROUNDING) / contrast).all()
    assert sizes[0] * high[0] < contrast and sizes[0] * low[0] > 1 / contrast
    assert sizes[-1] * high[-1] == pytest.approx(contrast, rel=1e-7)
    assert sizes[-1] * low[-1] == pytest.approx(1 / contrast, rel=1e-7)


CONVEX = {
    "y log y": lambda y: y * np.log(y),
    "square": np.square,
    "-sqrt": lambda y: -np.sqrt(y),
    "inverse": lambda y: 1 / y,
    "kink": lambda y: np.maximum(y - 1.7, 0.0),
}


@pytest.mark.result("lem-ch03-chord")
@pytest.mark.parametrize("name", CONVEX)
@given(SIZE, st.floats(1.01, 500.0), st.floats(0.0, 1.0), SEED)
def test_a_sum_of_convex_functions_is_below_the_chord_and_on_it_for_two_levels(name, n, contrast, share, seed):
    g, draw = CONVEX[name], np.random.default_rng(seed)

    def chord(mean):
        return ((contrast - mean) * g(1.0) + (mean - 1) * g(contrast)) / (contrast - 1)

    rough = ROUNDING * (1 + abs(g(1.0)) + abs(g(contrast)))
    inside = 1 + (contrast - 1) * draw.uniform(size=n) ** draw.choice([0.2, 1.0, 4.0])
    assert g(inside).mean() <= chord(inside.mean()) + rough
    two = np.where(np.arange(n) < share * n, contrast, 1.0)
    assert g(two).mean() == pytest.approx(chord(two.mean()), abs=10 * rough)


@pytest.mark.result("prop-ch03-copies")
@given(arrays(float, st.integers(2, 9), elements=st.floats(-4, 4)), st.integers(2, 50), SEED)
def test_copies_divide_the_weights_and_leave_the_rest_alone(row, copies, seed):
    values = np.random.default_rng(seed).normal(size=(row.size, 3))
    once, often = softmax(row), softmax(np.tile(row, copies))
    assert often == pytest.approx(np.tile(once, copies) / copies, rel=ROUNDING)
    assert distance(often) == pytest.approx(distance(once), abs=ROUNDING)
    lacking = [np.log(p.size) + (p * np.log(p)).sum() for p in (once, often)]
    assert lacking[0] == pytest.approx(lacking[1], abs=1e-11)
    assert often @ np.tile(values, (copies, 1)) == pytest.approx(once @ values, abs=1e-11)


@pytest.mark.result("thm-ch03-tv")
@given(SIZE, st.floats(0.0, 30.0), st.floats(0.1, 10.0), SEED)
def test_no_row_is_farther_from_uniform_than_the_ceiling_and_two_levels_are_as_far(n, spread, temperature, seed):
    rows = rows_within(n, spread, seed)
    assert distance(softmax(rows, temperature)).max() <= np.tanh(spread / (4 * temperature)) + ROUNDING
    # √κ = m makes 1/(1 + √κ) a whole share of (1 + m)·j items: attained at every such size.
    m, j = n % 5 + 1, n // 5 + 1
    exact = 2 * np.log(m) * temperature
    two = np.where(np.arange((1 + m) * j) < j, exact, 0.0)
    reached = distance(softmax(two, temperature))
    assert reached == pytest.approx((m - 1) / (m + 1), abs=ROUNDING)
    assert reached == pytest.approx(np.tanh(exact / (4 * temperature)), abs=ROUNDING)


@pytest.mark.result("thm-ch03-tv")
@pytest.mark.parametrize(("n", "spread", "temperature"), ATTACKED)
def test_no_ascent_moves_a_row_farther_from_uniform(n, spread, temperature):
    def moved(row):
        weights = softmax(row, temperature)
        above = weights > 1 / n
        inside = weights[above].sum()
        slope = weights * (above - inside) / temperature  # of the mass above, the set held fixed
        return inside - above.mean(), slope

    found, ceiling = ascend(moved, n, spread, n, starts=40), np.tanh(spread / (4 * temperature))
    assert found <= ceiling + ROUNDING
    counts = np.arange(1, n)[:, None]
    best = distance(softmax(np.where(np.arange(n) < counts, spread, 0.0), temperature)).max()
    assert best <= ceiling + ROUNDING and found >= 0.99 * best  # the search is not a weak one


@pytest.mark.result("cor-ch03-least")
@given(SIZE, st.floats(0.1, 12.0), st.floats(0.2, 5.0), SEED)
def test_least_spread_is_below_the_spread_and_equal_for_a_leader(chapter03, n, scaled, temperature, seed):
    spread = scaled * temperature
    rows = rows_within(n, spread, seed)
    top = softmax(rows, temperature).max(-1)
    # 1 − w loses up to κ = e¹² of its digits: 1e-16 · e¹² ≈ 2e-11, times θ, and as much again in the logarithm
    slack = 1e-9 * temperature
    assert (chapter03.least_spread(n, top, temperature) <= np.ptp(rows, -1) + slack).all()
    high = dispersion.weight_bounds(n, spread, temperature)[1]
    assert chapter03.least_spread(n, high, temperature) == pytest.approx(spread, abs=slack)


@pytest.mark.result("prop-ch03-slope")
@pytest.mark.parametrize("slope", [20.0, 60.0, 200.0])
def test_a_head_of_slope_s_makes_use_of_the_logarithm_of_s(chapter03, slope):
    n = 1_000_000
    rows = slope * np.random.default_rng(0).uniform(size=(8, n))
    weights = softmax(rows)
    top = weights.max(-1)
    lacking = np.log(n) + (weights * np.log(np.maximum(weights, 1e-300))).sum(-1)
    # Z is a mean over about n/S items, so its relative error is near √(S/2n) = 1% at S = 200; the deficit follows it.
    assert n * top == pytest.approx(np.full(8, slope), rel=0.05)
    assert lacking == pytest.approx(np.full(8, np.log(slope) - 1), abs=0.05)
    assert distance(weights) == pytest.approx(np.full(8, 1 - (1 + np.log(slope)) / slope), abs=0.003)
    assert chapter03.least_spread(n, top) == pytest.approx(np.full(8, np.log(slope)), abs=0.05)
    assert np.ptp(rows, -1).min() > 0.999 * slope


@given(st.floats(0.001, 0.999), st.floats(0.0, 200.0), st.floats(0.1, 10.0))
def test_the_page_s_formulas_are_the_library_s(chapter03, epsilon, spread, temperature):
    page, library = chapter03, dispersion
    assert page.log_size(epsilon, spread, temperature) == pytest.approx(
        library.log_size_for_weight_below(epsilon, spread, temperature), rel=ROUNDING
    )
    scaled = min(spread / temperature, 300.0)  # the page's forms overflow beyond, and it says so
    for n in (1, 2, 9, 1_000):
        assert page.weight_bounds(n, scaled) == pytest.approx(library.weight_bounds(n, scaled), rel=1e-11)
    if scaled > 1e-3:  # below, the page's form loses the digits that Exercise 3 asks for
        assert page.entropy_floor(10**6, scaled) == pytest.approx(library.entropy_floor(10**6, scaled), abs=1e-9)


@settings(max_examples=20)
@given(st.integers(4, 400), SEED)
def test_the_page_s_families_keep_their_spread_and_the_control_does_not(chapter03, n, seed):
    rows = chapter03.families(n, np.random.default_rng(seed))
    for name, family in rows.items():
        spread = 4.0 + (np.log(n / 16) if name == "control" else 0.0)
        np.testing.assert_allclose(np.ptp(family, -1), abs(spread), atol=1e-12)


@given(SIZE, st.floats(0.5, 20.0), SEED)
def test_the_page_s_inverse_of_the_deficit_gives_the_spread_back(chapter03, n, spread, seed):
    lost = chapter03.deficits(spread)[0]
    assert chapter03.deficit_inverse(lost) == pytest.approx(spread, rel=1e-9)
    row = rows_within(n, spread, seed)[0]
    weights = softmax(row)
    lacking = np.log(n) + (weights * np.log(weights)).sum()
    if lacking > 1e-9:  # a row's own deficit never asks for more spread than it has
        assert chapter03.deficit_inverse(lacking) <= np.ptp(row) * (1 + 1e-9)

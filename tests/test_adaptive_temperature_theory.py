"""What chapter 08 proves about temperatures computed from a row's entropy."""

from __future__ import annotations

import math
from fractions import Fraction

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.optimize import brentq, minimize

from adatemp import PAPER, adaptive_temperature_softmax, dispersion
from adatemp.temperature import PAPER_COEFFICIENTS, RowStatistics, exp_offset, guarded

LOWER, UPPER, PEAK = 0.848582, 5.944521, 4.412402  # to six digits; the test below proves them
ROWS = arrays(float, st.integers(2, 12), elements=st.floats(-6, 6).map(lambda x: round(x, 2)))


def softmax(z):
    powers = np.exp(z - z.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def entropy(z):
    p = softmax(np.asarray(z, float))
    return -(p * np.log(np.where(p > 0, p, 1.0))).sum(-1)


@pytest.mark.result("prop-ch08-temperature")
@given(ROWS, st.floats(0.2, 20.0))
def test_entropy_rises_with_the_temperature_at_the_rate_of_the_variance_between_its_limits(row, theta):
    h = 1e-4 * theta
    slope = (entropy(row / (theta + h)) - entropy(row / (theta - h))) / (2 * h)
    p = softmax(row / theta)
    variance = p @ row**2 - (p @ row) ** 2
    assert slope == pytest.approx(variance / theta**3, rel=1e-5, abs=1e-7)
    ties = (row == row.max()).sum()
    # Logits are multiples of 1/100, so at a thousandth of that unit all that are not on top have underflowed.
    assert entropy(row / 1e-5) == pytest.approx(math.log(ties), abs=1e-12)
    assert entropy(row / 1e6) == pytest.approx(math.log(row.size), abs=1e-9)


def value(at: Fraction) -> Fraction:
    """The published quartic in exact arithmetic."""
    total = Fraction(0)
    for coefficient in PAPER_COEFFICIENTS:
        total = total * at + Fraction(str(coefficient))
    return total


def slope(at: Fraction) -> Fraction:
    total = Fraction(0)
    for power, coefficient in zip((4, 3, 2, 1), PAPER_COEFFICIENTS):
        total = total * at + power * Fraction(str(coefficient))
    return total


@pytest.mark.result("prop-ch08-window")
def test_the_map_rises_once_and_falls_once_and_crosses_one_twice_in_exact_arithmetic():
    # P' is a cubic. One with a negative discriminant has one real root, so P rises up to it and falls after it.
    a, b, c, d = (power * Fraction(str(x)) for power, x in zip((4, 3, 2, 1), PAPER_COEFFICIENTS))
    assert 18 * a * b * c * d - 4 * b**3 * d + b**2 * c**2 - 4 * a * c**3 - 27 * a**2 * d**2 < 0
    step = Fraction(1, 10**6)
    for root, sign in ((LOWER, 1), (UPPER, -1)):
        at = Fraction(str(root))
        assert sign * (value(at - step) - 1) < 0 < sign * (value(at + step) - 1)
    peak = Fraction(str(PEAK))
    assert slope(peak - step) > 0 > slope(peak + step)
    assert value(peak) == pytest.approx(2.421388, abs=1e-6)
    assert value(Fraction(1, 2)) < 1  # with P rising, the guard never acts


@pytest.mark.result("prop-ch08-window")
@given(st.floats(0.0, 12.0))
def test_the_map_is_the_same_without_its_guard(at):
    beta = float(PAPER.beta(RowStatistics(entropy=jnp.float32(at))))
    assert beta == pytest.approx(max(1.0, np.polyval(PAPER_COEFFICIENTS, np.float32(at))), abs=1e-4)


@pytest.mark.result("prop-ch08-untouched")
@pytest.mark.parametrize(("n", "spread"), [(7_419, 5.69), (1_000, 3.0), (3_000, 4.5), (131_072, 9.0)])
def test_no_row_within_the_limit_is_touched_and_one_beyond_it_is(n, spread):
    floor = float(dispersion.entropy_floor(n, spread))
    row = dispersion.entropy_extremal_row(n, spread)
    # The row of least entropy is above the floor by at most what one key more or less does.
    assert floor - 1e-9 <= entropy(row) <= floor + 2 / n
    limit = float(dispersion.spread_for_entropy(n, UPPER))
    for factor, touched in ((0.99, False), (1.01, True)):
        worst = dispersion.entropy_extremal_row(n, factor * limit)
        _, stats = adaptive_temperature_softmax(jnp.asarray(worst, jnp.float32), return_stats=True)
        assert bool(stats.beta > 1) == touched


@pytest.mark.result("prop-ch08-untouched")
def test_no_ascent_finds_a_row_that_the_map_touches_within_the_limit():
    n, rng = 500, np.random.default_rng(0)
    limit = float(dispersion.spread_for_entropy(n, UPPER))

    def descend(start, spread):
        def value_and_slope(z):
            p, h = softmax(z), entropy(z)
            return h, -p * (np.log(p) + h)

        return minimize(value_and_slope, start, jac=True, method="L-BFGS-B", bounds=[(0, spread)] * n).fun

    starts = [limit * rng.uniform(size=n) ** power for power in (0.5, 2.0, 8.0, 30.0)]
    found = min(descend(start, limit) for start in starts)
    assert UPPER - 1e-9 <= found <= UPPER + 0.02  # it arrives: the search is not a weak one


def scale_at_lower_root(row):
    return brentq(lambda s: entropy(s * row) - LOWER, 1e-3, 200 * row.size / np.ptp(row))


@pytest.mark.result("prop-ch08-weaker")
@pytest.mark.parametrize("seed", range(12))
def test_just_above_the_lower_root_more_scale_weakens_exactly_where_the_variance_says(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 400))
    row = [np.eye(n)[0], rng.normal(size=n), np.linspace(0, 1, n), rng.gumbel(size=n)][seed % 4]
    s = scale_at_lower_root(row)
    p = softmax(s * row)
    variance = p @ (s * row) ** 2 - (p @ (s * row)) ** 2
    product = [t * max(1.0, np.polyval(PAPER_COEFFICIENTS, entropy(t * row))) for t in (s * (1 - 1e-4), s * (1 - 5e-5))]
    slope_there = np.polyval(np.polyder(PAPER_COEFFICIENTS), LOWER)
    assert slope_there == pytest.approx(1.962, abs=1e-3)
    assert (product[1] < product[0]) == (variance > 1 / slope_there)


@pytest.mark.result("prop-ch08-weaker")
@given(st.integers(4, 200_000))
def test_for_a_leader_among_four_or_more_the_variance_is_always_enough(n):
    gap = brentq(lambda g: leader_entropy(n, g) - LOWER, 0, 60)
    p = 1 / (1 + (n - 1) * math.exp(-gap))
    assert p * (1 - p) * gap**2 > 1 / 1.9625


def leader_entropy(n, gap):
    others = (n - 1) * math.exp(-gap)
    return math.log1p(others) + gap * others / (1 + others)


@pytest.mark.result("prop-ch08-best")
@given(ROWS.filter(lambda z: np.ptp(z) > 0.1), st.data())
def test_the_target_s_log_weight_is_concave_and_largest_where_the_four_cases_say(row, data):
    target = data.draw(st.integers(0, row.size - 1))
    betas = np.linspace(-6, 6, 2401)
    scaled = betas[:, None] * row
    top = scaled.max(-1)
    log_weight = scaled[:, target] - top - np.log(np.exp(scaled - top[:, None]).sum(-1))
    assert np.diff(log_weight, 2).max() <= 1e-9  # concave
    slope = np.gradient(log_weight, betas)[1:-1]
    # Differences of a step of 1/200, whose error is a sixth of its square times a third cumulant of at most 167.
    assert slope == pytest.approx(row[target] - (softmax(scaled) @ row)[1:-1], abs=1e-3)
    best = betas[log_weight.argmax()]
    if row[target] == row.max():
        assert log_weight.argmax() == betas.size - 1 or log_weight[-1] == pytest.approx(log_weight.max(), abs=1e-9)
    elif row[target] > softmax(row) @ row:
        assert best >= 1 - 0.05
    elif row[target] > row.mean():
        assert -0.05 <= best <= 1.05
    else:
        assert best <= 0.05


@pytest.mark.result("prop-ch08-offset")
@pytest.mark.parametrize("offset", [-0.5, 0.5, 1.5])
def test_the_offset_rule_holds_the_ratio_and_not_the_entropy(offset):
    rng = np.random.default_rng(1)
    slope, ratios, reached = 30.0, [], []
    for n in (1_000, 16_000):
        z = slope * rng.uniform(size=(200, n))
        beta = np.exp(np.maximum(entropy(z) - offset, 0))
        ratios.append(np.median(n / (beta * slope)))
        reached.append(entropy(beta[:, None] * z).mean())
    assert ratios[1] == pytest.approx(math.exp(offset - 1), rel=0.05)
    assert abs(reached[0] - reached[1]) < 0.12  # four standard errors of 200 rows, and what is left of 1/n
    wanted = mean_entropy(math.exp(offset - 1))
    assert reached[1] == pytest.approx(wanted, abs=0.12)
    assert wanted > offset + 0.03  # the entropy reached is above the offset, by most where the offset is small


def mean_entropy(ratio, sets=4_000):
    """Mean entropy of weights exp(−t/ratio) over a Poisson process of rate 1 measured from its first point."""
    t = np.cumsum(np.random.default_rng(2).exponential(size=(sets, int(20 + 30 * ratio))), axis=1)
    return entropy(-np.concatenate([np.zeros((sets, 1)), t], axis=1) / ratio).mean()


@pytest.mark.result("prop-ch08-ends")
def test_mean_entropy_is_proportional_to_a_small_ratio_and_one_plus_the_logarithm_of_a_large_one():
    two, _ = quad(lambda x: entropy(np.array([0.0, -x])), 0, 60)
    assert two == pytest.approx(math.pi**2 / 6, abs=1e-8)
    for ratio in (0.01, 0.02):
        assert mean_entropy(ratio, sets=120_000) / ratio == pytest.approx(math.pi**2 / 6, rel=0.08)
    for ratio in (10.0, 40.0):
        assert mean_entropy(ratio) == pytest.approx(1 + math.log(ratio), abs=0.03)


@pytest.mark.result("prop-ch08-noise")
@given(ROWS.filter(lambda z: z.size > 2), st.floats(0.0, 3.0), st.integers(1, 500))
def test_the_offset_rule_multiplies_a_long_row_of_any_spread_by_a_multiple_of_n(row, offset, copies):
    z = np.tile(row, copies)
    spread = np.ptp(z)
    beta = float(exp_offset(offset).beta(RowStatistics(entropy=jnp.float32(entropy(z)))))
    zeta = spread / -math.expm1(-spread) if spread > 1e-12 else 1.0
    assert beta >= z.size * math.exp(-offset) * zeta * math.exp(1 - zeta) * (1 - 1e-5)


@pytest.mark.result("prop-ch08-guarded")
@given(ROWS.filter(lambda z: z.size > 2), st.floats(0.0, 2.0), st.integers(1, 2_000))
def test_the_guarded_rule_leaves_a_head_alone_whose_entropy_keeps_its_distance_from_log_n(row, margin, copies):
    z = np.tile(row, copies)
    lacking = math.log(row.size) - entropy(row)  # copies leave this as it is
    rule = guarded(-lacking + margin, 1.0)
    stats = RowStatistics(entropy=jnp.float32(entropy(z)), count=jnp.int32(z.size))
    beta = float(rule.beta(stats))
    # With level at least −lacking, h(n) is at least the row's entropy: β is 1 up to float32's rounding of exp.
    assert beta == pytest.approx(1.0, rel=2e-5)

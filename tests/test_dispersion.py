"""Bounds on weights and entropies: they hold, they are attained, and nothing that an optimiser finds breaks them."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import brentq, minimize

from adatemp import dispersion

# Rounding of a float64 softmax of up to 60 keys, relative to the weight.
ROUNDING = 1e-12

sizes = st.integers(2, 60)
spreads = st.floats(0.0, 30.0)
temperatures = st.floats(0.05, 20.0)
seeds = st.integers(0, 2**32 - 1)


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    powers = np.exp((logits - logits.max(-1, keepdims=True)) / temperature)
    return powers / powers.sum(-1, keepdims=True)


def entropy(logits: np.ndarray, temperature: float = 1.0) -> float:
    weights = softmax(logits, temperature)
    return float(-np.sum(weights * np.log(np.where(weights > 0, weights, 1.0)), -1))


def rows_within(n: int, spread: float, seed: int) -> np.ndarray:
    """Rows of spread at most δ: uniform, near the ends, and two-level ones with every number of high logits."""
    draw = np.random.default_rng(seed)
    uniform = draw.uniform(0.0, spread, (4, n))
    ends = spread * draw.beta(0.05, 0.05, (4, n))
    levels = spread * np.tril(np.ones((n, n)))
    return np.concatenate([uniform, ends, levels]) + draw.normal()


# Weights.


@pytest.mark.result("thm-ch03-lemma")
@given(sizes, spreads, temperatures, seeds)
def test_weights_lie_within_the_tight_bounds_and_those_within_the_simple_ones(n, spread, temperature, seed):
    weights = softmax(rows_within(n, spread, seed), temperature)
    low, high = dispersion.weight_bounds(n, spread, temperature)
    simple_low, simple_high = dispersion.simple_bounds(n, spread, temperature)
    assert simple_low <= low * (1 + ROUNDING) and high <= simple_high * (1 + ROUNDING)
    assert low * (1 - ROUNDING) <= weights.min() + 1e-300 and weights.max() <= high * (1 + ROUNDING)


@pytest.mark.result("thm-ch03-tight")
@given(sizes, spreads, temperatures)
def test_tight_bounds_are_attained_by_the_extremal_rows(n, spread, temperature):
    low, high = dispersion.weight_bounds(n, spread, temperature)
    lowest = softmax(dispersion.lower_extremal_row(n, spread), temperature)[0]
    highest = softmax(dispersion.upper_extremal_row(n, spread), temperature)[0]
    assert highest == pytest.approx(high, rel=ROUNDING)
    assert lowest == pytest.approx(low, rel=ROUNDING, abs=1e-300)


@pytest.mark.result("thm-ch03-tight")
@given(st.integers(3, 60), st.floats(0.01, 5.0))
def test_no_row_of_three_or_more_keys_attains_both_bounds(n, spread):
    low, high = dispersion.weight_bounds(n, spread)
    # The row that attains the upper bound is unique, and its smallest weight is above the lower bound by this factor.
    smallest = softmax(dispersion.upper_extremal_row(n, spread)).min()
    factor = (1 + (n - 1) * math.exp(spread)) / (math.exp(spread) + n - 1)
    assert factor > 1 and smallest / low == pytest.approx(factor, rel=1e-9)


def test_extremal_rows_keep_their_spread_and_broadcast_over_spreads():
    for row in (dispersion.upper_extremal_row, dispersion.lower_extremal_row, dispersion.entropy_extremal_row):
        rows = row(7, np.array([[0.5, 2.0, 40.0]]))
        assert rows.shape == (1, 3, 7)
        np.testing.assert_array_equal(np.ptp(rows, -1), [[0.5, 2.0, 40.0]])


@pytest.mark.parametrize("bounds", [dispersion.simple_bounds, dispersion.weight_bounds])
def test_without_spread_every_weight_is_one_over_n(bounds):
    for bound in bounds(np.arange(1, 9), 0.0, 0.3):
        np.testing.assert_allclose(bound, 1.0 / np.arange(1, 9), rtol=1e-15)


def test_a_single_key_has_weight_one_at_any_spread():
    assert dispersion.weight_bounds(1, 2000.0) == (1.0, 1.0)


def test_huge_spreads_give_the_limits_without_warnings():
    low, high = dispersion.weight_bounds(5, np.array([800.0, 1e308]), np.array([1.0, 1e-5]))
    np.testing.assert_array_equal(low, 0.0)
    np.testing.assert_array_equal(high, 1.0)
    assert dispersion.simple_bounds(5, 1e4)[1] == np.inf


def test_lower_bound_keeps_its_digits_where_its_inverse_overflows():
    # 1/(1 + 4 e^720): e^720 is beyond float64, its inverse is a subnormal of about three digits less.
    assert dispersion.weight_bounds(5, 720.0)[0] == pytest.approx(math.exp(-720.0 - math.log(4.0)), rel=1e-6)


# Entropy.


@pytest.mark.result("prop-ch03-simple-floors")
@given(sizes, spreads, temperatures, seeds)
def test_entropies_lie_above_the_three_floors_and_the_exact_one_is_the_highest(n, spread, temperature, seed):
    floor = dispersion.entropy_floor(n, spread, temperature)
    simple = [f(n, spread, temperature) for f in (dispersion.entropy_floor_linear, dispersion.entropy_floor_quadratic)]
    # 1e-12: rounding of sums of sixty terms of order one
    assert min(entropy(row, temperature) for row in rows_within(n, spread, seed)) >= floor - 1e-12
    assert floor >= max(simple) - 1e-12 and min(simple) >= 0.0


@pytest.mark.result("thm-ch03-floor")
@given(sizes, spreads, temperatures)
def test_extremal_row_has_the_least_entropy_of_all_two_level_rows(n, spread, temperature):
    levels = spread * np.tril(np.ones((n - 1, n)))
    least = min(entropy(row, temperature) for row in levels)
    assert entropy(dispersion.entropy_extremal_row(n, spread, temperature), temperature) <= least + 1e-12


@pytest.mark.result("thm-ch03-floor")
@pytest.mark.parametrize(("n", "spread", "temperature"), [(3, 1.0, 1.0), (5, 4.0, 2.0), (8, 2.5, 0.7), (12, 6.0, 1.0)])
def test_no_optimiser_finds_a_row_of_less_entropy(n, spread, temperature):
    def value_and_slope(row: np.ndarray) -> tuple[float, np.ndarray]:
        weights, h = softmax(row, temperature), entropy(row, temperature)
        # dH/dz_j = −p_j (log p_j + H)/θ
        return h, -weights * (np.log(weights) + h) / temperature

    draw = np.random.default_rng(n)
    found = [
        minimize(value_and_slope, start, jac=True, method="L-BFGS-B", bounds=[(0.0, spread)] * n).fun
        for start in draw.uniform(0.0, spread, (60, n))
    ]
    least = entropy(dispersion.entropy_extremal_row(n, spread, temperature), temperature)
    assert min(found) >= least - 1e-12
    assert min(found) == pytest.approx(least, abs=1e-6)  # it does find that row, so the search is not a weak one
    assert least >= dispersion.entropy_floor(n, spread, temperature)


@pytest.mark.result("thm-ch03-floor")
@given(st.integers(200, 5_000), st.floats(0.0, 5.0), st.sampled_from([0.5, 1.0, 3.0]))
def test_floor_is_attained_up_to_the_rounding_of_one_key(n, scaled, temperature):
    spread = scaled * temperature
    above = entropy(dispersion.entropy_extremal_row(n, spread, temperature), temperature)
    above -= dispersion.entropy_floor(n, spread, temperature)
    # log n − H has curvature −1/x² in Z at its peak Z = x, and rounding the count by at most one moves Z by at most
    # (e^s − 1)/n; the third derivative is allowed for by leaving out the half.
    x = scaled / -math.expm1(-scaled) if scaled else 1.0
    assert -1e-11 <= above <= (math.expm1(scaled) / (n * x)) ** 2 + 1e-11


def test_floor_without_spread_is_log_n_and_its_slope_there_is_zero():
    assert dispersion.entropy_floor(17, 0.0) == pytest.approx(math.log(17), rel=1e-15)
    assert jax.grad(lambda delta: dispersion.entropy_floor(17.0, delta))(0.0) == 0.0


@pytest.mark.result("prop-ch03-simple-floors")
@pytest.mark.parametrize("spread", [1e-9, 1e-4, 1e-2])
def test_small_spreads_cost_an_eighth_of_their_square(spread):
    # log n − H = s²/8 − s⁴/576 + O(s⁶); float64 leaves about 1e-16 of log n
    lost = math.log(9) - dispersion.entropy_floor(9, spread)
    assert lost == pytest.approx(spread**2 / 8 - spread**4 / 576, abs=1e-15)


def test_sizes_and_spreads_at_which_the_published_map_is_the_identity():
    window = 5.9445  # nats, the entropy above which the published map returns 1

    def size(spread: float) -> float:
        return math.exp(window + math.log(1e6) - dispersion.entropy_floor(10**6, spread))

    assert brentq(lambda d: dispersion.entropy_floor(131_072, d) - window, 0.0, 20.0) == pytest.approx(9.04, abs=5e-3)
    assert math.floor(size(5.69)) == 7_418
    assert math.floor(size(2.28)) == 700


def test_floors_are_never_negative():
    for floor in (dispersion.entropy_floor, dispersion.entropy_floor_linear, dispersion.entropy_floor_quadratic):
        np.testing.assert_array_equal(floor(np.array([2, 1000]), np.array([50.0, 1e308])), 0.0)


# Array libraries.


@pytest.mark.parametrize(
    "function",
    [
        lambda n, d: dispersion.simple_bounds(n, d, 0.7)[1],
        lambda n, d: dispersion.weight_bounds(n, d, 0.7)[0],
        lambda n, d: dispersion.weight_bounds(n, d, 0.7)[1],
        lambda n, d: dispersion.entropy_floor(n, d, 0.7),
        lambda n, d: dispersion.entropy_floor_linear(n, d, 0.7),
        lambda n, d: dispersion.entropy_floor_quadratic(n, d, 0.7),
        lambda n, d: dispersion.log_size_for_weight_below(0.3, d, 0.7) + 0.0 * n,
    ],
)
def test_jit_and_vmap_agree_with_float64(function):
    n, spread = np.array([1, 2, 9, 1000]), np.array([0.0, 0.5, 3.0, 8.0])
    expected = function(n, spread)
    assert expected.dtype == np.float64
    for traced in (jax.jit(function), jax.vmap(function)):
        got = traced(jnp.asarray(n), jnp.asarray(spread, jnp.float32))
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)  # a few float32 units of terms near 10


def test_rows_are_traceable_in_the_spread():
    rows = jax.jit(jax.vmap(lambda d: dispersion.entropy_extremal_row(6, d)))(jnp.array([0.0, 1.0, 9.0]))
    np.testing.assert_array_equal(rows, dispersion.entropy_extremal_row(6, np.array([0.0, 1.0, 9.0])))


@given(st.floats(0.1, 6.0))
def test_gradient_of_the_floor_is_its_finite_difference(spread):
    step = 1e-5  # in float64 the central difference is then right to about 1e-10
    expected = (dispersion.entropy_floor(1e4, spread + step) - dispersion.entropy_floor(1e4, spread - step)) / (
        2 * step
    )
    slope = jax.grad(lambda d: dispersion.entropy_floor(1e4, d))(spread)
    assert slope == pytest.approx(expected, rel=1e-4, abs=1e-6)


# Arguments.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dispersion.weight_bounds(0, 1.0), r"n must be at least 1.*got 0"),
        (lambda: dispersion.entropy_floor([4, 0.5], 1.0), r"n must be at least 1.*got 0\.5"),
        (lambda: dispersion.simple_bounds(5, -1.0), r"spread must be finite and not negative.*got -1"),
        (lambda: dispersion.entropy_floor(5, math.nan), r"spread must be.*dispersion\.spread.*got nan"),
        (lambda: dispersion.upper_extremal_row(5, math.inf), r"spread must be.*got inf"),
        (lambda: dispersion.weight_bounds(5, 1.0, 0.0), r"temperature must be positive.*1/beta; got 0"),
        (lambda: dispersion.entropy_floor(5, 1.0, math.nan), r"temperature must be positive"),
        (lambda: dispersion.lower_extremal_row(0, 1.0), r"n must be at least 1"),
        (lambda: dispersion.weight_bounds(jnp.array(5.0), jnp.array(-2.0)), r"spread must be.*got -2"),
    ],
)
def test_arguments_out_of_range_are_named_with_the_remedy(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_rows_need_a_whole_number_of_keys():
    with pytest.raises(TypeError, match="n must be an integer.*float"):
        dispersion.upper_extremal_row(2.5, 1.0)

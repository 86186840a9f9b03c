"""The entropy floor read backwards is its inverse, and what it promises no optimiser breaks."""

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
from adatemp._compat import enable_x64


@given(st.integers(2, 10**9), st.floats(1e-6, 1.0), st.floats(0.05, 20.0))
def test_the_floor_at_the_spread_for_an_entropy_is_that_entropy(n, share, temperature):
    entropy = (1.0 - share) * math.log(n)
    spread = dispersion.spread_for_entropy(n, entropy, temperature)
    # log n and D are rounded to about 1e-15 each, and so is their difference, the floor
    assert dispersion.entropy_floor(n, spread, temperature) == pytest.approx(entropy, abs=1e-13)


@given(st.floats(1e-4, 40.0))
def test_a_spread_comes_back_from_its_floor(s):
    x = s / -math.expm1(-s)
    # log n is 0 here, so that the floor loses no digits of D; D itself has lost about 1e-16/(s²/8) of its own
    found = dispersion.spread_for_entropy(math.exp(x - 1 - math.log(x)), 0.0)
    assert found == pytest.approx(s, rel=1e-12 + 8e-15 / s**2)


def test_known_spreads_and_sizes_of_the_published_map():
    window = 5.944521
    assert dispersion.spread_for_entropy(131_072, window) == pytest.approx(9.04, abs=5e-3)
    assert math.floor(math.exp(dispersion.log_size_for_entropy_above(window, 5.69))) == 7_418
    assert math.floor(math.exp(dispersion.log_size_for_entropy_above(window, 2.28))) == 700


def test_an_independent_root_finder_agrees():
    def deficit(s):
        return s / -math.expm1(-s) - 1 - math.log(s / -math.expm1(-s))

    for n, entropy in [(10, 1.0), (1000, 0.5), (131_072, 0.0), (5, 1.6)]:
        wanted = math.log(n) - entropy
        expected = brentq(lambda s, wanted=wanted: deficit(s) - wanted, 1e-3, 50.0, xtol=1e-14)
        assert dispersion.spread_for_entropy(n, entropy) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(("n", "entropy"), [(6, 1.2), (10, 0.9), (16, 2.5)])
def test_no_optimiser_reaches_the_entropy_with_a_smaller_spread(n, entropy):
    """Gradient descent on the entropy of rows within the spread stays above; at more than the spread it gets below."""
    limit = dispersion.spread_for_entropy(n, entropy)

    def least(spread):
        def value_and_slope(row):
            p = np.exp(row - row.max())
            p /= p.sum()
            h = -np.sum(p * np.log(p))
            return h, -p * (np.log(p) + h)

        starts = np.random.default_rng(0).uniform(0, spread, (30, n))
        bounds = [(0.0, spread)] * n
        return min(minimize(value_and_slope, x, jac=True, method="L-BFGS-B", bounds=bounds).fun for x in starts)

    assert least(limit) >= entropy - 1e-12
    # attained up to the rounding of the number of high keys to an integer, which for so few keys costs some per cent
    assert least(1.1 * limit) < entropy


def test_without_need_for_a_spread_none_is_asked_and_sizes_broadcast():
    np.testing.assert_array_equal(dispersion.spread_for_entropy([4, 4], [math.log(4) + 1e-9, 9.0]), 0.0)
    assert dispersion.spread_for_entropy(1, 0.0) == 0.0
    assert dispersion.spread_for_entropy(np.array([[10], [100]]), np.array([0.5, 1.0, 2.0])).shape == (2, 3)
    assert dispersion.spread_for_entropy(10, 0.5, 2.0) == pytest.approx(2 * dispersion.spread_for_entropy(10, 0.5))


def test_traced_arrays_agree_with_float64_and_have_the_implicit_gradient():
    n, entropy = np.array([3.0, 50.0, 1e5]), np.array([1.0, 2.0, 5.0])
    expected = dispersion.spread_for_entropy(n, entropy)
    got = jax.jit(dispersion.spread_for_entropy)(jnp.asarray(n, jnp.float32), jnp.asarray(entropy, jnp.float32))
    np.testing.assert_allclose(got, expected, rtol=1e-5)  # log n − H in float32 loses up to 1e-6
    with enable_x64(True):
        slope = jax.vmap(jax.grad(dispersion.spread_for_entropy, argnums=1))(jnp.asarray(n), jnp.asarray(entropy))
        step = 1e-6
        difference = dispersion.spread_for_entropy(n, entropy + step) - dispersion.spread_for_entropy(n, entropy - step)
        np.testing.assert_allclose(slope, difference / (2 * step), rtol=1e-7)


def test_arguments_out_of_range_are_named():
    with pytest.raises(ValueError, match="entropy must be finite and not negative: pass nats; got -1"):
        dispersion.spread_for_entropy(4, -1.0)
    with pytest.raises(ValueError, match="n must be at least 1"):
        dispersion.spread_for_entropy(0, 1.0)
    with pytest.raises(ValueError, match="temperature must be positive"):
        dispersion.log_size_for_entropy_above(1.0, 2.0, 0.0)

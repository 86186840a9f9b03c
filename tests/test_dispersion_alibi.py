"""ALiBi's floor for the nearest key and ceiling for a far one: attained, and not to be beaten."""

from __future__ import annotations

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import minimize

from adatemp import dispersion

slopes, spreads, temperatures = st.floats(0.01, 3.0), st.floats(0.0, 20.0), st.floats(0.1, 5.0)


def weights(content, slope, temperature=1.0):
    """Keys by distance, the nearest first."""
    z = (content - slope * np.arange(len(content))) / temperature
    powers = np.exp(z - z.max())
    return powers / powers.sum()


@pytest.mark.result("prop-ch04-alibi")
@given(st.integers(1, 300), slopes, spreads, temperatures)
def test_the_floor_is_attained_by_the_worst_content(n, slope, spread, temperature):
    content = np.full(n, spread)
    content[0] = 0.0
    floor = dispersion.alibi_floor(slope, spread, temperature, n)
    assert weights(content, slope, temperature)[0] == pytest.approx(floor, rel=1e-11)
    assert dispersion.alibi_floor(slope, spread, temperature) <= floor * (1 + 1e-12)


@given(st.integers(1, 300), st.floats(0, 0.999), slopes, spreads, temperatures)
def test_the_ceiling_is_attained_by_the_best_content(n, place, slope, spread, temperature):
    k = int(place * n)
    content = np.zeros(n)
    content[k] = spread
    ceiling = dispersion.alibi_ceiling(k, slope, spread, temperature, n)
    assert weights(content, slope, temperature)[k] == pytest.approx(ceiling, rel=1e-9, abs=1e-300)


@pytest.mark.result("prop-ch04-alibi")
@given(st.integers(0, 2**32 - 1))
def test_contents_within_the_spread_stay_between(seed):
    draw = np.random.default_rng(seed)
    n, slope, spread = int(draw.integers(2, 40)), draw.uniform(0.02, 2), draw.uniform(0, 10)
    w = weights(spread * draw.beta(0.2, 0.2, n), slope)
    assert w[0] >= dispersion.alibi_floor(slope, spread, n=n) * (1 - 1e-12)
    assert (w <= dispersion.alibi_ceiling(np.arange(n), slope, spread, n=n) * (1 + 1e-12)).all()


def test_no_ascent_on_the_violation_gets_past_the_bounds():
    n, slope, spread = 12, 0.3, 3.0
    for key, sign in [(0, 1.0), (5, -1.0)]:

        def value_and_slope(content, key=key, sign=sign):
            w = weights(content, slope)
            return sign * w[key], sign * w[key] * ((np.arange(n) == key) - w)

        starts = np.random.default_rng(0).uniform(0, spread, (20, n))
        bounds = [(0.0, spread)] * n
        found = min(minimize(value_and_slope, x, jac=True, method="L-BFGS-B", bounds=bounds).fun for x in starts)
        bound = (
            dispersion.alibi_floor(slope, spread, n=n) if key == 0 else dispersion.alibi_ceiling(5, slope, spread, n=n)
        )
        assert sign * found >= sign * bound - 1e-12 if sign > 0 else -found <= bound + 1e-12
        assert abs(found) == pytest.approx(bound, rel=1e-6)  # the search is not a weak one


@pytest.mark.result("prop-ch04-alibi")
def test_the_floor_does_not_know_n_and_the_ceiling_falls_exponentially():
    assert dispersion.alibi_floor(0.25, 2.0) == pytest.approx(0.0370, abs=5e-5)
    for n in (10**2, 10**4, 10**6):
        assert dispersion.alibi_floor(0.25, 2.0, n=n) == pytest.approx(0.0370, abs=5e-5)
    assert dispersion.alibi_ceiling(1000, 0.25, 2.0) < np.exp(2.0 - 250.0)
    assert dispersion.alibi_ceiling(10**6, 0.25, 2.0) == 0.0  # e^250000 under the fraction bar, without a warning


def test_traced_arrays_agree_with_float64():
    got = jax.jit(dispersion.alibi_floor)(jnp.array([0.1, 1.0]), jnp.array([2.0, 5.0]))
    np.testing.assert_allclose(got, dispersion.alibi_floor([0.1, 1.0], [2.0, 5.0]), rtol=1e-5)
    got = jax.jit(dispersion.alibi_ceiling)(jnp.array([3.0, 40.0]), jnp.array([0.1, 1.0]), jnp.array([2.0, 5.0]))
    np.testing.assert_allclose(got, dispersion.alibi_ceiling([3, 40], [0.1, 1.0], [2.0, 5.0]), rtol=1e-4)
    slope = jax.grad(lambda d: dispersion.alibi_floor(0.25, d))(2.0)
    difference = (dispersion.alibi_floor(0.25, 2.0 + 1e-6) - dispersion.alibi_floor(0.25, 2.0 - 1e-6)) / 2e-6
    assert slope == pytest.approx(difference, rel=1e-4)


def test_arguments_out_of_range_are_named():
    with pytest.raises(ValueError, match="slope must be positive and finite: pass what ALiBi takes.*got -0.5"):
        dispersion.alibi_floor(-0.5, 1.0)
    with pytest.raises(ValueError, match="distance must be below n.*got 5 for n=5"):
        dispersion.alibi_ceiling(5, 0.5, 1.0, n=5)

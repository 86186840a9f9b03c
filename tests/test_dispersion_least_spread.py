"""The bounds on a weight and on the distance from uniform, read backwards: inverses, attained, and broken by no row."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from adatemp import dispersion


def softmax(logits, temperature=1.0):
    powers = np.exp((logits - logits.max(-1, keepdims=True)) / temperature)
    return powers / powers.sum(-1, keepdims=True)


@given(st.integers(2, 10**9), st.floats(1e-6, 0.999), st.floats(0.05, 20.0))
def test_the_spread_for_a_weight_is_the_one_whose_bound_it_is(n, share, temperature):
    weight = 1 / n + share * (1 - 1 / n)
    spread = dispersion.spread_for_weight(n, weight, temperature)
    # 1 − w is known to 1e-16, so at w = 0.999 to thirteen digits
    assert dispersion.weight_bounds(n, spread, temperature)[1] == pytest.approx(weight, rel=1e-12)


@pytest.mark.result("cor-ch03-least")
@given(st.integers(2, 60), st.floats(0.0, 12.0), st.floats(0.1, 5.0), st.integers(0, 2**32 - 1))
def test_no_row_has_its_top_weight_or_its_distance_with_less_spread(n, scaled, temperature, seed):
    draw = np.random.default_rng(seed)
    rows = scaled * temperature * draw.uniform(size=(20, n)) ** draw.choice([0.1, 1.0, 10.0], (20, 1))
    weights, spreads = softmax(rows, temperature), np.ptp(rows, -1)
    slack = 1e-9 * temperature  # 1 − w keeps ten digits at κ = e¹², and artanh as many
    assert (dispersion.spread_for_weight(n, weights.max(-1), temperature) <= spreads + slack).all()
    distance = 0.5 * np.abs(weights - 1 / n).sum(-1)
    assert (dispersion.spread_for_distance(distance, temperature) <= spreads + slack).all()


@given(st.floats(0.0, 30.0), st.floats(0.1, 10.0))
def test_the_spread_for_the_largest_distance_is_the_spread(scaled, temperature):
    distance = dispersion.distance_ceiling(scaled * temperature, temperature)
    found = dispersion.spread_for_distance(distance, temperature)
    # 1 − tanh(s/4) is near 2e^(−s/2), of which 1e-16 is left unknown
    assert found == pytest.approx(
        scaled * temperature, rel=1e-12, abs=temperature * (1e-14 + 1e-15 * math.exp(scaled / 2))
    )


@pytest.mark.parametrize("m", [2, 3, 7])
def test_two_levels_attain_the_largest_distance(m):
    """√κ = m asks for one item in 1 + m to be high."""
    for groups in (1, 4, 1_000):
        n = groups * (1 + m)
        weights = softmax(np.where(np.arange(n) < groups, 2 * math.log(m), 0.0))
        distance = 0.5 * np.abs(weights - 1 / n).sum()
        assert distance == pytest.approx(dispersion.distance_ceiling(2 * math.log(m)), rel=1e-12)


def test_weights_that_every_row_has_need_no_spread():
    spreads = dispersion.spread_for_weight([1, 4, 4, 1000], [0.5, 0.25, 0.1, 0.001])
    np.testing.assert_allclose(spreads, 0.0, atol=1e-15)  # at w = 1/n the odds times n − 1 round to 1
    assert dispersion.spread_for_distance(0.0) == 0.0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: dispersion.spread_for_weight(100.0, x, 0.7),
        lambda x: dispersion.spread_for_distance(x, 0.7),
        lambda x: dispersion.distance_ceiling(x, 0.7),
    ],
)
def test_jit_vmap_and_grad_agree_with_float64(function):
    x = np.array([0.05, 0.3, 0.9])
    expected = function(x)
    assert expected.dtype == np.float64
    traced = jax.jit(jax.vmap(function))(jnp.asarray(x, jnp.float32))
    assert traced.dtype == jnp.float32
    np.testing.assert_allclose(traced, expected, rtol=1e-5)  # float32, and 1 − 0.9
    slope = jax.vmap(jax.grad(function))(jnp.asarray(x, jnp.float32))
    difference = (function(x + 1e-6) - function(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(slope, difference, rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dispersion.spread_for_weight(0, 0.5), r"n must be at least 1"),
        (lambda: dispersion.spread_for_weight(5, 1.0), r"weight must be a weight in the open interval.*got 1"),
        (lambda: dispersion.spread_for_weight(5, 0.5, 0.0), r"temperature must be positive"),
        (lambda: dispersion.spread_for_distance(1.0), r"distance must be in \[0, 1\).*got 1"),
        (lambda: dispersion.spread_for_distance(-0.1), r"distance must be in \[0, 1\).*got -0\.1"),
        (lambda: dispersion.distance_ceiling(-1.0), r"spread must be finite and not negative"),
    ],
)
def test_arguments_out_of_range_are_named_with_the_remedy(call, message):
    with pytest.raises(ValueError, match=message):
        call()

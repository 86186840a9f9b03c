"""Newton's rule: its step, the slope it rests on, where it lands, and what its constructor refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import adaptive_temperature_softmax, constant, newton
from adatemp._compat import enable_x64
from adatemp.temperature import RowStatistics


def moments(z, beta=1.0):
    """Entropy of softmax(beta z) and variance of z under it, in float64 numpy."""
    t = beta * (z - z.max(-1, keepdims=True))
    p = np.exp(t) / np.exp(t).sum(-1, keepdims=True)
    mean = (p * z).sum(-1, keepdims=True)
    return -(p * np.log(p + 1e-300)).sum(-1), (p * (z - mean) ** 2).sum(-1)


ROWS = np.random.default_rng(0).normal(size=(6, 40)) * np.linspace(0.5, 6, 6)[:, None]


def test_the_slope_of_the_entropy_in_log_beta_is_minus_beta_squared_times_the_variance():
    for beta in (0.5, 1.0, 3.0):
        up, down = moments(ROWS, beta * np.exp(1e-5))[0], moments(ROWS, beta * np.exp(-1e-5))[0]
        np.testing.assert_allclose((up - down) / 2e-5, -(beta**2) * moments(ROWS, beta)[1], rtol=1e-6, atol=1e-8)


def test_beta_is_one_step_with_a_slope_of_at_least_one():
    entropy, variance = moments(ROWS)
    assert (variance < 1).any() and (variance > 1).any()
    want = np.exp(np.maximum(0, entropy - 0.7) / np.maximum(variance, 1))
    _, stats = adaptive_temperature_softmax(np.float32(ROWS), temperature=newton(0.7), return_stats=True)
    np.testing.assert_allclose(stats.beta, want, rtol=2e-5)


def test_it_never_blunts_and_stops_at_its_limit():
    stats = RowStatistics(entropy=jnp.float32([0.5, 1.0, 4.0, 9.0]), variance=jnp.float32([2.0, 0.0, 3.0, 0.5]))
    np.testing.assert_allclose(newton(1.0).beta(stats), [1, 1, np.e, np.exp(8)], rtol=1e-6)
    np.testing.assert_allclose(newton(1.0, beta_max=5.0).beta(stats), [1, 1, np.e, 5], rtol=1e-6)


@pytest.mark.parametrize("n", [2_000, 20_000])
def test_evenly_spread_logits_land_on_the_target_at_every_size(n):
    z = np.linspace(-100, 0, n)  # the entropy is 1 + log(n / 100), the variance 1
    _, stats = adaptive_temperature_softmax(np.float32(z), temperature=newton(1.5), return_stats=True)
    assert moments(z, float(stats.beta))[0] == pytest.approx(1.5, abs=0.03)


def test_gradients_are_those_of_finite_differences():
    with enable_x64(True):
        z, w = jnp.asarray(ROWS[3]), jnp.asarray(np.random.default_rng(1).normal(size=40))

        def f(z, target):
            return jnp.sum(w * adaptive_temperature_softmax(z, temperature=newton(target)))

        got = jax.grad(f, (0, 1))(z, 0.4)
        d = np.random.default_rng(2).normal(size=40)
        along = (f(z + 1e-6 * d, 0.4) - f(z - 1e-6 * d, 0.4)) / 2e-6
        assert float(got[0] @ d) == pytest.approx(float(along), rel=1e-6)
        assert float(got[1]) == pytest.approx(float((f(z, 0.4 + 1e-6) - f(z, 0.4 - 1e-6)) / 2e-6), rel=1e-6)
        _, stats = adaptive_temperature_softmax(z, temperature=newton(0.4), return_stats=True)
        stopped, fixed = (
            jax.grad(lambda z, rule=rule: jnp.sum(w * adaptive_temperature_softmax(z, temperature=rule)))(z)
            for rule in (newton(0.4, differentiate=False), constant(float(stats.beta)))
        )
        np.testing.assert_allclose(stopped, fixed, atol=1e-12)


def test_a_dead_row_has_beta_one_and_a_row_of_equal_logits_the_step_of_slope_one():
    z = jnp.stack([jnp.full(8, -jnp.inf), jnp.zeros(8)])
    weights, stats = adaptive_temperature_softmax(z, temperature=newton(1.0), return_stats=True)
    np.testing.assert_array_equal(weights[0], 0)
    np.testing.assert_allclose(weights[1], 1 / 8, rtol=1e-6)
    np.testing.assert_allclose(stats.beta, [1, np.exp(np.log(8) - 1)], rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        (lambda: newton(np.nan), ValueError, "target must be finite"),
        (lambda: newton("1"), TypeError, "target must be a number or an array of numbers, got '1'"),
        (
            lambda: newton(1.0, beta_max=0.9),
            ValueError,
            "beta_max must be at least 1, got 0.9; this rule only",
        ),
        (lambda: newton(1.0, beta_max=[2.0]), TypeError, "beta_max chooses code"),
    ],
)
def test_it_refuses_what_cannot_be_meant(make, error, named):
    with pytest.raises(error, match=named):
        make()

"""Sparsemax and 1.5-entmax: thresholds, supports, ties, and the gradient of the exact solution."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from row_oracle import rows
from variant_oracle import entmax

from adatemp import variants
from adatemp._compat import enable_x64

BOTH = {"sparsemax": (variants.sparsemax, 2.0), "entmax15": (variants.entmax15, 1.5)}


project = jax.jit(jax.vmap(optax.projections.projection_simplex))
both = jax.jit(lambda z: (variants.sparsemax(z), variants.entmax15(z)))


@given(rows(widest=3.0))
def test_sparsemax_is_the_projection_that_optax_has(z):
    # One row at a time and without masks, so it serves as the oracle and not as the implementation.
    z = z - z.max(-1, keepdims=True)  # its running sums lose the digits of a common offset
    np.testing.assert_allclose(both(z)[0], project(z), atol=2e-6)


@given(rows(shape=(3, 9), widest=2.0))
def test_weights_meet_the_optimality_conditions(z):
    """Of p maximising p.z + the Tsallis entropy: z_i - p_i^(alpha - 1) / (alpha - 1) equal where p > 0, else less."""
    for alpha, p in zip((2.0, 1.5), map(np.asarray, both(z))):
        multiplier = z.astype(np.float64) - p.astype(np.float64) ** (alpha - 1) / (alpha - 1)
        for row, weight in zip(multiplier, p):
            level = row[weight > 0]
            scale = 3e-7 * (1 + np.abs(z).max())
            if alpha == 1.5:  # a square root near 0 magnifies the rounding of a weight
                level = row[weight > 1e-6]
                scale += 1e-4
            assert np.ptp(level) <= 4 * scale
            assert np.all(row[weight == 0] <= level.min() + 4 * scale)


@pytest.mark.parametrize("name", BOTH)
def test_the_support_lies_within_its_distance_of_the_largest_logit(name):
    function, alpha = BOTH[name]
    reach = 1 / (alpha - 1)
    for gap, alone in ((reach * 1.001, True), (reach * 0.999, False)):
        weights = function(jnp.array([0.0, -gap]))
        assert (float(weights[1]) == 0) is alone
    assert float(function(jnp.array([7.0]))[0]) == 1


@pytest.mark.parametrize("name", BOTH)
def test_ties_share_evenly_whatever_their_number(name):
    function, alpha = BOTH[name]
    ties = np.array([[1], [2], [3], [7], [1000]])
    tied = np.arange(1005) < ties
    np.testing.assert_allclose(function(jnp.where(tied, 0.3, -4.0)), tied / ties, rtol=3e-6)
    # Ties at the threshold itself: two keys just reached by the first get nothing.
    edge = function(jnp.array([0.0, -1 / (alpha - 1), -1 / (alpha - 1)]))
    np.testing.assert_array_equal(edge, [1, 0, 0])
    # Ties inside the support, with float64 bisection as the oracle.
    z = np.array([0.5, 0.5, 0.25, 0.25, 0.25, -0.125, -3.0])
    np.testing.assert_allclose(function(jnp.asarray(z, jnp.float32)), entmax(z, alpha), atol=3e-7)


def test_more_keys_share_as_n_grows_where_priorities_are_uniform():
    for function, _ in BOTH.values():
        few, many = (int((function(jnp.linspace(0, 40, n)) > 0).sum()) for n in (100, 10_000))
        assert many > 3 * few


def implicit(z, alpha):
    """alpha-entmax in float64 as automatic differentiation sees it: bisection, then one Newton step on the threshold.

    The step changes nothing but the derivative, which it makes that of the exact solution.
    """
    x = (alpha - 1) * z
    power = 1 / (alpha - 1)
    constant = jax.lax.stop_gradient(x)

    def halve(_, bracket):
        tau = sum(bracket) / 2
        heavy = jnp.sum(jnp.maximum(0, constant - tau) ** power) > 1
        return jnp.where(heavy, tau, bracket[0]), jnp.where(heavy, bracket[1], tau)

    tau = sum(jax.lax.fori_loop(0, 80, halve, (jnp.max(constant) - 1, jnp.max(constant)))) / 2
    above = jnp.where(x > tau, x - tau, 0)
    kept = jnp.where(x > tau, above, 1)  # so that no power of 0 is differentiated
    slope = jax.lax.stop_gradient(power * jnp.sum(jnp.where(x > tau, kept ** (power - 1), 0)))
    tau = tau + (jnp.sum(jnp.where(x > tau, kept**power, 0)) - 1) / slope
    return jnp.where(x > jax.lax.stop_gradient(tau), jnp.maximum(x - tau, 0) ** power, 0)


@pytest.mark.parametrize("name", BOTH)
def test_the_jacobian_is_that_of_the_bisected_solution(name):
    function, alpha = BOTH[name]
    z = np.random.default_rng(0).normal(size=(6, 7)) * np.array([0.2, 0.5, 1, 1, 2, 4])[:, None]
    with enable_x64(True):
        got = np.asarray(jax.jit(jax.vmap(jax.jacrev(function)))(z))
        want = np.asarray(jax.jit(jax.vmap(jax.jacfwd(lambda z: implicit(z, alpha))))(z))
        weights = np.asarray(function(jnp.asarray(z)))
    np.testing.assert_allclose(got, want, atol=1e-9)
    out = weights == 0
    assert out.any() and (~out).sum(-1).min() >= 1
    assert np.all(got[out] == 0) and np.all(np.swapaxes(got, 1, 2)[out] == 0)  # rows and columns off the support
    np.testing.assert_allclose(got.sum(-1), 0, atol=1e-12)  # a common offset moves nothing


def test_second_derivatives_of_entmax_are_those_of_differences():
    z = jnp.array([0.3, 0.0, -0.2, -5.0])
    c = np.array([1.0, -2.0, 0.5, 3.0])
    with enable_x64(True):
        z = jnp.asarray(z, jnp.float64)
        gradient = jax.jit(jax.grad(lambda z: c @ variants.entmax15(z)))
        hessian = jax.jit(jax.hessian(lambda z: c @ variants.entmax15(z)))(z)
        h = 1e-6
        want = [(gradient(z + h * e) - gradient(z - h * e)) / (2 * h) for e in np.eye(4)]
    np.testing.assert_allclose(hessian, np.stack(want), atol=1e-8)

"""The target-entropy rule reaches its target where it can, and does what it says where it cannot."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from row_oracle import oracle

from adatemp import adaptive_temperature_softmax, target_entropy
from adatemp._compat import enable_x64


def solve(z, rule):
    return jax.device_get(adaptive_temperature_softmax(z, temperature=rule, return_stats=True))


def reached(z, beta):
    return oracle(np.asarray(beta, np.float64)[:, None] * np.asarray(z, np.float64)).entropy


RNG = np.random.default_rng(0)
Z = np.concatenate([RNG.normal(size=(6, 100)) * scale for scale in (0.01, 0.3, 3.0)])
Z[0] = np.linspace(0, 1e-2, 100)  # needs beta of some thousands


@pytest.mark.parametrize("target", [0.05, 0.7, 2.0, 4.0])
def test_rows_above_the_target_are_brought_to_it(target):
    with enable_x64(True):
        _, stats = solve(Z, target_entropy(target))
    above = stats.entropy > target
    assert above.sum() >= 10
    np.testing.assert_allclose(reached(Z, stats.beta)[above], target, atol=1e-12)
    assert np.all(stats.beta[~above] == 1)


def test_in_float32_the_target_is_met_to_float32():
    z = Z.astype(np.float32)
    _, stats = solve(z, target_entropy(1.0))
    above = stats.entropy > 1
    np.testing.assert_allclose(reached(z, stats.beta)[above], 1.0, atol=5e-6)


def test_beta_is_homogeneous_so_sharpened_rows_do_not_depend_on_the_scale():
    z, rule = Z[6:].repeat(2, 0)[:18].astype(np.float32) / 4, target_entropy(1.5)
    (weights, stats), (doubled_weights, doubled) = solve(z, rule), solve(2 * z, rule)
    assert np.all(doubled.beta > 1)
    np.testing.assert_allclose(doubled.beta, stats.beta / 2, rtol=1e-5)
    np.testing.assert_allclose(doubled_weights, weights, atol=1e-5)


ROWS = np.float32(
    [
        [1, 1, 1, 1, 1, 1],  # all equal: log 6 at any beta
        [2, 2, 2, 0, 0, 0],  # three tie for the largest: never below log 3
        [2, 2, 0, 0, 0, 0],  # two tie: log 2 < 0.9 can be passed
        [2, 0, 0, 0, 0, 0],  # reachable
        [9, 0, 0, 0, 0, 0],  # below the target already
        [0, 0, 0, 0, 0, 1e-30],  # equal but for a difference that no allowed beta makes count
    ]
)


@pytest.mark.result("prop-ch01-limits")
def test_a_target_out_of_reach_gives_the_limit_and_no_gradient():
    rule = target_entropy(0.9, beta_max=1e4)

    @jax.jit
    def f(z):
        weights, stats = adaptive_temperature_softmax(z, temperature=rule, return_stats=True)
        return (
            weights,
            stats,
            jax.grad(lambda z: adaptive_temperature_softmax(z, temperature=rule, return_stats=True)[1].beta.sum())(z),
        )

    weights, stats, gradient = jax.device_get(f(ROWS))
    assert stats.beta[[0, 1, 5]].tolist() == [1e4] * 3
    assert 1 < stats.beta[2] < 1e4 and 1 < stats.beta[3] < 1e4
    assert stats.beta[4] == 1
    np.testing.assert_allclose(reached(ROWS[2:4], stats.beta[2:4]), 0.9, atol=1e-5)
    np.testing.assert_allclose(weights[0], 1 / 6, rtol=1e-6)
    np.testing.assert_allclose(weights[1], [1 / 3] * 3 + [0] * 3, rtol=1e-6)
    assert np.all(gradient[[0, 1, 4, 5]] == 0)
    assert np.all(np.abs(gradient[[2, 3], 0]) > 1e-2)


def test_with_a_lower_limit_below_one_sharp_rows_are_blunted():
    _, stats = solve(ROWS[3:5], target_entropy(0.9, beta_min=0.01))
    assert stats.beta[1] < 1
    np.testing.assert_allclose(reached(ROWS[3:5], stats.beta), 0.9, atol=1e-5)


def test_a_dead_row_gives_the_target_no_gradient():
    """Compiled, a product may be fused with the subtraction of its own rounded value, which is then not 0."""
    z = jnp.arange(8.0).reshape(2, 4)
    where = jnp.array([[True] * 4, [False] * 4])

    def beta(entropy, rows):
        rule = target_entropy(entropy, beta_max=50.0)
        stats = adaptive_temperature_softmax(z[rows], where=where[rows], temperature=rule, return_stats=True)[1]
        return stats.beta.sum()

    gradients = [jax.grad(beta)(jnp.float32(0.9), jnp.array(rows)) for rows in ([0, 1], [0], [1])]
    assert gradients[2] == 0
    assert gradients[0] == gradients[1] != 0

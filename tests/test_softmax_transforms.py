"""adaptive_temperature_softmax under vmap, scan, remat and their combinations, and rules as arguments."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import PAPER, adaptive_temperature_softmax, constant, log_ratio, polynomial

Z = np.random.default_rng(0).normal(size=(3, 4, 9)).astype(np.float32)


def softmax(z, rule=PAPER, **keywords):
    return adaptive_temperature_softmax(z, temperature=rule, **keywords)


def close(got, want):
    # The compiler may sum in another order; beta times a difference of logits amplifies a unit to some 1e-6.
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize(("in_axis", "axis"), [(1, 0), (2, -1)])
def test_vmap_over_any_axis(in_axis, axis):
    got = jax.vmap(lambda z: softmax(z, axis=axis), in_axes=in_axis, out_axes=in_axis)(Z)
    others = [a for a in range(3) if a != in_axis]
    close(got, softmax(Z, axis=others[axis]))


def test_vmap_over_the_parameters_of_a_rule():
    betas = np.array([0.5, 1.0, 3.0], np.float32)
    got = jax.vmap(lambda z, beta: softmax(z, constant(beta)))(Z, betas)
    close(got, jax.nn.softmax(betas[:, None, None] * Z, -1))
    rules = constant(betas)
    close(jax.vmap(softmax)(Z, rules), got)


def test_a_parameter_for_each_head_broadcasts_against_the_rows():
    betas = np.array([[0.5], [1.0], [3.0]], np.float32)  # heads [3, 1] against rows [3, 4]
    close(softmax(Z, constant(betas)), jax.nn.softmax(betas[..., None] * Z, -1))
    coefficients = np.stack([np.full((3, 1), c) for c in (-0.037, 0.481, -2.3, 4.917, -1.791)])
    close(softmax(Z, polynomial(coefficients)), softmax(Z))


def test_gradient_of_scan_of_remat_is_the_plain_gradient():
    def direct(z, rule):
        for _ in range(3):
            z = jnp.sin(3 * softmax(z, rule)) + z
        return jnp.sum(z**2)

    @jax.checkpoint
    def step(z, rule):
        return jnp.sin(3 * softmax(z, rule)) + z

    def scanned(z, rule):
        return jnp.sum(jax.lax.scan(lambda z, _: (step(z, rule), None), z, length=3)[0] ** 2)

    want, got = (jax.jit(jax.grad(f, argnums=(0, 1)))(Z[0], PAPER) for f in (direct, scanned))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


def test_eager_and_jitted_gradients_agree():
    def f(z):
        return jnp.vdot(softmax(z), softmax(z))

    np.testing.assert_allclose(jax.grad(f)(Z[0]), jax.jit(jax.grad(jax.jit(f)))(Z[0]), rtol=2e-5, atol=1e-7)


def test_a_rule_keeps_its_kind_through_a_gradient_step():
    rule = polynomial((-0.037, 0.481, -2.3, 4.917, -1.791), differentiate=False)
    moved = jax.tree.map(lambda leaf: leaf + 1, rule)
    assert type(moved) is type(rule)
    assert (moved.threshold, moved.range, moved.differentiate) == (rule.threshold, rule.range, False)
    np.testing.assert_allclose(moved.coefficients, np.asarray(rule.coefficients) + 1)


def test_it_compiles_once_for_rules_that_differ_in_value_only():
    traces = []

    @jax.jit
    def f(z, rule):
        traces.append(None)
        return softmax(z, rule)

    for beta in (1.0, 2.0, 3.0):
        f(Z, constant(beta))
    assert len(traces) == 1


def test_it_works_where_no_dtype_is_promoted_implicitly():
    with jax.numpy_dtype_promotion("strict"):
        for rule in (None, PAPER, log_ratio(4)):
            weights, stats = softmax(jnp.asarray(Z[0], jnp.bfloat16), rule, return_stats=True)
            assert weights.dtype == jnp.bfloat16 and stats.beta.dtype == jnp.float32

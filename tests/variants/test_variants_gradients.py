"""Derivatives of every variant: finite differences, both modes, nothing from or to hidden keys, and the parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from variant_oracle import VARIANTS, compiled, definition, every

from adatemp import variants
from adatemp._compat import enable_x64

# Away from every kink: no logit near 0, no key about to enter or leave a support. The last row is dead.
RNG = np.random.default_rng(4)
Z = RNG.normal(size=(5, 9)) * np.array([0.3, 1, 1, 3, 1])[:, None]
KEEP = RNG.uniform(size=(5, 9)) < 0.8
KEEP[4] = False
Z[~KEEP] = np.nan
Z[1, np.flatnonzero(KEEP[1])[2]] = -np.inf
COTANGENT = RNG.normal(size=(5, 9))


def derivatives(z):
    """Jacobians [key, *rows, weight] forwards, and the gradient of a sum backwards, of every variant."""
    found = {}
    for name, (function, _) in VARIANTS.items():

        def weights(z, function=function):
            return function(z, axis=-1, where=KEEP)

        def along(direction, weights=weights):
            return jax.jvp(weights, (z,), (jnp.broadcast_to(direction, z.shape),))[1]

        forwards = jax.vmap(along)(jnp.eye(9, dtype=z.dtype))
        found[name] = forwards, jax.grad(lambda z, w=weights: jnp.sum(COTANGENT * w(z)))(z)
    return found


def test_the_derivative_is_that_of_finite_differences_in_both_modes_and_0_at_hidden_keys():
    h = 1e-6
    with enable_x64(True):
        found = jax.device_get(compiled(derivatives, jax.ShapeDtypeStruct(Z.shape, np.float64))(Z))
    moved = np.stack([Z + sign * h * np.eye(9)[key] for key in range(9) for sign in (1, -1)])
    for name, (forwards, backwards) in found.items():
        up, down = definition(name, moved, KEEP).reshape(9, 2, 5, 9).swapaxes(0, 1)
        np.testing.assert_allclose(forwards, (up - down) / (2 * h), atol=2e-9, err_msg=name)
        by_key = np.einsum("krn,rn->rk", forwards, COTANGENT)
        np.testing.assert_allclose(backwards, by_key, atol=1e-12, err_msg=name)
        hidden = ~KEEP | (Z == -np.inf)
        assert np.all(backwards[hidden] == 0), name
        assert np.all(forwards[:, hidden] == 0), name
    assert np.all(found["hard"][1] == 0)


def test_parameters_have_their_gradients():
    z = 2 * np.random.default_rng(5).normal(size=(3, 7))
    keep = np.arange(7) < np.array([[7], [4], [0]])
    coefficient = np.random.default_rng(6).normal(size=z.shape)
    cases = {
        "sink": (lambda x: variants.sink_softmax(z, x, where=keep), np.array([0.5, -1.0, 2.0])),
        "bias": (lambda x: variants.sigmoid(z, x, where=keep), np.array([0.5, -1.0, 2.0])),
        "scale": (lambda x: variants.scalable_softmax(z, x, 0.3, where=keep), np.array([0.5, 0.9, 1.0])),
        "offset": (lambda x: variants.scalable_softmax(z, 0.7, x, where=keep), np.array([0.5, 0.9, 1.0])),
    }
    h = 1e-6
    with enable_x64(True):
        z = jnp.asarray(z)
        for name, (weights, x) in cases.items():
            value = jax.jit(lambda x, w=weights: jnp.sum(coefficient * w(x), -1))
            got = jax.jit(jax.grad(lambda x, v=value: jnp.sum(v(x))))(x)
            np.testing.assert_allclose(got, (value(x + h) - value(x - h)) / (2 * h), atol=1e-8, err_msg=name)
            assert got[2] == 0, name  # a dead row


def test_second_derivatives_are_those_of_differences():
    z = np.array([0.4, 0.2, -0.3, 1.0])
    c = np.array([1.0, -2.0, 0.5, 3.0])
    names = ("sink", "softpick", "sigmoid", "stick_breaking", "scalable", "top_k")

    def gradients(z):
        return [jax.grad(lambda z, f=VARIANTS[name][0]: c @ f(z))(z) for name in names]

    h = 1e-6
    with enable_x64(True):
        z = jnp.asarray(z, jnp.float64)
        first = jax.jit(gradients)
        moved = [np.stack(x) for x in zip(*(first(z + sign * h * e) for e in np.eye(4) for sign in (1, -1)))]
        for name, second, m in zip(names, jax.jit(jax.jacrev(gradients))(z), moved):
            np.testing.assert_allclose(second, (m[::2] - m[1::2]) / (2 * h), atol=2e-8, err_msg=name)


def test_vmap_over_rows_is_the_batch():
    z, keep = np.where(KEEP, np.nan_to_num(Z, neginf=-1.0), 0).astype(np.float32)[2:], KEEP[2:]

    def by_row(z, keep):
        return {name: jax.vmap(lambda z, k, f=f: f(z, axis=-1, where=k))(z, keep) for name, (f, _) in VARIANTS.items()}

    rows = jax.device_get(compiled(by_row, z, keep)(z, keep))
    for name, weights in every(z, keep):
        np.testing.assert_allclose(rows[name], weights, rtol=2e-5, atol=1e-7, err_msg=name)


def test_gradients_of_long_rows_are_those_of_the_plain_formulas():
    # Long enough that sums are taken in pieces.
    z = np.random.default_rng(8).normal(size=(2, 700))
    c = np.random.default_rng(9).normal(size=700)

    def plain_sink(z):
        return jax.nn.softmax(jnp.append(z, 0.5))[:-1]

    def plain_softpick(z):
        return jax.nn.relu(jnp.exp(z) - 1) / (1e-8 + jnp.sum(jnp.abs(jnp.exp(z) - 1)))

    pairs = ((lambda z: variants.sink_softmax(z, 0.5), plain_sink), (variants.softpick, plain_softpick))
    with enable_x64(True):
        for function, plain in pairs:
            got, want = (jax.jit(jax.vmap(jax.grad(lambda z, f=f: c @ f(z))))(z) for f in (function, plain))
            np.testing.assert_allclose(got, want, atol=1e-12)

"""Certified radii: no input in the ball leaves the next one, some reach its rim, and n does not enter."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import dispersion
from adatemp._compat import enable_x64

D, N, K, W = 5, 4, 2, 3
R = 2.5
DRAW = np.random.default_rng(0)
GAIN, BIAS = DRAW.uniform(-2, 2, D), DRAW.normal(size=D)
KERNELS = [DRAW.normal(size=(D, 8)), DRAW.normal(size=(8, D))]
BIASES = [DRAW.normal(size=8), DRAW.normal(size=D)]
GATE, UP, DOWN = DRAW.normal(size=(D, 7)), DRAW.normal(size=(D, 7)), DRAW.normal(size=(7, D))
VALUE, OUT = DRAW.normal(size=(D, K, W)), DRAW.normal(size=(N, W, D))


def layer_norm(x, epsilon):
    x = x - x.mean(-1, keepdims=True)
    return GAIN * x / jnp.sqrt((x**2).mean(-1, keepdims=True) + epsilon) + BIAS


def rms_norm(x, epsilon):
    return GAIN * x / jnp.sqrt((x**2).mean(-1, keepdims=True) + epsilon)


def mlp(x, activation):
    return activation(x @ KERNELS[0] + BIASES[0]) @ KERNELS[1] + BIASES[1]


def gated(x, activation):
    return (activation(x @ GATE) * (x @ UP)) @ DOWN


MAPS = {
    "layer norm": (lambda x: layer_norm(x, 0.1), dispersion.layer_norm_radius(R, GAIN, BIAS, epsilon=0.1), 0.8),
    "layer norm without epsilon": (lambda x: layer_norm(x, 0.0), dispersion.layer_norm_radius(R, GAIN, BIAS), 0.8),
    "rms norm": (lambda x: rms_norm(x, 0.1), dispersion.rms_norm_radius(R, GAIN, epsilon=0.1), 0.999),
    "affine": (lambda x: x @ KERNELS[0] + BIASES[0], dispersion.affine_radius(R, KERNELS[0], BIASES[0]), 0.6),
    "linear": (lambda x: x @ KERNELS[0], dispersion.affine_radius(R, KERNELS[0]), 0.999),
    "gelu mlp": (lambda x: mlp(x, jax.nn.gelu), dispersion.mlp_radius(R, KERNELS, BIASES, activation="gelu"), 0.2),
    "tanh mlp": (lambda x: mlp(x, jnp.tanh), dispersion.mlp_radius(R, KERNELS, BIASES, activation="tanh"), 0.2),
    "silu gate": (lambda x: gated(x, jax.nn.silu), dispersion.gated_mlp_radius(R, GATE, UP, DOWN), 0.05),
    "tanh gate": (
        lambda x: gated(x, jnp.tanh),
        dispersion.gated_mlp_radius(R, GATE, UP, DOWN, activation="tanh"),
        0.05,
    ),
    "residual": (
        lambda x: x + x @ KERNELS[0] @ KERNELS[1],
        dispersion.residual_radius(R, dispersion.mlp_radius(R, KERNELS, activation="identity")),
        0.5,
    ),
}


@pytest.mark.result("prop-ch04-parts")
@pytest.mark.parametrize("name", MAPS)
def test_no_ascent_leaves_the_ball_and_it_gets_a_good_way_to_the_rim(name):
    function, radius, share = MAPS[name]
    with enable_x64(True):

        def inside(x):
            """The ball of radius R, its rim included, as the image of all vectors."""
            return R * x / jnp.maximum(1.0, jnp.linalg.norm(x))

        def length(x):
            return jnp.linalg.norm(function(inside(x)))

        climb = jax.jit(
            jax.vmap(lambda x: x + 0.05 * jax.grad(length)(x) / (1e-9 + jnp.linalg.norm(jax.grad(length)(x))))
        )
        x = jnp.asarray(np.random.default_rng(1).normal(size=(64, D)))
        for _ in range(200):
            x = climb(x)
        found = float(jnp.max(jax.vmap(length)(x)))
    assert share * float(radius) < found <= float(radius) * (1 + 1e-12)


def attention(x, weights, value_bias=0.0, out_bias=0.0):
    """Any weights [N, T, S] that sum to 1 over S."""
    values = np.repeat(np.einsum("sd,dkw->skw", x, VALUE) + value_bias, N // K, 1)
    return np.einsum("nts,snw,nwo->to", weights, values, OUT) + out_bias


@pytest.mark.result("lem-ch04-average")
@pytest.mark.parametrize("n", [1, 10, 1000])
@pytest.mark.parametrize("concentration", [0.01, 1.0])
def test_attention_stays_in_one_ball_whatever_the_weights_and_the_number_of_keys(n, concentration):
    draw = np.random.default_rng(n)
    value_bias, out_bias = draw.normal(size=(K, W)), draw.normal(size=D)
    radius = dispersion.attention_radius(R, VALUE, OUT, value_bias, out_bias)
    x = draw.normal(size=(n, D))
    x *= R / np.linalg.norm(x, axis=1, keepdims=True)
    weights = draw.dirichlet(np.full(n, concentration), size=(N, 6)) if n > 1 else np.ones((N, 6, 1))
    assert np.linalg.norm(attention(x, weights, value_bias, out_bias), axis=-1).max() <= radius * (1 + 1e-12)


@pytest.mark.result("prop-ch04-parts")
def test_the_ball_of_attention_is_nearly_reached_when_each_head_looks_at_its_own_worst_item():
    """Alternating ascent: each head's item is turned towards the present output."""
    maps = np.einsum("dnw,nwo->ndo", np.repeat(VALUE, N // K, 1), OUT)
    best = 0.0
    for start in np.random.default_rng(0).normal(size=(50, D)):
        output = start
        for _ in range(100):
            turned = maps @ output  # [N, D]
            items = R * turned / np.linalg.norm(turned, axis=1, keepdims=True)
            output = np.einsum("nd,ndo->o", items, maps)
        best = max(best, np.linalg.norm(output))
    radius = dispersion.attention_radius(R, VALUE, OUT)
    assert 0.7 * radius < best <= radius * (1 + 1e-12)


@pytest.mark.result("prop-ch04-jumps")
def test_a_bounded_activation_has_a_radius_without_being_continuous():
    assert dispersion.activation_radius(1e9, 16, "sign") == 4.0
    assert dispersion.activation_radius(1e9, 16, "tanh") == 4.0
    assert dispersion.activation_radius(0.5, 16, "tanh") == 0.5
    assert dispersion.activation_radius(0.5, 16, "sigmoid") == 4.0  # sigmoid(0) is a half, so R does not bound it
    with pytest.raises(ValueError, match="activation must be one of.*got 'reciprocal'"):
        dispersion.activation_radius(1.0, 4, "reciprocal")


@pytest.mark.result("prop-ch04-parts")
def test_norms_without_epsilon_do_not_know_the_radius_and_with_it_shrink_to_zero():
    gain = np.ones(D)
    assert dispersion.rms_norm_radius(1e-6, gain) == dispersion.rms_norm_radius(1e6, gain) == math.sqrt(D)
    assert dispersion.rms_norm_radius(1e-6, gain, epsilon=1e-5) == pytest.approx(1e-6 / math.sqrt(1e-5), rel=1e-6)
    assert dispersion.layer_norm_radius(1e9, gain, epsilon=1e-5) == pytest.approx(math.sqrt(D))


def test_traced_radii_agree_and_negative_ones_are_refused():
    got = jax.jit(lambda r: dispersion.attention_radius(r, jnp.asarray(VALUE), jnp.asarray(OUT)))(R)
    np.testing.assert_allclose(got, dispersion.attention_radius(R, VALUE, OUT), rtol=1e-5)
    got = jax.jit(lambda r: dispersion.mlp_radius(r, [jnp.asarray(k) for k in KERNELS], BIASES))(R)
    np.testing.assert_allclose(got, dispersion.mlp_radius(R, KERNELS, BIASES), rtol=1e-5)
    with pytest.raises(ValueError, match="radius must be finite and not negative.*got -1"):
        dispersion.affine_radius(-1.0, KERNELS[0])

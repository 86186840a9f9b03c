"""From a weight to an answer: certified sizes are never above the truth for any read-out, and attained by some."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from adatemp import dispersion
from adatemp._compat import enable_x64


def test_margin_is_the_lead_over_the_best_rival():
    logits = np.array([[1.0, 4.0, 2.5], [0.0, -3.0, 2.0]])
    np.testing.assert_array_equal(dispersion.margin(logits, [1, 0]), [1.5, -2.0])
    np.testing.assert_array_equal(jax.jit(dispersion.margin)(jnp.asarray(logits), jnp.array([1, 0])), [1.5, -2.0])
    with pytest.raises(ValueError, match=r"two classes at least.*\(3, 1\)"):
        dispersion.margin(np.zeros((3, 1)), 0)


def random_read_out(seed, layers=2):
    draw = np.random.default_rng(seed)
    sizes = [5, *[7] * (layers - 1), 4]
    return [draw.normal(size=shape) for shape in zip(sizes, sizes[1:])], draw


def mlp(kernels, z, activation=jax.nn.relu):
    for kernel in kernels[:-1]:
        z = activation(z @ kernel)
    return z @ kernels[-1]


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "silu", "sigmoid"])
def test_no_ascent_finds_a_steeper_logit_than_the_lipschitz_bound(activation):
    """Gradient ascent on the length of a logit's gradient, over the input."""
    kernels, draw = random_read_out(1, layers=3)
    function = getattr(jax.nn, activation)
    bound = dispersion.mlp_lipschitz(kernels, activation)
    with enable_x64(True):

        def steepness(z):
            return jnp.max(jnp.linalg.norm(jax.jacobian(lambda z: mlp(kernels, z, function))(z), axis=-1))

        climb = jax.jit(jax.vmap(lambda z: z + 0.3 * jax.grad(steepness)(z)))
        z = jnp.asarray(draw.normal(size=(50, 5)))
        for _ in range(100):
            z = climb(z)
        found = float(jnp.max(jax.vmap(steepness)(z)))
    assert 0.05 * bound < found <= bound  # a product over layers, so seldom close


def test_slopes_of_the_activations_are_upper_bounds_and_not_loose():
    from adatemp._dispersion.read_out import ACTIVATION_SLOPES

    x = jnp.linspace(-10, 10, 400_001)
    for name, slope in ACTIVATION_SLOPES.items():
        for function in [lambda x: x] if name == "identity" else [getattr(jax.nn, name)]:
            steepest = float(jnp.max(jnp.abs(jax.vmap(jax.grad(function))(x))))
            assert slope / 1.002 < steepest <= slope + 1e-6  # a float32 derivative
    exact = jax.vmap(jax.grad(lambda x: jax.nn.gelu(x, approximate=False)))(x)
    assert float(jnp.max(exact)) <= ACTIVATION_SLOPES["gelu"]


def test_a_linear_read_out_attains_its_lipschitz_constant():
    (kernel,), _ = random_read_out(2, layers=1)
    assert dispersion.mlp_lipschitz([kernel]) == pytest.approx(np.linalg.norm(kernel, axis=0).max())


@pytest.mark.result("thm-ch06-margin")
@pytest.mark.parametrize("seed", range(60))
def test_no_read_out_changes_its_answer_at_or_beyond_the_certified_size(seed):
    kernels, draw = random_read_out(seed, layers=1 + seed % 3)
    spread, temperature = draw.uniform(0, 3), draw.uniform(0.5, 2)
    value_a, value_b = draw.normal(size=(2, 5))
    logits = np.asarray(mlp(kernels, value_b, lambda z: np.maximum(z, 0)))
    answer = int(logits.argmax())
    size = dispersion.certified_size(
        dispersion.margin(logits, answer),
        dispersion.mlp_lipschitz(kernels, "relu"),
        np.linalg.norm(value_a - value_b),
        spread,
        temperature,
    )
    for n in (size, size + 1, 2 * size, 10 * size):
        alpha = 1 / (1 + (n - 1) * math.exp(-spread / temperature))
        pooled = value_b + alpha * (value_a - value_b)
        assert int(np.argmax(mlp(kernels, pooled, lambda z: np.maximum(z, 0)))) == answer


@pytest.mark.result("thm-ch06-margin")
@given(st.floats(0.01, 0.9), st.floats(0.1, 10.0), st.floats(0.0, 6.0))
def test_two_opposite_logits_attain_the_certified_size(margin, slope, spread):
    # B's logit falls by Lx and A's rises by Lx along the segment x from 0 to 1, with the margin between them at 0.
    size = dispersion.certified_size(margin, slope, 1.0, spread)

    def flipped(n):
        return 2 * slope / (1 + (n - 1) * math.exp(-spread)) >= margin

    assert not flipped(size * (1 + 1e-12))
    assert size == 1 or flipped((size - 1) * (1 - 1e-12))


def test_certified_sizes_are_exact_and_their_logarithm_agrees():
    assert dispersion.certified_size(0.5, 1.0, 2.0, 0.0) == 9  # α < 1/8 needs nine equal items
    assert dispersion.certified_size(0.1, 0.2, 0.25, 0.0) == 2  # a weight of exactly 1 does not do, any below does
    assert dispersion.certified_size(1.0, 0.2, 0.25, 50.0) == 1
    assert dispersion.certified_size(1.0, 0.0, 3.0, 50.0) == 1
    sizes = dispersion.certified_size([0.5, 0.2], 1.0, 2.0, 3.0)
    assert sizes.dtype == object and sizes.shape == (2,)
    logs = dispersion.log_certified_size([0.5, 0.2], 1.0, 2.0, 3.0)
    np.testing.assert_array_equal(np.floor(np.exp(logs)) + 1, sizes.astype(float))
    assert dispersion.log_certified_size(1.0, 0.2, 0.25, 50.0) == 0.0
    traced = jax.jit(dispersion.log_certified_size)(jnp.array([0.5, 1e9]), 1.0, 2.0, 3.0)
    np.testing.assert_allclose(traced, [logs[0], 0.0], rtol=1e-6)


def test_a_tie_cannot_be_certified_and_other_arguments_are_named():
    with pytest.raises(ValueError, match="margin must be positive.*no tie can be certified; got 0"):
        dispersion.certified_size(0.0, 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="distance must be finite and not negative"):
        dispersion.log_certified_size(1.0, 1.0, -1.0, 1.0)
    with pytest.raises(ValueError, match="activation must be one of.*got 'swish'"):
        dispersion.mlp_lipschitz([np.eye(2)], "swish")
    with pytest.raises(ValueError, match="one layer at least"):
        dispersion.mlp_lipschitz([])

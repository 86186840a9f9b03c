"""The parts of a Transformer by themselves: positions and norms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adatemp.models.norms import Norm, normalise
from adatemp.models.positions import alibi_bias, alibi_slopes, rotary, sinusoidal

DRAW = np.random.default_rng(0)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 1000))
def test_rotated_products_depend_on_the_distance_alone_and_norms_stay(t, s, shift):
    q, k = jnp.asarray(DRAW.normal(size=(2, 1, 1, 8)), jnp.float32)

    def product(t, s):
        return jnp.sum(rotary(q, jnp.array([t])) * rotary(k, jnp.array([s])))

    # an angle of up to 1,060 in float32 is off by 6e-5
    np.testing.assert_allclose(product(t, s), product(t + shift, s + shift), atol=2e-3)
    np.testing.assert_allclose(jnp.linalg.norm(rotary(q, jnp.array([t]))), jnp.linalg.norm(q), rtol=1e-6)


def test_rotation_is_multiplication_of_complex_numbers_and_position_zero_is_none():
    x = DRAW.normal(size=(3, 2, 6))
    at = np.array([0, 1, 17])
    wave = (x[..., :3] + 1j * x[..., 3:]) * np.exp(1j * at[:, None, None] / 50.0 ** (np.arange(3) / 3))
    got = rotary(jnp.asarray(x, jnp.float32), jnp.asarray(at), base=50.0)
    np.testing.assert_allclose(got, np.concatenate([wave.real, wave.imag], -1), atol=1e-5)
    np.testing.assert_array_equal(got[0], np.float32(x[0]))
    with pytest.raises(ValueError, match="even head width, got 5"):
        rotary(jnp.ones((1, 1, 5)), jnp.arange(1))


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        (1, [2**-8.0]),
        (8, [2.0**-i for i in range(1, 9)]),
        (16, [2 ** (-i / 2) for i in range(1, 17)]),
        # eight of eight heads, then the first, third, … of sixteen
        (12, [2.0**-i for i in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]),
    ],
)
def test_alibi_slopes_are_the_published_ones(heads, expected):
    np.testing.assert_allclose(alibi_slopes(heads), expected, rtol=1e-6)


def test_alibi_bias_falls_linearly_with_the_distance():
    bias = alibi_bias(2, jnp.array([3, 4]), jnp.arange(5))
    assert bias.shape == (1, 2, 2, 5)
    slope = np.array([2**-4, 2**-8])[:, None, None]
    np.testing.assert_array_equal(bias[0], -slope * np.abs([[3, 2, 1, 0, 1], [4, 3, 2, 1, 0]]))
    assert alibi_bias(2, jnp.ones((3, 2), int), jnp.ones((3, 5), int)).shape == (3, 2, 2, 5)


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoidal_positions_are_pairs_of_sine_and_cosine(width):
    at = np.array([0, 1, 100])
    expected = [[(np.sin, np.cos)[i % 2](t / 10_000 ** (2 * (i // 2) / width)) for i in range(width)] for t in at]
    np.testing.assert_allclose(sinusoidal(jnp.asarray(at), width), expected, atol=2e-5)


@pytest.mark.parametrize("epsilon", [0.0, 1e-5, 1.0])
def test_layer_norm_has_mean_zero_and_rms_norm_keeps_the_direction(epsilon):
    x = DRAW.normal(size=(4, 9)) * 10.0 ** np.arange(-1, 3)[:, None] + 3
    x32 = jnp.asarray(x, jnp.float32)
    centred = x - x.mean(-1, keepdims=True)
    for kind, expected in [("layer", centred), ("rms", x)]:
        expected = expected / np.sqrt((expected**2).mean(-1, keepdims=True) + epsilon)
        np.testing.assert_allclose(normalise(x32, kind, epsilon), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(normalise(x32, "none", epsilon), x32)


@pytest.mark.parametrize(("kind", "x"), [("layer", 3.0 * np.ones(4)), ("rms", np.zeros(4))])
def test_without_epsilon_nothing_to_divide_by_gives_zero_and_no_nan(kind, x):
    x = jnp.asarray(x, jnp.float32)
    np.testing.assert_array_equal(normalise(x, kind, 0.0), 0.0)
    slope = jax.jacobian(lambda x: normalise(x, kind, 0.0))(x)
    np.testing.assert_array_equal(slope, 0.0)
    # and it is a jump: the smallest step away has full length
    near = normalise(x.at[0].add(1e-3), kind, 0.0)
    np.testing.assert_allclose(jnp.linalg.norm(near), 2.0, rtol=1e-3)


def test_gains_from_one_start_as_the_identity_and_half_precision_is_normalised_in_float32():
    plain, from_one = Norm(4, "rms"), Norm(4, "rms", from_one=True)
    x = jnp.asarray(DRAW.normal(size=(2, 4)), jnp.float32)
    np.testing.assert_array_equal(plain(x), from_one(x))
    from_one.gain[...] = jnp.full(4, 0.5)
    np.testing.assert_allclose(from_one(x), 1.5 * plain(x), rtol=1e-6)
    large = jnp.full((1, 4), 6e4, jnp.float16)  # its square overflows float16
    np.testing.assert_array_equal(plain(large), jnp.ones((1, 4), jnp.float16))
    assert plain(large).dtype == jnp.float16

"""Powers of the causal average: closed form, stable forms and repeated averaging are one and the same."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import dispersion


def exact_power(states, layers):
    states = [Fraction(x) for x in states]
    for _ in range(layers):
        states = [sum(states[:i], Fraction(0)) / i for i in range(1, len(states) + 1)]
    return states


@pytest.mark.result("thm-ch07-cesaro")
@pytest.mark.parametrize("layers", [0, 1, 2, 7])
def test_the_closed_form_is_repeated_averaging_exactly(layers):
    states = [3, -1, 4, 1, -5, 9, 2, 6]
    assert dispersion.cesaro_closed_form(states, layers) == exact_power(states, layers)


@pytest.mark.parametrize(("n", "layers"), [(60, 1), (60, 3)])
def test_the_stable_power_keeps_its_digits_where_the_closed_form_in_floats_has_none(n, layers):
    states = np.random.default_rng(0).integers(-9, 10, n)
    exact = np.array([float(x) for x in exact_power(states.tolist(), layers)])
    np.testing.assert_allclose(dispersion.cesaro_power(states, layers), exact, atol=1e-13)
    # the alternating sum in float64, for contrast: its terms reach C(59, 29) · 2^29, about 10^25
    differences = [float(np.diff(states, k)[0]) for k in range(n)]
    naive = sum(comb(n - 1, k) * (k + 1.0) ** -layers * differences[k] for k in range(n))
    assert abs(naive - exact[-1]) > 1.0


@pytest.mark.parametrize(("i", "layers"), [(1, 1), (2, 1), (7, 3), (40, 2), (300, 12), (1000, 5), (50, 400)])
def test_the_mixture_of_binomials_is_the_row_of_the_power(i, layers):
    row = np.zeros(i)
    row[-1] = 1.0
    for _ in range(layers):  # e_iᵀ C, a sum of positive terms
        row = np.cumsum((row / np.arange(1, i + 1))[::-1])[::-1]
    np.testing.assert_allclose(dispersion.cesaro_weights(i, layers), row, atol=2e-12)


def test_the_mixture_agrees_with_fractions_at_a_small_size():
    unit = [[Fraction(int(j == k)) for j in range(6)] for k in range(6)]
    exact = [float(exact_power(column, 4)[-1]) for column in unit]
    np.testing.assert_allclose(dispersion.cesaro_weights(6, 4), exact, rtol=1e-13)


def test_the_second_token_comes_twice_as_near_with_every_layer():
    states = np.array([0.0, 1.0, 0.3])
    gaps = [dispersion.cesaro_power(states, layers)[1] for layers in range(6)]
    np.testing.assert_array_equal(gaps, 0.5 ** np.arange(6))


@pytest.mark.result("prop-ch07-walk")
@pytest.mark.parametrize(("i", "epsilon"), [(2, 0.01), (17, 0.3), (512, 0.01), (4096, 1e-6)])
def test_layers_until_the_first_token_are_the_least_that_suffice_for_every_input(i, epsilon):
    layers = dispersion.layers_until_first(i, epsilon)
    worst = np.concatenate([[0.0], np.ones(i - 1)])  # all others at distance 1, on one side
    assert dispersion.cesaro_power(worst, layers)[-1] <= epsilon
    assert dispersion.cesaro_power(worst, layers - 1)[-1] > epsilon
    # never more than log₂((i−1)/ε) rounded up, and of that order
    assert np.log2(i / epsilon) / 2 - 1 < layers <= np.ceil(np.log2((i - 1) / epsilon))
    draw = np.random.default_rng(0)
    for _ in range(20):  # no other input is worse
        other = np.concatenate([[0.0], draw.uniform(-1, 1, i - 1)])
        assert abs(dispersion.cesaro_power(other, layers)[-1]) <= epsilon


@pytest.mark.result("prop-ch07-walk")
def test_late_tokens_arrive_last():
    layers = [dispersion.layers_until_first(i, 0.01) for i in (2, 16, 512)]
    assert layers == sorted(layers) and layers[0] < layers[1] < layers[2]


@pytest.mark.result("prop-ch07-late")
def test_after_one_layer_noise_spreads_like_an_inverse_root_and_a_step_stays_at_a_half():
    draw = np.random.default_rng(0)
    for n in (2**10, 2**14):
        noise = dispersion.cesaro_power(draw.normal(size=(n, 200)), 1)
        late = np.ptp(noise[n // 2 :], axis=0).mean()
        assert late * np.sqrt(n) == pytest.approx(1.55, rel=0.1)  # 200 samples with a spread of a third each: 3%
        step = dispersion.cesaro_power(np.repeat([0.0, 1.0], n // 2), 1)
        assert np.ptp(step[n // 2 - 1 :]) == pytest.approx(0.5, abs=1 / n)


def test_features_dtypes_and_tracing():
    x = jax.random.normal(jax.random.key(0), (9, 2, 3))
    got = jax.jit(dispersion.cesaro_power, static_argnums=1)(x, 3)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, dispersion.cesaro_power(np.asarray(x), 3), rtol=1e-5, atol=1e-6)
    assert dispersion.cesaro_power(np.asarray(x), 3).dtype == np.float64


def test_arguments_out_of_range_are_named():
    with pytest.raises(ValueError, match="layers must be a whole number of at least 0, got -1"):
        dispersion.cesaro_power([1.0], -1)
    with pytest.raises(ValueError, match="i must be a whole number of at least 1, got 0"):
        dispersion.cesaro_weights(0, 1)
    with pytest.raises(ValueError, match="epsilon must be a weight"):
        dispersion.layers_until_first(3, 0.0)

"""Results of chapter 01 about the functions on its page: variational form, feasible region, hull, rotations."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

LOGIT = st.integers(-640, 640).map(lambda k: k / 64)  # exact in float32, and ties are common
SEED = st.integers(0, 2**32 - 1)


def exact_weights(logits):
    """Softmax in float64, by the definition."""
    logits = np.asarray(logits, np.float64)
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def entropy(weights):
    return -np.sum(weights * np.log(np.where(weights > 0, weights, 1.0)), axis=-1)


@pytest.mark.result("prop-ch01-variational")
@given(arrays.arrays(np.float64, st.integers(1, 12), elements=LOGIT), st.floats(0.0, 4.0), SEED)
def test_no_rival_beats_softmax_and_what_it_lacks_is_the_divergence(logits, beta, seed):
    rival = np.random.default_rng(seed).dirichlet(np.full(len(logits), 0.7))
    weights = exact_weights(beta * logits)
    log_normaliser = np.logaddexp.reduce(beta * logits)
    live = rival > 0
    divergence = np.sum(rival[live] * np.log(rival[live] / weights[live]))
    # float64 rounding of numbers up to |beta z| = 40 plus the logarithm of the smallest weight, e^-80.
    assert beta * rival @ logits + entropy(rival) == pytest.approx(log_normaliser - divergence, abs=1e-11)
    assert divergence >= -1e-12
    top = beta * logits.max()
    assert top - 1e-12 <= log_normaliser <= top + np.log(len(logits)) + 1e-12


@pytest.mark.result("prop-ch01-feasible")
@given(arrays.arrays(np.float64, st.integers(2, 40), elements=LOGIT), st.floats(0.0, 20.0))
def test_every_row_lies_in_the_feasible_region(chapter01, logits, beta):
    weights = exact_weights(beta * logits)
    n = len(weights)
    low, high = chapter01.entropy_range(np.clip(weights.max(), 1 / n, 1 - 1e-15), n)
    assert low - 1e-12 <= entropy(weights) <= high + 1e-12


@pytest.mark.result("prop-ch01-feasible")
@given(st.integers(2, 40), st.floats(0.0, 1.0))
def test_both_ends_of_the_feasible_region_are_attained(chapter01, n, fraction):
    top = 1 / n + fraction * (1 - 1 / n) * (1 - 1e-9)
    low, high = chapter01.entropy_range(top, n)
    leaders = int(np.floor(1 / top + 1e-12))
    rest = max(1 - leaders * top, 0.0)
    few = np.concatenate([np.full(leaders, top), [rest] * (leaders < n), np.zeros(max(n - leaders - 1, 0))])
    crowd = np.concatenate([[top], np.full(n - 1, (1 - top) / (n - 1))])
    assert len(few) == len(crowd) == n
    assert entropy(few) == pytest.approx(low, abs=1e-11)
    assert entropy(crowd) == pytest.approx(high, abs=1e-11)
    assert max(few.max(), crowd.max()) == pytest.approx(top, abs=1e-15)


@pytest.mark.result("prop-ch01-hull")
@settings(max_examples=30)
@given(SEED, st.floats(0.01, 30.0))
def test_an_output_is_the_average_of_the_values_and_no_longer_than_the_longest(chapter01, seed, scale):
    rng = np.random.default_rng(seed)
    query, key, value = (np.float32(scale * rng.normal(size=(rows, 4))) for rows in (3, 5, 5))
    output, weights = (np.asarray(x) for x in chapter01.attention(query, key, value))
    exact = exact_weights(np.float64(query) @ np.float64(key).T / 2)
    # A float32 inner product of 4 terms of size scale² errs by some 2^-22 scale², and so does a weight relatively.
    np.testing.assert_allclose(weights, exact, atol=2e-6 * max(1.0, scale**2))
    np.testing.assert_allclose(output, weights @ value, rtol=1e-5, atol=1e-5 * scale)
    lengths = np.linalg.norm(np.float64(output), axis=-1), np.linalg.norm(np.float64(value), axis=-1)
    assert (lengths[0] <= lengths[1].max() * (1 + 1e-5)).all()
    spread = np.ptp(np.float64(query) @ np.float64(key).T / 2, axis=-1)
    farthest = np.linalg.norm(np.float64(key)[:, None] - key[None], axis=-1).max()
    assert (spread <= np.linalg.norm(np.float64(query), axis=-1) * farthest / 2 * (1 + 1e-12)).all()


@pytest.mark.result("prop-ch01-rope")
@settings(max_examples=30)
@given(st.integers(0, 2_000), st.integers(0, 2_000), st.integers(0, 2_000), SEED)
def test_rotary_positions_keep_lengths_and_see_offsets_only(chapter01, t, s, shift, seed):
    q, k = np.float32(np.random.default_rng(seed).normal(size=(2, 1, 16)))

    def turned(x, position):
        return np.float64(chapter01.rope(x, np.array([position])))

    size = np.linalg.norm(q) * np.linalg.norm(k)
    assert np.linalg.norm(turned(q, t)) == pytest.approx(np.linalg.norm(q), rel=1e-6)
    product, shifted = (turned(q, t + a) @ turned(k, s + a).T for a in (0, shift))
    # The angle of the fastest plane, up to 4,000 radians, is rounded to 2^-13 in float32.
    np.testing.assert_allclose(product, shifted, atol=1e-3 * size)
    assert abs(product) <= size * (1 + 1e-6)


def test_the_softmax_and_the_entropy_of_the_page_are_those_of_the_definition(chapter01):
    logits = np.float32(np.random.default_rng(0).normal(size=(7, 11)) * 4 + 1_000)
    weights = exact_weights(1.7 * np.float64(logits))
    np.testing.assert_allclose(chapter01.softmax(logits, 1.7), weights, atol=2e-3)  # 1.7 z is rounded to 2^-13
    np.testing.assert_allclose(chapter01.entropy(logits), entropy(exact_weights(logits)), atol=2e-6)
    gradient = jax.grad(lambda z: chapter01.softmax(z)[0, 0])(logits)
    p = exact_weights(logits)[0]
    np.testing.assert_allclose(gradient[0], p[0] * (np.eye(11)[0] - p), atol=1e-6)

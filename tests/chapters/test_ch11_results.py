"""Kernels that chapter 11 builds, in the interpreter: their masks, their definition, their gradient, their work."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_oracle import oracle

from adatemp._compat import enable_x64


def head(queries=40, keys=40, width=16):
    """Arrays [n, width], queries from flat to sharp; neither count is a multiple of the tile."""
    rng = np.random.default_rng(0)
    query, key, value = (np.float32(rng.normal(size=(n, width))) for n in (queries, keys, keys))
    return query * np.float32(np.linspace(0.5, 4, queries))[:, None], key, value


def exactly(query, key, value, is_causal, beta_of=None):
    """Output and statistics by the oracle, in float64."""
    z = np.float64(query) @ np.float64(key).T / np.sqrt(query.shape[1])
    seen = np.tril(np.ones(z.shape, bool)) if is_causal else None
    rows = oracle(z, seen) if beta_of is None else oracle(z, seen, beta_of)
    return rows.weights @ np.float64(value), rows


@pytest.mark.parametrize("is_causal", [True, False])
def test_the_page_s_kernels_are_the_definition(chapter11, is_causal):
    arrays = head()
    output, (m, log_l, entropy, log_total) = jax.jit(partial(chapter11.forward, is_causal=is_causal))(*arrays)
    want, rows = exactly(*arrays, is_causal)
    np.testing.assert_allclose(output, want, atol=1e-5)
    np.testing.assert_allclose(entropy, rows.entropy, atol=1e-5)
    np.testing.assert_allclose(m + log_l, rows.lse, atol=1e-5)
    np.testing.assert_allclose(rows.beta * m + log_total, rows.lse_scaled, atol=5e-5)
    plain = chapter11.plain_attention(*arrays, is_causal=is_causal)
    np.testing.assert_allclose(plain, exactly(*arrays, is_causal, lambda entropy: 1.0)[0], atol=1e-5)


@pytest.mark.result("prop-ch11-hidden")
def test_nothing_leaks_from_keys_that_do_not_exist(chapter11):
    # The interpreter fills a tile that reaches beyond its array with NaN; 40 keys are two and a half tiles.
    arrays = head()
    output, rows = jax.jit(partial(chapter11.forward, is_causal=False))(*arrays)
    assert np.isfinite(output).all() and all(np.isfinite(row).all() for row in rows)
    # NaN in a key and a value that the causal mask hides from all but the last row: nothing but that row changes.
    query, key, value = arrays
    spoiled_key, spoiled_value = key.copy(), value.copy()
    spoiled_key[-1], spoiled_value[-1] = 1e30, 1e30
    clean, _ = jax.jit(partial(chapter11.forward, is_causal=True))(query, key, value)
    other, _ = jax.jit(partial(chapter11.forward, is_causal=True))(query, spoiled_key, spoiled_value)
    np.testing.assert_array_equal(clean[:-1], other[:-1])


@pytest.mark.result("prop-ch11-gradient")
@pytest.mark.parametrize("is_causal", [True, False])
def test_the_page_s_gradient_is_that_of_differences(chapter11, is_causal):
    arrays = head(width=8)
    rng = np.random.default_rng(1)
    d_output = np.float32(rng.normal(size=(40, 8)))

    # The decorator that joins forward and backward is a statement of the page, not a definition: joined here.
    join = jax.custom_vjp(lambda *arrays: chapter11.forward(*arrays, is_causal)[0])
    join.defvjp(lambda *arrays: chapter11.save(*arrays, is_causal), partial(chapter11.pull, is_causal))
    found = jax.jit(jax.grad(lambda *arrays: (d_output * join(*arrays)).sum(), argnums=(0, 1, 2)))(*arrays)

    def exact_loss(arrays):
        return (np.float64(d_output) * exactly(*arrays, is_causal)[0]).sum()

    step = 1e-5
    for which in range(3):
        for place in [(0, 0), (3, 5), (17, 2), (39, 7)]:
            moved = []
            for sign in (1, -1):
                shifted = [np.float64(x) for x in arrays]
                shifted[which][place] += sign * step
                moved.append(exact_loss(shifted))
            slope = (moved[0] - moved[1]) / (2 * step)
            assert found[which][place] == pytest.approx(slope, abs=3e-5), (which, place)


@pytest.mark.result("prop-ch11-ceiling")
@given(st.floats(1e-3, 1e3), st.floats(0.0, 1e3), st.booleans())
def test_relative_speed_lies_between_a_half_and_two_thirds(chapter11, product, exponential, overlap):
    speed = chapter11.relative_speed(product, exponential, overlap)
    assert 0.5 - 1e-12 <= speed <= 2 / 3 + 1e-12
    if exponential == 0:
        assert speed == pytest.approx(2 / 3)
    if exponential > 2 * product and overlap:
        assert speed == 0.5


def test_the_page_counts_its_own_work(chapter11):
    arrays = head()
    assert chapter11.count(partial(chapter11.plain_attention, is_causal=True), *arrays) == (2, 1)
    assert chapter11.count(chapter11.forward, *arrays, is_causal=True) == (3, 2)


def test_the_slope_of_the_published_map_is_that_of_differences(chapter11):
    entropy = np.array([0.3, 0.7, 1.0, 3.0, 5.0, 5.9, 6.5])
    with enable_x64(True):
        slope = np.asarray(chapter11.slope_of_beta(entropy))
        above, below = (np.asarray(chapter11.published_beta(entropy + h)) for h in (1e-6, -1e-6))
    np.testing.assert_allclose(slope, (above - below) / 2e-6, atol=1e-8)

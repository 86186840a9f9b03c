"""Functions that chapter 10 builds: its stream, its two sweeps, its compensation, and the values it recovers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_oracle import oracle

SEED = st.integers(0, 2**32 - 1)


def exact_entropy(z):
    """Entropy in float64 by log-sum-exp, for rows too long for the oracle."""
    t = np.float64(z) - np.float64(z).max()
    log_weights = t - np.log(np.exp(t).sum())
    return -(np.exp(log_weights) * log_weights).sum()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), SEED)
def test_the_page_s_merge_reads_a_row_in_any_order_of_uneven_pieces(chapter10, lengths, seed):
    rng = np.random.default_rng(seed)
    row = np.float32(rng.normal(size=sum(lengths)) * 5 + 40)
    pieces = np.split(row, np.cumsum(lengths)[:-1])
    state = chapter10.empty(())
    for i in rng.permutation(len(pieces)):
        state = chapter10.merge(state, chapter10.read(pieces[i]))
    lse, entropy = chapter10.finish(state)
    want = oracle(row)
    assert lse == pytest.approx(float(want.lse), rel=1e-6)
    assert entropy == pytest.approx(float(want.entropy), abs=3e-6)  # a few float32 units of 4 nats


@pytest.mark.parametrize("name", ["flash_attention", "adaptive_attention"])
def test_the_page_s_attention_is_the_definition(chapter10, name):
    rng = np.random.default_rng(0)
    query, key, value = np.float32(rng.normal(size=(3, 256, 16)))
    query *= np.float32(np.geomspace(0.1, 8, 256))[:, None]
    results = jax.device_get(getattr(chapter10, name)(query, key, value))
    z = np.float64(query) @ np.float64(key).T / 4
    want = oracle(z) if name == "adaptive_attention" else oracle(z, beta_of=lambda entropy: 1.0)
    np.testing.assert_allclose(results[0], want.weights @ np.float64(value), atol=3e-5)
    if name == "adaptive_attention":
        np.testing.assert_allclose(results[1], want.entropy, atol=2e-5)
        np.testing.assert_allclose(results[2], want.beta, atol=1e-4)  # the entropy's error times a slope of up to 2.5
    else:
        np.testing.assert_allclose(results[1], want.lse, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("by", [9.0, 12.5, 13.7])
def test_the_page_s_compensated_stream_is_right_to_a_few_units(chapter10, by):
    n = 131_072
    row = np.zeros((1, n), np.float32)
    row[0, 0] = by
    compensated, plain = (float(form(row)[0]) for form in (chapter10.streamed_compensated, chapter10.streamed))
    want = exact_entropy(row[0])
    # An exponential is right to a unit, 1.2e-7 of itself, the same in all terms; two products round once more each.
    assert compensated == pytest.approx(want, abs=3 * 1.2e-7 * (want + by))
    if by == 12.5:
        assert abs(plain - want) > 10 * abs(compensated - want)


@pytest.mark.result("prop-ch10-one-pass")
@given(st.floats(-2.0, 2.0))
def test_the_page_recovers_the_values(chapter10, moved):
    logits, values = np.array([0.0, 0.6, 1.3, 2.1]), np.array([3.0, -1.0 + moved, 4.0, 1.5])
    last = np.array([-8.0, 2.0, 2.9, 3.6])
    outputs, betas = chapter10.outputs_after(logits, values, last)
    rows = [oracle(np.append(logits, x)) for x in last]
    np.testing.assert_allclose(betas, [row.beta for row in rows], rtol=1e-12)
    np.testing.assert_allclose(outputs, [row.weights[:4] @ values for row in rows], rtol=1e-12)
    recovered = chapter10.values_from_outputs(logits, last, outputs, betas)
    np.testing.assert_allclose(recovered, values, atol=1e-7)


def test_the_temporary_memory_of_the_page_s_attention_does_not_grow(chapter10):
    sizes = [chapter10.temporary_bytes(chapter10.adaptive_attention, n) for n in (2_048, 65_536)]
    dense = chapter10.temporary_bytes(lambda q, k, v: jnp.tanh(jax.lax.optimization_barrier(q @ k.T)) @ v, 2_048)
    assert sizes[1] <= 2 * sizes[0]
    assert dense >= 4 * 2_048**2  # what holds the logits shows

"""The spread of attention's logits against a plain float64 loop, under every mask."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp.dispersion import attention_spread

B, T, S, N, K, H = 2, 5, 7, 4, 2, 3


def vectors(dtype=np.float32, T=T, S=S):
    draw = np.random.default_rng(0)
    return [jnp.asarray(3 * draw.normal(size=shape), dtype) for shape in [(B, T, N, H), (B, S, K, H)]]


def slowly(query, key, sees, bias=None, cap=None, scale=None):
    """One row at a time in float64; `sees(b, n, t, s)`."""
    query, key = (np.asarray(x, np.float64) for x in (query, key))
    scale = 1 / np.sqrt(query.shape[-1]) if scale is None else scale
    result = np.zeros(query.shape[:3])
    for b, t, n in np.ndindex(*query.shape[:3]):
        row = []
        for s in range(key.shape[1]):
            logit = scale * query[b, t, n] @ key[b, s, n // (query.shape[2] // key.shape[2])]
            logit = logit if cap is None else cap * np.tanh(logit / cap)
            logit += 0 if bias is None else bias[b, n, t, s]
            if sees(b, n, t, s) and logit != -np.inf:
                row.append(logit)
        result[b, t, n] = max(row) - min(row) if row else 0
    return result


MASK = np.random.default_rng(1).random((B, N, T, S)) < 0.5
MASK[1, 2, 3] = False  # a query that sees nothing
BIAS = np.where(
    np.random.default_rng(2).random((B, N, T, S)) < 0.2, -np.inf, np.random.default_rng(3).normal(size=MASK.shape)
)


@pytest.mark.parametrize(
    ("options", "sees"),
    [
        ({}, lambda b, n, t, s: True),
        ({"is_causal": True}, lambda b, n, t, s: s <= t),
        ({"is_causal": True, "query_offset": 2}, lambda b, n, t, s: s <= t + 2),
        ({"mask": MASK}, lambda b, n, t, s: MASK[b, n, t, s]),
        ({"local_window_size": (1, 2)}, lambda b, n, t, s: t - 1 <= s <= t + 2),
        ({"key_value_seq_lengths": np.array([3, 0])}, lambda b, n, t, s: s < (3, 0)[b]),
        ({"query_seq_lengths": np.array([5, 2])}, lambda b, n, t, s: t < (5, 2)[b]),
        ({"is_causal": True, "mask": MASK}, lambda b, n, t, s: s <= t and MASK[b, n, t, s]),
    ],
)
def test_only_the_keys_that_a_query_sees_count(options, sees):
    query, key = vectors()
    # float32 products of width 3 and of a size of about 20
    np.testing.assert_allclose(attention_spread(query, key, **options), slowly(query, key, sees), rtol=1e-5, atol=1e-5)


def test_bias_soft_cap_and_scale_enter_as_in_attention():
    query, key = vectors()
    got = attention_spread(query, key, jnp.asarray(BIAS, jnp.float32), logits_soft_cap=2.0, scale=0.7)
    expected = slowly(query, key, lambda *_: True, BIAS, cap=2.0, scale=0.7)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_vectors_are_multiplied_in_float32(dtype):
    query, key = vectors(dtype)
    got = attention_spread(query, key, is_causal=True)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, slowly(query, key, lambda b, n, t, s: s <= t), rtol=1e-5, atol=1e-5)


def test_blocks_of_queries_change_nothing_and_memory_is_linear():
    """More queries than a block holds; the compiled program keeps no matrix of logits."""
    length = 4096
    query, key = (jax.random.normal(jax.random.key(i), (1, length, 1, 2)) for i in range(2))
    spread = jax.jit(lambda query, key: attention_spread(query, key, is_causal=True))
    got = spread(query, key)
    rows = np.array([0, 1, 777, length - 1])
    logits = np.asarray(query)[0, rows, 0] @ np.asarray(key)[0, :, 0].T / np.sqrt(2)
    expected = [np.ptp(row[: t + 1]) for t, row in zip(rows, logits)]
    np.testing.assert_allclose(got[0, rows, 0], expected, rtol=1e-5, atol=1e-6)
    memory = spread.lower(query, key).compile().memory_analysis().temp_size_in_bytes
    assert memory < 4 * length**2 / 4  # a quarter of the logits: blocks of 2 MiB and what goes with them


def test_what_a_masked_key_holds_does_not_matter_and_a_visible_nan_is_told():
    query, key = vectors()
    spoilt = key.at[:, 4].set(jnp.nan)
    mask = jnp.ones((1, 1, 1, S), bool).at[..., 4].set(False)
    np.testing.assert_array_equal(attention_spread(query, spoilt, mask=mask), attention_spread(query, key, mask=mask))
    seen = attention_spread(query, spoilt, is_causal=True)
    assert jnp.isnan(seen[:, 4]).all() and not jnp.isnan(seen[:, :4]).any()


def test_without_a_batch_axis_and_differentiated():
    query, key = vectors()
    np.testing.assert_array_equal(attention_spread(query[0], key[0]), attention_spread(query, key)[0])
    slope = jax.grad(lambda q: attention_spread(q, key).sum())(query)
    logits = np.einsum("tnh,snh->tns", np.asarray(query[0]), np.repeat(np.asarray(key[0]), 2, 1))
    high, low = logits[2, 3].argmax(), logits[2, 3].argmin()
    np.testing.assert_allclose(slope[0, 2, 3], (key[0, high, 1] - key[0, low, 1]) / np.sqrt(3), rtol=1e-5)

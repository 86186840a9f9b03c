"""Attention by its definitions: float64 numpy, one query at a time, hidden keys gone before any arithmetic."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from row_oracle import published_beta


class Row(NamedTuple):
    """One row: what a temperature rule may read of it. `logits` are the live ones alone."""

    logits: np.ndarray
    count: int
    entropy: float
    variance: float
    position: int
    batch: int
    query: int
    head: int


class Rows(NamedTuple):
    """Output [B, T, N, V] and statistics [B, T, N]."""

    output: np.ndarray
    entropy: np.ndarray
    beta: np.ndarray
    lse: np.ndarray
    lse_scaled: np.ndarray


def paper(row: Row) -> float:
    return published_beta(row.entropy)


def visible(
    B,
    N,
    T,
    S,
    *,
    mask=None,
    bias=None,
    is_causal=False,
    query_offset=0,
    query_seq_lengths=None,
    key_value_seq_lengths=None,
    local_window_size=None,
    segment_ids=None,
    **_,
) -> np.ndarray:
    """[B, N, T, S]: which keys each query sees, condition by condition as the documentation lists them."""
    offsets = np.broadcast_to(query_offset, B)
    seen = np.ones((B, N, T, S), bool)
    for b in range(B):
        for t in range(T):
            stands = offsets[b] + t
            for s in range(S):
                keeps = True
                if is_causal:
                    keeps &= s <= stands
                if local_window_size is not None:
                    before, after = np.broadcast_to(local_window_size, 2)
                    keeps &= stands - before <= s <= stands + after
                if query_seq_lengths is not None:
                    keeps &= t < query_seq_lengths[b]
                if key_value_seq_lengths is not None:
                    keeps &= s < key_value_seq_lengths[b]
                if segment_ids is not None:
                    of_queries, of_keys = segment_ids if isinstance(segment_ids, tuple) else (segment_ids, segment_ids)
                    keeps &= of_queries[b][t] == of_keys[b][s]
                seen[b, :, t, s] = keeps
    if mask is not None:
        seen &= np.broadcast_to(mask, seen.shape)
    if bias is not None:
        seen &= np.broadcast_to(np.asarray(bias, np.float64), seen.shape) != -np.inf
    return seen


def attention(query, key, value, *, beta_of=paper, scale=None, logits_soft_cap=None, sink=None, **options) -> Rows:
    """Output and statistics; `beta_of` maps a `Row` to beta, None is plain attention."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    (B, T, N, H), (_, S, K, V) = query.shape, value.shape
    scale = H**-0.5 if scale is None else scale
    seen = visible(B, N, T, S, **options)
    bias = options.get("bias")
    bias = None if bias is None else np.broadcast_to(np.asarray(bias, np.float64), seen.shape)
    positions = options.get("query_positions")
    offsets = np.broadcast_to(options.get("query_offset", 0), B)
    result = Rows(np.zeros((B, T, N, V)), *(np.zeros((B, T, N)) for _ in range(4)))
    for b, t, n in np.ndindex(B, T, N):
        keep, at = seen[b, n, t], (b, t, n)
        if not keep.any():
            result.beta[at], result.lse[at], result.lse_scaled[at] = 1, -np.inf, -np.inf
            continue
        head = n // (N // K)
        z = scale * key[b, keep, head] @ query[b, t, n]
        if logits_soft_cap is not None:
            z = logits_soft_cap * np.tanh(z / logits_soft_cap)
        if bias is not None:
            z = z + bias[b, n, t, keep]
        lse = log_sum_exp(z)
        p = np.exp(z - lse)
        entropy = -sum(x * np.log(x) for x in p if x > 0)
        variance = (p * (z - p @ z) ** 2).sum()
        position = offsets[b] + t if positions is None else positions[b][t]
        row = Row(z, len(z), entropy, variance, position, b, t, n)
        beta = 1.0 if beta_of is None else beta_of(row)
        members = beta * z if sink is None else np.append(beta * z, float(sink[n]))
        lse_scaled = log_sum_exp(members)
        result.output[at] = np.exp(beta * z - lse_scaled) @ value[b, keep, head]
        result.entropy[at], result.beta[at], result.lse[at], result.lse_scaled[at] = entropy, beta, lse, lse_scaled
    return result


def log_sum_exp(z) -> float:
    highest = np.max(z)
    return highest + np.log(np.sum(np.exp(z - highest)))

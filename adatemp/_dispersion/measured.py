"""The spread of attention's logits, measured from queries and keys under every mask, without keeping the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, ArrayLike, Bool, Float, Int


def attention_spread(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"],
    bias: Float[ArrayLike, "#B #N #T #S"] | None = None,
    mask: Bool[ArrayLike, "#B #N #T #S"] | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_offset: int | Int[Array, "#B"] = 0,
    query_seq_lengths: Int[ArrayLike, " B"] | None = None,
    key_value_seq_lengths: Int[ArrayLike, " B"] | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    segment_ids: Int[ArrayLike, "B T"] | Sequence[Int[ArrayLike, "..."]] | None = None,
    logits_soft_cap: float | None = None,
    precision=None,
) -> Float[Array, "B T N"]:
    """δ of every row of attention: the largest minus the smallest logit among the keys that a query sees.

    One number a query and head, because the bounds hold row by row: the range over all queries together is larger and
    bounds nothing. The logits are taken a block of queries at a time, in float32 for half-precision inputs (float64
    for float64), as `adatemp.dot_product_attention` takes them, bias and soft cap included; memory is O(T + S).

    Args:
        query: [B, T, N, H] or [T, N, H], as it enters the product: after projection, normalisation and rotation.
        key: [B, S, K, H]; query head n reads key head n // (N // K).
        bias: as in `adatemp.dot_product_attention`, and so are the others.

    Returns:
        δ in the unit of the logits; 0 for a query that sees no key or one, NaN where a visible logit is NaN.

    Raises:
        TypeError, ValueError: as `adatemp.dot_product_attention`.

    >>> query, key = jnp.ones((1, 3, 1, 4)), jnp.arange(3.0)[None, :, None, None] * jnp.ones((1, 3, 1, 4))
    >>> print(attention_spread(query, key, is_causal=True)[0, :, 0])  # the logits are 0, 2, 4
    [0. 2. 4.]
    """
    # Imported here so that the bounds can be had without the attention.
    from adatemp.attention._arguments import build_problem
    from adatemp.attention._logits import live_logits, split
    from adatemp.attention._query_blocks import hide_filling, map_query_blocks
    from adatemp.attention._rows import to_public
    from adatemp.attention.chunked import block_sizes

    problem, batched = build_problem(
        query,
        key,
        None,
        bias,
        mask,
        scale=scale,
        is_causal=is_causal,
        query_offset=query_offset,
        query_seq_lengths=query_seq_lengths,
        key_value_seq_lengths=key_value_seq_lengths,
        local_window_size=local_window_size,
        segment_ids=segment_ids,
        logits_soft_cap=logits_soft_cap,
        precision=precision,
    )
    block = block_sizes(problem)[0]
    queries, keys = split(problem)

    def of_block(queries):
        logits = live_logits(problem, queries, keys)
        seen = logits != -jnp.inf
        high = jnp.max(logits, -1)
        low = jnp.min(jnp.where(seen, logits, jnp.inf), -1)
        return to_public(jnp.where(jnp.any(seen, -1), high - low, 0.0))

    result = map_query_blocks(of_block, hide_filling(queries, block), problem.query.shape[1], block)
    return result if batched else result[0]

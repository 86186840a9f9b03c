"""Attention in O(n) memory by XLA alone, on any device: a block of queries at a time.

A block of queries sees its full rows of logits, so its entropy needs no second product, and when the block is done its
logits are forgotten. Backwards the block is computed again (`jax.checkpoint`), and its exact gradient follows from the
same few lines as the dense form's; the gradients of keys and values add up over the blocks.

Where even a few rows are too long, the keys are cut into blocks as well: `adatemp.attention._key_blocks`. Where there
are only a few queries, the keys are cut into splits that run at once: `adatemp.attention._key_splits`.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp

from adatemp._rule import broadcasts
from adatemp.attention._key_blocks import attend_key_blocks
from adatemp.attention._key_splits import attend_key_splits
from adatemp.attention._logits import split
from adatemp.attention._query_blocks import hide_filling, map_query_blocks
from adatemp.attention._rows import attend_rows
from adatemp.attention._spans import cut_span, spans_of

# Bytes of logits that a block may have, by platform: what stays in the cache of a processor core, what keeps a
# graphics processor busy.
_BLOCK_BYTES = {"cpu": 2**21, "gpu": 2**27, "tpu": 2**25}
# Queries that a block has even if it then leaves the cache: each block reads all keys and values, and backwards adds to
# their gradients. Bytes of logits that a block never has: before, queries go down to a multiple, then the keys are cut.
_FEW_ENOUGH, _MOST_BYTES = 32, 2**29
_QUERIES_MULTIPLE = 8
# Up to so many queries it is decoding: there is nothing to cut but the keys, into so many splits of at least so many.
FEW_QUERIES, _SPLITS, _SHORTEST_SPLIT = 8, 16, 1024


@dataclasses.dataclass(frozen=True)
class ChunkedConfig:
    """Sizes of the blocks; each block of logits has B * N * block_q * block_k numbers.

    Attributes:
        block_q: Queries in a block; None to choose by size and platform.
        block_k: Keys in a block; None for all of them, unless a row is too long.

    Raises:
        ValueError: A size that is not a positive integer.
    """

    block_q: int | None = None
    block_k: int | None = None

    def __post_init__(self):
        for name in ("block_q", "block_k"):
            size = getattr(self, name)
            if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
                raise ValueError(f"config: {name} must be a positive integer or None, got {size!r}")


def attend(problem, rule, *, with_output: bool, with_stats: bool, config: ChunkedConfig | None = None):
    """Output [B, T, N, V] and statistics [B, T, N], in memory that grows with T + S."""
    block_q, block_k = block_sizes(problem, config)
    B, T, S, N, _ = problem.sizes
    queries, keys = split(problem)
    if T <= FEW_QUERIES and config is None and block_k is None and not (rule is not None and "row" in rule.needs):
        return attend_key_splits(problem, rule, queries, keys, _split(S), with_stats=with_stats)
    queries = hide_filling(queries, block_q)
    leaves, of_rule = jax.tree.flatten(rule)
    per_query = [broadcasts(jnp.shape(x), (B, T, N)) and jnp.ndim(x) > 1 and jnp.shape(x)[-2] == T > 1 for x in leaves]

    sliced = [jnp.reshape(x, (-1, T, jnp.shape(x)[-1])) for x, varies in zip(leaves, per_query) if varies]

    # Gradients of keys and values add up over the blocks of queries, in the dtype that the loop sees: never bfloat16.
    dtypes = jax.tree.map(lambda x: x.dtype, keys)
    keys = jax.tree.map(lambda x: x.astype(jnp.promote_types(x.dtype, jnp.float32)) if _is_floating(x) else x, keys)

    def attend_span(span):
        queries_of_span, sliced_of_span, keys_of_span = cut_span(span, queries, sliced, keys)

        def attend_block(block):
            queries, sliced = block
            sliced = iter(sliced)
            keys = jax.tree.map(lambda x, dtype: x.astype(dtype), keys_of_span, dtypes)
            rule = jax.tree.unflatten(of_rule, [next(sliced) if varies else x for x, varies in zip(leaves, per_query)])
            if block_k is not None:
                return attend_key_blocks(problem, rule, queries, keys, block_k, with_stats=with_stats)
            return attend_rows(problem, rule, queries, keys, with_stats=with_stats)

        return map_query_blocks(attend_block, (queries_of_span, sliced_of_span), span.last - span.first, block_q)

    parts = [attend_span(span) for span in spans_of(problem, rule, block_q)]
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x, 1), *parts)


def refusal(problem, rule, config: ChunkedConfig | None) -> str | None:
    """Why this form cannot serve, or None."""
    if rule is not None and "row" in rule.needs and block_sizes(problem, config)[1] is not None:
        return f"temperature: rule {type(rule).__name__} reads the whole row, which blocks of keys do not have"
    return None


def block_sizes(problem, config: ChunkedConfig | None = None) -> tuple[int, int | None]:
    """(block_q, block_k), block_k None for whole rows."""
    config = config or ChunkedConfig()
    B, T, S, N, _ = problem.sizes
    column = B * N * problem.stats_dtype.itemsize  # bytes of one query against one key
    block_q, block_k = config.block_q, config.block_k
    if block_q is None:
        row = column * (block_k or S)
        affordable = max(_BLOCK_BYTES.get(jax.default_backend(), 2**25), min(_FEW_ENOUGH * row, _MOST_BYTES)) // row
        block_q = max(1, affordable // _QUERIES_MULTIPLE) * _QUERIES_MULTIPLE
        # Blocks of even size: 100 queries in two of 50, not in 64 and 36 made up to 64.
        block_q = math.ceil(T / math.ceil(T / block_q))
    if block_k is None and column * block_q * S > _MOST_BYTES:
        block_k = max(128, _MOST_BYTES // (column * block_q) // 128 * 128)
    return min(block_q, T), None if block_k is None or block_k >= S else block_k


def _is_floating(array) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating)


def _split(S: int) -> int:
    """Keys in a split."""
    return min(S, max(_SHORTEST_SPLIT, math.ceil(S / _SPLITS)))

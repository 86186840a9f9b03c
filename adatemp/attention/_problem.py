"""One call of attention, validated and in one shape, as every implementation takes it."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int

_ARRAYS = (
    "query",
    "key",
    "value",
    "bias",
    "mask",
    "sink",
    "query_lengths",
    "key_lengths",
    "query_offset",
    "query_segments",
    "key_segments",
    "query_positions",
)
STATIC = ("scale", "is_causal", "window", "soft_cap", "precision")


@partial(jax.tree_util.register_dataclass, data_fields=list(_ARRAYS), meta_fields=list(STATIC))
@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Everything about one call but the temperature rule. B batch, T queries, S keys, N heads, K key heads.

    Attributes:
        query: Float16, bfloat16, float32 or float64; key and value have the same dtype.
        key: Query head n reads key head n // (N // K).
        value: Its width V may differ from H. None when only statistics are wanted.
        bias: Added to the scaled and capped logits; -inf hides a key.
        mask: True where a key takes part.
        sink: A logit for each head that joins the normaliser once, carries no value and is not multiplied by beta.
        query_lengths: Queries from here on are dead.
        key_lengths: Keys from here on take no part.
        query_offset: Query t stands at position offset + t; None for 0.
        query_segments: A query sees the keys of its own segment.
        key_segments: Likewise; None exactly when query_segments is.
        query_positions: What a rule that reads the position is told; None for offset + t.
        scale: Multiplies the products.
        is_causal: Whether a key may stand no later than the query's position.
        window: How far (before, after) the query's position a key may stand; None for no limit.
        soft_cap: Logits become cap * tanh(logit / cap); None for no cap.
        precision: Of the products; None for the default of the implementation.
    """

    query: Float[Array, "B T N H"]
    key: Float[Array, "B S K H"]
    value: Float[Array, "B S K V"] | None
    bias: Float[Array, "#B #N #T #S"] | None = None
    mask: Bool[Array, "#B #N #T #S"] | None = None
    sink: Float[Array, " N"] | None = None
    query_lengths: Int[Array, " B"] | None = None
    key_lengths: Int[Array, " B"] | None = None
    query_offset: Int[Array, " B"] | None = None
    query_segments: Int[Array, "B T"] | None = None
    key_segments: Int[Array, "B S"] | None = None
    query_positions: Int[Array, "B T"] | None = None
    scale: float = 1.0
    is_causal: bool = False
    window: tuple[int, int] | None = None
    soft_cap: float | None = None
    precision: object = None

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """(B, T, S, N, K)."""
        return (*self.query.shape[:2], self.key.shape[1], self.query.shape[2], self.key.shape[2])

    @property
    def stats_dtype(self):
        """Dtype of logits and statistics: float64 for float64 inputs, else float32."""
        return jnp.dtype(jnp.float64 if self.query.dtype == jnp.float64 else jnp.float32)

    def replace(self, **changes) -> Problem:
        """The same call with some fields changed."""
        return dataclasses.replace(self, **changes)


def standing(problem: Problem) -> Int[Array, "#B T"]:
    """Where each query stands among the keys: its index, shifted by the offset."""
    index = jnp.arange(problem.query.shape[1], dtype=jnp.int32)[None]
    return index if problem.query_offset is None else index + problem.query_offset[:, None]

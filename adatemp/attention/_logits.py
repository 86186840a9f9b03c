"""Queries and keys, who sees whom, and the logits of one against the other."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from adatemp.attention._problem import Problem, standing
from adatemp.attention._products import scores

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["query", "standing", "alive", "positions", "segments", "bias", "mask"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True, eq=False)
class Queries:
    """Queries with everything that belongs to each: what a block of queries is cut from. G = N // K.

    Attributes:
        query: As in `Problem`, heads split.
        standing: Position among the keys.
        alive: Whether the query is within its sequence's length; None when all are.
        positions: What a rule that reads the position is told.
        segments: As in `Problem`.
        bias: As in `Problem`, heads split; None when its T axis is 1, and then it belongs to the keys.
        mask: Likewise.
    """

    query: Float[Array, "B T N H"]
    standing: Int[Array, "#B T"]
    alive: Bool[Array, "B T"] | None
    positions: Int[Array, "#B T"]
    segments: Int[Array, "B T"] | None
    bias: Float[Array, "#B T #K #G #S"] | None
    mask: Bool[Array, "#B T #K #G #S"] | None

    def replace(self, **changes) -> Queries:
        """The same queries with some fields changed."""
        return dataclasses.replace(self, **changes)


class Keys(NamedTuple):
    """Keys and values with everything that belongs to each.

    Attributes:
        key: As in `Problem`, heads first.
        value: Likewise; None when only statistics are wanted.
        index: Index of the key in the whole array.
        alive: Whether the key is within its sequence's length; None when all are.
        segments: As in `Problem`.
        bias: The bias whose T axis is 1; None otherwise.
        mask: Likewise.
    """

    key: Float[Array, "B K S H"]
    value: Float[Array, "B K S V"] | None
    index: Int[Array, " S"]
    alive: Bool[Array, "B S"] | None
    segments: Int[Array, "B S"] | None
    bias: Float[Array, "#B #K #G 1 #S"] | None
    mask: Bool[Array, "#B #K #G 1 #S"] | None


def split(problem: Problem, first_key: int | Int[Array, ""] = 0) -> tuple[Queries, Keys]:
    """What belongs to the queries, and what belongs to the keys, the first of which has the index `first_key`."""
    B, T, S, N, K = problem.sizes
    at = standing(problem)
    by_query, by_key = {}, {}
    for name in ("bias", "mask"):
        array = getattr(problem, name)
        if array is not None:
            b, n, t, s = array.shape
            array = array.reshape(b, *((1, 1) if n == 1 else (K, N // K)), t, s)
            (by_key if t == 1 else by_query)[name] = array if t == 1 else jnp.moveaxis(array, 3, 1)
    index = first_key + jnp.arange(S, dtype=jnp.int32)
    queries = Queries(
        query=problem.query,
        standing=at,
        alive=None if problem.query_lengths is None else jnp.arange(T)[None] < problem.query_lengths[:, None],
        positions=at if problem.query_positions is None else problem.query_positions,
        segments=problem.query_segments,
        bias=by_query.get("bias"),
        mask=by_query.get("mask"),
    )
    keys = Keys(
        key=jnp.swapaxes(problem.key, 1, 2),
        value=None if problem.value is None else jnp.swapaxes(problem.value, 1, 2),
        index=index,
        alive=None if problem.key_lengths is None else index[None] < problem.key_lengths[:, None],
        segments=problem.key_segments,
        bias=by_key.get("bias"),
        mask=by_key.get("mask"),
    )
    return queries, keys


def live_logits(problem: Problem, queries: Queries, keys: Keys) -> Float[Array, "B K G T S"]:
    """Logits in the dtype of the statistics, -inf where a key is hidden."""
    seen = visible(problem, queries, keys)
    z = problem.scale * scores(problem, queries.query, keys.key)
    if problem.soft_cap is not None:
        # Hidden scores may be NaN, and the derivative of tanh would spread it.
        z = z if seen is None else jnp.where(seen, z, 0)
        z = problem.soft_cap * jnp.tanh(z / problem.soft_cap)
    for bias in _biases(queries, keys):
        z = z + bias.astype(z.dtype)
    return z if seen is None else jnp.where(seen, z, -jnp.inf)


def visible(problem: Problem, queries: Queries, keys: Keys) -> Bool[Array, "#B #K #G #T #S"] | None:
    """Which keys each query sees, or None when it sees all."""
    at, index = queries.standing[:, None, None, :, None], keys.index
    conditions = []
    if problem.is_causal:
        conditions.append(index <= at)
    if problem.window is not None:
        before, after = problem.window
        conditions += [index >= at - before, index <= at + after]
    if queries.alive is not None:
        conditions.append(queries.alive[:, None, None, :, None])
    if keys.alive is not None:
        conditions.append(keys.alive[:, None, None, None, :])
    if queries.segments is not None:
        conditions.append(queries.segments[:, None, None, :, None] == keys.segments[:, None, None, None, :])
    if keys.mask is not None:
        conditions.append(keys.mask)
    if queries.mask is not None:
        conditions.append(jnp.moveaxis(queries.mask, 1, 3))
    conditions += [bias != -jnp.inf for bias in _biases(queries, keys)]
    seen = None
    for condition in conditions:
        seen = condition if seen is None else seen & condition
    return seen


def _biases(queries: Queries, keys: Keys) -> list:
    """The bias, if any, in the logits' layout."""
    by_query = None if queries.bias is None else jnp.moveaxis(queries.bias, 1, 3)
    return [bias for bias in (keys.bias, by_query) if bias is not None]

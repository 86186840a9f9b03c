"""Logits of queries against keys, who sees whom, and how what is not finite is kept from those who do not see it."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from adatemp.attention._problem import Problem, standing

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["query", "poison", "standing", "alive", "positions", "segments", "bias", "mask"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True, eq=False)
class Queries:
    """Queries with everything that belongs to each: what a block of queries is cut from. G = N // K.

    Attributes:
        query: Rows that are not finite replaced by 0, and marked in `poison`.
        poison: 0, and NaN where the query is not finite.
        standing: Position among the keys.
        alive: Whether the query is within its sequence's length; None when all are.
        positions: What a rule that reads the position is told.
        segments: As in `Problem`.
        bias: As in `Problem`, heads split; None when its T axis is 1, and then it belongs to the keys.
        mask: Likewise.
    """

    query: Float[Array, "B T K G H"]
    poison: Float[Array, "B T K G"]
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
        key: Rows that are not finite replaced by 0, and marked in `key_poison`.
        key_poison: 0, and NaN where the key is not finite.
        value: As for keys; None when only statistics are wanted.
        bad_value: Whether the value is not finite; None without values.
        index: Index of the key in the whole array.
        alive: Whether the key is within its sequence's length; None when all are.
        segments: As in `Problem`.
        bias: The bias whose T axis is 1; None otherwise.
        mask: Likewise.
    """

    key: Float[Array, "B K S H"]
    key_poison: Float[Array, "B K S"]
    value: Float[Array, "B K S V"] | None
    bad_value: Bool[Array, "B K S"] | None
    index: Int[Array, " S"]
    alive: Bool[Array, "B S"] | None
    segments: Int[Array, "B S"] | None
    bias: Float[Array, "#B #K #G 1 #S"] | None
    mask: Bool[Array, "#B #K #G 1 #S"] | None


def split(problem: Problem) -> tuple[Queries, Keys]:
    """What belongs to the queries, and what belongs to the keys."""
    B, T, S, N, K = problem.sizes
    query, poison = _isolate(problem.query, problem.stats_dtype)
    key, key_poison = _isolate(problem.key, problem.stats_dtype)
    value, bad_value = None, None
    if problem.value is not None:
        value, poison_of_value = _isolate(problem.value, problem.stats_dtype)
        value, bad_value = jnp.swapaxes(value, 1, 2), jnp.swapaxes(jnp.isnan(poison_of_value), 1, 2)
    at = standing(problem)
    by_query, by_key = {}, {}
    for name in ("bias", "mask"):
        array = getattr(problem, name)
        if array is not None:
            b, n, t, s = array.shape
            array = array.reshape(b, *((1, 1) if n == 1 else (K, N // K)), t, s)
            (by_key if t == 1 else by_query)[name] = array if t == 1 else jnp.moveaxis(array, 3, 1)
    queries = Queries(
        query=query.reshape(B, T, K, N // K, -1),
        poison=poison.reshape(B, T, K, N // K),
        standing=at,
        alive=None if problem.query_lengths is None else jnp.arange(T)[None] < problem.query_lengths[:, None],
        positions=at if problem.query_positions is None else problem.query_positions,
        segments=problem.query_segments,
        bias=by_query.get("bias"),
        mask=by_query.get("mask"),
    )
    keys = Keys(
        key=jnp.swapaxes(key, 1, 2),
        key_poison=jnp.swapaxes(key_poison, 1, 2),
        value=value,
        bad_value=bad_value,
        index=jnp.arange(S, dtype=jnp.int32),
        alive=None if problem.key_lengths is None else jnp.arange(S)[None] < problem.key_lengths[:, None],
        segments=problem.key_segments,
        bias=by_key.get("bias"),
        mask=by_key.get("mask"),
    )
    return queries, keys


def _isolate(array, dtype):
    """The array with vectors that are not finite set to 0, and NaN where they were.

    A product sums over all keys, the hidden ones with weight 0, and 0 * NaN is NaN. So what is not finite is taken
    out of the products, values and gradients alike, and its NaN is added back where it is seen.
    """
    finite = jnp.all(jnp.isfinite(array), -1)
    return jnp.where(finite[..., None], array, 0), jnp.where(finite, 0, jnp.nan).astype(dtype)


def live_logits(problem: Problem, queries: Queries, keys: Keys) -> Float[Array, "B K G T S"]:
    """Logits in the dtype of the statistics, -inf where a key is hidden."""
    z = products("btkgh,bksh->bkgts", queries.query, keys.key, problem) * jnp.asarray(
        problem.scale, problem.stats_dtype
    )
    z = z + jnp.moveaxis(queries.poison, 1, -1)[..., None] + keys.key_poison[:, :, None, None, :]
    if problem.soft_cap is not None:
        z = problem.soft_cap * jnp.tanh(z / problem.soft_cap)
    for bias in (keys.bias, None if queries.bias is None else jnp.moveaxis(queries.bias, 1, 3)):
        if bias is not None:
            z = z + bias.astype(z.dtype)
    seen = visible(problem, queries, keys)
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
    seen = None
    for condition in conditions:
        seen = condition if seen is None else seen & condition
    return seen


def products(subscripts: str, left, right, problem: Problem):
    """Products summed in the dtype of the statistics, never in tensor-float or half precision unless asked for."""
    precision = jax.lax.Precision.HIGHEST if problem.precision is None else problem.precision
    return jnp.einsum(subscripts, left, right, precision=precision, preferred_element_type=problem.stats_dtype)


def unseen_values(live, keys: Keys):
    """NaN in the rows that see a value which is not finite, else 0; nearly always nothing is to be done."""

    def poisoned(_):
        seen = jnp.any(live & keys.bad_value[:, :, None, None, :], -1)  # [B, K, G, T]
        return jnp.where(seen, jnp.nan, 0).astype(jnp.float32)

    rows = jax.lax.cond(jnp.any(keys.bad_value), poisoned, lambda _: jnp.zeros(live.shape[:-1], jnp.float32), None)
    return jnp.moveaxis(rows, -1, 1)[..., None]

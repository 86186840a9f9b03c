"""Multi-query associative recall: pairs of key and value, then some of the keys again; which value had each?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp.tasks._labelled_sets import sizes
from adatemp.tasks._token_rows import TokenRows

if TYPE_CHECKING:
    from jaxtyping import Array, Int, Key


def sample(
    key: Key[Array, ""],
    batch: int,
    pairs: int,
    *,
    queries: int = 8,
    keys: int = 1024,
    values: int = 16,
    min_pairs: int | None = None,
) -> TokenRows:
    """Draw rows k₁ v₁ k₂ v₂ … then queries, each a key of a random pair of the row, with replacement.

    The keys of a row are distinct, values are drawn with replacement; tokens 0, ..., values − 1 are the values, those
    from `values` on the keys. A query follows all pairs, so it sees 2 tokens a pair, the queries before it and itself:
    the row grows by keys that compete, and the right one is never cut off. Can be called inside jit.

    Args:
        key: a JAX random key.
        batch: number of rows.
        pairs: pairs in a row, or room for pairs when `min_pairs` is given.
        queries: number of queries A of a row.
        keys: different keys there are, at least `pairs`.
        values: different values there are.
        min_pairs: when given, each row has its own number of pairs, uniform on min_pairs, ..., pairs, and the places
            before its first pair are masked.

    Returns:
        The batch; rows have 2 pairs + queries tokens, and every query asks.

    Raises:
        ValueError: for sizes that leave nothing to draw, and fewer keys than pairs.
    """
    for name, value in (("batch", batch), ("pairs", pairs), ("queries", queries), ("values", values)):
        if value < 1:
            raise ValueError(f"{name}={value}: a batch needs at least 1; give a positive integer.")
    if keys < pairs:
        raise ValueError(f"keys={keys}: the {pairs} keys of a row are distinct; give at least {pairs}.")
    if min_pairs is not None and not 1 <= min_pairs <= pairs:
        raise ValueError(
            f"min_pairs={min_pairs}: a row has min_pairs to pairs={pairs}; give 1 to {pairs}, or None for {pairs}."
        )
    key_size, key_keys, key_values, key_queries = jax.random.split(key, 4)
    exists = sizes(key_size, batch, pairs, min_items=min_pairs)[:, ::-1]  # the last so many
    shown = distinct(key_keys, batch, pairs, keys)
    value = jax.random.randint(key_values, (batch, pairs), 0, values)
    back = jnp.floor(jax.random.uniform(key_queries, (batch, queries)) * exists.sum(-1, keepdims=True))
    which = pairs - 1 - back.astype(jnp.int32)

    body = jnp.stack([values + shown, value], axis=-1).reshape(batch, 2 * pairs)
    asks = values + jnp.take_along_axis(shown, which, axis=-1)
    return TokenRows(
        tokens=jnp.concatenate([body, asks], axis=-1),
        where=jnp.concatenate([jnp.repeat(exists, 2, axis=-1), jnp.ones((batch, queries), bool)], axis=-1),
        target=jnp.take_along_axis(value, which, axis=-1),
        asked=jnp.ones((batch, queries), bool),
    )


def distinct(key: Key[Array, ""], batch: int, drawn: int, among: int) -> Int[Array, "batch drawn"]:
    """Rows of distinct numbers below `among`, in each row every ordered choice equally likely.

    As many rows as fit share a permutation, and with it no number: sorting one for each would take longer than a step
    of training.
    """
    rows = among // drawn
    order = jnp.broadcast_to(jnp.arange(among), (-(-batch // rows), among))
    order = jax.random.permutation(key, order, axis=1, independent=True)
    return order[:, : rows * drawn].reshape(-1, drawn)[:batch]

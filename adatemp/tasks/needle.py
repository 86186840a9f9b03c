"""A needle with distractors: one key is the query itself, every other stays behind it by a fixed gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp.tasks._labelled_sets import LabelledSets, sizes

if TYPE_CHECKING:
    from jaxtyping import Array, Key


def sample(
    key: Key[Array, ""],
    batch: int,
    n: int,
    *,
    classes: int = 10,
    width: int = 8,
    gap: float = 0.5,
    min_items: int | None = None,
) -> LabelledSets:
    """Draw sets in which one item, at a random place, has the query as its key.

    With u the query, a random unit vector, a distractor's key is c u + √(1 − c²) v with v a random unit vector at right
    angles to u and c uniform on [−(1 − gap), 1 − gap]. All keys have length 1, and the needle's product with the query
    is 1, so whatever the number of items, the best competitor's product stays below it by the gap or more. Labels are
    uniform and independent. Can be called inside jit.

    Args:
        key: a JAX random key.
        batch: number of sets.
        n: items in a set, or room for items when `min_items` is given.
        classes: number of classes C.
        width: dimensions of query and keys, 2 or more.
        gap: of the products, in (0, 1].
        min_items: when given, each set has its own size, uniform on min_items, ..., n, and items past it are masked.

    Returns:
        The batch; features are the keys, of shape [batch, n, width]; the item to find is the needle.

    Raises:
        ValueError: for sizes that leave nothing to draw, a width below 2 and a gap outside (0, 1].
    """
    if width < 2:
        raise ValueError(f"width={width}: distractors need a direction at right angles to the query; give 2 or more.")
    if not 0 < gap <= 1:
        raise ValueError(f"gap={gap}: how far the needle's product is ahead of every other; give a number in (0, 1].")
    key_size, key_place, key_query, key_side, key_cosine, key_label = jax.random.split(key, 6)
    where = sizes(key_size, batch, n, classes=classes, min_items=min_items)
    place = jnp.floor(jax.random.uniform(key_place, (batch,)) * where.sum(-1)).astype(jnp.int32)

    query = _unit(jax.random.normal(key_query, (batch, width)))
    side = jax.random.normal(key_side, (batch, n, width))
    side = _unit(side - jnp.sum(side * query[:, None], -1, keepdims=True) * query[:, None])
    cosine = (1 - gap) * jax.random.uniform(key_cosine, (batch, n, 1), minval=-1.0)
    distractors = cosine * query[:, None] + jnp.sqrt(1 - cosine**2) * side
    is_needle = jnp.arange(n) == place[:, None]
    label = jax.random.randint(key_label, (batch, n), 0, classes)
    return LabelledSets(
        features=jnp.where(is_needle[..., None], query[:, None], distractors),
        label=label,
        query=query,
        where=where,
        target=jnp.take_along_axis(label, place[:, None], axis=-1)[:, 0],
        item=place,
    )


def _unit(vectors):
    return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)

"""A head that must not be sharpened: the answer is the most frequent label, to which every item counts alike."""

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
    share: float = 0.3,
    min_items: int | None = None,
) -> LabelledSets:
    """Draw sets in which one label, another in every set, is more likely than the rest.

    An item has the favoured label with probability share + (1 − share)/C and each other with (1 − share)/C, so the more
    items, the clearer the majority, and a read-out that averages them all only gains by size. Features are uniform on
    [0, 1) and say nothing: an item picked by its features has the favoured label no more often than any item. Can be
    called inside jit.

    Args:
        key: a JAX random key.
        batch: number of sets.
        n: items in a set, or room for items when `min_items` is given.
        classes: number of classes C.
        share: of the items that have the favoured label beyond the rest, in (0, 1].
        min_items: when given, each set has its own size, uniform on min_items, ..., n, and items past it are masked.

    Returns:
        The batch; the target is the label that did occur most often, the lowest of several; the item to find is -1.

    Raises:
        ValueError: for sizes that leave nothing to draw and a share outside (0, 1].
    """
    if not 0 < share <= 1:
        raise ValueError(f"share={share}: of items that have the favoured label for sure; give a number in (0, 1].")
    key_size, key_feature, key_query, key_favoured, key_sure, key_label = jax.random.split(key, 6)
    where = sizes(key_size, batch, n, classes=classes, min_items=min_items)
    favoured = jax.random.randint(key_favoured, (batch, 1), 0, classes)
    sure = jax.random.uniform(key_sure, (batch, n)) < share
    label = jnp.where(sure, favoured, jax.random.randint(key_label, (batch, n), 0, classes))
    counts = jnp.sum(jax.nn.one_hot(label, classes, dtype=jnp.int32) * where[..., None], axis=1)
    return LabelledSets(
        features=jax.random.uniform(key_feature, (batch, n, 1)),
        label=label,
        query=jax.random.uniform(key_query, (batch, 1)),
        where=where,
        target=jnp.argmax(counts, axis=-1),
        item=jnp.full(batch, -1),
    )

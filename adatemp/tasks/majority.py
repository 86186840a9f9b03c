"""A head that must not be sharpened: the most frequent label among half of the items, which all count alike."""

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

    Features are uniform on [0, 1), and the items that count are those whose feature is above 1/2; the first item always
    is one of them. Among these an item has the favoured label with probability share + (1 − share)/C and each other
    with (1 − share)/C, so the more items, the clearer the majority; among those that do not count all labels are
    equally likely. A head has to look at half of the items, and at each of them alike: their features say no more, and
    a few of them have the favoured label no more often than any. Can be called inside jit.

    Args:
        key: a JAX random key.
        batch: number of sets.
        n: items in a set, or room for items when `min_items` is given.
        classes: number of classes C.
        share: of the items that count and have the favoured label for sure, in (0, 1].
        min_items: when given, each set has its own size, uniform on min_items, ..., n, and items past it are masked.

    Returns:
        The batch; the target is the label that did occur most often among the items that count, the lowest of several;
        the item to find is -1.

    Raises:
        ValueError: for sizes that leave nothing to draw and a share outside (0, 1].
    """
    if not 0 < share <= 1:
        raise ValueError(f"share={share}: of items that have the favoured label for sure; give a number in (0, 1].")
    key_size, key_feature, key_query, key_favoured, key_sure, key_label = jax.random.split(key, 6)
    where = sizes(key_size, batch, n, classes=classes, min_items=min_items)
    feature = jax.random.uniform(key_feature, (batch, n))
    feature = feature.at[:, 0].set((1 + feature[:, 0]) / 2)
    counting = where & (feature > 0.5)
    favoured = jax.random.randint(key_favoured, (batch, 1), 0, classes)
    sure = counting & (jax.random.uniform(key_sure, (batch, n)) < share)
    label = jnp.where(sure, favoured, jax.random.randint(key_label, (batch, n), 0, classes))
    counts = jnp.sum(jax.nn.one_hot(label, classes, dtype=jnp.int32) * counting[..., None], axis=1)
    return LabelledSets(
        features=feature[..., None],
        label=label,
        query=jax.random.uniform(key_query, (batch, 1)),
        where=where,
        target=jnp.argmax(counts, axis=-1),
        item=jnp.full(batch, -1),
    )

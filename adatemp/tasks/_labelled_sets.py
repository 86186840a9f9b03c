"""Sets of items that have features and a label, and a question whose answer is a label."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int, Key


class LabelledSets(NamedTuple):
    """A batch of sets, and what should be found in each."""

    features: Float[Array, "B n F"]  # what keys are computed from
    label: Int[Array, "B n"]  # what values are computed from
    query: Float[Array, "B G"]
    where: Bool[Array, "B n"]  # which items exist
    target: Int[Array, " B"]  # the label to answer
    item: Int[Array, " B"]  # the item to look at, -1 where the answer is in no single one

    @property
    def visible(self) -> Int[Array, " B"]:
        """Number of keys that the query sees."""
        return self.where.sum(-1)


def sizes(
    key: Key[Array, ""], batch: int, n: int, *, classes: int = 10, min_items: int | None = None
) -> Bool[Array, "B n"]:
    """Which items exist: all n of them, or the first so many, a number uniform on min_items, ..., n.

    Raises:
        ValueError: for sizes that leave nothing to draw.
    """
    for name, value in (("batch", batch), ("n", n), ("classes", classes)):
        if value < 1:
            raise ValueError(f"{name}={value}: a batch needs at least 1; give a positive integer.")
    if min_items is not None and not 1 <= min_items <= n:
        raise ValueError(f"min_items={min_items}: sizes run from min_items to n={n}; give 1 to {n}, or None for n.")
    smallest = n if min_items is None else min_items
    return jnp.arange(n) < jax.random.randint(key, (batch, 1), smallest, n + 1)

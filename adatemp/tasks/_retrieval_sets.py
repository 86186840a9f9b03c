"""Random sets for max retrieval: priorities, classes, a query, and the item to find."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int, Key


class MaxRetrievalBatch(NamedTuple):
    """A batch of sets and what should be found in them."""

    items: Float[Array, "B n features"]  # priority, then the one-hot class
    query: Float[Array, "B 1"]
    where: Bool[Array, "B n"]  # which items exist
    target: Int[Array, " B"]  # class of the item with the highest priority
    top_item: Int[Array, " B"]  # its position


def sample(
    key: Key[Array, ""], batch: int, n: int, *, classes: int = 10, min_items: int | None = None
) -> MaxRetrievalBatch:
    """Draw sets whose answer is the class of the item with the highest priority.

    Priorities and the query are uniform on [0, 1), classes uniform. Can be called inside jit. A float32 uniform has
    2²³ values, so at 16,384 items two share the top of a set about once in 500 sets; the first is then the answer.

    Args:
        key: a JAX random key.
        batch: number of sets.
        n: items in a set, or room for items when `min_items` is given.
        classes: number of classes C.
        min_items: when given, each set has its own size, uniform on min_items, ..., n, and items past it are masked.

    Returns:
        The batch; `items` has 1 + C features.

    Raises:
        ValueError: for sizes that leave nothing to draw.
    """
    for name, value in (("batch", batch), ("n", n), ("classes", classes)):
        if value < 1:
            raise ValueError(f"{name}={value}: a batch needs at least 1; give a positive integer.")
    if min_items is not None and not 1 <= min_items <= n:
        raise ValueError(f"min_items={min_items}: sizes run from min_items to n={n}; give 1 to {n}, or None for n.")
    # One draw for everything: each generator call costs half a second of compilation.
    uniform = jax.random.uniform(key, (batch, 2 * n + 2))
    priority, label = uniform[:, :n], jnp.floor(classes * uniform[:, n : 2 * n]).astype(jnp.int32)
    smallest = n if min_items is None else min_items
    size = smallest + jnp.floor((n + 1 - smallest) * uniform[:, -1:]).astype(jnp.int32)
    where = jnp.arange(n) < size
    top_item = jnp.argmax(jnp.where(where, priority, -1.0), axis=-1)
    return MaxRetrievalBatch(
        items=jnp.concatenate([priority[..., None], jax.nn.one_hot(label, classes)], axis=-1),
        query=uniform[:, -2:-1],
        where=where,
        target=jnp.take_along_axis(label, top_item[:, None], axis=-1)[:, 0],
        top_item=top_item,
    )

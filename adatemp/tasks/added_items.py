"""Sets that grow around a fixed core without changing the answer: does it matter what is added?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp.tasks._retrieval_sets import MaxRetrievalBatch, sample

if TYPE_CHECKING:
    from jaxtyping import Array, Key

CORE = 16  # items of the core, as many as training ever showed
NEAR = 0.01  # how far below the highest priority a near-maximal item may lie, relative to it

# What is added to the core. Every added item has a lower priority than the core's top item, so n is all that changes.
KINDS = {
    "identical": "copies of the core's second item",
    "random": "priority uniform below the top, any class",
    "near-maximal": "priority within one per cent of the top, any class",
    "mixed": "a third of each",
}


def grow(key: Key[Array, ""], batch: int, n: int, kind: str, *, classes: int = 10) -> MaxRetrievalBatch:
    """Draw cores of 16 items and add n − 16 items of one kind to each.

    Args:
        key: a JAX random key; for equal keys the cores are the same whatever n and kind.
        batch: number of sets.
        n: items in a set, 16 or more.
        kind: one of `KINDS`.
        classes: number of classes C.

    Returns:
        The batch, the core first; target and top item are those of the core.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: choose one of {list(KINDS)}.")
    if n < CORE:
        raise ValueError(f"n={n}: a set holds its core of {CORE} items; give at least that.")
    key_core, key_priority, key_class = jax.random.split(key, 3)
    core = sample(key_core, batch, CORE, classes=classes)
    added = n - CORE
    priorities, second = jax.lax.top_k(core.items[..., 0], 2)
    top = priorities[:, :1]
    copy = jnp.take_along_axis(core.items, second[:, 1, None, None], axis=1)  # [batch, 1, features]

    fraction = jax.random.uniform(key_priority, (batch, added))
    one_hot = jax.nn.one_hot(jax.random.randint(key_class, (batch, added), 0, classes), classes)

    def drawn(priority):
        # float32 can round a product with a factor just below 1 up to the top itself: keep it strictly below.
        below = jnp.minimum(priority, jnp.nextafter(top, 0.0))
        return jnp.concatenate([below[..., None], one_hot], axis=-1)

    added_items = {
        "identical": jnp.broadcast_to(copy, (batch, added, 1 + classes)),
        "random": drawn(top * fraction),
        "near-maximal": drawn(top * (1 - NEAR * (1 - fraction))),
    }
    third = jnp.arange(added)[None, :, None] % 3
    added_items["mixed"] = jnp.select(
        [third == 0, third == 1], list(added_items.values())[:2], added_items["near-maximal"]
    )
    return core._replace(
        items=jnp.concatenate([core.items, added_items[kind]], axis=1), where=jnp.ones((batch, n), bool)
    )


# One function a kind, so that each is compiled once.
_DRAWS = {kind: partial(grow, kind=kind) for kind in KINDS}


def drawer(kind: str) -> Callable[..., MaxRetrievalBatch]:
    """The `draw` argument of `max_retrieval.evaluate` for sets that grow by items of one kind."""
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: choose one of {list(KINDS)}.")
    return _DRAWS[kind]

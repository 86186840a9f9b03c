"""Max retrieval: which class has the item of highest priority? Trained on small sets, tested on large ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from adatemp.models.set_pooling import SetPooling
from adatemp.tasks._retrieval_readouts import READ_OUTS, evaluate, evaluate_sizes, read
from adatemp.tasks._retrieval_sets import MaxRetrievalBatch, sample
from adatemp.training import History, train

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Key

    from adatemp.temperature import TemperatureRule

__all__ = [
    "MAIN_RECIPE",
    "PUBLISHED",
    "READ_OUTS",
    "RECIPES",
    "SIZES",
    "MaxRetrievalBatch",
    "evaluate",
    "evaluate_sizes",
    "loss",
    "read",
    "sample",
    "train_head",
]

# Test sizes of Table 1 of "softmax is not enough" (ICML 2025): eleven doublings, of which training sees the first.
SIZES = tuple(2**power for power in range(4, 15))

# Table 1 there, in per cent: plain softmax, and the published temperature map at inference, the same parameters. The
# numbers come from published notes on the paper; the two sizes absent here (32 and 8,192) we could not confirm.
PUBLISHED = {
    16: (98.6, 98.6),
    64: (94.3, 94.5),
    128: (89.7, 89.9),
    256: (81.3, 82.1),
    512: (70.1, 72.5),
    1_024: (53.8, 57.7),
    2_048: (35.7, 39.4),
    4_096: (22.6, 24.9),
    16_384: (12.4, 14.0),
}


def loss(
    model: SetPooling,
    key: Key[Array, ""],
    *,
    batch: int = 128,
    min_items: int = 5,
    max_items: int = 16,
    temperature: TemperatureRule | None = None,
    l2: float = 0.0,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Cross-entropy of the class of the maximum on fresh sets, and the share of sets answered rightly.

    Args:
        model: a head.
        key: a JAX random key, from which the sets are drawn.
        batch: number of sets.
        min_items: smallest set.
        max_items: largest set.
        temperature: rule of the softmax in training; None is plain softmax.
        l2: adds l2/2 times the sum of the squared parameters.

    Returns:
        The loss in nats and {"accuracy": ...}.
    """
    sets = sample(key, batch, max_items, min_items=min_items)
    class_logits = model(sets.items, sets.query, sets.where, temperature=temperature)
    total = optax.softmax_cross_entropy_with_integer_labels(class_logits, sets.target).mean()
    if l2:
        total += l2 / 2 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
    return total, {"accuracy": jnp.mean(class_logits.argmax(-1) == sets.target)}


# The paper's optimiser is known to be of Adam's family, with rate 1e-3 and a decay of 1e-3, and no more. Three readings
# of that were tried with one seed each and the first was nearest to the published row; see the result "recipes". One
# seed tells the second from the others and does not tell the first from the third; no other choice was tried.
RECIPES = ("adamw, constant rate", "adamw, cosine rate", "adam, L2 term")
MAIN_RECIPE = RECIPES[0]


@cache  # one object for all runs of a recipe, so that ten seeds compile one program
def _recipe(name: str, steps: int) -> tuple[optax.GradientTransformation, Callable]:
    if name == "adamw, constant rate":
        return optax.adamw(1e-3, weight_decay=1e-3), loss
    if name == "adamw, cosine rate":
        return optax.adamw(optax.cosine_decay_schedule(1e-3, steps), weight_decay=1e-3), loss
    if name == "adam, L2 term":
        return optax.adam(1e-3), partial(loss, l2=1e-3)
    raise ValueError(f"recipe={name!r}: choose one of {list(RECIPES)}.")


def train_head(
    seed: int,
    *,
    steps: int = 10_000,
    recipe: str = MAIN_RECIPE,
    checkpoint: str | os.PathLike | None = None,
    progress: bool | Callable[[int, dict[str, np.ndarray]], None] | None = None,
) -> tuple[SetPooling, History]:
    """Train one head of width 128 on batches of 128 sets of 5 to 16 items.

    Args:
        seed: decides the initial parameters and the training sets.
        steps: optimiser steps.
        recipe: one of `RECIPES`; the main one is AdamW at a constant rate of 1e-3 with decoupled weight decay 1e-3.
        checkpoint: as in `adatemp.training.train`.
        progress: as in `adatemp.training.train`.

    Returns:
        The head and its training history ("loss", "accuracy").
    """
    optimizer, loss_fn = _recipe(recipe, steps)
    key_parameters, key_sets = jax.random.split(jax.random.key(seed))
    model = SetPooling(rngs=nnx.Rngs(key_parameters))
    history = train(
        model, loss_fn, optimizer=optimizer, steps=steps, seed=key_sets, checkpoint=checkpoint, progress=progress
    )
    return model, history

"""Heads that can fail by dispersion alone, and heads that must not be sharpened: one recipe, four questions to a set.

The keys see an item's priority and not its class, and an L2 penalty bounds the weights. So the largest logit is on the
item of highest priority at every size, and what a head that looks for it loses with size it loses to dispersion. The
other questions have the same recipe and another answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from adatemp.models.pooling_arms import PriorityPooling
from adatemp.models.set_pooling import SetPooling
from adatemp.tasks._retrieval_sets import MaxRetrievalBatch, sample
from adatemp.tasks.price_of_sharpness import most_frequent
from adatemp.training import History, train

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Key

#: Adds 10⁻³/2 times the sum of the squared parameters to the loss.
L2 = 1e-3
STEPS = 4_000


def second_largest(
    key: Key[Array, ""], batch: int, n: int, *, classes: int = 10, min_items: int | None = None
) -> MaxRetrievalBatch:
    """The sets of max retrieval, asked for the class of the item of second highest priority, which is `top_item`.

    A sharp question, to which the largest logit is not the answer: a head has to spread over the first few.

    Args:
        key, batch, n, classes, min_items: as in `max_retrieval.sample`; sets have at least two items.
    """
    if min(n, n if min_items is None else min_items) < 2:
        raise ValueError(f"n={n}, min_items={min_items}: a second item needs sets of at least 2.")
    sets = sample(key, batch, n, classes=classes, min_items=min_items)
    hidden = ~sets.where | (jnp.arange(n) == sets.top_item[:, None])
    second = jnp.argmax(jnp.where(hidden, -1.0, sets.items[..., 0]), axis=-1)
    chosen = jnp.take_along_axis(sets.items, second[:, None, None], axis=-2)[:, 0, 1:]
    return sets._replace(target=jnp.argmax(chosen, axis=-1), top_item=second)


def heaviest(
    key: Key[Array, ""], batch: int, n: int, *, classes: int = 10, min_items: int | None = None
) -> MaxRetrievalBatch:
    """The sets of max retrieval, asked for the class whose priorities add up to most.

    An average of all items, in which each counts by its priority. `top_item` has no meaning here.

    Args:
        key, batch, n, classes, min_items: as in `max_retrieval.sample`.
    """
    sets = sample(key, batch, n, classes=classes, min_items=min_items)
    weight = jnp.where(sets.where, sets.items[..., 0], 0)[..., None] * sets.items[..., 1:]
    return sets._replace(target=jnp.argmax(weight.sum(-2), axis=-1))


class Question(NamedTuple):
    """What a head is asked, and what it is made of."""

    says: str
    model: type[SetPooling]
    draw: Callable[..., MaxRetrievalBatch]
    l2: float
    averages: bool  # whether the answer depends on all items, so that no item is the right one


#: The last has a key that sees the class and no penalty, so that nothing keeps it from being sharp.
QUESTIONS = {
    "largest": Question("class of the largest priority", PriorityPooling, sample, L2, False),
    "second largest": Question("class of the second largest priority", PriorityPooling, second_largest, L2, False),
    "heaviest": Question("class whose priorities add up to most", PriorityPooling, heaviest, L2, True),
    "most frequent": Question("most frequent class, nothing bounds the weights", SetPooling, most_frequent, 0, True),
}


def train_question(question: str, seed: int, *, steps: int = STEPS) -> tuple[SetPooling, History]:
    """Train one head of width 128 by Adam at a constant rate of 10⁻³ on batches of 128 sets of 5 to 16 items.

    Args:
        question: one of `QUESTIONS`.
        seed: decides the initial parameters and the training sets.
        steps: optimiser steps.

    Returns:
        The head and its training history ("loss", "accuracy").
    """
    if question not in QUESTIONS:
        raise ValueError(f"question={question!r}: choose one of {list(QUESTIONS)}.")
    key_parameters, key_sets = jax.random.split(jax.random.key(seed))
    head = QUESTIONS[question].model(rngs=nnx.Rngs(key_parameters))
    optimizer, loss_fn = _recipe(question)
    history = train(head, loss_fn, optimizer=optimizer, steps=steps, seed=key_sets, progress=False)
    return head, history


@cache  # one object for all seeds of a question, so that they compile one program
def _recipe(question: str) -> tuple[optax.GradientTransformation, Callable]:
    return optax.adam(1e-3), partial(_loss, draw=QUESTIONS[question].draw, l2=QUESTIONS[question].l2)


def _loss(
    model: SetPooling, key: Key[Array, ""], *, draw: Callable[..., MaxRetrievalBatch], l2: float
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    sets = draw(key, 128, 16, min_items=5)
    class_logits = model(sets.items, sets.query, sets.where)
    total = optax.softmax_cross_entropy_with_integer_labels(class_logits, sets.target).mean()
    if l2:
        total += l2 / 2 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
    return total, {"accuracy": jnp.mean(class_logits.argmax(-1) == sets.target)}

"""Training on the bench of normalisers: models of several seeds and rates as one stack, and how they answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from adatemp.tasks._bench_arms import TASKS, VARIANTS
from adatemp.tasks._token_rows import TokenRows
from adatemp.training import train

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Key

    from adatemp.tasks._labelled_sets import LabelledSets

    Batch = LabelledSets | TokenRows

RATES = (3e-3, 1e-2)
SHARE = 0.1  # of the steps, the last, whose loss chooses the rate
DATA_KEY = 1_000_000  # of the training sets, far from the seeds, whose keys make parameters and test sets


def train_models(
    task: str,
    variant: str,
    seeds: int,
    *,
    steps: int,
    rates: Sequence[float] = RATES,
    batch: int = 32,
) -> tuple[nnx.Module, dict[str, Any]]:
    """Train one model for each seed at each rate by Adam, the rate falling to 0 by a cosine, and keep the best rate.

    All models of all rates are one stacked model: a step costs little more than one of a single model. Models of equal
    seed begin with equal parameters and see equal sets.

    Args:
        task: one of `TASKS`.
        variant: one of `VARIANTS`.
        seeds: number of seeds, 0, 1, ...
        steps: optimiser steps.
        rates: learning rates to choose from.
        batch: sets or rows in a step.

    Returns:
        The models of the kept rate as one, a leading axis of seeds on every parameter; and "rate", "losses" (for each
        rate, mean over its models and the last tenth of the steps; None where a model ended with no finite loss).
    """
    for name, value, known in (("task", task, TASKS), ("variant", variant, VARIANTS)):
        if value not in known:
            raise ValueError(f"{name}={value!r}: choose one of {list(known)}.")
    make = partial(TASKS[task].model, VARIANTS[variant].learned)
    runs = jnp.tile(jnp.arange(seeds), len(rates))  # the seeds at the first rate, then at the second
    graph = nnx.split(make(rngs=nnx.Rngs(0)))[0]
    state = jax.vmap(lambda seed: nnx.split(make(rngs=nnx.Rngs(jax.random.key(seed))))[1])(runs)
    model = nnx.merge(graph, state)
    history = train(
        model,
        partial(_loss, task=task, variant=variant, seeds=seeds, batch=batch),
        optimizer=_optimizer(np.repeat(rates, seeds), steps),
        steps=steps,
        seed=jax.random.key(DATA_KEY),
        chunk=steps,
        progress=False,
    )
    last = max(1, round(SHARE * steps))
    losses = np.stack([history.metrics[f"loss of {run}"][-last:] for run in range(len(runs))])
    losses = np.where(np.isfinite(losses).all(-1), losses.mean(-1), np.inf).reshape(len(rates), seeds).mean(-1)
    best = int(np.argmin(losses))
    kept = jax.tree.map(lambda leaf: leaf[best * seeds : (best + 1) * seeds], nnx.split(model)[1])
    return nnx.merge(graph, kept), {
        "rate": rates[best],
        "losses": [float(loss) if np.isfinite(loss) else None for loss in losses],
    }


def _optimizer(rates, steps):
    """Adam with a rate for each model of a stack; the sum of their losses leaves their gradients apart."""

    def scale(updates, params):
        return jax.tree.map(lambda leaf: -leaf * rates.reshape(-1, *[1] * (leaf.ndim - 1)), updates)

    rates = rates.astype(np.float32)
    cosine = optax.scale_by_schedule(optax.cosine_decay_schedule(1.0, steps))
    return optax.chain(optax.scale_by_adam(), cosine, optax.stateless(scale))


def _loss(models, key, *, task, variant, seeds, batch):
    """The sum of the models' losses, those that are not finite left out, and each of them."""
    drawn = jax.vmap(lambda seed: draw_training(task, jax.random.fold_in(key, seed), batch))(jnp.arange(seeds))

    def one(state, seed):
        sets = jax.tree.map(lambda leaf: leaf[seed], drawn)
        return answer(nnx.merge(graph, state), sets, own(task, variant))[1]

    graph, state = nnx.split(models)
    runs = jax.tree.leaves(state)[0].shape[0]
    losses = jax.vmap(one)(state, jnp.arange(runs) % seeds)
    total = jnp.sum(jnp.where(jnp.isfinite(losses), losses, 0))
    return total, {f"loss of {run}": losses[run] for run in range(runs)}


def draw_training(task: str, key: Key[Array, ""], batch: int) -> Batch:
    """Sets or rows of training lengths."""
    about = TASKS[task]
    return about.draw(key, batch, about.longest, min_items=about.shortest)


def own(task: str, variant: str) -> Callable[[nnx.Module], Callable]:
    """The weights a model was trained with, as a function of the model."""
    weights, longest = VARIANTS[variant].weights, TASKS[task].keys

    def of(model):
        learned = {name: value[...] for name, value in model.learned.items()}
        return lambda logits, where: weights(logits, where, longest, learned)

    return of


def answer(
    model: nnx.Module, batch: Batch, weights: Callable[[nnx.Module], Callable]
) -> tuple[Bool[Array, "B A"], Float[Array, ""]]:
    """Which answers are right, and the mean cross-entropy of those that were asked for."""
    logits = model(batch, weights(model))
    target, asked = questions(batch)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, target)
    return jnp.argmax(logits, -1) == target, jnp.sum(jnp.where(asked, losses, 0)) / jnp.sum(asked)


def questions(batch: Batch):
    """(targets [B, A], which of them are asked for [B, A])."""
    if isinstance(batch, TokenRows):
        return batch.target, batch.asked
    return batch.target[:, None], jnp.ones((len(batch.target), 1), bool)

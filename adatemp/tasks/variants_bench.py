"""One bench for all normalisers: five tasks, trained short and tested up to 128 times longer, on the same sets.

A model is trained with one way of making weights, several seeds at each of a few learning rates, and the rate with the
lowest loss at training lengths is kept. The models trained with plain softmax are then also read by temperature rules
and selections that change nothing but inference; what these are made of is fitted at training lengths too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from adatemp._constant import constant
from adatemp._exp_offset import exp_offset
from adatemp._guarded import guarded
from adatemp._guarded_fit import fit_guarded
from adatemp._log_ratio import log_ratio
from adatemp._newton import newton
from adatemp._polynomial import PAPER, PAPER_HELD
from adatemp._softmax import adaptive_temperature_softmax
from adatemp._variants.selection import hard, top_k
from adatemp.tasks._bench_arms import TASKS, VARIANTS
from adatemp.tasks._labelled_sets import LabelledSets
from adatemp.tasks._token_rows import TokenRows
from adatemp.training import train

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Key

    Batch = LabelledSets | TokenRows

RATES = (3e-3, 1e-2)
SHARE = 0.1  # of the steps, the last, whose loss chooses the rate
MULTIPLES = (1, 2, 4, 8, 16, 32, 64, 128)  # of the longest training length
ROOMS = (16, 128)  # multiples to which test sets are padded, so that two programs serve all lengths
#: Grid of constants. The best at each length is an oracle's; the one with the lowest loss at training lengths is not.
CONSTANTS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0, 128.0)


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
        seed=0,
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


def by_length(weigh: Callable, longest: int) -> Callable:
    """The same weights of log n / log n0 times the logits, n0 the longest number of keys in training."""

    def scaled(logits, where):
        count = jnp.maximum(jnp.sum(where, -1, keepdims=True), 2)
        return weigh(logits * (jnp.log(count) / np.log(longest)), where)

    return scaled


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


FITTED = 512  # sets or rows that the rules are fitted on


def measure(
    models: nnx.Module,
    task: str,
    variant: str,
    seeds: int,
    *,
    counted: Mapping[int, int] | None = None,
    multiples: Sequence[int] = MULTIPLES,
    readings: bool | None = None,
) -> dict[str, Any]:
    """Read a stack of models at growing lengths, every reading on the same sets.

    Args:
        models: from `train_models`.
        task: what they were trained on.
        variant: how.
        seeds: how many there are.
        counted: sets or rows of each length, by room; the task's by default.
        multiples: of the longest training length, rising.
        readings: whether to add the readings that change inference alone; by default where the variant is softmax.

    Returns:
        For every length "visible" (mean number of keys that an answer sees), and for every seed and length "entropy"
        (in nats, of the softmax of the logits), "spread" of the logits, "mass" (sum of the weights) and "top" (largest
        weight over the mass), means over answers and heads; and "read_outs", for each name "accuracy", and "gained" and
        "lost" (answers right where the weights trained with are wrong, and the reverse), as shares of the answers:

        - own, the weights trained with; own by length, the same of log n / log n0 times the logits;
        - hard, all weight on the largest logit: the ceiling of whatever keeps the order of the keys;
        - with readings also those of `fit_readings` by name; top k, as many keys as the longest training length has;
          constant, the one of the lowest loss at training lengths; best constant, an oracle's at each length.

        With readings also "fitted", for each seed what `fit_readings` says of its rules, and "constants", accuracy for
        each of `CONSTANTS`, seed and length.

    Raises:
        ValueError: when what the answers see does not grow with the length.
    """
    readings = variant == "softmax" if readings is None else readings
    counted = TASKS[task].counted if counted is None else counted
    graph, state = nnx.split(models)
    one = [jax.tree.map(itemgetter(seed), state) for seed in range(seeds)]
    if readings:
        fits = [fit_readings(nnx.merge(graph, state), task, seed) for seed, state in enumerate(one)]
    columns = []
    for multiple in multiples:
        found = []
        for seed in range(seeds):
            batch = drawn_sets(task, seed, multiple, counted[room(multiple)])
            rules = fits[seed][0] if readings else {}
            found.append(_read(graph, task, variant, readings, one[seed], batch, rules))
        columns.append(jax.tree.map(lambda *leaves: [float(leaf) for leaf in leaves], *jax.device_get(found)))
    visible = [column.pop("visible")[0] for column in columns]
    if not all(after >= before * ratio / 1.5 for before, after, ratio in _steps(visible, multiples)):
        raise ValueError(f"task={task!r}: answers see {visible} keys at {multiples} times the training length.")
    found = jax.tree.map(lambda *lengths: [list(row) for row in zip(*lengths)], *columns, is_leaf=_is_list)
    if readings:
        about = [about for _, about in fits]
        found |= _constants(found["read_outs"], about) | {"fitted": about}
    return {"visible": visible, **found}


def _constants(read_outs, fitted):
    """Takes the grid out of the readings; what it held, once the constants of two ways to choose are among them."""
    names = [f"constant {beta:g}" for beta in CONSTANTS[1:]]
    grid = [read_outs["own"], *(read_outs.pop(name) for name in names)]
    accuracy = np.array([reading["accuracy"] for reading in grid])  # [grid, seeds, lengths]
    chosen = [CONSTANTS.index(about["constant"]) for about in fitted]
    read_outs["constant"] = {"accuracy": [accuracy[at, seed].tolist() for seed, at in enumerate(chosen)]}
    read_outs["best constant"] = {"accuracy": accuracy.max(0).tolist()}
    return {"constants": accuracy.tolist()}


def _steps(visible, multiples):
    return [(a, b, n / m) for a, b, m, n in zip(visible, visible[1:], multiples, multiples[1:])]


def _is_list(leaf):
    return isinstance(leaf, list)


def room(multiple: int) -> int:
    """The multiple of the training length that sets of this one are padded to."""
    return next(room for room in ROOMS if multiple <= room)


@cache
def drawn_sets(task: str, seed: int, multiple: int, count: int) -> Batch:
    """Sets or rows of one length, the same for every variant and reading, padded to their room."""
    about = TASKS[task]
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), multiple)
    batch = about.draw(key, count, multiple * about.longest)
    return pad(batch, about.draw(key, 1, room(multiple) * about.longest).where.shape[1])


def pad(batch: Batch, length: int) -> Batch:
    """The batch with places that do not exist: after the items of a set, before the tokens of a row."""
    missing = length - batch.where.shape[1]
    side = (missing, 0) if isinstance(batch, TokenRows) else (0, missing)
    long = [name for name in ("features", "label", "tokens", "where") if hasattr(batch, name)]
    wider = {name: getattr(batch, name) for name in long}
    return batch._replace(
        **{name: jnp.pad(leaf, ((0, 0), side) + ((0, 0),) * (leaf.ndim - 2)) for name, leaf in wider.items()}
    )


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _read(graph, task, variant, readings, state, batch, rules):
    """Sums over the answers of a batch; see `measure`."""
    model = nnx.merge(graph, state)
    asked = questions(batch)[1]
    total = jnp.sum(asked)
    seen = {}

    def mean(values):
        return jnp.sum(jnp.where(asked, values, 0)) / total

    def of_rows(values):
        return mean(jnp.mean(values, axis=1))  # over the heads

    def watched(model):
        weigh = own(task, variant)(model)

        def weights(logits, where):
            _, stats = adaptive_temperature_softmax(logits, where=where, temperature=None, return_stats=True)
            made = weigh(logits, where)
            mass = jnp.sum(made, -1)
            highest = jnp.max(logits, -1, where=where, initial=-jnp.inf)
            seen["visible"] = of_rows(jnp.broadcast_to(jnp.sum(where, -1), mass.shape))
            seen["entropy"] = of_rows(stats.entropy)
            seen["spread"] = of_rows(highest - jnp.min(logits, -1, where=where, initial=jnp.inf))
            seen["mass"] = of_rows(mass)
            seen["top"] = of_rows(jnp.max(made, -1) / jnp.where(mass > 0, mass, 1))
            return made

        return weights

    right, _ = answer(model, batch, watched)
    read_outs = {"own": {"accuracy": mean(right)}}
    for name, weights in _others(task, variant, rules if readings else None).items():
        other, _ = answer(model, batch, weights)
        read_outs[name] = {
            "accuracy": mean(other),
            "gained": mean(other & ~right),
            "lost": mean(right & ~other),
        }
    return {**seen, "read_outs": read_outs}


def _others(task, variant, rules):
    """Readings beside the weights trained with, by name, each a function of the model."""
    longest = TASKS[task].keys
    found = {
        "hard": lambda model: lambda logits, where: hard(logits, where=where),
        "own by length": lambda model: by_length(own(task, variant)(model), longest),
    }
    if rules is None:
        return found
    found["top k"] = lambda model: lambda logits, where: top_k(logits, longest, where=where)
    return found | {name: _tempered(rule) for name, rule in rules.items()}


def _tempered(rule):
    return lambda model: lambda logits, where: adaptive_temperature_softmax(logits, where=where, temperature=rule)


def fit_readings(model: nnx.Module, task: str, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Temperature rules for one model trained with plain softmax, from training lengths alone.

    Args:
        model: one model, not a stack.
        task: what it was trained on.
        seed: of the sets that the rules are fitted on, which no test sees.

    Returns:
        Rules by name: the published map, the same held at its peak, `log_ratio` from the longest training length,
        `exp_offset` and `newton` towards the entropy there, `guarded` fitted head by head, and the constants of the
        grid; and what they are made of: for each head "entropy" at the longest length, "slope" of the entropy in log n,
        "averages" (whether the guarded rule leaves it alone); and "constant", of the lowest loss.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), 0)
    batch = draw_training(task, key, FITTED)
    entropy, count, losses = jax.device_get(_look(nnx.split(model)[0], nnx.split(model)[1], batch))
    fit = fit_guarded(entropy, count, per_head=True)
    h = jnp.asarray(fit.entropy, jnp.float32)[:, None]
    level, slope = (jnp.asarray(x, jnp.float32)[:, None] for x in (fit.rule.level, fit.rule.slope))
    rules = {
        "published map": PAPER,
        "held": PAPER_HELD,
        "log ratio": log_ratio(float(TASKS[task].keys)),
        "exp offset": exp_offset(h),
        "newton": newton(h),
        "guarded": guarded(level, slope),
        **{f"constant {beta:g}": constant(beta) for beta in CONSTANTS[1:]},
    }
    about = {
        "entropy": np.asarray(fit.entropy).tolist(),
        "slope": np.asarray(fit.slope).tolist(),
        "averages": np.asarray(fit.averages).tolist(),
        "constant": CONSTANTS[int(np.argmin(losses))],
    }
    return rules, about


@partial(jax.jit, static_argnums=0)
def _look(graph, state, batch):
    """Entropies [answers, heads] and counts [answers] of plain rows, those not asked for as rows of one key; losses."""
    model, seen = nnx.merge(graph, state), {}

    def watched(model):
        def weights(logits, where):
            made, stats = adaptive_temperature_softmax(logits, where=where, temperature=None, return_stats=True)
            seen["entropy"] = jnp.moveaxis(stats.entropy, 1, -1)  # [B, A, N]
            seen["count"] = jnp.broadcast_to(jnp.sum(where, -1), (logits.shape[0], 1, logits.shape[2]))[:, 0]
            return made

        return weights

    losses = [answer(model, batch, watched)[1]]
    losses += [answer(model, batch, _tempered(constant(beta)))[1] for beta in CONSTANTS[1:]]
    asked = questions(batch)[1]
    heads = seen["entropy"].shape[-1]
    entropy = jnp.where(asked[..., None], seen["entropy"], 0).reshape(-1, heads)
    return entropy, jnp.where(asked, seen["count"], 1).reshape(-1), jnp.stack(losses)

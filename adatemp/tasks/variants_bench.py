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
from adatemp.tasks._bench_arms import TASKS
from adatemp.tasks._bench_training import RATES, answer, draw_training, own, questions, train_models
from adatemp.tasks._labelled_sets import LabelledSets
from adatemp.tasks._token_rows import TokenRows

__all__ = ["CONSTANTS", "MULTIPLES", "RATES", "drawn_sets", "fit_readings", "measure", "train_models"]

if TYPE_CHECKING:
    Batch = LabelledSets | TokenRows

MULTIPLES = (1, 2, 4, 8, 16, 32, 64, 128)  # of the longest training length
ROOMS = (16, 128)  # multiples to which test sets are padded, so that two programs serve all lengths
#: Grid of constants. The best at each length is an oracle's; the one with the lowest loss at training lengths is not.
CONSTANTS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0, 128.0)
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


def by_length(weigh: Callable, longest: int) -> Callable:
    """The same weights of log n / log n0 times the logits, n0 the longest number of keys in training."""

    def scaled(logits, where):
        count = jnp.maximum(jnp.sum(where, -1, keepdims=True), 2)
        return weigh(logits * (jnp.log(count) / np.log(longest)), where)

    return scaled


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

"""All normalisers on one bench: trained short, tested up to 128 times longer; rules and controls on the same sets.

About twenty minutes on two idle cores, cell by cell: `python -m tools.make_results variants_bench`. The sizes are
small so that it can be run again. For the same bench in the large, raise SEEDS (intervals are Student's over seeds),
STEPS, the widths in `adatemp.tasks._bench_arms` and MULTIPLES in `adatemp.tasks.variants_bench`; three hours buy ten
seeds for all, twice the steps and three rates.

seeds                  for each variant, how many: 0 to seeds − 1; more for softmax, of which all readings are made
steps, rates           optimiser steps; learning rates, of which the one with the lowest loss in the last tenth of
                       training is kept, for each task and variant, over all its seeds
multiples              test lengths over the longest training length
tasks                  for each, in words, what it is ("says") and what theory expects ("theory"); "longest" and
                       "shortest", training lengths; "keys", how many the last answer sees at the longest; "counted",
                       number of sets or rows at each test length; "visible", how many keys an answer sees on average
                       at each, checked to grow
variants               each in words
rows                   one for each task and variant: task, variant, seconds
    rate, losses       the kept rate, and for each rate its loss; null where a model diverged
    read_outs          own, hard, own by length, and for softmax also published map, held, log ratio, exp offset,
                       newton, guarded, top k, constant, best constant (an oracle: chosen on the test sets):
                       for each [seed][length] accuracy, and but for own and the constants also gained and lost
    entropy, spread, mass, top      [seed][length]: entropy of the softmax of the logits in nats, spread of the logits,
                       sum of the weights trained with and their largest over that sum; means over answers and heads
    learned            [seed][head][1] for each parameter of the variant, empty for most
    constants, fitted  of softmax alone: accuracy [grid of "grid"][seed][length]; what the rules of each seed are made
                       of, for each head entropy at the longest training length, slope in log n, averages (left alone
                       by the guarded rule); constant, of the lowest loss at training lengths
grid                   the constants of the grid
against_softmax        "rules": for each task and reading of the models trained with softmax, and "variants": for each
                       task and variant, gain in accuracy over plain softmax at each length, and half_width of its 95%
                       interval. Seeds are paired, those that both have, and share their sets; rules also share their
                       models
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import jax
import numpy as np
import scipy.stats

from adatemp.tasks import variants_bench
from adatemp.tasks._bench_arms import TASKS, VARIANTS

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float

SEEDS, STEPS = {variant: 5 if variant == "softmax" else 3 for variant in VARIANTS}, 500
CELLS = tuple(f"{task}, {variant}" for variant in VARIANTS for task in TASKS)
SECONDS = 22
DATA = ()


def run(cell: str) -> dict:
    """Train the models of one task and variant, and read them."""
    task, variant = cell.split(", ")
    return row(task, variant, SEEDS[variant], STEPS)


def row(task: str, variant: str, seeds: int, steps: int, **options) -> dict:
    """One row of the result, for any number of seeds and steps; options are those of `variants_bench.measure`."""
    start = time.perf_counter()
    models, about = variants_bench.train_models(task, variant, seeds, steps=steps)
    found = variants_bench.measure(models, task, variant, seeds, **options)
    learned = {name: np.asarray(value[...]).tolist() for name, value in models.learned.items()}
    jax.clear_caches()  # no program serves two cells
    seconds = round(time.perf_counter() - start, 1)
    return {"task": task, "variant": variant, "seconds": seconds, **about, "learned": learned, **found}


def assemble(rows: list[dict]) -> dict:
    """The data of the result from its rows."""
    visible = {row["task"]: row["visible"] for row in rows}
    return {
        "seeds": SEEDS,
        "steps": STEPS,
        "rates": list(variants_bench.RATES),
        "multiples": list(variants_bench.MULTIPLES),
        "grid": list(variants_bench.CONSTANTS),
        "tasks": {
            name: {
                "says": task.says,
                "theory": task.theory,
                "longest": task.longest,
                "shortest": task.shortest,
                "keys": task.keys,
                "counted": [task.counted[variants_bench.room(multiple)] for multiple in variants_bench.MULTIPLES],
                "visible": visible[name],
            }
            for name, task in TASKS.items()
            if name in visible
        },
        "variants": {name: variant.says for name, variant in VARIANTS.items()},
        "rows": [{name: value for name, value in row.items() if name != "visible"} for row in rows],
        "against_softmax": against_softmax(rows),
    }


def against_softmax(rows: list[dict]) -> dict:
    """Gains in accuracy over plain softmax with their intervals, of rules and of variants."""
    plain = {row["task"]: row["read_outs"] for row in rows if row["variant"] == "softmax"}
    gains = {"rules": {task: {} for task in plain}, "variants": {task: {} for task in plain}}
    for task, read_outs in plain.items():
        own = read_outs["own"]["accuracy"]
        for name, reading in read_outs.items():
            if name != "own":
                gains["rules"][task][name] = gain(reading["accuracy"], own)
        for row in rows:
            if row["task"] == task and row["variant"] != "softmax":
                other = row["read_outs"]["own"]["accuracy"]
                gains["variants"][task][row["variant"]] = gain(other, own[: len(other)])
    return gains


def gain(after: Float[ArrayLike, "seeds lengths"], before: Float[ArrayLike, "seeds lengths"]) -> dict[str, list]:
    """Mean difference of two accuracies over seeds that share their sets, with the half width of its 95% interval.

    The interval is Student's over seeds: what differs between trained models and what between sets are both in it.

    Args:
        after: accuracies.
        before: those to compare with, of the same seeds and sets.

    Returns:
        "gain" and "half_width", one number for every length.

    Raises:
        ValueError: for shapes that differ, and for fewer than two seeds.
    """
    after, before = np.asarray(after, np.float64), np.asarray(before, np.float64)
    if after.shape != before.shape or after.ndim != 2 or len(after) < 2:
        raise ValueError(
            f"after {after.shape}, before {before.shape}: both must be [seeds, lengths] with at least two seeds."
        )
    difference = after - before
    error = difference.std(0, ddof=1) / np.sqrt(len(difference))
    width = float(scipy.stats.t.ppf(0.975, len(difference) - 1)) * error
    return {"gain": difference.mean(0).tolist(), "half_width": width.tolist()}

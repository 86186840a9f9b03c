"""Accuracy against set size for ten trained heads, every read-out on the same sets.

    recipe      how each head was trained, in words
    sizes       the eleven test sizes n
    sets        number of random sets at each size; the standard errors below are those of that many sets
    rows        one for each seed:
        seed, training_loss, training_accuracy (mean of the last 500 steps), seconds
        ranking_accuracy, entropy, spread, target_weight   eleven numbers each, defined in `max_retrieval.evaluate`
        read_outs   plain, adaptive (the published map, at inference), argmax, mass, and the other rules of
                    `compared_rules.compared_rules` by their names there; each with eleven numbers for accuracy,
                    standard_error, ranking, dispersion, lucky, gained, lost; rules also for beta, unchanged, top_weight
        rules       what the rules were made of, as described there
        constants   beta, a grid of inverse temperatures, and accuracy, for each of them eleven numbers; the best of
                    them at a size is the oracle's constant, chosen on the sets it is judged on

Accuracies and all parts are shares of sets in [0, 1]; 1 - accuracy = ranking + dispersion - lucky for each read-out.
Seeds differ in the initial parameters, the training sets and the test sets.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax

from adatemp.tasks import max_retrieval
from adatemp.tasks._leaf_map import leaf_map
from adatemp.tasks.compared_rules import compare, fit_map

SEEDS = 10
CELLS = tuple(f"seed {seed}" for seed in range(SEEDS))
SECONDS = 90
DATA = ()

# Standard error of an accuracy of one half: 0.6 points up to 256 items, 1.1 at 1,024, 1.6 from 2,048, 2.2 at 16,384.
SETS = {16: 8192, 32: 8192, 64: 8192, 128: 8192, 256: 8192, 512: 4096, 1024: 2048, 2048: 1024, 4096: 1024, 8192: 1024}
SETS |= {16384: 512}


def run(cell: str) -> dict:
    """Train the head of one seed and measure every rule at every size."""
    return measure(int(cell.split()[1]), max_retrieval.MAIN_RECIPE, every_rule)


def measure(seed: int, recipe: str, how: Callable[..., dict] = max_retrieval.evaluate_sizes) -> dict:
    """Train a head by a recipe and measure it at every size; one row of the table."""
    start = time.perf_counter()
    head, history = max_retrieval.train_head(seed, recipe=recipe, progress=False)
    columns = how(head, test_key(seed), SETS)
    del columns["n"], columns["sets"]  # said once for the whole table
    last = {f"training_{name}": float(values[-500:].mean()) for name, values in history.metrics.items()}
    return {"seed": seed, **last, "seconds": round(time.perf_counter() - start, 1), **columns}


def every_rule(head, key: jax.Array, sets: dict[int, int]) -> dict:
    """What `compare` gives with a new map for the head, in two programs that serve all heads."""
    columns = compare(head, key, sets, refit=False)
    new_map, columns["rules"]["refit"] = fit_map(head, jax.random.fold_in(jax.random.fold_in(key, 0), 1))
    if new_map is not None:
        rules = {"plain": None, "refit": leaf_map(new_map)}
        columns["read_outs"]["refit"] = max_retrieval.evaluate_sizes(head, key, sets, rules=rules)["read_outs"]["refit"]
    return columns


def test_key(seed: int) -> jax.Array:
    """Key of a seed's test sets; the 1 keeps it apart from the keys that trained the head."""
    return jax.random.fold_in(jax.random.key(seed), 1)


def assemble(rows: list[dict]) -> dict:
    """The data of the result from its rows."""
    return {
        "recipe": f"{max_retrieval.MAIN_RECIPE} 1e-3, decay 1e-3, 10,000 steps of 128 sets of 5 to 16 items, width 128",
        "sizes": list(SETS),
        "sets": list(SETS.values()),
        "rows": rows,
    }

"""What the published map gains on heads trained for longer and longer: it mends dispersion, and not ranking.

    sizes, sets   three test sizes n and the number of random sets at each
    rows          one for each arm and seed:
        arm           "1,000 steps", "3,000 steps", "10,000 steps" of the main recipe, the rate constant; and
                      "10,000 steps, cosine rate"
        steps, recipe, seed, training_accuracy (mean of the last 500 steps), seconds
        ranking_accuracy, entropy, spread, target_weight, read_outs   as in table1, three numbers each; the read-outs
                      are plain, adaptive, held, constant 3, guarded, argmax, mass
        rules         "entropy", "slope", "averages" of the guarded rule's fit, as in table1

A seed's heads share initial parameters, training sets as far as they go, and test sets, those of table1.
"""

from __future__ import annotations

import time

import jax

from adatemp._constant import constant
from adatemp._entropy import entropy
from adatemp._guarded_fit import fit_guarded
from adatemp._polynomial import PAPER, PAPER_HELD
from adatemp.tasks import max_retrieval
from tools.stored_results.table1 import test_key

SEEDS = 3
ARMS = {
    "1,000 steps": (1_000, max_retrieval.MAIN_RECIPE),
    "3,000 steps": (3_000, max_retrieval.MAIN_RECIPE),
    "10,000 steps": (10_000, max_retrieval.MAIN_RECIPE),
    "10,000 steps, cosine rate": (10_000, "adamw, cosine rate"),
}
CELLS = tuple(f"{arm}, seed {seed}" for seed in range(SEEDS) for arm in ARMS)
SECONDS = 20
DATA = ()

SETS = {16: 8192, 512: 4096, 1024: 2048}


def run(cell: str) -> dict:
    """Train one head and measure it."""
    arm, seed = cell.rsplit(", seed ", 1)
    steps, recipe = ARMS[arm]
    return {"arm": arm, **measure(int(seed), steps, recipe)}


def measure(seed: int, steps: int, recipe: str, sets: dict[int, int] = SETS) -> dict:
    """One row of the result, for any number of steps and any sizes."""
    start = time.perf_counter()
    head, history = max_retrieval.train_head(seed, steps=steps, recipe=recipe, progress=False)
    key = test_key(seed)
    training = max_retrieval.sample(jax.random.fold_in(key, 0), 4096, 16, min_items=5)
    rows = entropy(head.logits(training.items, training.query), where=training.where)
    fit = fit_guarded(rows, training.where.sum(-1))
    rules = {"plain": None, "adaptive": PAPER, "held": PAPER_HELD, "constant 3": constant(3.0), "guarded": fit.rule}
    columns = max_retrieval.evaluate_sizes(head, key, sets, rules=rules)
    del columns["n"], columns["sets"]  # said once for the whole table
    return {
        "steps": steps,
        "recipe": recipe,
        "seed": seed,
        "training_accuracy": float(history.metrics["accuracy"][-500:].mean()),
        "seconds": round(time.perf_counter() - start, 1),
        **columns,
        "rules": {"entropy": fit.entropy, "slope": fit.slope, "averages": fit.averages},
    }


def assemble(rows: list[dict]) -> dict:
    """The data of the result from its rows."""
    return {"sizes": list(SETS), "sets": list(SETS.values()), "rows": rows}

"""Spread and its bounds while heads are trained: free, with an L2 penalty, with QK-norm; a control and a second task.

steps, every, sets, items   optimiser steps, steps between two looks, and the sets that are looked at
sizes, counted              test sizes n and number of random sets at each
arms                        each arm in words
rows                        one for each arm and seed: arm, seed, seconds; step, the steps looked at, and for each
                            a number in each column that `price_of_sharpness.measure` describes; after training, one
                            for every size in accuracy_at, argmax_at (the hard reading), ranking_at (largest logit on
                            the maximum), spread_at, top_weight_at
"""

from __future__ import annotations

import time

import jax

from adatemp.tasks import price_of_sharpness
from adatemp.tasks._retrieval_readouts import evaluate_sizes

SEEDS = 3
CELLS = tuple(f"{arm}, seed {seed}" for seed in range(SEEDS) for arm in price_of_sharpness.ARMS)
SECONDS = 20
DATA = ()

STEPS, EVERY = 4_000, 250
SETS, ITEMS = 128, 256
COUNTED = {16: 2048, 256: 1024, 1024: 512, 4096: 256, 16384: 128}


def run(cell: str) -> dict:
    """Train one head and look at it on the way."""
    arm, seed = cell.rsplit(", seed ", 1)
    return follow(arm, int(seed), STEPS)


def follow(arm: str, seed: int, steps: int, sizes: dict[int, int] = COUNTED) -> dict:
    """One row of the result, for any number of steps."""
    start = time.perf_counter()
    draw = price_of_sharpness.ARMS[arm].draw
    sets = draw(jax.random.fold_in(jax.random.key(seed), 1), SETS, ITEMS)
    looks = []

    def look(step, head):
        looks.append({"step": step} | price_of_sharpness.measure(head, sets))

    head, _ = price_of_sharpness.train_arm(arm, seed, steps=steps, chunk=EVERY, look=look)
    found = evaluate_sizes(head, jax.random.fold_in(jax.random.key(seed), 2), sizes, draw=draw)
    return {
        "arm": arm,
        "seed": seed,
        **{name: [look[name] for look in looks] for name in looks[0]},
        "accuracy_at": found["read_outs"]["plain"]["accuracy"],
        "argmax_at": found["read_outs"]["argmax"]["accuracy"],
        "ranking_at": found["ranking_accuracy"],
        "spread_at": found["spread"],
        "top_weight_at": found["read_outs"]["plain"]["top_weight"],
        "seconds": round(time.perf_counter() - start, 1),
    }


def assemble(rows: list[dict]) -> dict:
    """The data of the result from its rows."""
    return {
        "steps": STEPS,
        "every": EVERY,
        "sets": SETS,
        "items": ITEMS,
        "sizes": list(COUNTED),
        "counted": list(COUNTED.values()),
        "arms": {name: arm.says for name, arm in price_of_sharpness.ARMS.items()},
        "rows": rows,
    }

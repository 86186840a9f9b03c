"""Every temperature rule on heads that can fail by dispersion alone, and on heads that must not be sharpened.

steps       optimiser steps of every head
questions   what each head is asked, in words, and whether it averages
sizes       the eleven test sizes n
sets        number of random sets at each size
rows        one for each question and seed:
    question, seed, training_accuracy (mean of the last 500 steps), seconds
    ranking_accuracy, entropy, spread, target_weight   a number for each size, as in table1
    read_outs   plain, adaptive, held, constant 1.5, constant 2, constant 3, log ratio, target entropy, exp offset,
                newton, guarded, line, argmax, mass, and refit where a map could be fitted; their columns as in
                table1. Ranking, dispersion, lucky and target_weight mean nothing where a head averages
    rules       what the rules were made of, as `compared_rules.compared_rules` says
    constants   beta, a grid, and accuracy, for each value of the grid eleven numbers: the best of them at a size is
                the oracle's constant
"""

from __future__ import annotations

import time

import jax

from adatemp.tasks import dispersion_only
from adatemp.tasks.compared_rules import compare

SEEDS = {"largest": 5, "heaviest": 3, "second largest": 3, "most frequent": 3}
CELLS = tuple(f"{question}, seed {seed}" for question, seeds in SEEDS.items() for seed in range(seeds))
SECONDS = 40
DATA = ()

SETS = {16: 2048, 32: 2048, 64: 2048, 128: 2048, 256: 2048, 512: 1024, 1024: 1024, 2048: 512, 4096: 512, 8192: 256}
SETS |= {16384: 256}


def sets_of(question: str) -> dict[int, int]:
    """Test sizes of a question and the number of sets at each."""
    return SETS if question == "largest" else dict(list(SETS.items())[::2])


def run(cell: str) -> dict:
    """Train the head of one question and seed and measure every rule on it."""
    question, seed = cell.rsplit(", seed ", 1)
    return measure(question, int(seed))


def measure(
    question: str, seed: int, *, steps: int = dispersion_only.STEPS, sets: dict[int, int] | None = None
) -> dict:
    """One row of the result, for any number of steps and any sizes."""
    start = time.perf_counter()
    asked = dispersion_only.QUESTIONS[question]
    head, history = dispersion_only.train_question(question, seed, steps=steps)
    key = jax.random.fold_in(jax.random.key(seed), 1)
    columns = compare(head, key, sets or sets_of(question), draw=asked.draw, refit=not asked.averages)
    del columns["n"], columns["sets"]  # said once for the whole table
    accuracy = float(history.metrics["accuracy"][-500:].mean())
    seconds = round(time.perf_counter() - start, 1)
    return {"question": question, "seed": seed, "training_accuracy": accuracy, "seconds": seconds, **columns}


def assemble(rows: list[dict]) -> dict:
    """The data of the result from its rows."""
    questions = {
        name: {"says": asked.says, "averages": asked.averages} for name, asked in dispersion_only.QUESTIONS.items()
    }
    return {
        "steps": dispersion_only.STEPS,
        "questions": questions,
        "sizes": {name: list(sets_of(name)) for name in questions},
        "sets": {name: list(sets_of(name).values()) for name in questions},
        "rows": rows,
    }

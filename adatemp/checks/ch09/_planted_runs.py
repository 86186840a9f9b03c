"""Raw runs of a small comparison, clean or with one fault planted, for exercise 09.6."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

TRAIN_SIZES = (8, 16, 32)
SIZES = (32, 256, 2_048)
TASKS = ("retrieval", "recall", "averaging")
_SEEDS = 6
_INFERENCE = ("plain", "argmax", "best constant", "length")  # four readings of one trained model
_TRAINED = ("sparse",)  # a model of its own
_GAIN = {"plain": 0.0, "argmax": 0.2, "best constant": 0.22, "length": 0.12, "sparse": 0.08}

Run = dict[str, Any]


def clean(seed: int = 0) -> list[Run]:
    """Runs of five rules on three tasks, three sizes and six seeds, in an order that means nothing."""
    rng = np.random.default_rng([961, seed])
    runs = []
    for task, number in itertools.product(TASKS, range(_SEEDS)):
        level = dict(zip(SIZES, 0.6 + 0.1 * rng.normal(size=len(SIZES)), strict=True))
        other = dict(zip(SIZES, 0.6 + 0.1 * rng.normal(size=len(SIZES)), strict=True))
        for rule, n in itertools.product((*_INFERENCE, *_TRAINED), SIZES):
            trained = rule in _TRAINED
            accuracy = (other if trained else level)[n] + _GAIN[rule] + 0.01 * rng.normal()
            runs.append(
                {
                    "task": task,
                    "rule": rule,
                    "model": f"{task}, {rule if trained else 'plain'}, seed {number}",
                    "sets": f"{task}, n = {n}, sets {number}",
                    "n": n,
                    "accuracy": float(np.clip(accuracy, 0.0, 1.0)),
                    "steps": 4_000,
                    "knob_sizes": {"length": (16, 32), "best constant": (n,)}.get(rule, ()),
                    "oracle": rule == "best constant",
                }
            )
    order = rng.permutation(len(runs))
    return [runs[i] for i in order]


def without(condition: Callable[[Run], bool]) -> list[Run]:
    """The clean runs without those that meet the condition."""
    return [run for run in clean() if not condition(run)]


def changed(condition: Callable[[Run], bool], **fields: Any) -> list[Run]:
    """The clean runs with some fields replaced where the condition holds."""
    return [{**run, **fields} if condition(run) else run for run in clean()]

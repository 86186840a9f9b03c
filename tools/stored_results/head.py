"""The trained head that the book follows: seed 0 of table1, as book/results/head.npz.

file, sha256        the checkpoint that `adatemp.models.set_pooling.load_head` reads
seed, recipe        how it was trained
training_loss, training_accuracy    means of the last 500 steps
sharpness           slope of its logits in the priority near the top, at 2,048 items, in nats per unit of priority
seconds             training time
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import jax
import numpy as np

from adatemp.models import set_pooling
from adatemp.tasks import max_retrieval, poisson_limit

CELLS = ("seed 0",)
SECONDS = 30
DATA = ()

FILE = Path(__file__).resolve().parents[2] / "book" / "results" / "head.npz"


def run(cell: str) -> dict:
    """Train the head, write it, and say what it is."""
    start = time.perf_counter()
    head, history = max_retrieval.train_head(0, progress=False)
    seconds = round(time.perf_counter() - start, 1)
    set_pooling.save_head(FILE, head, seed=0, recipe=max_retrieval.MAIN_RECIPE)
    sets = max_retrieval.sample(jax.random.key(1), 64, 2048)
    logits = np.asarray(head.logits(sets.items, sets.query))
    return {
        "file": FILE.name,
        "sha256": hashlib.sha256(FILE.read_bytes()).hexdigest(),
        "seed": 0,
        "recipe": max_retrieval.MAIN_RECIPE,
        **{f"training_{name}": float(values[-500:].mean()) for name, values in history.metrics.items()},
        "sharpness": poisson_limit.sharpness(np.asarray(sets.items[..., 0]), logits),
        "seconds": seconds,
    }


def assemble(parts: list[dict]) -> dict:
    """The data of the result: its one part."""
    return parts[0]

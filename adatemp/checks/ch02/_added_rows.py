"""The rows, the added items and the exact bounds behind exercise 02.5."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

KINDS = ("identical", "random", "near-maximal", "mixed")
BELOW, NEAR = 1.5, 0.05  # nats below the largest logit of the row: the identical items; the near-maximal ones
LONGEST = 4096


def base_row(seed: int) -> np.ndarray:
    """A row with given spread, its largest logit not in the first place, far from zero for odd seeds."""
    rng = np.random.default_rng(seed)
    items, spread = ((16, 6.0), (23, 2.0))[seed % 2]
    row = rng.uniform(0, spread, items)
    row[items // 2], row[3] = spread, 0.0
    return row + 10_000.0 * (seed % 2)


ROWS = tuple((base_row(seed), n) for seed, n in ((0, 100), (1, 101), (2, LONGEST)))


def appended(append: Callable[..., Any]) -> list[tuple[np.ndarray, str, int, np.ndarray]]:
    """What the reader's function makes of every row with every kind: (base, kind, n, logits)."""
    return [
        (base, kind, n, np.asarray(append(base, kind, n, jax.random.key(n)), np.float64))
        for base, n in ROWS
        for kind in KINDS
    ]


def added_logits(base: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """The new logits, measured from the base's largest."""
    return logits[len(base) :] - base.max()


# float32 holds 10,000 to about 0.001: the tolerance for logits that went through jax.
SLACK = 4e-3


def in_range(case: tuple[np.ndarray, str, int, np.ndarray]) -> bool:
    """Whether every new logit lies where its kind allows."""
    base, kind, _, logits = case
    added, spread = added_logits(base, logits), np.ptp(base)
    low, high = {
        "identical": (-BELOW, -BELOW),
        "random": (-spread, 0.0),
        "near-maximal": (-NEAR, 0.0),
        "mixed": (-spread, 0.0),
    }[kind]
    return added.min() >= low - SLACK and added.max() <= high + SLACK


def composed(case: tuple[np.ndarray, str, int, np.ndarray]) -> bool:
    """Whether random items fill their range and mixed ones are thirds."""
    base, kind, _, logits = case
    added, spread = np.sort(added_logits(base, logits)), np.ptp(base)
    if kind == "random":
        return (
            added.size < 90 or np.abs(np.quantile(added, (0.25, 0.5, 0.75)) / -spread - (0.75, 0.5, 0.25)).max() < 0.2
        )
    if kind == "mixed":
        third = added.size // 3
        same = (np.abs(added + BELOW) < SLACK).sum()
        near = (added > -NEAR - SLACK).sum()
        return abs(same - third) <= 0.05 * third + 2 and near >= third and near - third <= 0.12 * third + 6
    return True


def lengths(cases: list[tuple[np.ndarray, str, int]]) -> np.ndarray:
    """The n of every case."""
    return np.array([n for _, _, n in cases])


def exact_bounds(base: np.ndarray, kind: str, n: int, spread: float | None = None) -> tuple[float, float]:
    """Smallest and largest weight of base's maximum over all draws of the kind."""
    spread = float(np.ptp(base)) if spread is None else spread
    added = n - len(base)
    third = added // 3
    count = {
        "identical": (added, 0, 0),
        "random": (0, added, 0),
        "near-maximal": (0, 0, added),
        "mixed": (third, added - 2 * third, third),
    }[kind]
    own = np.exp(base - base.max()).sum()
    largest = own + count[0] * math.exp(-BELOW) + count[1] + count[2]
    smallest = own + count[0] * math.exp(-BELOW) + count[1] * math.exp(-spread) + count[2] * math.exp(-NEAR)
    return 1 / largest, 1 / smallest


def general_bounds(base: np.ndarray, n: int) -> tuple[float, float]:
    """The tight bounds of Lemma 2.1 on any weight of a row of n logits with base's spread, written out here so that the
    check does not lean on the library."""
    spread = float(np.ptp(base))
    return 1 / (1 + (n - 1) * math.exp(spread)), 1 / (1 + (n - 1) * math.exp(-spread))


def top_weight(logits: Any, base: np.ndarray) -> float:
    """Softmax weight of the base's largest logit, in float64."""
    shifted = np.asarray(logits, np.float64) - base.max()
    return float(1 / np.exp(shifted).sum())

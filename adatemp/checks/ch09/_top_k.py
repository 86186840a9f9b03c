"""Exercise 09.4, when top-k helps: on needles in noise and on uniform priorities, predicted and measured."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks import _float64
from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written

_TITLE = "09.4 When top-k helps"
_SIGNATURE = "(family, n, k, strength)"

# The four cells whose order is asked for, then more. (family, n, k, strength)
_FOUR = (
    ("uniform", 4_096, 4_096, 40.0),
    ("uniform", 4_096, 16, 40.0),
    ("needle", 4_096, 4_096, 7.0),
    ("needle", 4_096, 16, 7.0),
)
_MORE = (
    ("uniform", 1_024, 4, 40.0),
    ("uniform", 256, 16, 120.0),
    ("uniform", 16_384, 64, 40.0),
    ("needle", 1_024, 4, 5.0),
    ("needle", 16_384, 64, 8.0),
    ("needle", 4_096, 1, 6.0),
    ("needle", 256, 256, 6.0),
)
_CELLS = _FOUR + _MORE
_PREDICTED = 0.06  # how far a prediction may lie from the mean of many rows
_MEASURED = 0.04


def ex4(predict: Callable[..., Any], measure: Callable[..., Any]) -> Report:
    """Checks a prediction of the top weight under a softmax of the k largest logits, and a measurement of it.

    Args:
        predict: `predict(family, n, k, strength) -> float`, without random numbers, to 0.06. In the family "uniform"
            the n logits are `strength` times uniform numbers on [0, 1) and the weight is that of the largest; in
            "needle" one logit is `strength`, the n − 1 others are standard normal, and the weight is the needle's.
        measure: `measure(family, n, k, strength) -> float`, the mean over at least 200 random rows.

    Returns:
        The report. Mistakes it names: the far tail blamed where near competitors decide; the k largest taken for
        typical ones; k ignored; a needle outside the k; the first k for the largest; weights that do not sum to one.
    """
    predict, measure = written(predict), written(measure)
    return in_turn(
        (
            lambda: examine(predict, _TITLE, f"predict{_SIGNATURE}", _predict_stages()),
            lambda: examine(measure, _TITLE, f"measure{_SIGNATURE}", _measure_stages()),
        ),
        remark="Top-k removes the far tail. Where the mass is lost to near competitors, these are what it keeps.",
    )


@functools.cache
def rows(family: str, n: int, strength: float, count: int = 200, seed: int = 931) -> np.ndarray:
    """Random rows of a family, the needle first: float64 [count, n]."""
    rng = np.random.default_rng([seed, n])
    if family == "uniform":
        return strength * rng.uniform(size=(count, n))
    drawn = rng.normal(size=(count, n))
    drawn[:, 0] = strength
    return drawn


def _mean_weight(family: str, n: int, k: int, strength: float, keep: str = "largest") -> float:
    """Mean weight of the largest logit, or of the needle, over random rows."""
    z = rows(family, n, strength)
    target = z[:, 0] if family == "needle" else z.max(-1)
    if keep == "first":
        chosen = z[:, :k]
        weights = np.where(chosen == target[:, None], _float64.softmax(chosen), 0.0).sum(-1)
        return float(weights.mean())
    chosen = np.partition(z, n - k, axis=-1)[:, n - k :]
    total = np.exp((z if keep == "unnormalised" else chosen) - target[:, None]).sum(-1)
    return float((np.where(chosen.min(-1) <= target, 1.0, 0.0) / total).mean())


@functools.cache
def _truth(keep: str = "largest") -> np.ndarray:
    return np.array([_mean_weight(*cell, keep=keep) for cell in _CELLS])


def _typical() -> np.ndarray:
    """Needles against k − 1 competitors at the mean of the noise; the uniform cells as they are."""
    return np.array(
        [
            1 / (1 + (k - 1) * np.exp(-strength)) if family == "needle" else truth
            for (family, _, k, strength), truth in zip(_CELLS, _truth(), strict=True)
        ]
    )


def _predict_stages() -> tuple[Stage, ...]:
    truth = _truth()
    plain = np.array([_mean_weight(family, n, n, strength) for family, n, k, strength in _CELLS])
    called = functools.cache(lambda predict: np.array([float(predict(*cell)) for cell in _CELLS]))
    far_tail = Mistake(
        "the far tail blamed",
        "On uniform priorities top-k is said to restore far more of the top weight than it does.",
        "Most of the items are in the tail, and on needles in noise most of the lost mass is too.",
        "How far below the largest of 4,096 uniform numbers is the sixteenth? Does top-16 remove it?",
        seen=lambda got: got[1] > 2 * truth[1] + 0.05,
    )
    return (
        Stage(
            "the order of four cells",
            lambda predict: called(predict)[:4],
            given="4,096 items, plain softmax and top-16, uniform priorities of length 40 and a needle at 7",
            accept=lambda got: (np.argsort(got) == np.argsort(truth[:4])).all(),
            mistakes=(far_tail,),
            look="For each family: who are the k items that remain, and how far are they from the largest?",
        ),
        Stage(
            "the weights themselves",
            called,
            given="eleven cells of both families, k from 1 to n",
            accept=lambda got: np.abs(got - truth).max() <= _PREDICTED,
            look="Write the weight as one over a sum of e to the minus gap, and put a gap for each of the k.",
            mistakes=(
                far_tail,
                Mistake(
                    "k ignored",
                    "The predictions are those of the full softmax.",
                    "k = n is the first case one tries.",
                    "How many terms does the sum in the denominator have?",
                    seen=lambda got: np.abs(got - plain).max() <= _PREDICTED,
                ),
                Mistake(
                    "a needle outside the k",
                    "With k = 1 the needle does not have all of the weight.",
                    "Competitors are what one counts.",
                    "The needle is one of the k.",
                    seen=lambda got: got[_CELLS.index(("needle", 4_096, 1, 6.0))] < 1 - 1e-6,
                ),
                Mistake(
                    "the k largest taken for typical",
                    "Needles are predicted too high: their competitors are put at the mean of the noise.",
                    "A typical competitor is at the mean.",
                    "Which competitors does top-k keep?",
                    seen=lambda got: np.abs(got - _typical()).max() <= _PREDICTED,
                ),
            ),
        ),
    )


def _measure_stages() -> tuple[Stage, ...]:
    truth = _truth()
    return (
        Stage(
            "the mean over random rows",
            lambda measure: np.array([float(measure(*cell)) for cell in _CELLS]),
            given="the same eleven cells",
            accept=lambda got: np.abs(got - truth).max() <= _MEASURED,
            look="Print one row: which k logits remain, and what do their weights sum to?",
            mistakes=(
                Mistake(
                    "the first k for the largest",
                    "k items are kept by their place.",
                    "A slice is the quickest way to k items, and the needle is often put first.",
                    "Sort before you slice.",
                    seen=lambda got: np.abs(got - _truth("first")).max() <= _MEASURED,
                ),
                Mistake(
                    "weights that do not sum to one",
                    "The weights of the full softmax were cut off, and not normalised again.",
                    "Cutting after the softmax looks like the same thing.",
                    "What do the k weights that remain sum to?",
                    seen=lambda got: np.abs(got - _truth("unnormalised")).max() <= _MEASURED,
                ),
            ),
        ),
    )

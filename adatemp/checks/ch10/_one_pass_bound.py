"""The error and the cost of the one pass of exercise 10.5: the rows that are hardest for a grid of β."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._stages import Mistake, Stage

# 128 keys at two levels, the first `count` of them high; component i of the values is 1 on the high keys of row i.
_KEYS, _BLOCK = 128, 32
_COUNTS = np.array([1, 2, 4, 8, 16, 32, 64, 96, 112, 124])
_PLACES = np.array([0.02, 0.15, 0.3, 0.45, 0.55, 0.7, 0.85])  # of β within a cell of the grid
_CASES = ((1.0, 0.1), (1.0, 0.4), (3.0, 0.1), (3.0, 0.4), (6.0, 0.1), (6.0, 0.4))  # (spread, step)
_LOOSE = 50.0


def bound_stages(one_pass: Callable[..., Any], bound: Callable[..., Any]) -> tuple[Stage, ...]:
    """The bound against the reader's own one pass on two-level rows."""
    errors: dict[str, np.ndarray] = {}

    def worst(kind: str) -> np.ndarray:
        """Largest error of `one_pass` in each case, for values that span 1."""
        if kind not in errors:
            errors[kind] = np.array([_largest_error(one_pass, kind, *case) for case in _CASES])
        return errors[kind]

    def promised(values: float) -> np.ndarray:
        return np.array([float(bound(spread, values, step)) for spread, step in _CASES])

    def holds(got: np.ndarray, kind: str) -> bool:
        return bool((got >= worst(kind) * (1 - 1e-3) - 1e-5).all())

    return (
        Stage(
            "the bound holds on two-level rows",
            lambda _: promised(1.0),
            given="rows of 128 keys at two levels, 1 to 6 nats apart, and steps of 0.1 and 0.4",
            accept=lambda got: holds(got, "two levels"),
            look="The derivative of the output in β is the covariance of value and logit under the tempered weights. "
            "Which row makes it largest?",
            mistakes=(
                Mistake(
                    "NaN",
                    "The bound is not a number.",
                    "A logarithm or a root of something negative, or a division by 0.",
                    "Try spread 1, values 1 and step 0.1.",
                    seen=lambda got: not np.isfinite(got).all(),
                ),
                Mistake(
                    "a bound from random rows",
                    "The bound holds on normal logits of that spread and not on rows with two levels.",
                    "Random rows are the first that come to mind, and nearly all of their logits are in the middle.",
                    "How large can a variance be, if all that is known is the range?",
                    seen=lambda got: holds(got, "normal"),
                ),
            ),
        ),
        Stage(
            "the bound is proportional to the values",
            lambda _: (promised(1.0), promised(5.0)),
            given="values that span 1, and 5",
            accept=lambda got: np.allclose(5 * got[0], got[1], rtol=1e-3),
            look="If every value is multiplied by 5, by how much does the error change?",
            mistakes=(
                Mistake(
                    "the values' range is forgotten",
                    "The bound does not depend on the values.",
                    "Logits and grid are what the approximation is about.",
                    "Multiply all values by 5. What happens to the output, and to its error?",
                    seen=lambda got: np.allclose(got[0], got[1]),
                ),
            ),
        ),
        Stage(
            f"the bound is less than {_LOOSE:.0f} times what happens",
            lambda _: promised(1.0),
            given="the same rows",
            accept=lambda got: (got <= _LOOSE * worst("two levels") + 1e-4).all(),
            look="Compare your bound with the error you see, at a step of 0.4 and at 0.1.",
            mistakes=(
                Mistake(
                    "a bound that promises nothing",
                    "The bound does not shrink with the step.",
                    "The range of the values is a bound, and holds always.",
                    "What is a fine grid for?",
                    seen=lambda got: got[0] > 0.9 * got[1],
                ),
                Mistake(
                    "a first-order bound for a second-order error",
                    "The bound shrinks with the step, and the error with its square.",
                    "The slope of the output in β is the first thing that one bounds.",
                    "What is the error of a straight line between two points of a smooth curve?",
                    seen=lambda got: np.allclose(got[1], 4 * got[0], rtol=0.1),
                ),
            ),
        ),
    )


def _largest_error(one_pass: Callable[..., Any], kind: str, spread: float, step: float) -> float:
    """Largest component error over rows and places of β, for values that span 1."""
    from adatemp.checks.ch10._one_pass import Stream, tempered

    high = np.arange(_KEYS) < _COUNTS[:, None]
    if kind == "two levels":
        rows = np.where(high, 0.0, -spread)
        values = high.T.astype(np.float64)
    else:
        rows = np.random.default_rng(511).normal(size=high.shape)
        rows = spread * (rows - rows.min(1, keepdims=True)) / np.ptp(rows, axis=1, keepdims=True)
        values = np.random.default_rng(512).uniform(size=(_KEYS, len(_COUNTS)))
    grid = (0.6 + step * np.arange(9)).astype(np.float32)
    cells = np.arange(len(_PLACES)) % 8
    beta = np.tile(grid[cells].astype(np.float64) + step * _PLACES, len(_COUNTS))
    logits = np.repeat(rows, len(_PLACES), axis=0).astype(np.float32)
    values = values.astype(np.float32)
    got = one_pass(Stream(logits, values, _BLOCK), grid, lambda entropy: beta.astype(np.float32))
    error = np.abs(np.asarray(got, np.float64) - tempered(logits, values, beta))
    if kind == "two levels":
        error = error[np.arange(len(error)), np.repeat(np.arange(len(_COUNTS)), len(_PLACES))]
    return float(error.max())


def cost_stages(cost: Callable[..., Any]) -> tuple[Stage, ...]:
    """The work of one row."""
    cases = ((1000, 64, 5), (300, 128, 17))

    def call(_: Any) -> np.ndarray:
        return np.array([[float(part) for part in cost(*case)] for case in cases])

    n, d, points = np.array(cases, np.float64).T

    def products(got: np.ndarray, wrong: np.ndarray) -> bool:
        return np.allclose(got[:, 0], wrong, rtol=0.01)

    def right(got: np.ndarray) -> tuple[bool, bool, bool]:
        extra = got[:, 2] - points * (d + 1)
        return (
            products(got, n * d * (1 + points)),
            any(np.allclose(got[:, 1], n * (points + more), rtol=0.001) for more in (0, 1)),
            bool(((extra >= 0) & (extra <= 4)).all()),  # m, l, s, a count
        )

    return (
        Stage(
            "the cost of one row",
            call,
            given="(keys, width, points) = " + " and ".join(map(str, cases)),
            accept=lambda got: got.shape == (2, 3) and all(right(got)),
            look="Go through your loop body line by line and count, for one key.",
            mistakes=(
                Mistake(
                    "not three numbers",
                    "Three numbers are asked for: products, exponentials, carried.",
                    "One of them is easily left out.",
                    "The order is that of the text.",
                    seen=lambda got: got.shape != (2, 3),
                ),
                Mistake(
                    "one output for every point of the grid",
                    "The products are those of plain attention.",
                    "Logits and output are one product each, and so they are without a grid.",
                    "How many outputs does the loop accumulate?",
                    seen=lambda got: products(got, 2 * n * d),
                ),
                Mistake(
                    "the logits are forgotten, or counted for every point",
                    "The products of query and key are not counted once.",
                    "β multiplies a logit that exists already.",
                    "Which of your products depend on β?",
                    seen=lambda got: products(got, n * d * points) or products(got, 2 * n * d * points),
                ),
                Mistake(
                    "floating-point operations for multiply-adds",
                    "The number of products is twice as large as it should be.",
                    "A multiply-add is counted as two operations elsewhere.",
                    "The unit here is one multiply-add.",
                    seen=lambda got: products(got, 2 * n * d * (1 + points)),
                ),
                Mistake(
                    "exponentials are counted once",
                    "One exponential a key was counted.",
                    "In plain attention that is all.",
                    "Is e^(β·t) at hand for all β once e^t is?",
                    seen=lambda got: right(got)[0] and np.allclose(got[:, 1], n),
                ),
                Mistake(
                    "the outputs are not carried",
                    "The numbers carried leave the outputs out.",
                    "A state was three numbers a row so far.",
                    "Which arrays does your loop hand to its next turn, and of which shape?",
                    seen=lambda got: right(got)[:2] == (True, True) and (got[:, 2] < points * d).all(),
                ),
            ),
        ),
    )

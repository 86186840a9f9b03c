"""Exercise 08.5, the best β for a row: finite, infinite, below 1 or negative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine

_SIGNATURE = "best_beta(logits, target)"


def ex5(best_beta: Callable[..., Any]) -> Report:
    """Checks the inverse temperature that makes one item of a row as likely as a temperature can make it.

    Args:
        best_beta: `best_beta(logits, target) -> β`: the β over all real numbers, +∞ and −∞ at which
            softmax(β·logits)[target] is largest. `logits` [n] float64 with at least two different values, `target` an
            index. Finite answers to a relative 10⁻⁶.

    Returns:
        The report. Mistakes it names: a finite β for an item on top; a tie for the top overlooked; the temperature
        returned; a value clipped without saying; a bracket that ends too soon; −∞ for the lowest item missed.
    """
    return examine(
        best_beta,
        "08.5 The best β for a row",
        _SIGNATURE,
        _stages(),
        remark="Only rows whose answer lies above 1 and below infinity ask for sharpening by a definite amount.",
    )


def true_beta(logits: np.ndarray, target: int) -> float:
    """β by bisection on the mean logit, which rises in β from the lowest logit to the highest."""
    z = logits - logits.max()
    if z[target] == 0:
        return np.inf
    if z[target] == z.min():
        return -np.inf

    def mean(beta: float) -> float:
        powers = np.exp(beta * z - (beta * z).max())
        return float((powers * z).sum() / powers.sum())

    low, high = -1.0, 1.0
    while mean(high) < z[target]:
        high *= 2
    while mean(low) > z[target]:
        low *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < z[target] else (low, middle)
    return (low + high) / 2


def _rows() -> dict[str, list[tuple[np.ndarray, int]]]:
    draw = np.random.default_rng(805)
    crowd = np.sort(draw.normal(size=40))[::-1]
    return {
        "top": [(crowd, 0), (np.array([3.0, 1.0, 3.0, 0.0]), 2)],
        "above": [(crowd, 1), (crowd, 4), (0.5 * crowd + 1e4, 6)],
        "below": [(2 * crowd, 12), (np.array([3.0, 0.5, 0.0, 0.0, 0.0]), 1), (crowd, 25), (crowd, 33)],
        "bottom": [(crowd, 39), (np.array([2.0, 0.0, 1.0, 0.0]), 3)],
        "steep": [(np.array([0.0, -1e-6, -1.0]), 1), (np.array([5.0, 4.999, 4.99, 0.0]), 1), (1e-3 * crowd, 1)],
    }


def _stages() -> tuple[Stage, ...]:
    rows = _rows()
    truth = {name: np.array([true_beta(*row) for row in group]) for name, group in rows.items()}

    def asked(name: str) -> Callable[..., np.ndarray]:
        return lambda best: np.array([float(best(*row)) for row in rows[name]])

    near = {"rtol": 1e-5, "atol": 1e-9}
    return (
        Stage(
            "misordered items that want sharper",
            asked("above"),
            given="targets near the top and above the mean under the softmax at β = 1",
            expected=truth["above"],
            **near,
            mistakes=(
                Mistake(
                    "the temperature",
                    "The answers are the temperatures 1/β.",
                    "A temperature is what the words speak of, and the inverse is what multiplies.",
                    "By what are the logits multiplied in your formula?",
                    seen=1 / truth["above"],
                ),
                Mistake(
                    "the plain mean",
                    "The answer is 1 or 0 whatever the row.",
                    "The mean logit was taken at a fixed β.",
                    "The mean depends on the β that is sought.",
                    seen=lambda got: bool(np.isin(got, (0.0, 1.0)).all()),
                ),
                Mistake(
                    "an item on top assumed",
                    "The answer is infinite where another item is ahead of the target.",
                    "For the item one wants, sharper seems better.",
                    "Follow the target's probability as β grows, in a row where another item is ahead.",
                    seen=lambda got: bool(np.isposinf(got).any()),
                ),
            ),
            look="Differentiate the logarithm of the target's weight in β, and find where it is 0.",
        ),
        Stage(
            "an item on top",
            asked("top"),
            given="the largest logit, alone and tied with another",
            expected=truth["top"],
            mistakes=(
                Mistake(
                    "a tie for the top overlooked",
                    "For the largest logit alone the answer is right, for one tied with another it is finite.",
                    "The test for the top was `argmax`, which names one of two.",
                    "What is the probability of either as β grows?",
                    seen=lambda got: np.isposinf(got[0]) and not np.isposinf(got[1]),
                ),
                Mistake(
                    "a finite β for the item on top",
                    "The answer is a number: the largest of a grid or the end of a bracket.",
                    "A search returns where it stopped.",
                    "Does the probability of the largest logit ever fall as β grows?",
                    seen=lambda got: bool(np.isfinite(got).any()),
                ),
            ),
            look="Is there a β at which the probability of the largest logit is at its largest?",
        ),
        Stage(
            "items that want blunter",
            asked("below"),
            given="targets below the mean at β = 1, two of them below the plain mean of the logits",
            expected=truth["below"],
            **near,
            mistakes=(
                Mistake(
                    "clipped without saying",
                    "Where the best β lies below 1, or below 0, the answer is 1, or 0.",
                    "Temperature rules never go below 1, and a search over positive β never below 0.",
                    "The unrestricted optimum is asked for. Which sign does the slope have at β = 0?",
                    seen=lambda got: any(
                        np.allclose(got, np.maximum(truth["below"], floor), rtol=1e-2, atol=1e-2)
                        for floor in (0.0, 1.0, 1e-3)
                    ),
                ),
            ),
            look="Which β makes the mean logit equal to a logit below the plain mean?",
        ),
        Stage(
            "the lowest item",
            asked("bottom"),
            given="the smallest logit, alone and tied",
            expected=truth["bottom"],
            mistakes=(
                Mistake(
                    "−∞ for the lowest item missed",
                    "The answer is a number.",
                    "It is the case of the top item, turned round.",
                    "Follow the probability of the smallest logit as β falls.",
                    seen=lambda got: bool(np.isfinite(got).any()),
                ),
            ),
            look="What happens as β tends to −∞?",
        ),
        Stage(
            "steep and flat rows",
            asked("steep"),
            given="gaps from a millionth to one nat",
            expected=truth["steep"],
            **near,
            mistakes=(
                Mistake(
                    "a bracket that ends too soon",
                    "An answer is the end of the search interval: the best β is in the hundreds or thousands.",
                    "β scales with one over the gaps, and those can be small.",
                    "Widen the bracket until the slope has changed its sign.",
                    seen=lambda got: bool((got < 0.999 * truth["steep"]).any()),
                ),
            ),
            look="Of which order is β if the gap above the target is a millionth?",
        ),
    )

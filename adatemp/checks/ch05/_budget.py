"""Exercise 05.3, the budget: the singular values that a weight needs, and a head that has them and not the weight."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks import _float64
from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "05.3 The budget"
_BUDGET = "budget(n, weight, query_norm, item_norm, width, temperature)"
_FLAT = "flat(n, weight, product)"

# (n, w, ‖y‖, max‖x‖, width, θ): n small enough that n − 1 is not n, θ on both sides of 1.
_CASES = (
    (7, 0.5, 2.0, 3.0, 4, 1.0),
    (5, 0.9, 1.0, 0.5, 9, 0.4),
    (33, 0.2, 0.7, 4.0, 64, 2.5),
    (1_000, 0.999, 11.0, 11.0, 128, 1.7),
    (1_000_000, 0.01, 3.0, 0.2, 7, 0.6),
)
_EASY = ((4, 0.2, 2.0, 3.0, 4, 1.0), (10, 0.05, 1.0, 1.0, 16, 0.5), (2, 0.5, 1.0, 2.0, 4, 2.0))
_FLAT_CASES = ((64, 0.5, 40.0), (301, 0.2, 100.0), (1_000, 0.9, 300.0))


def ex3(budget: Callable[..., Any], flat: Callable[..., Any]) -> Report:
    """Checks the least product of singular values for a weight, and that it is not enough.

    Args:
        budget: `budget(n, weight, query_norm, item_norm, width, temperature) -> product`, the least
            σ_max(W_Q)·σ_max(W_K) with which some row of n items can hold a weight of `weight` at temperature θ, for
            ‖y‖ = `query_norm`, ‖x_i‖ ≤ `item_norm` and logits ⟨q, k⟩/√width; 0 where no spread is needed.
        flat: `flat(n, weight, product) -> (query_kernel, key_kernel, y, items)` at temperature 1: kernels [D, H] with
            σ_max(W_Q)·σ_max(W_K) of at least `product`, ‖y‖ = 1, items [n, D] of length at most 1. The spread shall be
            at least what the weight needs, and no weight shall reach `weight`.

    Returns:
        The report. Mistakes it names: log n alone; the factor 2; θ missing; √d missing; n for n − 1; a negative
        budget; the budget read as sufficient; no spread at all.
    """
    return in_turn(
        (
            lambda: examine(budget, _TITLE, _BUDGET, _budget_stages()),
            lambda: examine(flat, _TITLE, _FLAT, _flat_stages()),
        ),
        remark="Necessary is not sufficient: large weights allow a spread, and a spread allows a weight.",
        picture=functools.partial(_draw, budget),
    )


def least_product(n: int, weight: float, y: float, x: float, width: int, theta: float) -> float:
    """By bisection: the best row of the best head, a leader at the whole spread over a flat crowd."""

    def best(product: float) -> float:
        spread = 2 * product * y * x / math.sqrt(width)
        return 1 / (1 + (n - 1) * math.exp(-spread / theta))

    if best(0.0) >= weight:
        return 0.0
    low, high = 0.0, 1.0
    while best(high) < weight:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if best(middle) >= weight else (middle, high)
    return high


def _budget_stages() -> tuple[Stage, ...]:
    right = np.array([least_product(*case) for case in _CASES])
    n, w, _, _, width, theta = np.array(_CASES, float).T
    needed = theta * np.log((n - 1) * w / (1 - w))
    return (
        Stage(
            "the least product",
            lambda budget: np.array([float(budget(*case)) for case in _CASES]),
            given="five heads, n from 5 to a million, θ from 0.4 to 2.5",
            expected=right,
            rtol=1e-9,
            atol=0,
            mistakes=(
                Mistake(
                    "log n alone",
                    "The weight does not enter.",
                    "For large n and a weight of about one half the two are close.",
                    "What does a weight of 0.999 need that one of 0.2 does not?",
                    seen=lambda got: any(
                        np.allclose(got, right / needed * theta * np.log(size), rtol=1e-6) for size in (n, n - 1)
                    ),
                ),
                Mistake(
                    "the factor 2",
                    "The answer is twice, or half, of what it should be.",
                    "The norm form bounds a difference of two logits by twice the bound of one.",
                    "Two items can be opposite. Which spread does a product P buy at most?",
                    seen=lambda got: np.allclose(got, 2 * right) or np.allclose(got, right / 2),
                ),
                Mistake(
                    "θ missing",
                    "The answer is right at temperature 1 and at no other.",
                    "Bounds are often written for temperature 1.",
                    "A row at a higher temperature needs a larger spread for the same weight.",
                    seen=lambda got: np.allclose(got, right / theta) or np.allclose(got, right / theta**2),
                ),
                Mistake(
                    "√d missing",
                    "The scale of the logits does not enter.",
                    "The published form leaves it out.",
                    "Logits are ⟨q, k⟩/√width: what does that do to the spread a product buys?",
                    seen=lambda got: np.allclose(got, right / np.sqrt(width)) or np.allclose(got, right / width),
                ),
                Mistake(
                    "n for n − 1",
                    "The item is counted among its own competitors.",
                    "For large n it does not show.",
                    "How many items stand against the leader?",
                    seen=right / needed * theta * np.log(n * w / (1 - w)),
                ),
                Mistake(
                    "log(nw), without the odds",
                    "The answer comes from w ≤ e^{δ/θ}/n, the simple bound.",
                    "The simple bound is quicker to invert.",
                    "No row attains the simple bound. Which bound on a weight is attained?",
                    seen=right / needed * theta * np.log(n * w),
                ),
            ),
            look="First the spread that the weight needs, then the product that the spread needs.",
        ),
        Stage(
            "weights that need no spread",
            lambda budget: np.array([float(budget(*case)) for case in _EASY]),
            given="weights of 1/n and less",
            expected=np.zeros(len(_EASY)),
            rtol=0,
            atol=1e-12,
            mistakes=(
                Mistake(
                    "a negative budget",
                    "A product of singular values cannot be negative.",
                    "The logarithm is negative where the weight is below 1/n.",
                    "Which weight has every item in a row of equal logits?",
                    seen=lambda got: (got < -1e-12).any(),
                ),
            ),
            look="Which weight has every item in a row of equal logits?",
        ),
    )


def _flat_stages() -> tuple[Stage, ...]:
    given = "n = 64, 301 and 1,000, with weights of 0.5, 0.2 and 0.9"
    called = functools.cache(lambda flat: [_head(flat(*case)) for case in _FLAT_CASES])
    products = np.array([product for *_, product in _FLAT_CASES])

    def logits(flat: Callable[..., Any]) -> list[np.ndarray]:
        return [(x @ w_k) @ (y @ w_q) / math.sqrt(w_q.shape[1]) for w_q, w_k, y, x in called(flat)]

    def weights(flat: Callable[..., Any]) -> np.ndarray:
        """Largest weight over the one that it must stay below."""
        return np.array([_float64.softmax(z).max() / w for z, (_, w, _) in zip(logits(flat), _FLAT_CASES)])

    def spreads(flat: Callable[..., Any]) -> np.ndarray:
        """Spread over the least that the weight needs."""
        return np.array(
            [np.ptp(z) / math.log((n - 1) * w / (1 - w)) for z, (n, w, _) in zip(logits(flat), _FLAT_CASES)]
        )

    return (
        Stage(
            "two kernels, a query, n items",
            called,
            given=given,
            accept=lambda heads: all(
                w_q.ndim == w_k.ndim == 2 and w_q.shape[1] == w_k.shape[1] and y.shape == w_q.shape[:1]
                and x.shape == (n, len(w_k))
                for (w_q, w_k, y, x), (n, *_) in zip(heads, _FLAT_CASES)
            ),
            look="Return `(query_kernel, key_kernel, y, items)` of shapes [D, H], [D, H], [D], [n, D].",
        ),
        Stage(
            "lengths of at most 1, and the product that was asked for",
            lambda flat: np.array(
                [
                    [np.linalg.norm(y), np.linalg.norm(x, axis=1).max(), np.linalg.norm(q, 2) * np.linalg.norm(k, 2)]
                    for q, k, y, x in called(flat)
                ]
            ),
            given=given,
            accept=lambda got: (got[:, :2] <= 1 + 1e-9).all() and (got[:, 2] >= products * (1 - 1e-9)).all(),
            look="Print ‖y‖, the largest ‖x_i‖ and the two largest singular values.",
        ),
        Stage(
            "no weight is reached",
            weights,
            given=given,
            accept=lambda got: (got < 1).all(),
            mistakes=(
                Mistake(
                    "the budget read as sufficient",
                    "One item stands out, and has the weight.",
                    "The row that attains the bound has a leader, and it comes to mind first.",
                    "The kernels do not decide where the items stand. What if the leader has company?",
                    seen=lambda got: (got >= 1).any(),
                ),
            ),
            look="Compute the weights of your rows.",
        ),
        Stage(
            "although the spread would allow it",
            spreads,
            given=given,
            accept=lambda got: (got >= 1 - 1e-9).all(),
            mistakes=(
                Mistake(
                    "no spread at all",
                    "The logits are equal, or nearly.",
                    "Equal items are the simplest way not to have a large weight.",
                    "The point is that even a row that makes use of the product need not have the weight.",
                    seen=lambda got: (got < 0.05).all(),
                ),
            ),
            look="Compare the spread with the least spread of the weight, θ log((n−1)w/(1−w)).",
        ),
    )  # fmt: skip


def _head(answer: Any) -> tuple[np.ndarray, ...]:
    w_q, w_k, y, x = (np.asarray(part).astype(np.float64) for part in answer)
    return w_q, w_k, y, x


def _draw(budget: Callable[..., Any]) -> Any:
    """The budget against n for three weights."""
    from adatemp import plotting

    figure, axes = plotting.figure(height=2.8)
    sizes = np.unique(np.geomspace(2, 1e6, 30).astype(int))
    words = []
    for weight, role in zip((0.1, 0.5, 0.99), ("plain", "adaptive", "argmax")):
        found = [float(budget(int(n), weight, 1.0, 1.0, 64, 1.0)) for n in sizes]
        axes.plot(sizes, found, color=plotting.palette[role], label=f"w = {weight:g}")
        words.append(f"{found[-1]:.0f} for w = {weight:g}")
    axes.set(xscale="log", xlabel="items n", ylabel="σ(W_Q) σ(W_K)")
    axes.legend()
    return plotting.show(figure, alt="Your budget against n at width 64; at a million items " + ", ".join(words) + ".")

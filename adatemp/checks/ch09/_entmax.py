"""Exercise 09.2, 1.5-entmax, exactly: the threshold by sorting, and the gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks import _float64
from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written

_TITLE = "09.2 1.5-entmax, exactly"


def ex2(entmax: Callable[..., Any], gradient: Callable[..., Any]) -> Report:
    """Checks 1.5-entmax of rows and its gradient.

    Args:
        entmax: `entmax(logits) -> weights`, over the last axis; −∞ hides a key, and a row without a key is 0.
        gradient: `gradient(logits, cotangent) -> array`, the gradient of ⟨cotangent, entmax(logits)⟩ in the logits; 0
            at hidden keys and in rows without a key.

    Returns:
        The report. Mistakes it names: logits not halved; sparsemax; softmax; the other root; a support one too small or
        too large; no sorting; −∞ rows; a gradient outside the support, of the softmax, with weights for their roots,
        or twice too large.
    """
    entmax, gradient = written(entmax), written(gradient)
    return in_turn(
        (
            lambda: examine(entmax, _TITLE, "entmax(logits)", _value_stages()),
            lambda: examine(gradient, _TITLE, "gradient(logits, cotangent)", _gradient_stages()),
        ),
        remark="The weights are exact zeros below the threshold, and there the gradient is exactly zero too.",
    )


def threshold(half: np.ndarray, power: float = 2.0) -> np.ndarray:
    """The τ with Σ [u − τ]₊^power = 1 over the last axis, by bisection in float64; u = `half`."""
    high = half.max(-1, keepdims=True)
    low = high - 1.0
    for _ in range(100):
        middle = (low + high) / 2
        above = (np.maximum(half - middle, 0.0) ** power).sum(-1, keepdims=True) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return (low + high) / 2


def oracle(logits: np.ndarray, factor: float = 0.5, power: float = 2.0) -> np.ndarray:
    """1.5-entmax in float64 by bisection; with factor and power 1 sparsemax."""
    half = factor * np.asarray(logits, np.float64)
    dead = ~np.isfinite(half).any(-1, keepdims=True)
    filled = np.where(dead, 0.0, half)
    return np.where(dead, 0.0, np.maximum(filled - threshold(filled, power), 0.0) ** power)


def _with_support(logits: np.ndarray, change: int) -> np.ndarray:
    """The formula with a support one larger or smaller than it is."""
    half = np.sort(np.asarray(logits, np.float64) / 2, -1)[..., ::-1]
    size = ((half - threshold(half)) > 0).sum(-1) + change
    tau = []
    for row, k in zip(half.reshape(-1, half.shape[-1]), size.ravel(), strict=True):
        k = min(max(k, 1), len(row))
        mean = row[:k].mean()
        tau.append(mean - np.sqrt(max(1 - ((row[:k] - mean) ** 2).sum(), 0.0) / k))
    tau = np.array(tau).reshape(half.shape[:-1])[..., None]
    return np.maximum(np.asarray(logits, np.float64) / 2 - tau, 0.0) ** 2


def _other_root(logits: np.ndarray) -> np.ndarray:
    half = np.asarray(logits, np.float64) / 2
    inside = half > threshold(half)
    k = inside.sum(-1, keepdims=True)
    mean = np.where(inside, half, 0).sum(-1, keepdims=True) / k
    return np.maximum(half - (2 * mean - threshold(half)), 0.0) ** 2


def _sum_to_one(answer: np.ndarray) -> np.ndarray:
    return np.asarray(answer, np.float64).sum(-1)


def _value_stages() -> tuple[Stage, ...]:
    rows = _float64.logits(901, 3, 4, 9)
    given = "normal logits of shape [3, 4, 9]"
    ties = np.stack([np.zeros(7), np.r_[1.0, 1.0, np.zeros(5)], np.r_[2.0, np.zeros(6)], np.r_[np.full(6, -2.5), 0.0]])
    ties = ties.astype(np.float32)
    hidden = _float64.logits(903, 4, 8)
    hidden[0, 3:] = -np.inf
    hidden[1, :7] = -np.inf
    hidden[2] = -np.inf
    shifted = _float64.logits(905, 5, 11) + np.float32(1e4)
    many = (6.0 * np.random.default_rng(907).uniform(size=(2, 400))).astype(np.float32)
    off_by_one = tuple(
        Mistake(
            "the support off by one",
            f"One item too {which} is counted in the support, and the threshold is that of the wrong count.",
            "The condition compares a threshold with the item that may or may not belong, and is off by one place.",
            "Take two items 1 apart and do it by hand. Is your condition about the last item inside, or the next?",
            seen=_with_support(rows, change),
        )
        for which, change in (("many", 1), ("few", -1))
    )
    return (
        Stage(
            "the weights, against a bisection",
            lambda entmax: entmax(rows),
            given=given,
            expected=oracle(rows),
            atol=2e-6,
            look="Do the weights sum to one? Is every weight the square of the distance to one threshold?",
            mistakes=(
                Mistake(
                    "the logits not halved",
                    "The weights are [z − τ]₊², and the formula has z/2.",
                    "α − 1 is 1 for sparsemax, so that the factor is easily forgotten.",
                    "What is α − 1 for α = 1.5?",
                    seen=oracle(rows, factor=1.0),
                ),
                Mistake(
                    "sparsemax",
                    "These are the weights of sparsemax: distances to a threshold, not their squares.",
                    "It is the better known sparse map, and sorts too.",
                    "Which power does 1/(α − 1) ask for?",
                    seen=lambda got: any(np.allclose(got, oracle(rows, f, 1.0), atol=1e-5) for f in (1.0, 0.5)),
                ),
                Mistake(
                    "softmax",
                    "These are the weights of softmax.",
                    "A stand-in was left in place.",
                    "Some weights must be exact zeros here.",
                    seen=_float64.softmax(rows),
                ),
                *off_by_one,
                Mistake(
                    "the other root",
                    "The threshold lies above the mean of the support.",
                    "A quadratic has two roots.",
                    "Can all items of the support lie above a threshold that is above their mean?",
                    seen=_other_root(rows),
                ),
                Mistake(
                    "no sorting",
                    "The weights depend on the order of the items.",
                    "Cumulative sums run in the order in which the items stand.",
                    "Which items are the first k in your sums?",
                    seen=lambda got: np.abs(_sum_to_one(got) - 1).max() > 1e-3 and np.asarray(got).shape == rows.shape,
                ),
            ),
        ),
        Stage(
            "ties, also at the very edge of the support",
            lambda entmax: entmax(ties),
            given="rows of equal logits, of two tied leaders, and of a leader exactly 2 above the rest",
            expected=oracle(ties),
            atol=2e-6,
            look="Print the support count of each row. Ties are in or out together.",
            mistakes=(
                Mistake(
                    "a root of a negative number",
                    "Rows with a clear leader give NaN.",
                    "The sum of squares exceeds 1 as soon as too many items are counted.",
                    "For which counts is the quantity under the root negative, and do you need those?",
                    seen=lambda got: np.isnan(got).any(),
                ),
            ),
        ),
        Stage(
            "hidden keys, and a row without any",
            lambda entmax: entmax(hidden),
            given="rows with logits of −∞, one of them all −∞",
            expected=oracle(hidden),
            atol=2e-6,
            look="Which of your sums receives −∞, and which difference is ∞ − ∞?",
            mistakes=(
                Mistake(
                    "a row of −∞",
                    "Hidden keys lead to NaN.",
                    "A mean or a square of −∞ enters the cumulative sums, and −∞ − (−∞) is NaN.",
                    "Give hidden keys a finite logit that cannot reach the support; then see to the row that has none.",
                    seen=lambda got: np.isnan(got).any(),
                ),
                Mistake(
                    "weight on hidden keys",
                    "A row without a visible key has weights.",
                    "After −∞ was replaced all keys of that row are alike.",
                    "What should a query that sees nothing read?",
                    seen=lambda got: np.asarray(got)[2].sum() > 0.5,
                ),
            ),
        ),
        Stage(
            "a common offset of 10⁴",
            lambda entmax: entmax(shifted),
            given="float32 logits with 10⁴ added",
            expected=oracle(shifted),
            atol=2e-5,
            look="Subtract what may be subtracted before you square.",
            mistakes=(
                Mistake(
                    "squares of large numbers",
                    "A common offset spoils the weights.",
                    "The variance was computed as a difference of two large squares.",
                    "Which offset can you take from every logit of a row at no cost?",
                    seen=lambda got: np.asarray(got).shape == shifted.shape,
                ),
            ),
        ),
        Stage(
            "a support of many items",
            lambda entmax: entmax(many),
            given="400 logits evenly drawn from an interval of length 6",
            expected=oracle(many),
            atol=2e-6,
            look="Do the weights still sum to one?",
        ),
    )


def _gradient(logits: np.ndarray, cotangent: np.ndarray, root: Callable[..., Any] = np.sqrt) -> np.ndarray:
    """q(g − Σqg/Σq) with q the roots of the weights."""
    q = root(oracle(logits))
    total = q.sum(-1, keepdims=True)
    return q * (cotangent - (q * cotangent).sum(-1, keepdims=True) / np.where(total > 0, total, 1.0))


def _finite_difference(logits: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
    """Central differences of the bisection, a source of its own."""
    answer = np.zeros(logits.shape)
    for place in np.ndindex(logits.shape):
        step = np.zeros(logits.shape)
        step[place] = 1e-5
        up, down = oracle(logits + step), oracle(logits - step)
        answer[place] = (cotangent * (up - down)).sum() / 2e-5
    return answer


def _gradient_stages() -> tuple[Stage, ...]:
    rows = _float64.logits(911, 5, 7)
    g = np.random.default_rng(913).normal(size=rows.shape).astype(np.float32)
    right = _finite_difference(rows.astype(np.float64), g.astype(np.float64))
    outside = oracle(rows) == 0
    hidden = rows.copy()
    hidden[0, 2:] = -np.inf
    hidden[1] = -np.inf
    softmax = _float64.softmax(rows)
    return (
        Stage(
            "the gradient, against finite differences",
            lambda gradient: gradient(rows, g),
            given="normal logits and cotangents of shape [5, 7]",
            expected=right,
            atol=2e-5,
            rtol=1e-4,
            look="Differentiate Σ [z/2 − τ]₊² = 1 for dτ first.",
            mistakes=(
                Mistake(
                    "the gradient of softmax",
                    "This is p(g − ⟨p, g⟩) with the weights of softmax.",
                    "It is the formula of every chapter before.",
                    "Which items have a gradient under softmax, and which here?",
                    seen=lambda got: np.allclose(got, softmax * (g - (softmax * g).sum(-1, keepdims=True)), atol=1e-4),
                ),
                Mistake(
                    "a gradient outside the support",
                    "Items of weight 0 receive a gradient.",
                    "The threshold moves with every logit of the support, and the formula was applied to all items.",
                    "What happens to the weights when a logit far below the threshold moves a little?",
                    seen=lambda got: np.abs(np.asarray(got)[outside]).max() > 1e-4,
                ),
                Mistake(
                    "weights for their roots",
                    "Each weight stands where its root should.",
                    "For softmax the derivative of a weight is the weight, and the formula then is p(g − ⟨p, g⟩).",
                    "Differentiate a square.",
                    seen=lambda got: np.allclose(got, _gradient(rows, g, lambda p: p), atol=1e-4),
                ),
                Mistake(
                    "the threshold held fixed",
                    "The gradient is that of [z/2 − τ]₊² with a constant τ.",
                    "τ looks like a number.",
                    "The weights must keep summing to one.",
                    seen=np.sqrt(oracle(rows)) * g,
                ),
                Mistake(
                    "twice the gradient",
                    "The gradient is twice too large.",
                    "It is the gradient in z/2.",
                    "Apply the chain rule to the factor in front of z.",
                    seen=2 * right,
                ),
            ),
        ),
        Stage(
            "hidden keys have gradient 0",
            lambda gradient: gradient(hidden, g),
            given="rows with logits of −∞, one of them all −∞",
            expected=_gradient(hidden, g),
            atol=2e-5,
            rtol=1e-4,
            look="What is the sum of the roots in a row without keys?",
            mistakes=(
                Mistake(
                    "0/0 in a row of −∞",
                    "The gradient of a row without keys is NaN.",
                    "The sum of the roots is 0 there, and something is divided by it.",
                    "Guard the divisor, not the quotient.",
                    seen=lambda got: np.isnan(got).any(),
                ),
            ),
        ),
    )

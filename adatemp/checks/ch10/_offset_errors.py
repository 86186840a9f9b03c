"""The measuring half of exercise 10.2: forms whose errors are known, and a measurement that should find them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks import _float64
from adatemp.checks._stages import Mistake, Stage


class _KnownForms:
    """Forms whose errors are known, and a record of what they were called with."""

    shifted, unshifted = 3e-4, 2e-6  # error of the first form at any offset, and of the second per unit of offset

    def __init__(self, logits: np.ndarray) -> None:
        self.logits, self.calls = logits, []

    def __call__(self, given: Any) -> tuple[np.ndarray, np.ndarray]:
        given = np.asarray(given)
        self.calls.append(given)
        exact = _float64.entropy(given)
        # Errors of both signs, so that they cancel in a mean that keeps the sign.
        sign = np.where(np.arange(len(given)) % 3 == 0, -1.0, 1.0)
        offset = float(given.max() - self.logits.max())
        spread = 0.5 + np.arange(len(given)) / (len(given) - 1.0)  # from a half to one and a half, mean 1
        errors = (self.shifted * sign * spread, self.unshifted * offset * sign * spread)
        return tuple((exact + error).astype(np.float64) for error in errors)

    def moved(self) -> np.ndarray:
        """What was added to the logits in each call, [calls, rows, n]."""
        return np.stack([call.astype(np.float64) - self.logits for call in self.calls])


def error_stages(errors: Callable[..., Any], logits: np.ndarray) -> tuple[Stage, ...]:
    offsets = np.array([0, 100, 10_000], np.float32)
    right = np.stack([np.full(3, _KnownForms.shifted), _KnownForms.unshifted * offsets])
    spread = np.array([1.5 * _KnownForms.shifted, 1.5 * _KnownForms.unshifted * 1e4])
    square = math.sqrt(np.mean((0.5 + np.arange(len(logits)) / (len(logits) - 1.0)) ** 2))
    latest: list[_KnownForms] = []

    def call(_: Any) -> np.ndarray:
        latest[:] = [_KnownForms(logits)]
        return np.asarray(errors(latest[0], logits, offsets))

    def moved() -> np.ndarray:
        return latest[0].moved()

    def widened(_: Any) -> bool:
        return any(given.dtype == np.float64 for given in latest[0].calls)

    def bent(_: Any) -> bool:
        return np.ptp(moved(), axis=(1, 2)).max() > 0

    return (
        Stage(
            "the errors of forms that are known to be wrong",
            call,
            given="forms whose first answer errs by 3·10⁻⁴ and whose second by 2·10⁻⁶ times the offset",
            expected=right,
            accept=lambda got: (
                got.shape == right.shape
                and np.allclose(got, right, rtol=0.02, atol=1e-6)
                and not widened(got)
                and not bent(got)
            ),
            look="For each form and each offset: the mean over rows of |answer − exact|.",
            mistakes=(
                Mistake(
                    "judged in float64",
                    "`forms` was handed float64 logits, and so it answers as float64 does.",
                    "The exact entropy wants float64, and one widened array is then used for both.",
                    "Which array goes to `forms`, and which to the judge?",
                    seen=widened,
                ),
                Mistake(
                    "the offset is never applied",
                    "`forms` was called with the same logits for every offset.",
                    "A loop over offsets easily leaves its variable unused.",
                    "What does your function hand to `forms` at the last offset?",
                    seen=lambda _: np.abs(moved()).max() == 0,
                ),
                Mistake(
                    "the offset is applied to one block",
                    "Only a part of each row was moved, so that the entropy itself changed.",
                    "A stream reads a block at a time, and a test's offset is easily added to the first.",
                    "Which logits have to move together for the exact entropy to stay as it is?",
                    seen=bent,
                ),
                Mistake(
                    "a form is its own judge",
                    "The first form's error is 0, though it was made to err by 3·10⁻⁴.",
                    "The shifted form is the good one, so it is taken for the truth.",
                    "What do you compare with, and how do you know that it is right?",
                    seen=lambda got: np.abs(got[0]).max() < 1e-7,
                ),
                Mistake(
                    "errors of both signs cancel",
                    "The mean was taken of signed errors.",
                    "A mean of differences looks like a mean error.",
                    "Rounding errs up and down. What is the size of an error?",
                    seen=lambda got: np.allclose(np.abs(got), right / 3, rtol=0.1, atol=2e-5),
                ),
                Mistake(
                    "the largest error for the mean",
                    "The answer is the largest error over the rows.",
                    "Both are honest measures; the prediction is made for one of them.",
                    "Which reduction runs over the rows?",
                    seen=lambda got: np.allclose(got[:, -1], spread, rtol=0.02),
                ),
                Mistake(
                    "the root of the mean square",
                    "The answer is the root of the mean square over the rows.",
                    "Both are honest measures; the prediction is made for one of them.",
                    "Which reduction runs over the rows?",
                    seen=lambda got: np.allclose(got, right * square, rtol=0.01, atol=1e-6),
                ),
                Mistake(
                    "axes exchanged",
                    "The answer has a row for every offset and a column for every form.",
                    "A list built in a loop over offsets has the offsets first.",
                    "The first axis belongs to the two forms.",
                    seen=lambda got: got.shape == (3, 2) and np.allclose(got.T, right, rtol=0.02, atol=1e-6),
                ),
                Mistake(
                    "relative errors",
                    "The errors were divided by something.",
                    "Floating-point errors are often quoted in relative terms.",
                    "The error is asked for in nats.",
                    seen=lambda got: np.allclose(got / got[0, 0], right / right[0, 0], rtol=0.05, atol=1e-2),
                ),
            ),
        ),
    )

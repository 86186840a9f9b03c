"""Exercise 10.2: two forms of the entropy's sum, the error of each against a common offset, and a prediction of it."""

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
from adatemp.checks._written import written
from adatemp.checks.ch10._offset_errors import error_stages

_TITLE = "10.2 Two forms, one survives"
_ROWS, _KEYS = 48, 96
# Whole offsets up to 10⁵ leave the logits, multiples of 1/64, exact in float32.
_OFFSETS = np.array([100, 300, 1_000, 3_000, 10_000, 30_000, 100_000], np.float32)
_ROUNDOFF = 2.0**-24


def ex2(forms: Callable[..., Any], errors: Callable[..., Any], prediction: Any) -> Report:
    """Checks two forms of the entropy in float32, a measurement of their error, and a prediction of it.

    Args:
        forms: `forms(logits) -> (shifted, unshifted)` of float32 logits [rows, n]: the rows' entropies, float32 and
            computed in float32, the first as log l − s/l, the second as (m + log l) − u/l with u = Σ e^(z−m)·z.
        errors: `errors(forms, logits, offsets) -> [2, len(offsets)]`: for each form and each offset the mean over rows
            of the absolute error, in nats, of `forms(logits + offset)`. `logits` are float32 and remain exact when an
            offset is added; the check calls it with `forms` of its own, whose errors it knows.
        prediction: `(slope, constant)`, made before measuring: the error of the unshifted form is about
            constant · offset^slope for offsets from 100 to 100,000. The check allows a factor of 3 in the constant.

    Returns:
        The report. Mistakes it names: a form computed, or judged, in float64; an offset that is added to a part of the
        row, or never; a form that judges itself; errors that cancel; a slope or a constant of another kind of error.
    """
    call = written(forms)
    return in_turn(
        (
            lambda: examine(forms, _TITLE, "forms(logits)", _form_stages(call)),
            lambda: examine(errors, _TITLE, "errors(forms, logits, offsets)", error_stages(written(errors), _logits())),
            lambda: examine(
                lambda: prediction, _TITLE, "prediction = (slope, constant)", _prediction_stages(call, prediction)
            ),
        ),
        remark="Numbers that do not move with the offset lose nothing to it, at any precision.",
        picture=lambda: _draw(call),
    )


@functools.cache
def _logits() -> np.ndarray:
    return _float64.logits(201, _ROWS, _KEYS)


@functools.cache
def _exact() -> np.ndarray:
    return _float64.entropy(_logits())


def _form_stages(forms: Callable[..., Any]) -> tuple[Stage, ...]:
    z = _logits().astype(np.float64)
    t = z - z.max(-1, keepdims=True)
    l = np.exp(t).sum(-1)
    mixed = np.log(l) - (np.exp(t) * z).sum(-1) / l

    def at(offset: float) -> Any:
        return tuple(forms(_logits() + np.float32(offset)))

    def wide(got: Any) -> bool:
        return any(np.asarray(form).dtype == np.float64 for form in got)

    def mean_errors(got: Any) -> np.ndarray:
        return np.abs(np.asarray(got, np.float64) - _exact()).mean(-1)

    in_float64 = Mistake(
        "computed in float64",
        "In float64 both forms are right to ten digits at this offset, and the exercise has nothing to show.",
        "NumPy widens in silence: a Python float is harmless to it, an array of float64 is not.",
        "Print the dtype after each line. The models of this book compute in float32.",
        seen=wide,
    )
    return (
        Stage(
            "both forms, on logits of order one",
            lambda _: at(0.0),
            given=f"float32 logits of shape ({_ROWS}, {_KEYS})",
            accept=lambda got: not wide(got) and np.allclose(np.asarray(got), _exact(), rtol=0, atol=2e-5),
            mistakes=(
                in_float64,
                Mistake(
                    "one form mixed with the other",
                    "The second result takes the mean of z from log l: one term is shifted and the other is not.",
                    "The two formulas differ in one letter at two places, and only one was changed.",
                    "When 1 is added to every logit, by how much does each of your two terms change?",
                    seen=lambda got: np.allclose(got[1], mixed, atol=1e-3),
                ),
                Mistake(
                    "bits for nats",
                    "The entropies are right in bits; this book measures in nats.",
                    "Information theory often uses the logarithm to base 2.",
                    "Look at which logarithm is taken.",
                    seen=lambda got: np.allclose(np.asarray(got) * math.log(2), _exact(), atol=1e-4),
                ),
            ),
            look="At this offset both forms are right to six digits. Work one row of three logits through by hand.",
        ),
        Stage(
            "at an offset of 10⁴ the forms part",
            lambda _: at(1e4),
            given="the same logits plus 10⁴",
            accept=lambda got: (
                not wide(got)
                and mean_errors(got)[0] < 2e-6
                and 5e-5 < mean_errors(got)[1]
                and mean_errors(got)[1] < 0.1
            ),
            mistakes=(
                in_float64,
                Mistake(
                    "the forms exchanged",
                    "The first result is the one that loses digits.",
                    "Which of the two forms is which is a matter of one letter.",
                    "`forms` returns (shifted, unshifted).",
                    seen=lambda got: mean_errors(got)[1] < 2e-6 < mean_errors(got)[0],
                ),
                Mistake(
                    "no maximum subtracted",
                    "The exponentials overflow.",
                    "Unshifted is the sum Σ e^(z−m)·z; its exponentials are shifted in either form.",
                    "What is the largest number that enters `exp`?",
                    seen=lambda got: not np.isfinite(np.asarray(got)).all(),
                ),
                Mistake(
                    "both forms shifted",
                    "Neither form loses digits.",
                    "If the maximum is taken off the logits first, everything that follows is shifted.",
                    "Which z stands in the second form's sum: the logits as they came, or less their maximum?",
                    seen=lambda got: (mean_errors(got) < 5e-5).all(),
                ),
                Mistake(
                    "both forms unshifted",
                    "The first form loses digits as well.",
                    "log l − s/l has m in none of its terms; m + log l minus something has it in both.",
                    "How large are the two numbers that your first form subtracts at the end?",
                    seen=lambda got: (mean_errors(got) > 5e-5).all(),
                ),
            ),
            look="How large are the two numbers that each form subtracts at the end?",
        ),
    )


def _prediction_stages(forms: Callable[..., Any], prediction: Any) -> tuple[Stage, ...]:
    measured = np.array(
        [
            np.abs(np.asarray(forms(_logits() + offset)[1], np.float64) - _exact()).mean()
            for offset in (_OFFSETS if prediction is not None else ())
        ]
    )

    def pair(_: Any) -> Any:
        if prediction is None or prediction is Ellipsis:
            raise NotImplementedError
        slope, constant = prediction
        return None if slope is None or constant is None else (float(slope), float(constant))

    def within(constant: float, factor: float) -> bool:
        at_middle = float(np.exp(np.log(measured / _OFFSETS).mean()))
        return at_middle / factor <= constant <= at_middle * factor

    return (
        Stage(
            "the predicted slope",
            pair,
            given="offsets from 100 to 100,000",
            accept=lambda got: abs(got[0] - 1) < 0.2,
            mistakes=(
                Mistake(
                    "a constant error predicted",
                    "The slope is that of an error that does not grow.",
                    "It is the shifted form whose numbers do not know the offset.",
                    "How far apart are two neighbouring float32 numbers near 10⁴, and near 10⁵?",
                    seen=lambda got: abs(got[0]) < 0.2,
                ),
                Mistake(
                    "a random walk predicted",
                    "The slope is that of errors that add up like a random walk.",
                    "Rounding errors of a long sum do so in the number of terms.",
                    "The number of terms is fixed here. What grows?",
                    seen=lambda got: abs(got[0] - 0.5) < 0.2,
                ),
                Mistake(
                    "an error of second order predicted",
                    "The slope is that of a square.",
                    "A product of two large numbers would lose so much.",
                    "Which operation loses the digits, and is either of its two numbers a square?",
                    seen=lambda got: abs(got[0] - 2) < 0.2,
                ),
            ),
            look="On doubly logarithmic axes, by how much does the error grow when the offset grows tenfold?",
        ),
        Stage(
            "the predicted constant, within a factor of 3",
            pair,
            given="offsets from 100 to 100,000",
            accept=lambda got: within(got[1], 3.0),
            mistakes=(
                Mistake(
                    "a logarithm for the constant",
                    "The constant is negative.",
                    "A straight line on logarithmic axes has the logarithm of the constant for its intercept.",
                    "An error is constant · offset^slope, in nats.",
                    seen=lambda got: got[1] < 0,
                ),
                Mistake(
                    "the roundoff of another precision",
                    "The constant is that of float64.",
                    "`np.finfo(float)` is about float64, as Python's floats are.",
                    "In which precision do the forms compute?",
                    seen=lambda got: 2.0**-55 <= got[1] <= 2.0**-51,
                ),
                Mistake(
                    "the error at one offset for the constant",
                    "The constant is the error itself at one of the offsets.",
                    "A measured error is a number; a constant is what is left after the offset is divided out.",
                    "What is the error at an offset of 1?",
                    seen=lambda got: measured.min() / 2 <= got[1] <= measured.max() * 2,
                ),
            ),
            look="The unshifted form subtracts two numbers as large as the offset, each rounded to float32. What is "
            "the mean size of such a rounding, in units of the number?",
        ),
    )


def _draw(forms: Callable[..., Any]) -> Any:
    """Mean error of both forms against the offset, with the line of one roundoff."""
    from adatemp import plotting

    errors = np.array(
        [
            np.abs(np.asarray(forms(_logits() + offset), np.float64) - _exact()).mean(-1)  # both forms at once
            for offset in _OFFSETS
        ]
    )
    figure, axis = plotting.figure(4, 3.2)
    axis.plot(_OFFSETS, errors[:, 1], label="unshifted", **plotting.role("plain"))
    axis.plot(_OFFSETS, errors[:, 0], label="shifted", **plotting.role("adaptive"))
    axis.plot(_OFFSETS, _ROUNDOFF * _OFFSETS, label="offset · 2⁻²⁴", **plotting.role("bound") | {"marker": ""})
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("offset of all logits")
    axis.set_ylabel("mean error, nats")
    axis.legend()
    return plotting.show(
        figure,
        alt="Line chart on logarithmic axes: mean error of the entropy against a common offset of the logits. The "
        f"unshifted form errs by {errors[0, 1]:.1g} nats at 100 and {errors[-1, 1]:.1g} at 100,000, the shifted one by "
        f"{errors[-1, 0]:.1g} throughout.",
    )

"""Stages of a check: each probes one property of the reader's function and names the mistake it recognises."""

from __future__ import annotations

import functools
import inspect
import linecache
import math
import traceback
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from adatemp.checks._report import Diagnosis, Finding, Report


class NotApplicable(Exception):
    """Raised inside a stage's call when the stage has no meaning for this function; its text says why."""


@dataclass(frozen=True)
class Mistake(Diagnosis):
    """A mistake that can be recognised from what the reader's function returned.

    Attributes:
        seen: either what the mistake would have returned, compared within the stage's tolerance, or a predicate of the
            answer. The answer is whatever the stage's call returned, or the exception it raised.
    """

    _: KW_ONLY
    seen: Any | Callable[[Any], bool]


@dataclass(frozen=True)
class Stage:
    """One property, from the call that probes it to the mistakes it can tell apart.

    Attributes:
        name: the property, as the reader will see it in the report.
        call: takes the reader's function, calls it, returns its answer.
        given: the input in words, for messages.
        expected: what a right function returns, from a source independent of any solution.
        accept: decides instead of `expected` where right answers are not one array.
        mistakes: tried in order on a wrong answer; the first that fits is named.
        look: what to look at when no named mistake fits.
        rtol: relative tolerance of comparisons with arrays.
        atol: absolute tolerance of comparisons with arrays.
        dtype: the dtype an answer must have, when it matters.
        nats: whether the answer is an entropy or a logarithm, so that bits can be recognised.
    """

    name: str
    call: Callable[[Callable[..., Any]], Any]
    _: KW_ONLY
    given: str
    look: str
    expected: Any = None
    accept: Callable[[Any], bool] | None = None
    mistakes: tuple[Mistake, ...] = ()
    rtol: float = 1e-5
    atol: float = 1e-6
    dtype: Any = None
    nats: bool = False

    def close(self, answer: Any, wanted: Any) -> bool:
        """Whether two arrays have one shape and agree within the tolerance; NaN agrees with NaN."""
        got, want = _array(answer), _array(wanted)
        if got is None or want is None or got.shape != want.shape:
            return False
        return np.allclose(got, want, rtol=self.rtol, atol=self.atol, equal_nan=True)

    def right(self, answer: Any) -> bool:
        if self.dtype is not None and getattr(answer, "dtype", None) != np.dtype(self.dtype):
            return False
        return self.accept(answer) if self.accept is not None else self.close(answer, self.expected)


def examine(
    student: Callable[..., Any],
    exercise: str,
    signature: str,
    stages: tuple[Stage, ...],
    *,
    remark: str = "",
    picture: Callable[[Callable[..., Any]], Any] | None = None,
) -> Report:
    """Runs the stages on the reader's function, stops at the first that fails, and reports.

    Args:
        student: the reader's function.
        exercise: number and title.
        signature: how the check calls the function, shown when a call fails.
        stages: from basic to subtle.
        remark: one sentence that a reader who passed should take away.
        picture: draws what the function does; called only when the report is displayed.

    Returns:
        The report. Nothing the reader's function raises escapes, except KeyboardInterrupt and SystemExit.
    """
    if not callable(student):
        return _report(exercise, [Finding("a function was passed", "failed", _not_a_function(student, signature))])
    findings: list[Finding] = []
    for position, stage in enumerate(stages):
        finding = _run(stage, student, signature)
        findings.append(finding)
        if finding.outcome == "failed":
            findings += [Finding(later.name, "not reached") for later in stages[position + 1 :]]
            break
    return _report(exercise, findings, remark, functools.partial(picture, student) if picture else None)


def _report(exercise: str, findings: list[Finding], remark: str = "", picture: Any = None) -> Report:
    failed = next((f.diagnosis for f in findings if f.diagnosis is not None), None)
    if failed is not None:
        message = " ".join(text for _, text in failed.sentences())
    else:
        count = sum(f.outcome == "passed" for f in findings)
        message = f"Everything that was checked holds ({count} of {len(findings)} stages). {remark}".strip()
    return Report(exercise, failed is None, message, tuple(findings), picture)


def _run(stage: Stage, student: Callable[..., Any], signature: str) -> Finding:
    try:
        # A wrong function may well divide by zero; the report says so once, NumPy's warnings need not say it again.
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            answer = stage.call(student)
    except NotApplicable as reason:
        return Finding(stage.name, "left out", note=str(reason))
    except Exception as error:
        # A stub is recognised before the mistakes, some of which compute for seconds.
        stub = _STUB if isinstance(error, NotImplementedError) else None
        diagnosis = stub or _named(stage, error) or _raised(error, student, stage, signature)
        return Finding(stage.name, "failed", diagnosis)
    if _empty(answer):
        return Finding(stage.name, "failed", _STUB)
    with np.errstate(all="ignore"):
        if _fits(stage.right, answer):
            return Finding(stage.name, "passed")
        return Finding(stage.name, "failed", _named(stage, answer) or _unnamed(stage, answer))


def _named(stage: Stage, answer: Any) -> Diagnosis | None:
    for mistake in stage.mistakes:
        seen = mistake.seen if callable(mistake.seen) else functools.partial(stage.close, wanted=mistake.seen)
        if _fits(seen, answer):
            return mistake
    return None


def _fits(predicate: Callable[[Any], bool], answer: Any) -> bool:
    """A predicate that cannot digest the answer (wrong shape, an exception) does not hold of it."""
    try:
        return bool(predicate(answer))
    except Exception:
        return False


# What any check recognises, whatever the exercise.

_STUB = Diagnosis(
    "not written yet",
    "The function does not return anything yet.",
    "The stub is still in place, or a branch ends without `return`.",
    "Replace the stub's last line; if you wrote the body, see that every path ends in `return`.",
)


def _empty(answer: Any) -> bool:
    parts = answer if isinstance(answer, tuple | list) else (answer,)
    return any(part is None or part is Ellipsis for part in parts)


def _not_a_function(given: Any, signature: str) -> Diagnosis:
    return Diagnosis(
        "not a function",
        f"The check was given `{type(given).__name__}`, and it needs the function itself.",
        "It is easy to call the function by habit, which passes its result.",
        f"Pass the name without brackets. The check calls it as `{signature}`.",
    )


def _raised(error: Exception, student: Callable[..., Any], stage: Stage, signature: str) -> Diagnosis:
    if isinstance(error, NotImplementedError):
        return _STUB
    text = str(error).strip().split("\n")[0]
    shown = f"`{type(error).__name__}: {text}`" if text else f"`{type(error).__name__}`"
    return Diagnosis(
        "raised an exception",
        f"The function raised {shown} when it was given {stage.given}.{_where(error, student)}",
        "The input is legal, so a shape, an axis or a dtype is not what the code takes it to be.",
        f"{stage.look} The check calls it as `{signature}`.",
    )


def _where(error: Exception, student: Callable[..., Any]) -> str:
    """The reader's own line that was running, without the file's path."""
    code = getattr(inspect.unwrap(student), "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    if not own:
        return ""
    line = linecache.getline(own[-1].filename, own[-1].lineno or 0).strip()
    return f" It happened in `{own[-1].name}`, at the line `{line}`." if line else f" It happened in `{own[-1].name}`."


def _unnamed(stage: Stage, answer: Any) -> Diagnosis:
    """The generic findings: not an array, wrong shape, NaN, bits, wrong dtype; else where the largest error sits."""
    if stage.expected is None:
        return Diagnosis("does not hold", f"This does not hold for {stage.given}: {stage.name}.", "", stage.look)
    got, want = _array(answer), np.asarray(_array(stage.expected))
    if got is None:
        return Diagnosis(
            "not an array",
            f"The function returned a {type(answer).__name__} where an array of shape {want.shape} is expected.",
            "A tuple or a list is often returned by a trailing comma or by a comprehension left unstacked.",
            "Return one array.",
        )
    if got.shape != want.shape:
        return Diagnosis(
            "wrong shape",
            f"The answer has shape {got.shape}; for {stage.given} it should have shape {want.shape}.",
            "A reduction has run over the wrong axis, or has kept or dropped one too many.",
            "Write the shape of each intermediate array beside its line, for sizes that all differ.",
        )
    if (astray := np.isnan(got) & ~np.isnan(want)).any():
        return Diagnosis(
            "NaN",
            f"The answer holds {astray.sum()} NaN, the first at index {_index(astray)}, for {stage.given}.",
            "NaN arises from ∞ − ∞, 0 · ∞ and 0 / 0, and then spreads through every sum it enters.",
            f"{stage.look} Print the intermediate arrays of that row and find the first that is not finite.",
        )
    if stage.nats and stage.close(got * math.log(2.0), want):
        return Diagnosis(
            "bits for nats",
            "The answer is right in bits; this book measures in nats.",
            "Information theory often uses the logarithm to base 2.",
            "Look at which logarithm is taken.",
        )
    if stage.close(got, want):
        return Diagnosis(
            "wrong dtype",
            f"The values are right and the dtype is {getattr(answer, 'dtype', type(answer).__name__)}, "
            f"where {np.dtype(stage.dtype).name} is expected.",
            "A constant, a cast or a default of the array library has changed the precision on the way.",
            "Look at the dtype after each line, and at the cast before `return`.",
        )
    off = np.where(np.isclose(got, want, rtol=stage.rtol, atol=stage.atol), 0.0, np.abs(got - want))
    place = np.unravel_index(np.nanargmax(np.where(np.isnan(off), np.inf, off)), off.shape)
    return Diagnosis(
        "not recognised",
        f"For {stage.given} the answer is off by {off[place]:.3g}"
        + (
            f" at index {tuple(map(int, place))}, where it is {got[place]:.6g}." if off.shape else f": it is {got:.6g}."
        ),
        "",
        stage.look,
    )


def _index(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])


def _array(value: Any) -> np.ndarray | None:
    """The value as float64, or None if it is no array of numbers."""
    if isinstance(value, Exception) or value is None:
        return None
    try:
        return np.asarray(value).astype(np.float64)
    except (TypeError, ValueError):
        return None

"""Exercise 03.4, break my bound: an adversary that finds counter-examples to false inequalities and to no true one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks.ch03._claims import claims

_SIGNATURE = "attack(excess, n, spread, temperature)"
_N = 257
_CASES = ((1.5, 0.5), (5.0, 2.0))  # (δ, θ); both false claims are broken by rows of both
_FALSE = ("B", "E")
_CLEAR = 1e-9  # an excess in float64 beyond every rounding of a row of 257

# (claim, δ, θ) to the row that came back, or None
Answers = dict[tuple[str, float, float], np.ndarray | None]


def ex4(attack: Callable[..., Any]) -> Report:
    """Checks an adversary on the six inequalities of `claims()`, four of them true.

    Args:
        attack: `attack(excess, n, spread, temperature) -> logits or None`. `excess(logits, spread, temperature)` is one
            claim's: positive where a row breaks it, differentiable, in float64 for NumPy arrays. A row [n] that
            comes back has a spread of at most δ = `spread` and breaks the claim beyond doubt; None means that none
            was found. It is called with n = 257 and two pairs of δ and θ, for every claim, and should take seconds.

    Returns:
        The report. Mistakes it names: δ measured after the temperature; rows that leave the spread; rounding reported
        as a violation; a row that breaks nothing; random search only; a search that stops at some of the claims.
    """
    answers = functools.cache(_answers)  # the stages and the picture look at one run of the attack
    picture = functools.partial(_draw, answers)
    return examine(attack, "03.4 Break my bound", _SIGNATURE, _stages(answers), picture=picture)


def _answers(attack: Callable[..., Any]) -> Answers:
    found: Answers = {}
    for claim in claims():
        for spread, temperature in _CASES:
            row = attack(claim.excess, _N, spread, temperature)
            found[claim.name, spread, temperature] = None if row is None else np.asarray(row).astype(np.float64)
    return found


def _stages(answers: Callable[..., Answers]) -> tuple[Stage, ...]:
    given = f"the six claims at n = {_N}, with δ = 1.5, θ = 0.5 and with δ = 5, θ = 2"
    return (
        Stage(
            "a row of n logits, or None",
            answers,
            given=given,
            accept=lambda found: all(row is None or row.shape == (_N,) for row in found.values()),
            look="Return one array of shape [n], or None where no row was found.",
        ),
        Stage(
            "the rows keep the spread",
            lambda attack: _rows(answers(attack)),
            given=given,
            accept=lambda rows: all(np.ptp(row) <= spread * (1 + 1e-5) for (_, spread, _), row in rows),
            mistakes=(
                Mistake(
                    "δ measured after the temperature",
                    "A row has a spread of δθ: its logits were held within δ after they were divided by θ.",
                    "The weights depend on logits over temperature, and it is these that one tends to look at.",
                    "The claims are about logits within δ. Project the logits, before the division.",
                    seen=lambda rows: all(
                        np.ptp(row) <= max(spread, spread * theta) * (1 + 1e-5) for (_, spread, theta), row in rows
                    ),
                ),
                Mistake(
                    "rows that leave the spread",
                    "A row has a larger spread than δ.",
                    "A gradient step does not know about the constraint.",
                    "What brings a row back into the allowed set after each step?",
                    seen=lambda rows: True,
                ),
            ),
            look="Subtract the smallest logit from the largest.",
        ),
        Stage(
            "what is reported as broken is broken, in float64",
            lambda attack: [(name, _excess(name, *rest)) for name, *rest in _reported(answers(attack))],
            given=given,
            accept=lambda reported: all(value > _CLEAR for _, value in reported),
            mistakes=(
                Mistake(
                    "rounding reported as a violation",
                    "A row that attains a true bound was reported, with an excess of a rounding error.",
                    "float32 keeps seven digits, and at a row that attains a bound both sides agree in all of them.",
                    "Evaluate the excess once more, in a precision that can tell. How large is a real one?",
                    seen=lambda reported: all(value > -1e-4 for _, value in reported),
                ),
                Mistake(
                    "a row that breaks nothing",
                    "A row was reported that satisfies the claim by a clear margin.",
                    "Returning the best row found is not the same as returning a counter-example.",
                    "What should come back when the best excess is negative?",
                    seen=lambda reported: True,
                ),
            ),
            look="Print the excess of the rows you return, computed by NumPy.",
        ),
        Stage(
            "the two false claims are broken",
            lambda attack: {name for (name, *_), _ in _rows(answers(attack))},
            given=given,
            accept=lambda broken: broken == set(_FALSE),
            mistakes=(
                Mistake(
                    "random search only",
                    "No claim was broken, and two are false.",
                    "Rows drawn at random sit in the middle of what is possible, and in 257 dimensions they all look "
                    "alike; a gradient whose entries are of size 1/n moves them no further if the steps are not "
                    "scaled up.",
                    "How far does the excess rise from your start to your end, and how far does a logit move?",
                    seen=lambda broken: not broken,
                ),
                Mistake(
                    "one false claim left standing",
                    "One of the two false claims was broken, the other not.",
                    "Each has its own kind of extremal row, and the way there from one start can be long, or blocked.",
                    "Start from several rows, let the search run until the excess stops rising, and take the best.",
                    seen=lambda broken: len(broken) == 1,
                ),
            ),
            look="Plot the excess against the step for each claim.",
        ),
        Stage(
            "at both pairs of spread and temperature",
            lambda attack: {key for key, _ in _rows(answers(attack))},
            given=given,
            accept=lambda keys: keys == {(name, *case) for name in _FALSE for case in _CASES},
            look="A claim was broken at one pair only. Does the length of your steps fit the spread?",
        ),
    )


def _rows(found: Answers) -> list[tuple[tuple[str, float, float], np.ndarray]]:
    return [(key, row) for key, row in found.items() if row is not None]


def _reported(found: Answers) -> list[tuple[str, np.ndarray, float, float]]:
    """Rows that came back, put exactly within their spread."""
    return [
        (name, np.clip(row - row.min(), 0.0, spread), spread, temperature)
        for (name, spread, temperature), row in _rows(found)
    ]


def _excess(name: str, row: np.ndarray, spread: float, temperature: float) -> float:
    return float(next(claim for claim in claims() if claim.name == name).excess(row, spread, temperature))


def _draw(answers: Callable[..., Answers], attack: Callable[..., Any]) -> Any:
    """The rows that came back, sorted."""
    from adatemp import plotting

    figure, axes = plotting.figure()
    words = []
    for name, row, spread, temperature in _reported(answers(attack)):
        value = _excess(name, row, spread, temperature)
        axes.plot(np.sort(row)[::-1] / spread, label=f"{name}, δ = {spread:g}, θ = {temperature:g}")
        words.append(f"{name} by {value:.3f}")
    axes.set(xlabel="item, by its logit", ylabel="logit over δ")
    axes.legend()
    return plotting.show(figure, alt="Sorted logits of the rows that break a claim: " + (", ".join(words) or "none"))

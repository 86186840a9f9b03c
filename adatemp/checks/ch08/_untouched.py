"""Exercise 08.2, provably untouched: for which sizes and spreads a map with a window can act on no row at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp import dispersion
from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "08.2 Provably untouched"
_TOUCHED, _LIMIT = "touched(n, spread, low, high)", "limit(n, low, high)"

_PAPER = (0.848582, 5.944521)
_NARROW = (1.5, 3.0)

# (n, δ, low, high): on both sides of the exact limit, and of what looser arguments would give
_ROWS = (
    (131_072, 9.2, *_PAPER),  # above the exact limit 9.04
    (131_072, 8.9, *_PAPER),  # below it, above the quadratic 6.83
    (131_072, 6.3, *_PAPER),  # above the linear 5.84
    (131_072, 5.0, *_PAPER),
    (7_000, 5.69, *_PAPER),
    (8_000, 5.69, *_PAPER),  # between the exact size 7,419 and the quadratic 21,841
    (30_000, 5.69, *_PAPER),
    (300, 0.5, *_PAPER),  # log 300 < high: every row, the flat one too
    (1_000, 3.0, *_NARROW),
    (1_000, 6.0, *_NARROW),
    (1_000, 8.0, *_NARROW),
    (1_000, 200.0, *_NARROW),
)
_SHORT = ((2, 3.0, *_PAPER), (2, 0.0, *_PAPER), (3, 0.5, *_PAPER), (4, 2.0, *_NARROW), (5, 2.0, *_NARROW))
_LIMITS = ((131_072, *_PAPER), (10_000, *_PAPER), (1_000, *_NARROW), (10**6, *_NARROW))


def ex2(touched: Callable[..., Any], limit: Callable[..., Any]) -> Report:
    """Checks whether a map that acts between two entropies can act on any row of n logits within a spread.

    Args:
        touched: `touched(n, spread, low, high) -> bool`: whether some row of `n` logits with a spread of at most δ =
            `spread` has an entropy strictly between `low` and `high` nats. n from 2 on.
        limit: `limit(n, low, high) -> δ`: the spread up to which no row of n is touched, to 10⁻³, for n with log n
            above `high`.

    Returns:
        The report. Mistakes it names: a looser floor; the inequality reversed; the flat row, a random row or a single
        leader for every row; the lower end of the window forgotten.
    """
    return in_turn(
        (
            lambda: examine(touched, _TITLE, _TOUCHED, _touched_stages()),
            lambda: examine(limit, _TITLE, _LIMIT, _limit_stages()),
        ),
        remark="The lowest entropy that a spread allows decides, and it grows like log n.",
    )


def least_entropy(n: int, spread: float) -> float:
    """Least entropy of n logits within a spread, from every count of high logits on a fine set of counts."""
    counts = np.unique(np.geomspace(1, n - 1, 4000).astype(int)) if n > 4000 else np.arange(1, n)
    high = counts * 1.0
    total = high + (n - high) * math.exp(-spread)
    return float((np.log(total) + spread * (n - high) * math.exp(-spread) / total).min())


def _by_floor(floor: Callable[..., Any]) -> Callable[..., bool]:
    return lambda n, spread, low, high: bool(floor(n, spread) < high and math.log(n) > low)


def _touched_stages() -> tuple[Stage, ...]:
    truth = _by_floor(least_entropy)

    def answers(cases: Any) -> Callable[..., list[bool]]:
        return lambda touched: [bool(touched(*case)) for case in cases]

    def by(rule: Callable[..., bool], cases: Any = _ROWS) -> list[bool]:
        return [rule(*case) for case in cases]

    def leader(n: int, spread: float) -> float:
        others = (n - 1) * math.exp(-spread)
        return math.log1p(others) + spread * others / (1 + others)

    def even(n: int, spread: float) -> float:
        powers = np.exp(np.linspace(0, spread, n) - spread)
        p = powers / powers.sum()
        return float(-(p * np.log(p)).sum())

    right = by(truth)
    return (
        Stage(
            "a boolean comes back",
            lambda touched: touched(1_000, 2.0, *_PAPER),
            given="n = 1,000, δ = 2, the published window",
            accept=lambda answer: isinstance(answer, bool | np.bool_),
            look="Return True or False.",
        ),
        Stage(
            "twelve pairs of size and spread",
            answers(_ROWS),
            given="sizes from 300 to 131,072, spreads from 0.5 to 200, two windows",
            accept=lambda got: got == right,
            mistakes=(
                Mistake(
                    "the inequality reversed",
                    "The answers are the opposite of the right ones.",
                    "A floor under the entropy, a window above which nothing happens: two turns of sign.",
                    "Take a spread of 0. Which entropy do all rows have?",
                    seen=[not x for x in right],
                ),
                Mistake(
                    "a looser floor",
                    "The answers are those of the floor log n − δ or log n − δ²/8: rows count as touched that are not.",
                    "They are easily remembered, and they are true.",
                    "Does a row exist that has as little entropy as your floor allows?",
                    seen=lambda got: any(
                        got == by(_by_floor(floor))
                        for floor in (
                            lambda n, d: math.log(n) - d,
                            lambda n, d: math.log(n) - d**2 / 8,
                            lambda n, d: math.log(n) - min(d, d**2 / 8),
                        )
                    ),
                ),
                Mistake(
                    "the flat row for every row",
                    "Only the size decides in your answers.",
                    "A dispersed row is nearly flat, with an entropy near log n.",
                    "How far below log n can the entropy of a row with this spread be?",
                    seen=by(lambda n, d, low, high: math.log(n) < high),
                ),
                Mistake(
                    "a typical row for every row",
                    "The answers are those for logits spread evenly over the interval.",
                    "It is the row one draws.",
                    "Any row is asked for. Which row of this spread has the least entropy?",
                    seen=by(_by_floor(even)),
                ),
                Mistake(
                    "a single leader for every row",
                    "The answers are those for one logit at the top and all others at the bottom.",
                    "It has the largest top weight, and looks like the sharpest row there is.",
                    "In a long row one leader holds next to nothing. Could several do better?",
                    seen=by(_by_floor(leader)),
                ),
            ),
            look="Compute the least entropy that n logits within δ can have, and compare.",
        ),
        Stage(
            "short rows",
            answers(_SHORT),
            given="rows of 2 to 5 logits",
            accept=lambda got: got == by(truth, _SHORT),
            mistakes=(
                Mistake(
                    "the lower end forgotten",
                    "A row counts as touched whose entropy cannot reach the window from below.",
                    "In long rows only the upper end matters.",
                    "What is the largest entropy that two items can have?",
                    seen=by(lambda n, d, low, high: least_entropy(n, d) < high, _SHORT),
                ),
            ),
            look="Between which two entropies do the rows of n items within δ lie?",
        ),
    )


def _limit_stages() -> tuple[Stage, ...]:
    from scipy.optimize import brentq

    expected = np.array([float(dispersion.spread_for_entropy(n, high)) for n, _, high in _LIMITS])

    def by(floor: Callable[..., float]) -> np.ndarray:
        return np.array([brentq(lambda d, n=n, h=h: floor(n, d) - h, 1e-9, 60) for n, _, h in _LIMITS])

    return (
        Stage(
            "the spread up to which no row is touched",
            lambda limit: np.array([float(limit(*case)) for case in _LIMITS]),
            given="n = 131,072, 10,000, 1,000 and a million, two windows",
            expected=expected,
            rtol=0,
            atol=2e-3,
            mistakes=(
                Mistake(
                    "a looser floor",
                    "The limit is the one that log n − δ or log n − δ²/8 gives. It is safe, and too low.",
                    "They are solved for δ in one line.",
                    "Ask your first function about a spread a little above your limit.",
                    seen=lambda got: any(
                        np.allclose(got, wrong, atol=0.01)
                        for wrong in (
                            by(lambda n, d: math.log(n) - d),
                            by(lambda n, d: math.log(n) - d**2 / 8),
                            by(lambda n, d: math.log(n) - min(d, d**2 / 8)),
                        )
                    ),
                ),
                Mistake(
                    "the lower end of the window",
                    "The limit belongs to the entropy at which the map begins to act, from below.",
                    "There are two ends, and the floor falls through both as δ grows.",
                    "Which end does a long row meet first as its spread grows from 0?",
                    seen=lambda got: np.allclose(
                        got, [float(dispersion.spread_for_entropy(n, low)) for n, low, _ in _LIMITS], atol=0.01
                    ),
                ),
            ),
            look="The floor falls as δ grows, so it can be solved for δ by a root finder.",
        ),
    )

"""Exercise 03.3, the exact entropy floor: the largest deficit, the row that has it, and the same for the collision."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "03.3 The exact entropy floor"
_PAIRS = ((0.5, 1.0), (2.0, 0.5), (3.0, 1.0), (5.0, 2.0), (9.0, 0.75), (20.0, 1.0))  # (δ, θ)
_SMALL = ((0.0, 1.0), (1e-6, 1.0), (1e-3, 2.0), (0.02, 1.0))
_HUGE = ((800.0, 1.0), (1e4, 0.5))
_ROWS = tuple((n, spread, temperature) for n in (2, 5, 13, 26, 1000, 4097) for spread, temperature in _PAIRS)


def ex3(deficit: Callable[..., Any], count: Callable[..., Any], collision: Callable[..., Any]) -> Report:
    """Checks the largest deficit of entropy, the row of n items that has the least entropy, and the largest collision.

    Args:
        deficit: `deficit(spread, temperature)`, the least number that log n − H never exceeds, over all n and all rows
            of n logits within a spread δ at temperature θ; in nats, to ten digits where δ/θ ≥ 1/50, to six below.
        count: `count(n, spread, temperature)`, how many of the n logits stand at the upper end in the row of least
            entropy, an integer from 1 to n − 1. Where two counts give one entropy to 10⁻¹³, either will do.
        collision: `collision(spread, temperature)`, the least number that n Σ p² never exceeds, over all n and all such
            rows.

    Returns:
        The report. Mistakes it names: min(δ, δ²/8) or a part of it given as sharp; 0/0 without spread; digits
        cancelled; an overflow; one high logit taken for extremal, or half of them; a count of 0; rounding to the nearer
        integer; the collision of the row of least entropy; a bound on it that holds and is not attained.
    """
    return in_turn(
        (
            lambda: examine(deficit, _TITLE, "deficit(spread, temperature)", _deficit_stages()),
            lambda: examine(count, _TITLE, "count(n, spread, temperature)", _count_stages()),
            lambda: examine(collision, _TITLE, "collision(spread, temperature)", _collision_stages()),
        ),
        remark="Both suprema are attained by rows of two levels, and by different ones.",
        picture=lambda: _draw(deficit),
    )


def two_level(fraction: np.ndarray, s: float) -> tuple[np.ndarray, np.ndarray]:
    """log n − H and n Σ p² of a row with a fraction of its logits s above the others, by their definitions."""
    high, low = fraction, (1 - fraction) * math.exp(-s)  # sums of e^(z − max) over the two groups, per item
    normaliser = high + low
    deficit = -low / normaliser * s - np.log(normaliser)  # E[z − max] − log of the mean of e^(z − max)
    return deficit, (high + low * math.exp(-s)) / normaliser**2


def supremum(reading: int, s: float) -> float:
    """The largest reading of two_level over the fraction, by three nested grids; the error is of second order."""
    low, high = -s - 3.0, 0.0  # of log fraction; the best fraction is never below e^(−s)
    for _ in range(4):
        grid = np.linspace(low, high, 2001)
        best = int(np.argmax(two_level(np.exp(np.minimum(grid, -1e-12)), s)[reading]))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, 2000)]
    return float(two_level(np.exp((low + high) / 2), s)[reading])


def _deficit_stages() -> tuple[Stage, ...]:
    s = np.array([d / t for d, t in _PAIRS])
    right = np.array([supremum(0, part) for part in s])
    small = np.array([d / t for d, t in _SMALL])
    series = small**2 / 8 - small**4 / 576
    huge = np.array([d / t for d, t in _HUGE])
    not_finite = Mistake(
        "an overflow",
        "The answer is not finite for a large spread.",
        "e^δ is beyond float64 from δ = 710 on.",
        "Write what you have with e^(−δ/θ), which underflows to a harmless 0.",
        seen=lambda got: not np.isfinite(got).all(),
    )
    return (
        Stage(
            "the largest deficit",
            lambda deficit: _read(deficit, _PAIRS),
            given="six pairs of spread and temperature, with δ/θ from 0.5 to 20",
            expected=right,
            rtol=1e-10,
            atol=0,
            nats=True,
            mistakes=(
                Mistake(
                    "min(δ, δ²/8) given as sharp",
                    "The answer is a bound that holds and that no row attains: δ/θ, its square over 8, or the smaller.",
                    "Each has a proof of one line, and their minimum looks like the end of the matter.",
                    "Take δ = 3 and search over rows of two levels: how much entropy can be lost?",
                    seen=lambda got: any(
                        np.allclose(got, wrong, rtol=1e-6) for wrong in (s, s**2 / 8, np.minimum(s, s**2 / 8))
                    ),
                ),
                Mistake(
                    "δ for δ/θ",
                    "The answers are right at temperature 1 and at no other.",
                    "The derivation is easiest with the temperature set to 1.",
                    "What happens to a row when δ and θ are both doubled?",
                    seen=np.array([supremum(0, d) for d, _ in _PAIRS]),
                ),
                Mistake(
                    "half of the logits at the top",
                    "The answer is the deficit of a row with half of its logits high.",
                    "That row has the largest variance under equal weights, and for small spreads it is the right one.",
                    "The weights are not equal. Let the fraction of high logits vary.",
                    seen=two_levels(0.5, s),
                ),
                Mistake(
                    "the entropy, or the other sign",
                    "The answers are negative.",
                    "Floors and deficits differ by a sign.",
                    "log n − H is asked for, which is never negative.",
                    seen=lambda got: (got < 0).any(),
                ),
            ),
            look="Rows of two levels suffice: write log n − H for a fraction f of high logits and maximise over f.",
        ),
        Stage(
            "small spreads, and none",
            lambda deficit: _read(deficit, _SMALL),
            given="δ/θ = 0, 10⁻⁶, 0.0005 and 0.02",
            expected=series,
            rtol=1e-6,
            atol=0,
            mistakes=(
                Mistake(
                    "0/0 without spread",
                    "For δ = 0 the answer is not a number, or the function raises an error.",
                    "δ/(1 − e^(−δ)) tends to 1 and cannot be computed there as it stands.",
                    "Give the limit where δ = 0.",
                    seen=lambda got: isinstance(got, ZeroDivisionError) or not np.isfinite(got[0]),
                ),
                Mistake(
                    "digits cancelled",
                    "At δ = 0 the answer is right; at small spreads most of its digits are lost.",
                    "1 − e^(−δ) and x − 1 − log x subtract numbers that are nearly equal.",
                    "`expm1` and `log1p` exist for this. Which difference does each of them compute?",
                    seen=lambda got: got[0] == 0 and np.allclose(got, series, rtol=1e-6, atol=1e-9),
                ),
            ),
            look="To what does the deficit tend as δ does to 0, and how fast?",
        ),
        Stage(
            "spreads beyond the range of exp",
            lambda deficit: _read(deficit, _HUGE),
            given="δ/θ = 800 and 20,000",
            expected=huge - 1 - np.log(huge),
            rtol=1e-10,
            atol=0,
            mistakes=(not_finite,),
            look="What is left of your formula when e^(−δ/θ) is 0?",
        ),
    )


def two_levels(fraction: float, s: np.ndarray) -> np.ndarray:
    """The deficits of rows with one fraction, for several spreads."""
    return np.array([float(two_level(np.float64(fraction), part)[0]) for part in s])


def _count_stages() -> tuple[Stage, ...]:
    best = _deficits_by_count()
    lost = np.array([d.max() for d in best])

    def deficits(counts: np.ndarray) -> np.ndarray:
        return np.array([d[int(k) - 1] for d, k in zip(best, counts, strict=True)])

    ideal = np.array([_ideal(n, d / t) for n, d, t in _ROWS])
    ones = np.ones(len(_ROWS))
    return (
        Stage(
            "whole numbers from 1 to n − 1",
            lambda count: _counts(count),
            given=f"{len(_ROWS)} rows of 2 to 4,097 items",
            accept=lambda k: (k >= 1).all() and (k <= [n - 1 for n, *_ in _ROWS]).all() and (k % 1 == 0).all(),
            mistakes=(
                Mistake(
                    "no high logit at all",
                    "The count is 0 somewhere, or n: a row without spread, whose entropy is the largest.",
                    "The best fraction times n is far below one for a large spread, and was rounded down.",
                    "Which counts give a row of two levels?",
                    seen=lambda k: ((k < 1) | (k >= [n for n, *_ in _ROWS])).any(),
                ),
                Mistake(
                    "a fraction for a count",
                    "The counts are not whole numbers.",
                    "The maximum over a continuous fraction is the first thing a derivative gives.",
                    "How many logits of n can be high?",
                    seen=lambda k: (k % 1 != 0).any(),
                ),
            ),
            look="Return one integer.",
        ),
        Stage(
            "the row of least entropy",
            lambda count: _counts(count),
            given=f"{len(_ROWS)} rows of 2 to 4,097 items, δ/θ from 0.5 to 20",
            accept=lambda k: (deficits(k) >= lost - 1e-13).all(),
            mistakes=(
                Mistake(
                    "one high logit taken for extremal",
                    "One logit is high whatever n is.",
                    "That row has the largest weight, and for few items or a large spread also the least entropy.",
                    "Among 1,000 items, how much entropy can one of them take away at δ = 2?",
                    seen=ones,
                ),
                Mistake(
                    "half of the logits at the top",
                    "Half of the logits are high whatever δ is.",
                    "For small spreads it is right.",
                    "At δ = 9, compare with a tenth of the logits high.",
                    seen=lambda k: np.abs(k - [n / 2 for n, *_ in _ROWS]).max() <= 0.5,
                ),
                Mistake(
                    "rounded to the nearer integer",
                    "The fraction times n was rounded by itself; somewhere the worse neighbour was taken.",
                    "The deficit is not symmetric about its maximum.",
                    "Compare the entropies of the two neighbours instead of their distances.",
                    seen=lambda k: (
                        np.array_equal(k, np.clip(np.rint(ideal), 1, None))
                        or np.array_equal(k, np.clip(np.floor(ideal), 1, None))
                        or np.array_equal(k, np.ceil(ideal))
                    ),
                ),
            ),
            look="For n = 5, write down the entropies for all four counts.",
        ),
    )


def _collision_stages() -> tuple[Stage, ...]:
    s = np.array([d / t for d, t in _PAIRS])
    right = np.array([supremum(1, part) for part in s])
    least_entropy = np.array([two_level(np.float64(_ideal(1, part)), part)[1] for part in s])
    return (
        Stage(
            "the largest collision",
            lambda collision: _read(collision, _PAIRS),
            given="six pairs of spread and temperature, with δ/θ from 0.5 to 20",
            expected=right,
            rtol=1e-8,
            atol=0,
            mistakes=(
                Mistake(
                    "the row of least entropy used again",
                    "The answer is n Σ p² of the row of least entropy.",
                    "Both measure how uneven a row is, so one row seems to serve for both.",
                    "Maximise over the fraction once more, for this quantity.",
                    seen=least_entropy,
                ),
                Mistake(
                    "a bound that holds and is not attained",
                    "The answer is e^(δ/θ), which bounds n Σ p² because Σ p² is at most the largest weight.",
                    "The step from Σ p² to the largest weight takes one line.",
                    "When is Σ p² equal to the largest weight? Can it be, for large n?",
                    seen=np.exp(s),
                ),
                Mistake(
                    "half of the logits at the top",
                    "The answer is n Σ p² of a row with half of its logits high.",
                    "For small spreads it is nearly right.",
                    "Let the fraction of high logits vary.",
                    seen=np.array([float(two_level(np.float64(0.5), part)[1]) for part in s]),
                ),
                Mistake(
                    "δ for δ/θ",
                    "The answers are right at temperature 1 and at no other.",
                    "The derivation is easiest with the temperature set to 1.",
                    "What happens to a row when δ and θ are both doubled?",
                    seen=np.array([supremum(1, d) for d, _ in _PAIRS]),
                ),
            ),
            look="The chord argument works for any convex function of e^z. Which one is it here?",
        ),
        Stage(
            "without spread",
            lambda collision: _read(collision, ((0.0, 1.0), (0.0, 0.3))),
            given="δ = 0",
            expected=np.ones(2),
            rtol=1e-12,
            atol=0,
            look="All weights are 1/n. What is n Σ p²?",
        ),
    )


def _read(function: Callable[..., Any], pairs: Any) -> np.ndarray:
    return np.array([float(function(*pair)) for pair in pairs])


def _counts(count: Callable[..., Any]) -> np.ndarray:
    return np.array([float(count(*row)) for row in _ROWS])


@functools.cache
def _deficits_by_count() -> list[np.ndarray]:
    """For every row of _ROWS, the deficits of all counts from 1 to n − 1."""
    return [two_level(np.arange(1, n) / n, d / t)[0] for n, d, t in _ROWS]


def _ideal(n: int, s: float) -> float:
    """The best fraction times n, as a real number: what the rounding mistakes start from."""
    x = s / -math.expm1(-s)
    return n * (x - 1) / math.expm1(s)


def _draw(deficit: Callable[..., Any]) -> Any:
    """Your deficit against δ, with the two simple bounds and the best of many rows of two levels."""
    from adatemp import plotting

    s = np.linspace(0.05, 9, 60)
    yours = [float(deficit(part, 1.0)) for part in s]
    found = [two_level(np.arange(1, 200) / 200, part)[0].max() for part in s]
    figure, axes = plotting.figure()
    axes.plot(s, np.minimum(s, s**2 / 8), label="min(δ, δ²/8)", **plotting.role("bound"))
    axes.plot(s, yours, label="yours", **plotting.role("tight"))
    axes.plot(s[::6], found[::6], "o", color=plotting.palette["ours"], label="best of 199 rows of two levels")
    axes.set(xlabel="spread δ", ylabel="log n − H, nats")
    axes.legend()
    return plotting.show(
        figure,
        alt=f"Largest deficit of entropy against the spread: yours, the simple bound, the best of 199 rows. At δ = 9 "
        f"yours is {yours[-1]:.2f}, the simple bound 9.00, the best row {found[-1]:.2f}.",
    )

"""Exercise 08.1, the window: where a polynomial map exceeds 1, where it peaks, and whether its guard ever acts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.temperature import PAPER_COEFFICIENTS as PAPER

_TITLE = "08.1 The window"
_WINDOW, _GUARD = "window(coefficients, threshold)", "guard_is_dead(coefficients, threshold)"

_PARABOLA = (-0.5, 3.0, -2.5)  # 1 at 3 ± √2, highest at 3
_MAPS = ((PAPER, 0.5), (_PARABOLA, 0.5), ((-0.25, 0.0, 2.0, 0.0, -0.5), 0.5), (_PARABOLA, 2.0))


def _bump(at: float, height: float) -> tuple[float, ...]:
    """1 + height − 100 (H − at)²: above 1 on a width of √height/5, which is what a grid has to hit."""
    return (-100.0, 200.0 * at, 1.0 + height - 100.0 * at**2)


# (coefficients, threshold): whether the map stays at or below 1 from 0 to the threshold, and what each row is for
_GUARDS = (
    (PAPER, 0.5, True, "the published map"),
    (PAPER, 0.9, False, "the published map with a guard at 0.9"),
    ((-2.0, 1.5), 0.5, False, "a falling line that starts above 1"),
    ((4.0, -0.6), 0.5, False, "a rising line that ends above 1"),
    (_bump(0.9, 0.5), 0.5, True, "a bump beyond the guard"),
    (_bump(-0.3, 0.5), 0.5, True, "a bump at negative entropies"),
    (_bump(0.23456789, 1e-9), 0.5, False, "a bump of height 10⁻⁹ below the guard"),
    (_bump(0.23456789, -1e-9), 0.5, True, "a bump that stops 10⁻⁹ short of 1"),
)


def ex1(window: Callable[..., Any], guard_is_dead: Callable[..., Any]) -> Report:
    """Checks the window and the peak of a polynomial map, and a proof by computation that its guard never acts.

    The map is β(H) = max(1, P(H)) for entropies H above a threshold, in nats, and 1 up to it.

    Args:
        window: `window(coefficients, threshold) -> (low, high, at, peak)`: the entropies between which β exceeds 1,
            the entropy at which it is highest, and its value there, each to 10⁻⁶. `coefficients` are those of P,
            highest power first; the maps asked for exceed 1 on one interval and peak inside it.
        guard_is_dead: `guard_is_dead(coefficients, threshold) -> bool`: whether the map would be the same without its
            threshold, that is, whether P is at most 1 on all of [0, threshold].

    Returns:
        The report. Mistakes it names: coefficients read upwards; bits; the roots of P; a grid where a root is asked
        for; the threshold ignored; a sampled grid taken for a proof; ends left out; points outside the interval.
    """
    return in_turn(
        (
            lambda: examine(window, _TITLE, _WINDOW, _window_stages()),
            lambda: examine(guard_is_dead, _TITLE, _GUARD, _guard_stages()),
        ),
        remark="A polynomial has its largest value at an end or where its derivative is 0: finitely many points.",
        picture=functools.partial(_draw, window),
    )


def exact_window(coefficients: tuple[float, ...], threshold: float) -> tuple[float, float, float, float]:
    """(low, high, at, peak) from bracketed roots of P − 1 and of P′ between 0 and 20 nats."""
    from scipy.optimize import brentq

    grid = np.linspace(0.0, 20.0, 4001)

    def roots(f: Callable[[float], float]) -> list[float]:
        values = [f(x) for x in grid]
        found = [x for x, v in zip(grid, values, strict=True) if v == 0]
        found += [brentq(f, a, b, xtol=1e-14) for a, b, u, v in zip(grid, grid[1:], values, values[1:]) if u * v < 0]
        return sorted(found)

    value, slope = (functools.partial(np.polyval, c) for c in (coefficients, np.polyder(coefficients)))
    low, high = (max(x, threshold) for x in roots(lambda x: value(x) - 1))
    at = max((x for x in roots(slope) if low < x < high), key=value)
    return float(low), float(high), float(at), float(value(at))


def _window_stages() -> tuple[Stage, ...]:
    expected = np.array([exact_window(*case) for case in _MAPS])
    called = functools.cache(lambda window: np.array([[float(x) for x in window(*case)] for case in _MAPS]))
    upwards = functools.cache(lambda: np.array(exact_window(PAPER[::-1], 0.5)))

    return (
        Stage(
            "four numbers come back",
            lambda window: window(PAPER, 0.5),
            given="the published coefficients",
            accept=lambda answer: len(answer) == 4 and all(np.ndim(x) == 0 for x in answer),
            look="Return `(low, high, at, peak)`.",
        ),
        Stage(
            "the published map",
            lambda window: np.array([float(x) for x in window(PAPER, 0.5)]),
            given="the published coefficients, highest power first, and the threshold 0.5",
            expected=expected[0],
            rtol=0,
            atol=1e-6,
            mistakes=(
                Mistake(
                    "coefficients read upwards",
                    "The window is that of the polynomial with its coefficients in the reverse order.",
                    "NumPy has both conventions: `numpy.polyval` starts at the highest power, "
                    "`numpy.polynomial.Polynomial` at the constant. At H = 1 the two orders agree.",
                    "Evaluate your polynomial at 3 nats, by hand and by your code.",
                    seen=lambda got: np.allclose(got[:2], upwards()[:2], atol=1e-2),
                ),
                Mistake(
                    "bits for nats",
                    "The window is right in bits; this book and the map measure in nats.",
                    "Information theory often uses the logarithm to base 2.",
                    "In which unit is the entropy that the published code computes?",
                    seen=lambda got: np.allclose(got[:2], expected[0, :2] / math.log(2), atol=1e-3),
                ),
                Mistake(
                    "the roots of P",
                    "At the two ends P is 0.",
                    "A root finder finds zeros, and P is what one has at hand.",
                    "Which value does β take where the map stops acting?",
                    seen=lambda got: np.allclose(np.polyval(PAPER, got[:2]), 0, atol=1e-2),
                ),
                Mistake(
                    "a grid where a root is asked for",
                    "The numbers are near, and not to six digits.",
                    "The nearest point of a fine grid looks like an answer.",
                    "The grid tells you where to look. Which tool takes two points on either side of a root?",
                    seen=lambda got: np.abs(got - expected[0]).max() < 0.05,
                ),
            ),
            look="Where is P(H) = 1, and where is P′(H) = 0?",
        ),
        Stage(
            "other maps",
            called,
            given="four maps, the last with its threshold inside the region where P exceeds 1",
            expected=expected,
            rtol=0,
            atol=1e-6,
            mistakes=(
                Mistake(
                    "the threshold ignored",
                    "Up to the threshold β is 1, and your window begins below it.",
                    "In the published map the threshold lies outside the window and plays no part.",
                    "From which entropy on does a map act whose threshold is 2?",
                    seen=lambda got: np.allclose(got[:3], expected[:3], atol=1e-6) and got[3, 0] < 2,
                ),
                Mistake(
                    "the published numbers for every map",
                    "The answer does not depend on the coefficients.",
                    "The numbers of the published map are quickly typed.",
                    "The check asks for maps with other coefficients, such as those you will fit yourself.",
                    seen=lambda got: np.ptp(got, axis=0).max() < 1e-9,
                ),
            ),
            look="The number of coefficients gives the degree, which need not be four.",
        ),
    )


def _guard_stages() -> tuple[Stage, ...]:
    want = [dead for *_, dead, _ in _GUARDS]
    names = [name for *_, name in _GUARDS]

    def answers(guard: Callable[..., Any]) -> dict[str, bool]:
        return {name: bool(guard(c, t)) for c, t, _, name in _GUARDS}

    def wrong(got: dict[str, bool]) -> set[str]:
        return {name for name, dead in zip(names, want, strict=True) if got[name] != dead}

    return (
        Stage(
            "a boolean comes back",
            lambda guard: guard(PAPER, 0.5),
            given="the published map",
            accept=lambda answer: isinstance(answer, bool | np.bool_),
            look="Return True or False.",
        ),
        Stage(
            "the guard of eight maps",
            answers,
            given="eight maps, two of them with a bump that comes within 10⁻⁹ of 1",
            accept=lambda got: not wrong(got),
            mistakes=(
                Mistake(
                    "the answer turned round",
                    "Every answer is the opposite of the right one.",
                    "A guard that acts is alive, one that never acts is dead.",
                    "Which of the two should come back for the published map?",
                    seen=lambda got: len(wrong(got)) == len(names),
                ),
                Mistake(
                    "a sampled grid taken for a proof",
                    "A bump that rises above 1 between two points of your grid was not seen.",
                    "On a fine grid everything looks settled, and a polynomial can do much between two points.",
                    "At how many points can a polynomial on an interval be largest, and how are they found?",
                    seen=lambda got: wrong(got) <= {names[6]},
                ),
                Mistake(
                    "the ends left out",
                    "A map is largest at an end of the interval, and only points in between were looked at.",
                    "Where the derivative is 0 one finds the maxima that have one.",
                    "Draw a straight line. Where is it largest?",
                    seen=lambda got: bool(wrong(got) & {names[2], names[3]}) and wrong(got) <= set(names[1:4]),
                ),
                Mistake(
                    "points outside the interval",
                    "A map counts as acting because of entropies that are negative or beyond the guard.",
                    "The derivative has roots elsewhere too.",
                    "Which entropies does the guard decide about, and which does no row have?",
                    seen=lambda got: wrong(got) <= {name for name, dead in zip(names, want, strict=True) if dead},
                ),
                Mistake(
                    "judged at the threshold",
                    "Whether P exceeds 1 was decided at one point.",
                    "At the published threshold P is 0.15, and that seems to say it all.",
                    "The guard covers every entropy from 0 on. What could P do before it?",
                    seen=lambda got: got == {name: bool(np.polyval(c, t) <= 1) for c, t, _, name in _GUARDS},
                ),
            ),
            look="Is P at most 1 on all of [0, threshold]? Which points decide?",
        ),
    )


def _draw(window: Callable[..., Any]) -> Any:
    """The published map with the window that came back."""
    from adatemp import plotting

    low, high, at, peak = (float(x) for x in window(PAPER, 0.5))
    entropies = np.linspace(0, 7, 400)
    figure, axes = plotting.figure(height=2.6)
    axes.plot(entropies, np.maximum(np.polyval(PAPER, entropies), 1), **plotting.role("adaptive") | {"marker": None})
    for x in (low, high):
        axes.axvline(x, color=plotting.palette["muted"], linewidth=1)
    axes.plot([at], [peak], **plotting.role("highlight"))
    axes.set(xlabel="entropy H, nats", ylabel="β")
    return plotting.show(
        figure,
        alt=f"The published map: above 1 between {low:.4f} and {high:.4f} nats, highest at {at:.4f}: {peak:.4f}.",
    )

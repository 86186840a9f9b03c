"""Exercise 06.3, nothing is lost in exact arithmetic: the maximum from a uniform average, and the slope it takes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "06.3 Nothing is lost in exact arithmetic"
_CLASSES = 5
_ONE_A = [10, 1_000, 10**6]
_LONG = [10**20, 10**400]
_SLOPES = [(2, 1.0), (10, 1.0), (1_000, 0.5), (10**6, 2.0)]


def ex3(largest: Callable[..., Any], least_slope: Callable[..., Any], logits: Callable[..., Any]) -> Report:
    """Checks that the largest item is read from a uniform average of one-hot values, and what slope that takes.

    A set has items of five classes, ordered: class 4 beats class 3, and so on. Its value is the average of the items'
    one-hot vectors, every item with weight 1/n.

    Args:
        largest: `largest(average) -> class`, from a list of five Fractions. Sets may have any size.
        least_slope: `least_slope(n, margin) -> L`: no read-out of smaller slope, per class logit and in the Euclidean
            norm, answers both {A, B, …, B} and {B, …, B} of n items by that margin or more. Attainable.
        logits: `logits(average, n) -> [5]`, from a float64 array and n: continuous class logits whose largest is that
            of the largest class present, by 1 at least, for every set of at most n items, with slopes of at most 20 n.

    Returns:
        The report. Mistakes it names: dispersed, hence impossible; finite precision assumed silently; the class in the
        majority; L that does not grow; the margin used up once; the distance of two one-hot vectors taken for 1.
    """
    return in_turn(
        (
            lambda: examine(largest, _TITLE, "largest(average)", _reading()),
            lambda: examine(least_slope, _TITLE, "least_slope(n, margin)", _slope()),
            lambda: examine(logits, _TITLE, "logits(average, n)", _logits()),
        ),
        remark="Dispersion is a statement about weights. Failure takes a read-out of bounded slope, or a machine.",
        picture=lambda: _draw(logits),
    )


def _average(counts: list[int]) -> list[Fraction]:
    return [Fraction(count, sum(counts)) for count in counts]


@functools.cache
def _mixed() -> tuple[tuple[int, ...], ...]:
    """Counts of sets: ties, one class missing, the majority at the bottom, at the top and in the middle."""
    draw = np.random.default_rng(3)
    made = [(3, 0, 0, 0, 0), (0, 0, 0, 0, 4), (1, 1, 1, 1, 1), (7, 0, 1, 0, 0), (2, 5, 2, 0, 0)]
    for _ in range(40):
        made.append(tuple(int(k) for k in draw.integers(0, 9, _CLASSES) * draw.integers(0, 2, _CLASSES)))
    return tuple(counts for counts in made if sum(counts))


def _top(counts: Any) -> int:
    return max(c for c, count in enumerate(counts) if count)


def _reading() -> tuple[Stage, ...]:
    pairs = [(a, b) for a in range(_CLASSES) for b in range(a)]

    def alone(n: int) -> list[list[int]]:
        """One A among n − 1 Bs, for every pair of classes."""
        made = []
        for a, b in pairs:
            counts = [0] * _CLASSES
            counts[a], counts[b] = 1, n - 1
            made.append(counts)
        return made

    blind = np.array([b for _, b in pairs], float)
    seeing = np.array([a for a, _ in pairs], float)
    impossible = Mistake(
        "dispersed, hence impossible",
        "The answer is that of the many: the single large item is given up for lost.",
        "Its weight is 1/n, as small as any, and small things seem to be nothing.",
        "1/n is a fraction like another. Is it 0?",
        seen=np.tile(blind, len(_ONE_A)),
    )
    return (
        Stage(
            "sets of a few items",
            lambda f: np.array([float(f(_average(list(counts)))) for counts in _mixed()]),
            given=f"{len(_mixed())} sets of up to forty items",
            expected=np.array([_top(counts) for counts in _mixed()], float),
            mistakes=(
                Mistake(
                    "the class in the majority",
                    "The answer is the most frequent class.",
                    "The largest entry of an average is what an argmax reads.",
                    "The largest *item* is asked for. Which classes are present at all?",
                    seen=np.array([int(np.argmax(counts)) for counts in _mixed()], float),
                ),
                Mistake(
                    "the smallest class present",
                    "The answer is the other end of the order.",
                    "`next` over the classes in their order finds the smallest first.",
                    "Class 4 beats class 3.",
                    seen=np.array([int(np.argmax(np.array(counts) > 0)) for counts in _mixed()], float),
                ),
            ),
            look="Which entries of the average are not zero?",
        ),
        Stage(
            "one large item among up to a million",
            lambda f: np.array([float(f(_average(c))) for n in _ONE_A for c in alone(n)]),
            given="one item among n − 1 of a smaller class, n = 10, 1,000 and 1,000,000",
            expected=np.tile(seeing, len(_ONE_A)),
            mistakes=(
                impossible,
                Mistake(
                    "finite precision assumed silently",
                    "The single item is seen in small sets and lost in large ones: a threshold, or a float of few "
                    "digits, decides what is zero.",
                    "Comparing with a small number is a habit, and a good one where numbers are rounded.",
                    "These are Fractions. Nothing is rounded.",
                    seen=lambda got: (
                        np.array_equal(got[: len(pairs)], seeing)
                        and set(np.flatnonzero(got != np.tile(seeing, len(_ONE_A))))
                        and np.isin(got, np.r_[seeing, blind]).all()
                    ),
                ),
            ),
            look="Read the average of {A, B, …, B} at n = 10 by hand.",
        ),
        Stage(
            "and among more than any float can count",
            lambda f: np.array([float(f(_average(c))) for n in _LONG for c in alone(n)]),
            given="n = 10²⁰ and 10⁴⁰⁰",
            expected=np.tile(seeing, len(_LONG)),
            mistakes=(
                Mistake(
                    "finite precision assumed silently",
                    "A conversion to float has rounded 1/n to 0, or 1 − 1/n to 1.",
                    "NumPy converts Fractions without being asked.",
                    "Stay with Fractions: they compare exactly with 0.",
                    seen=lambda got: (got != np.tile(seeing, len(_LONG))).any(),
                ),
            ),
            look="Stay with Fractions.",
        ),
    )


def _slope() -> tuple[Stage, ...]:
    n, margin = np.array(_SLOPES).T
    right = margin * n / math.sqrt(2)
    return (
        Stage(
            "the least slope",
            lambda f: np.array([float(f(int(size), gap)) for size, gap in _SLOPES]),
            given="n = 2, 10, 1,000 and 1,000,000 with margins of 1, 1, ½ and 2",
            expected=right,
            rtol=1e-6,
            mistakes=(
                Mistake(
                    "a slope that does not grow",
                    "The slope is the same for all n.",
                    "The two values are a fixed distance apart.",
                    "How far apart are the two *averages*?",
                    seen=lambda got: np.ptp(got / margin) <= 1e-6 * got.max(),
                ),
                Mistake(
                    "the margin used up once",
                    "The slope is half of what is needed: the difference of the two logits has to change sign.",
                    "From a margin to zero is the first half of the way.",
                    "By how much does the difference of the logits of A and B change from one set to the other?",
                    seen=right / 2,
                ),
                Mistake(
                    "the whole change by one logit",
                    "The slope is twice what is needed.",
                    "It is what one logit would need if the other stood still.",
                    "Both may move, one up and one down.",
                    seen=2 * right,
                ),
                Mistake(
                    "the distance of two one-hot vectors taken for 1",
                    "The slope is off by √2.",
                    "One-hot vectors have length 1.",
                    "How far apart are two of them?",
                    seen=lambda got: np.allclose(got, right * math.sqrt(2)) or np.allclose(got, right / math.sqrt(2)),
                ),
            ),
            look="Difference of the two averages, change of the two logits, and how the change may be shared.",
        ),
    )


def _logits() -> tuple[Stage, ...]:
    sizes = (7, 41)

    def margins(f: Callable[..., Any]) -> np.ndarray:
        worst = []
        for n in (*sizes, 10**6):
            for counts in _tried(n):
                got = np.asarray(f(np.array(counts) / sum(counts), n), np.float64)
                if got.shape != (_CLASSES,):
                    raise ValueError(f"logits returned shape {got.shape}, five class logits are needed")
                others = np.delete(got, _top(counts))
                worst.append(got[_top(counts)] - others.max())
        return np.array(worst)

    return (
        Stage(
            "the largest class present wins by 1",
            margins,
            given="sets of at most 7, 41 and 1,000,000 items",
            accept=lambda got: bool((got >= 1 - 1e-6).all()),
            mistakes=(
                Mistake(
                    "dispersed, hence impossible",
                    "Large sets with one large item are answered by the many.",
                    "A fixed read-out does this, by the theorem.",
                    "The read-out is told n and may be steeper for larger n.",
                    seen=lambda got: (got < 0).any() and (got[: len(_tried(sizes[0]))] > 0).all(),
                ),
                Mistake(
                    "right, and by too little",
                    "Every answer is right; some margin is below 1.",
                    "An argmax does not see by how much.",
                    "Multiply, or space the classes further apart.",
                    seen=lambda got: (got > 0).all(),
                ),
            ),
            look="A class that is present at all has at least 1/n of the average.",
        ),
        Stage(
            "continuous, with slopes of at most 20 n",
            lambda f: np.array([_steepest(f, n) / n for n in (*sizes, 10**4)]),
            given="pairs of averages 10⁻³/n apart",
            accept=lambda got: bool((got <= 20).all()),
            mistakes=(
                Mistake(
                    "a jump",
                    "Two averages that are very near have logits far apart: the slope exceeds 20 n.",
                    "`average > 0` is the natural test, and it jumps.",
                    "It has to rise from absent, 0, to present, 1/n, along a ramp.",
                    seen=lambda got: (got > 20).any(),
                ),
            ),
            look="Clip n times an entry to [0, 1].",
        ),
    )


@functools.cache
def _tried(n: int) -> tuple[tuple[int, ...], ...]:
    """Sets of at most n items: one of each kind among the many, few items, and random ones."""
    draw, made = np.random.default_rng(n), []
    for a in range(_CLASSES):
        for b in range(_CLASSES):
            counts = [0] * _CLASSES
            counts[a] += 1
            counts[b] += n - 1
            made.append(tuple(counts))
    for _ in range(30):
        share = draw.dirichlet(np.full(_CLASSES, 0.3))
        counts = np.floor(share * (n - 1)).astype(int)
        counts[draw.integers(_CLASSES)] += 1
        made.append(tuple(int(k) for k in counts))
    return tuple(made)


def _steepest(f: Callable[..., Any], n: int) -> float:
    """The largest change of a logit over the distance, between near points of the simplex."""
    draw, worst, apart = np.random.default_rng(n), 0.0, 1e-3 / n
    for index in range(200):
        x = draw.dirichlet(np.full(_CLASSES, 0.3))
        if index % 2:
            x[draw.integers(_CLASSES)] = draw.choice([0.0, 0.5 / n, 1.0 / n])
            x /= x.sum()
        step = draw.normal(size=_CLASSES)
        step -= step.mean()
        y = x + apart * step / np.linalg.norm(step)
        change = np.abs(np.asarray(f(y, n), np.float64) - np.asarray(f(x, n), np.float64)).max()
        worst = max(worst, change / apart)
    return worst


def _draw(f: Callable[..., Any]) -> Any:
    """Class logits along the way from {B, …, B} to {A, B, …, B}."""
    from adatemp import plotting

    n = 20
    share = np.linspace(0, 2 / n, 81)
    points = np.zeros((len(share), _CLASSES))
    points[:, 3], points[:, 1] = share, 1 - share
    rows = np.array([np.asarray(f(x, n), np.float64) for x in points])
    fig, axes = plotting.figure(height=2.6)
    axes.plot(share * n, rows[:, 3], label="class of A", color=plotting.palette["ours"])
    axes.plot(share * n, rows[:, 1], label="class of B", color=plotting.palette["plain"], linestyle="--")
    axes.set(xlabel="share of A, in units of 1/n", ylabel="class logit")
    axes.legend()
    return plotting.show(
        fig,
        alt=f"Your class logits of A and of B for n = {n}, against the share of A from 0 to 2/n; at 1/n A leads by "
        f"{rows[40, 3] - rows[40, 1]:.2f}.",
    )

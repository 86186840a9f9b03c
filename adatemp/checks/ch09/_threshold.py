"""Exercise 09.1, the length-free threshold: which needles log-length scaling keeps at every n."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written

_TITLE = "09.1 The length-free threshold"

# (n, s, gap), on both sides of s·gap = 1 and on it; n up to where a row cannot be made.
_ROWS = (
    (2, 1.0, 0.5),
    (17, 0.43, 5.0),
    (1_000, 0.2, 4.0),
    (1_000, 0.25, 4.0),
    (1e6, 0.5, 3.0),
    (1e12, 0.1, 7.0),
    (1e100, 0.25, 4.0),
    (1e100, 0.3, 4.0),
    (1e100, 0.2, 4.0),
    (1e100, 0.6, 8.0),
)

# Crowds as (gaps, exponents): n^a competitors at each gap. The level that decides is the first, a middle one, the last.
_CROWDS = (
    ((4.0,), (1.0,)),
    ((1.0, 4.0), (0.5, 1.0)),
    ((2.0, 5.0), (0.25, 1.0)),
    ((0.5, 2.0, 6.0), (0.1, 0.9, 1.0)),
    ((3.0, 1.0), (1.0, 0.2)),
    ((0.25, 8.0), (0.0, 1.0)),
)


def ex1(weight: Callable[..., Any], limit: Callable[..., Any], critical_scale: Callable[..., Any]) -> Report:
    """Checks what a needle is left with when the logits of a row of n are multiplied by s log n.

    Args:
        weight: `weight(n, scale, gap) -> float`, the needle's weight where its n − 1 competitors all stand `gap` below
            it, for n up to 1e100.
        limit: `limit(scale, gap) -> 0, 0.5 or 1`, to which it tends as n grows; both may be arrays that broadcast.
        critical_scale: `critical_scale(gaps, exponents) -> float`, the s above which the weight tends to 1 where n**a
            competitors stand at each gap g, for the pairs (g, a) of two lists.

    Returns:
        The report. Mistakes it names: another base of the logarithm; n for n − 1; an overflow; no value on the line;
        the spread for the gap; the nearest level alone; the exponents ignored.
    """
    weight, limit, critical_scale = map(written, (weight, limit, critical_scale))
    return in_turn(
        (
            lambda: examine(weight, _TITLE, "weight(n, scale, gap)", _weight_stages()),
            lambda: examine(limit, _TITLE, "limit(scale, gap)", _limit_stages()),
            lambda: examine(critical_scale, _TITLE, "critical_scale(gaps, exponents)", _scale_stages()),
        ),
        remark="A gap in nats has become a threshold without n: below it a needle is lost at every large n.",
        picture=lambda: _draw(limit),
    )


def _odds_weight(log_odds: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -np.asarray(log_odds)))


def _weights(log: Callable[[Any], Any] = np.log, others: int = 1) -> np.ndarray:
    return np.array([_odds_weight(s * g * log(n) - np.log(n - others)) for n, s, g in _ROWS])


def _weight_stages() -> tuple[Stage, ...]:
    return (
        Stage(
            "the needle's weight at n, scale and gap",
            lambda weight: np.array([float(weight(*row)) for row in _ROWS]),
            given="n from 2 to 10¹⁰⁰, s·gap below, at and above 1",
            expected=_weights(),
            rtol=1e-6,
            atol=0,
            look="Write the odds of the needle against the crowd, then their logarithm.",
            mistakes=(
                Mistake(
                    "another base of the logarithm",
                    "The weights belong to a logarithm to base 2 or 10.",
                    "Lengths are often counted in powers of two.",
                    "The scale multiplies log n with the logarithm that the exponential undoes.",
                    seen=lambda got: any(np.allclose(got, _weights(log), rtol=1e-6) for log in (np.log2, np.log10)),
                ),
                Mistake(
                    "n for n − 1",
                    "The needle stands among its own competitors.",
                    "For large n it does not show.",
                    "How many competitors are there at n = 2?",
                    seen=_weights(others=0),
                ),
                Mistake(
                    "an overflow",
                    "At n = 10¹⁰⁰ the odds are beyond the largest float.",
                    "Powers of n leave float64 beyond 10³⁰⁸, and both numerator and denominator hold one.",
                    "Which difference of logarithms do you need?",
                    seen=lambda got: isinstance(got, OverflowError) or (np.isnan(got[-1]) and not np.isnan(got[0])),
                ),
                Mistake(
                    "the plain softmax",
                    "The scale has no effect on the weights.",
                    "The logits were used as they are.",
                    "By what is every logit of a row of n multiplied?",
                    seen=lambda got: np.allclose(got, [_odds_weight(g - np.log(n - 1)) for n, _, g in _ROWS]),
                ),
            ),
        ),
    )


def _limit_stages() -> tuple[Stage, ...]:
    scales = np.array([0.1, 0.25, 0.5, 1.0, 2.0])[:, None]
    gaps = np.array([0.25, 0.5, 1.0, 1.2, 3.0, 4.0, 20.0])
    product = scales * gaps
    right = np.where(product > 1, 1.0, np.where(product < 1, 0.0, 0.5))
    return (
        Stage(
            "the limit on both sides of the line, and on it",
            lambda limit: np.asarray(limit(scales, gaps), np.float64),
            given="five scales [5, 1] and seven gaps [7]",
            expected=right,
            atol=1e-9,
            look="What power of n are the odds, once n is large?",
            mistakes=(
                Mistake(
                    "no value on the line",
                    "Both sides are right, and the line itself has the value of one side.",
                    "A comparison has two outcomes.",
                    "What are the odds where the two powers of n are equal?",
                    seen=lambda got: (got == right)[product != 1].all(),
                ),
                Mistake(
                    "the sides exchanged",
                    "Needles with a large gap are said to be lost.",
                    "It is easy to lose a sign between a weight and its odds.",
                    "Should a larger gap help?",
                    seen=1.0 - right,
                ),
                Mistake(
                    "another base of the logarithm",
                    "The line lies at s·gap = log 2 or log 10, or at their inverses.",
                    "Lengths are often counted in powers of two.",
                    "Which logarithm does the exponential undo?",
                    seen=lambda got: any(
                        np.allclose(got, np.where(product > line, 1.0, 0.0))
                        for line in (np.log(2), 1 / np.log(2), np.log(10), 1 / np.log(10))
                    ),
                ),
            ),
        ),
    )


def _scales(rule: Callable[[np.ndarray, np.ndarray], float]) -> np.ndarray:
    return np.array([rule(np.array(gaps), np.array(exponents)) for gaps, exponents in _CROWDS])


def _scale_stages() -> tuple[Stage, ...]:
    right = _scales(lambda g, a: (a / g).max())
    return (
        Stage(
            "competitors on several levels",
            lambda critical: np.array([float(critical(list(g), list(a))) for g, a in _CROWDS]),
            given="crowds of n^a competitors at one to three gaps, in any order",
            expected=right,
            rtol=1e-9,
            atol=0,
            look="Each level adds its own power of n to the inverse odds. When do all of them vanish?",
            mistakes=(
                Mistake(
                    "the spread for the gap",
                    "The scale is that of the farthest level.",
                    "The spread of the row bounds its weights in chapter 3.",
                    "Chapter 3 asks what is possible at best. Which competitors take most from this needle?",
                    seen=_scales(lambda g, a: a.max() / g.max()),
                ),
                Mistake(
                    "the nearest level alone",
                    "The scale is what the nearest competitors ask for, and a larger level behind them is left out.",
                    "With all competitors at one level the nearest is the one that counts.",
                    "Few near competitors or many farther away: compare the powers of n that they contribute.",
                    seen=_scales(lambda g, a: a[g.argmin()] / g.min()),
                ),
                Mistake(
                    "the exponents ignored",
                    "Every level is taken to hold in the order of n competitors.",
                    "With one level it does.",
                    "A level of n^a competitors contributes n to which power?",
                    seen=_scales(lambda g, a: 1 / g.min()),
                ),
                Mistake(
                    "the levels added",
                    "The demands of the levels were summed.",
                    "Their terms in the denominator are summed.",
                    "A sum of powers of n behaves like which of them?",
                    seen=_scales(lambda g, a: (a / g).sum()),
                ),
                Mistake(
                    "the inverse",
                    "The answer is a gap where a scale is asked for.",
                    "The condition is symmetric in the two.",
                    "Solve the condition for s.",
                    seen=lambda got: np.allclose(1 / got, right),
                ),
            ),
        ),
    )


def _draw(limit: Callable[..., Any]) -> Any:
    """The phase diagram that the reader's limit gives."""
    from adatemp import plotting

    scales, gaps = np.geomspace(0.05, 2.0, 60), np.geomspace(0.5, 20.0, 60)
    kept = np.asarray(limit(scales[:, None], gaps), np.float64)
    figure, axes = plotting.figure(height=2.8)
    axes.contourf(
        gaps, scales, kept, levels=[-0.1, 0.5, 1.1], colors=[plotting.palette["grid"], plotting.palette["argmax"]]
    )
    axes.plot(gaps, 1 / gaps, color=plotting.palette["ink"], label="s = 1/gap")
    axes.set(xscale="log", yscale="log", xlabel="gap, nats", ylabel="scale s", ylim=(0.05, 2.0))
    axes.legend()
    return plotting.show(
        figure,
        alt="Your phase diagram over gap and scale: the needle is kept in the shaded region; the curve is s = 1/gap.",
    )

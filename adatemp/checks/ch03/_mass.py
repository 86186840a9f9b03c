"""Exercise 03.5, mass is not weight: every weight tends to zero and a group of items keeps its mass."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks import _float64
from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "03.5 Mass is not weight"
_SIZES = (2, 10, 1_000, 1_000_000)
_MASSES = (0.9, 0.75, 0.999)
_GROUPS = ((0.5, 0.9), (0.1, 0.9), (0.25, 0.5), (0.01, 0.99), (0.8, 0.9))  # (share, mass), mass above share
_EASY = ((0.5, 0.5), (0.9, 0.3), (0.2, 0.1))  # mass at most the share


def ex5(row: Callable[..., Any], least_spread: Callable[..., Any]) -> Report:
    """Checks rows in which half of the items keep a given mass for every n, and the spread that this takes.

    Args:
        row: `row(n, mass) -> logits [n]` for even n, at temperature 1: the first n/2 weights sum to `mass`, no weight
            is above 2/n, and the spread is the same for every n.
        least_spread: `least_spread(share, mass) -> δ`, the least spread, at temperature 1, with which a share of the
            items of a row can hold at least that mass. Both are strictly between 0 and 1.

    Returns:
        The report. Mistakes it names: dispersion taken for uniformity; a spread that grows with n; weights for logits;
        one item that carries the mass; the share forgotten; bits; a negative spread.
    """
    return in_turn(
        (
            lambda: examine(row, _TITLE, "row(n, mass)", _row_stages()),
            lambda: examine(least_spread, _TITLE, "least_spread(share, mass)", _spread_stages()),
        ),
        remark="Every weight goes to zero, and what the head returns does not go to the average of all values.",
        picture=lambda: _draw(row),
    )


_GROWING = Mistake(
    "a spread that grows with n",
    "The rows of a million items have a larger spread than those of ten.",
    "More items seem to need a stronger push; for a single item against the rest this is so.",
    "Both halves grow. What does the ratio of their sums depend on?",
    # The mass of the first half rises with n, to 1.
    seen=lambda got: (np.diff(got.reshape(-1, len(_SIZES))) > -1e-9).all() and (got[3::4] > 0.9999).all(),
)


def _row_stages() -> tuple[Stage, ...]:
    called = functools.cache(lambda row: {(n, m): _logits(row(n, m)) for m in _MASSES for n in _SIZES})
    given = "n = 2, 10, 1,000 and 1,000,000, masses of 0.75, 0.9 and 0.999"

    def masses(row: Callable[..., Any]) -> np.ndarray:
        return np.array([_float64.softmax(z)[: n // 2].sum() for (n, _), z in called(row).items()])

    def spreads(row: Callable[..., Any]) -> np.ndarray:
        return np.array([np.ptp(z) for z in called(row).values()]).reshape(len(_MASSES), len(_SIZES))

    right = np.repeat(_MASSES, len(_SIZES))
    return (
        Stage(
            "n finite logits",
            called,
            given=given,
            accept=lambda rows: all(z.shape == (n,) and np.isfinite(z).all() for (n, _), z in rows.items()),
            look="Return one array of shape [n].",
        ),
        Stage(
            "the first half keeps the mass",
            masses,
            given=given,
            expected=right,
            rtol=1e-4,
            atol=0,
            mistakes=(
                Mistake(
                    "weights for logits",
                    "What came back sums to one: these are weights, and a softmax of them is nearly flat.",
                    "The weights are what the exercise describes.",
                    "Which logits have these weights?",
                    seen=lambda got: got[:1] < 0.9 and np.ptp(got[2::4]) < 1e-3 and got[2] < 0.51 and got[0] > 0.55,
                ),
                Mistake(
                    "dispersion taken for uniformity",
                    "The mass of the first half tends to one half as n grows.",
                    "If every weight goes to 1/n up to a constant, it seems that each half must get its half.",
                    "The constant may differ between the two halves, and stay different for every n.",
                    seen=lambda got: np.allclose(got[3::4], 0.5, atol=0.02),
                ),
                _GROWING,
                Mistake(
                    "the other half",
                    "The mass is that of the second half.",
                    "The sign of a difference of logits was turned round.",
                    "The first n/2 items are the heavy ones.",
                    seen=1 - right,
                ),
            ),
            look="With two values of the logit, write the mass of the first half as a function of their difference.",
        ),
        Stage(
            "every weight tends to zero",
            lambda row: np.array([n * _float64.softmax(z).max() for (n, _), z in called(row).items()]),
            given=given,
            accept=lambda got: (got <= 2 + 1e-6).all(),
            mistakes=(
                Mistake(
                    "one item carries the mass",
                    "A weight does not fall like 1/n: single items hold a fixed share.",
                    "One high logit is the usual picture of a sharp row.",
                    "Half of the items shall share the mass. What is then the weight of one?",
                    seen=lambda got: got[3] > 1_000,
                ),
            ),
            look="Print n times the largest weight for each n.",
        ),
        Stage(
            "with one spread for all n",
            spreads,
            given=given,
            accept=lambda got: (np.ptp(got, axis=1) <= 1e-4 * got.max(1)).all(),
            mistakes=(dataclasses.replace(_GROWING, seen=lambda got: (got[:, -1] != got[:, 1]).any()),),
            look="Print the spread for each n.",
        ),
    )


def _spread_stages() -> tuple[Stage, ...]:
    right = np.array([_needed(share, mass) for share, mass in _GROUPS])
    mass = np.array([mass for _, mass in _GROUPS])
    share = np.array([share for share, _ in _GROUPS])
    return (
        Stage(
            "the least spread for a share and a mass",
            lambda least: np.array([float(least(*group)) for group in _GROUPS]),
            given="shares from 0.01 to 0.8 with masses above them",
            expected=right,
            rtol=1e-6,
            atol=0,
            nats=True,
            mistakes=(
                Mistake(
                    "the share forgotten",
                    "The answer is right for a share of one half and for no other.",
                    "Half and half is the case of the rows above.",
                    "With few items in the group, must they stand higher or lower?",
                    seen=np.log(mass / (1 - mass)),
                ),
                Mistake(
                    "a ratio for a difference",
                    "The answer is the ratio of two weights, not the difference of two logits.",
                    "The ratio is what the mass fixes.",
                    "Which difference of logits gives that ratio?",
                    seen=np.exp(right),
                ),
                Mistake(
                    "the others forgotten",
                    "The answer is log(mass/share): the mass left for the others does not enter.",
                    "The weight of an item in the group is mass/share over n.",
                    "δ is a difference of two logits. What is the weight of an item outside the group?",
                    seen=np.log(mass / share),
                ),
            ),
            look="Let all items of the group stand δ above all others: that is the best they can do.",
        ),
        Stage(
            "masses that need no spread",
            lambda least: np.array([float(least(*group)) for group in _EASY]),
            given="masses at or below the share",
            expected=np.zeros(len(_EASY)),
            rtol=0,
            atol=1e-12,
            mistakes=(
                Mistake(
                    "a negative spread",
                    "A spread cannot be negative.",
                    "The formula asks the group to stand below the others; the exercise asks for at least that mass.",
                    "What mass does a share hold in a row of equal logits?",
                    seen=lambda got: (got < -1e-12).any(),
                ),
            ),
            look="What mass does a share hold in a row of equal logits?",
        ),
    )


def _needed(share: float, mass: float) -> float:
    """The spread by bisection on the mass of a row of two levels."""
    low, high = 0.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        held = share / (share + (1 - share) * math.exp(-middle))
        low, high = (low, middle) if held >= mass else (middle, high)
    return high


def _logits(row: Any) -> np.ndarray:
    return np.asarray(row).astype(np.float64)


def _draw(row: Callable[..., Any]) -> Any:
    """The largest weight and the mass of the first half, against n."""
    from adatemp import plotting

    sizes = (2, 10, 100, 1_000, 10_000)
    weights = [_float64.softmax(_logits(row(n, 0.9))) for n in sizes]
    masses = [w[: n // 2].sum() for n, w in zip(sizes, weights, strict=True)]
    figure, axes = plotting.figure(height=2.8)
    axes.plot(sizes, masses, label="mass of the first half", **plotting.role("ours"))
    axes.plot(sizes, [w.max() for w in weights], label="largest weight", **plotting.role("plain"))
    axes.set(xscale="log", yscale="log", xlabel="items n")
    axes.legend()
    return plotting.show(
        figure,
        alt=f"Against n from 2 to 10,000, the mass of the first half stays at {masses[-1]:.3f} while the largest "
        f"weight falls to {weights[-1].max():.1e}.",
    )

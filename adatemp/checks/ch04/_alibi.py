"""Exercise 04.4, the ALiBi floor: the least weight of the nearest key and the largest of a key at a distance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._float64 import softmax
from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine

_SIGNATURE = "alibi(slope, spread, k, n, temperature)"
# (slope, δ, k, n, θ)
_CASES = (
    (0.25, 2.0, 3, 40, 1.0),
    (0.125, 1.5, 9, 30, 0.5),
    (1.0, 4.0, 2, 7, 2.0),
    (0.5, 3.0, 1, 2, 1.5),
    (0.0625, 0.5, 20, 60, 1.25),
)
_LONG = ((0.25, 2.0, 40, 10**5, 1.0), (0.25, 2.0, 1_000, 10**5, 1.0), (0.0625, 5.0, 100, 3 * 10**5, 0.75))


def ex4(alibi: Callable[..., Any]) -> Report:
    """Checks the two bounds of attention with a linear bias.

    Args:
        alibi: `alibi(slope, spread, k, n, temperature) -> (floor, ceiling)` for n keys, one at each distance 0 to
            n − 1, whose contents lie within the spread: the least weight that the key at distance 0 can have, and the
            largest that the key at distance k, 1 ≤ k < n, can have.

    Returns:
        The report. Mistakes it names: the geometric sum started at 0; the sign of the slope; a floor claimed for the
        far key; the temperature on the spread alone, or on the slope alone; infinitely many keys for n; the ends
        exchanged.
    """
    return examine(alibi, "04.4 The ALiBi floor", _SIGNATURE, _stages(), picture=_draw)


def _stages() -> tuple[Stage, ...]:
    right = _expected(_CASES)
    floors, ceilings = right[:, 0], right[:, 1]

    def told(**how: Any) -> np.ndarray:
        return np.array([_formulas(*case, **how) for case in _CASES])

    def about(column: int, **how: Any) -> Callable[[np.ndarray], bool]:
        return lambda got: np.allclose(got[:, column], told(**how)[:, column], rtol=1e-6)

    return (
        Stage(
            "the floor and the ceiling of rows of up to 60 keys",
            lambda alibi: np.array([alibi(*case) for case in _CASES], np.float64),
            given="five rows, with slopes from 1/16 to 1 and temperatures from 0.5 to 2",
            expected=right,
            rtol=1e-6,
            atol=0,
            mistakes=(
                Mistake(
                    "the ends exchanged",
                    "Floor and ceiling stand in each other's place.",
                    "",
                    "Which comes first in the signature?",
                    seen=right[:, ::-1],
                ),
                Mistake(
                    "the sign of the slope",
                    "Weights grow with the distance.",
                    "The bias is subtracted, and a minus sign is lost easily.",
                    "Is r above or below 1?",
                    seen=lambda got: about(0, sign=-1.0)(got) or about(1, sign=-1.0)(got),
                ),
                Mistake(
                    "the geometric sum started at 0",
                    "The key itself is counted among its rivals.",
                    "The sum of all powers of r is 1/(1 − r), and that is the one that is remembered.",
                    "At which distance does the nearest rival stand?",
                    seen=lambda got: about(0, start=0)(got) or about(1, start=0)(got),
                ),
                Mistake(
                    "the temperature on the spread alone",
                    "The temperature divides the contents and not the bias.",
                    "The bias looks like a part of the mechanism and not of the logit.",
                    "What does the softmax divide by θ?",
                    seen=lambda got: np.allclose(got, told(slope_by=1.0), rtol=1e-6),
                ),
                Mistake(
                    "the temperature on the slope alone",
                    "The temperature divides the bias and not the contents.",
                    "",
                    "What does the softmax divide by θ?",
                    seen=lambda got: np.allclose(got, told(spread_by=1.0), rtol=1e-6),
                ),
                Mistake(
                    "a temperature of 1",
                    "The answers are right at temperature 1 and at no other.",
                    "It is the usual one.",
                    "Where does θ enter?",
                    seen=lambda got: np.allclose(got, told(slope_by=1.0, spread_by=1.0), rtol=1e-6),
                ),
                Mistake(
                    "a floor claimed for the far key",
                    "Where the largest weight of the key at distance k is asked for, the least stands, or that of the "
                    "key at distance 0.",
                    "The escape from dispersion is a floor, and one would like every key to have it.",
                    "For the most that this key can have, which content must it have, and which all others?",
                    seen=lambda got: (
                        np.allclose(got[:, 0], floors, rtol=1e-6)
                        and (
                            np.allclose(got[:, 1], floors, rtol=1e-6)
                            or np.allclose(got[:, 1], [_least(*case) for case in _CASES], rtol=1e-6)
                        )
                    ),
                ),
                Mistake(
                    "infinitely many keys for n",
                    "The bound is that of an endless row.",
                    "The endless sum has the shorter formula.",
                    "Sum r^j up to the last distance, n − 1.",
                    seen=lambda got: about(0, endless=True)(got) or about(1, endless=True)(got),
                ),
                Mistake(
                    "newer keys forgotten",
                    "The ceiling counts the keys behind the one at distance k, or its e^(−slope k) alone.",
                    "A bound is had quickly; the largest weight takes all rivals.",
                    "Who stands between the query and that key?",
                    seen=lambda got: np.allclose(got[:, 0], floors, rtol=1e-6) and (got[:, 1] > ceilings).all(),
                ),
            ),
            look="Build the extremal row for seven keys, compute its softmax and compare.",
        ),
        Stage(
            "long rows",
            lambda alibi: np.array([alibi(*case) for case in _LONG], np.float64),
            given="100,000 keys and more, and a key 1,000 back",
            expected=_expected(_LONG),
            rtol=1e-6,
            atol=0,
            look="Nothing may overflow: e^(slope · k) does where k is 1,000 and more. Measure from the key itself.",
        ),
    )


def _content(spread: float, place: int, n: int, high: bool) -> np.ndarray:
    return np.where(np.arange(n) == place, spread, 0.0) * (1 if high else -1)


def _row(slope: float, content: np.ndarray, temperature: float) -> np.ndarray:
    return softmax((content - slope * np.arange(content.size)) / temperature)


def _expected(cases: Any) -> np.ndarray:
    """Both bounds from the rows that attain them."""
    return np.array(
        [
            (
                _row(slope, _content(spread, 0, n, False), theta)[0],
                _row(slope, _content(spread, k, n, True), theta)[k],
            )
            for slope, spread, k, n, theta in cases
        ]
    )


def _least(slope: float, spread: float, k: int, n: int, theta: float) -> float:
    return _row(slope, _content(spread, k, n, False), theta)[k]


def _formulas(
    slope, spread, k, n, theta, *, sign=1.0, start=1, slope_by=None, spread_by=None, endless=False
) -> tuple[float, float]:
    """The bounds by sums, or what a mistake makes of them."""
    ratio = np.exp(-sign * slope / (theta if slope_by is None else slope_by))
    contrast = np.exp(spread / (theta if spread_by is None else spread_by))
    distances = np.arange(5_000 if endless else n)
    powers = ratio ** distances.astype(float)
    others = np.where(distances == k, 0.0, powers) if start else powers
    floor = 1 / (1 + contrast * powers[start:].sum())
    return floor, powers[k] / (powers[k] + others.sum() / contrast)


def _draw(alibi: Callable[..., Any]) -> Any:
    """The ceiling by distance, with the floor of the nearest key."""
    from adatemp import plotting

    distances = np.arange(1, 60)
    pairs = np.array([alibi(0.25, 2.0, int(k), 64, 1.0) for k in distances], np.float64)
    figure, axes = plotting.figure(height=2.8)
    axes.plot(distances, pairs[:, 1], label="most at distance k", color=plotting.palette["plain"])
    axes.plot([0], [pairs[0, 0]], "o", label="least of the nearest", color=plotting.palette["highlight"])
    axes.set(xlabel="distance", ylabel="weight", yscale="log")
    axes.legend()
    return plotting.show(
        figure,
        alt=f"Weights for slope 0.25 and spread 2 among 64 keys: the nearest keeps at least {pairs[0, 0]:.3f}; the "
        f"most that a key can have falls from {pairs[0, 1]:.2f} at distance 1 to {pairs[-1, 1]:.1e} at 59.",
    )

"""Exercise 06.1, the margin theorem used: margin, slope and certified size of given read-outs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks.ch06._read_outs import ReadOut, read_outs

_FEW = 12
_MANY = 200
_SIGNATURE = "certified(read_out, spread, temperature)"
_CASES = [(0.0, 1.0), (2.0, 1.0), (3.0, 2.0), (1.0, 0.5), (4.0, 1.25)]


def ex1(certified: Callable[..., Any]) -> Report:
    """Checks margin, Lipschitz constant and certified size of read-outs, against where their answers really change.

    Args:
        certified: `certified(read_out, spread, temperature) -> (γ, L, n)`. It has `value_a` and `value_b` [d]; it
            gives class logits `read_out(x)` [..., C] and slopes `read_out.jacobian(x)` [..., C, d]. γ is the margin at
            the value of B, L the steepest class logit on the segment between the two values, in the Euclidean norm
            (to 2%), n a size from which on the theorem certifies the answer of {B, …, B}.

    Returns:
        The report. Mistakes it names: the margin over A's class; L taken at the value of B; L taken off the segment;
        L for 2L; δ for δ/θ; a length for a distance; a size below the measured one.
    """
    called = functools.cache(lambda function: _called(function, _few()))
    few = _few()
    reach = np.array([2 * r.steepest * r.distance / r.margin for r in few])
    s = np.array([_scaled(i) for i in range(_FEW)])
    right = _sizes(reach, s)
    return examine(
        certified,
        "06.1 The margin theorem, used",
        _SIGNATURE,
        (
            Stage(
                "the margin at the value of B",
                lambda f: called(f)[:, 0],
                given=f"{_FEW} read-outs of four classes",
                expected=np.array([r.margin for r in few]),
                rtol=1e-4,
                mistakes=(
                    Mistake(
                        "the margin over the wrong rival",
                        "The margin is that over A's class, and some other class may be nearer.",
                        "A and B are the two items in play, so it seems that their classes are the two in play.",
                        "The answer changes as soon as *any* class overtakes B's.",
                        seen=_over_a(few),
                    ),
                    Mistake(
                        "a margin at the value of A",
                        "The logits were read at the value of A.",
                        "The set that is answered wrongly has A in it.",
                        "Which set's answer is being kept?",
                        seen=np.array([np.ptp(np.sort(r(r.value_a))[-2:]) for r in few]),
                    ),
                ),
                look="The logit of the answer at `value_b` less that of its best rival.",
            ),
            Stage(
                "the slope on the segment",
                lambda f: called(f)[:, 1],
                given=f"{_FEW} read-outs of four classes",
                expected=np.array([r.steepest for r in few]),
                rtol=0.02,
                mistakes=(
                    Mistake(
                        "L at the value of B only",
                        "The slope is the one at `value_b`.",
                        "For large n the pooled vector is near there.",
                        "The theorem is used for every n from 1 on: the pooled vector may be anywhere between.",
                        seen=np.array([_steepest(r, [0.0]) for r in few]),
                    ),
                    Mistake(
                        "L outside the segment",
                        "The slope is too large: it was found at points that no pooled vector reaches.",
                        "Over all inputs the constant holds too, and is what a product of norms gives.",
                        "Which points are averages of the two values?",
                        seen=lambda got: (got >= 0.98 * _slopes(few)).all() and (got > 1.05 * _slopes(few)).any(),
                    ),
                    Mistake(
                        "the slope along the segment",
                        "The slope is that in the direction of the segment, which is smaller than L in general.",
                        "It is what matters, and a sharper theorem could use it.",
                        "L is the length of a logit's gradient.",
                        seen=np.array([_along(r) for r in few]),
                    ),
                ),
                look="The longest row of `jacobian` over a fine grid of points between the two values.",
            ),
            Stage(
                "the size",
                lambda f: called(f)[:, 2],
                given=f"{_FEW} read-outs at spreads from 0 to 4 and temperatures from 0.5 to 2",
                accept=lambda got: bool(np.all((got >= right * 0.97 - 1) & (got <= right * 1.03 + 2))),
                mistakes=(
                    Mistake(
                        "L for 2L",
                        "The size allows the margin to be used up by one logit alone.",
                        "Each logit moves by L times the distance at most, and it is easy to stop there.",
                        "One logit can fall while the other rises.",
                        seen=lambda got: _near(got, _sizes(reach / 2, s)),
                    ),
                    Mistake(
                        "δ for δ/θ",
                        "The sizes are right at temperature 1 only.",
                        "The temperature is easily forgotten.",
                        "What is the weight of A at temperature θ?",
                        seen=lambda got: _near(got, _sizes(reach, np.array([_CASES[i % 5][0] for i in range(_FEW)]))),
                    ),
                    Mistake(
                        "a length for a distance",
                        "‖v_A‖ stands where ‖v_A − v_B‖ should.",
                        "Where B's value is zero the two agree.",
                        "How long is the segment?",
                        seen=lambda got: _near(
                            got, _sizes(reach * [np.linalg.norm(r.value_a) / r.distance for r in few], s)
                        ),
                    ),
                    Mistake(
                        "the simple bound on the weight",
                        "The weight of A was bounded by e^(δ/θ)/n.",
                        "It is the form that is usually quoted.",
                        "The tight bound is as easy to solve for n.",
                        seen=lambda got: _near(got, np.maximum(np.exp(s) * reach, 1)),
                    ),
                ),
                look="Solve 2L‖v_A − v_B‖ · weight < γ for n, with the tight bound on the weight.",
            ),
            Stage(
                "never below the measured size",
                lambda f: _excess(f),
                given=f"{_MANY} random read-outs",
                accept=lambda worst: worst >= -1.0,
                look="Find a read-out whose answer still changes at your size. Which step of the proof does it break?",
            ),
        ),
        remark="The theorem is safe for every read-out and tight only for some: measure how much it gives away.",
        picture=_draw,
    )


@functools.cache
def _few() -> tuple[ReadOut, ...]:
    return tuple(read_outs(_FEW, seed=6))


def _scaled(index: int) -> float:
    spread, temperature = _CASES[index % len(_CASES)]
    return spread / temperature


def _called(function: Callable[..., Any], given: tuple[ReadOut, ...]) -> np.ndarray:
    return np.array([[float(part) for part in function(r, *_CASES[i % len(_CASES)])] for i, r in enumerate(given)])


def _sizes(reach: np.ndarray, s: np.ndarray) -> np.ndarray:
    return np.maximum(1 + np.exp(s) * (reach - 1), 1)


def _near(got: np.ndarray, wanted: np.ndarray) -> bool:
    return bool(np.all(np.abs(got - wanted) <= 0.04 * wanted + 2))


def _over_a(given: tuple[ReadOut, ...]) -> Callable[[np.ndarray], bool]:
    """Recognises margins over the class that wins at the value of A, in the cases where another is nearer."""
    wrong, fits = [], []
    for r in given:
        at_b = r(r.value_b)
        wrong.append(at_b.max() - at_b[r(r.value_a).argmax()])
        fits.append(wrong[-1] > r.margin + 1e-6)
    return lambda got: bool(np.allclose(got[fits], np.array(wrong)[fits], rtol=1e-3))


def _steepest(r: ReadOut, shares: Any) -> float:
    return float(np.linalg.norm(r.jacobian(r.along(np.asarray(shares))), axis=-1).max())


def _slopes(given: tuple[ReadOut, ...]) -> np.ndarray:
    return np.array([r.steepest for r in given])


def _along(r: ReadOut) -> float:
    direction = (r.value_a - r.value_b) / r.distance
    return float(np.abs(r.jacobian(r.along(np.linspace(0, 1, 201))) @ direction).max())


def _excess(function: Callable[..., Any]) -> float:
    """The smallest difference of certified and measured size."""
    worst = np.inf
    for index, r in enumerate(read_outs(_MANY, seed=60)):
        spread, temperature = _CASES[index % len(_CASES)]
        measured = r.size_from_share(r.smallest_share, spread, temperature) if r.smallest_share <= 1 else 1.0
        # The grid of shares is as fine as 1/4,000, and L is found to 2%.
        worst = min(worst, 1.03 * float(function(r, spread, temperature)[2]) - measured)
    return worst


def _draw(function: Callable[..., Any]) -> Any:
    """Certified against measured size."""
    from adatemp import plotting

    points = []
    for r in read_outs(100, seed=60):
        if r.smallest_share <= 1:
            points.append((r.size_from_share(r.smallest_share, 2.0, 1.0), float(function(r, 2.0, 1.0)[2])))
    measured, claimed = np.array(points).T
    fig, axes = plotting.figure(height=3.0)
    axes.plot(measured, claimed, **plotting.role("ours") | {"linestyle": ""})
    ends = [1, max(claimed.max(), measured.max())]
    axes.plot(ends, ends, **plotting.role("bound"))
    axes.set(xscale="log", yscale="log", xlabel="measured size", ylabel="certified size")
    return plotting.show(
        fig,
        alt=f"Certified against measured size for {len(points)} read-outs that change their answer, on log axes; "
        f"{(claimed >= measured - 1).sum()} of them are on or above the diagonal.",
    )

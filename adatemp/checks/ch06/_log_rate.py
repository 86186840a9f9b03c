"""Exercise 06.5, (log n)/n and the machine: the size at which a slower weight falls under the unit round-off."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine

_ROUND_OFFS = tuple(2.0**-p for p in (3, 4, 8, 11, 24, 53))
_CONSTANTS = (0.25, 3.0, 300.0)


def ex5(size: Callable[..., Any]) -> Report:
    """Checks the size beyond which c (log n)/n stays below u.

    Args:
        size: `size(u, constant) -> n`, to 1%: for every larger n, constant · (log n)/n < u. u is between 2⁻⁵³ and 2⁻³.

    Returns:
        The report. Mistakes it names: the root near 1; the constant dropped; 1/u; log 1/u for log n; another logarithm;
        a search that does not get there.
    """
    right = np.array([_root(u, 1.0) for u in _ROUND_OFFS])
    pairs = [(u, c) for u in _ROUND_OFFS[2:] for c in _CONSTANTS]
    scaled = np.array([_root(u, c) for u, c in pairs])
    bare = np.array([_root(u, 1.0) for u, _ in pairs])
    inverse = np.array([1 / u for u in _ROUND_OFFS])
    return examine(
        size,
        "06.5 (log n)/n and the machine",
        "size(u, constant)",
        (
            Stage(
                "the size per format",
                lambda f: np.array([float(f(u, 1.0)) for u in _ROUND_OFFS]),
                given="u = 2⁻³, 2⁻⁴, 2⁻⁸, 2⁻¹¹, 2⁻²⁴ and 2⁻⁵³, constant 1",
                expected=right,
                rtol=0.01,
                mistakes=(
                    Mistake(
                        "the root near 1",
                        "At the size you return (log n)/n is u, and just beyond it is larger.",
                        "log n is 0 at n = 1, so the equation has a second root there, and a solver started at 1 finds "
                        "it.",
                        "Where is (log n)/n largest, and on which side of that do you want to be?",
                        seen=lambda got: (got < math.e).sum() >= 3,
                    ),
                    Mistake(
                        "the logarithm dropped",
                        "The answer is 1/u, as for a weight of 1/n.",
                        "A logarithm is easily called a constant.",
                        "How large is log n at that n?",
                        seen=lambda got: np.allclose(got, inverse, rtol=0.05),
                    ),
                    Mistake(
                        "log(1/u) for log n",
                        "The answer is log(1/u)/u, the first step of an iteration.",
                        "It is right to leading order, and 9 to 40% too small here.",
                        "Put your n back into (log n)/n.",
                        seen=inverse * np.log(inverse),
                    ),
                    Mistake(
                        "another logarithm",
                        "The answer is right for the logarithm to base 2 or 10.",
                        "Formats are described in base 2.",
                        "log is the natural logarithm in this book.",
                        seen=lambda got: any(
                            np.allclose(got[2:], [_root(u, 1 / math.log(base)) for u in _ROUND_OFFS[2:]], rtol=0.02)
                            for base in (2, 10)
                        ),
                    ),
                ),
                look="Solve log n = n u for the larger root; a fixed-point iteration n ← (log n)/u converges there.",
            ),
            Stage(
                "with a constant",
                lambda f: np.array([float(f(u, c)) for u, c in pairs]),
                given="constants of 0.25, 3 and 300",
                expected=scaled,
                rtol=0.01,
                mistakes=(
                    Mistake(
                        "the constant dropped",
                        "The sizes do not depend on the constant.",
                        "(log n)/n was derived up to constants.",
                        "A head of contrast κ has the constant κ.",
                        seen=bare,
                    ),
                    Mistake(
                        "the size multiplied by the constant",
                        "c times the size for constant 1 is not where c (log n)/n is u.",
                        "For a weight of c/n it would be right.",
                        "The logarithm grows with the size too.",
                        seen=bare * [c for _, c in pairs],
                    ),
                ),
                look="Solve with u/c in the place of u.",
            ),
        ),
        remark="The logarithm buys a factor of 8 in bfloat16 and of 20 in float32, and nothing for ever.",
        picture=_draw,
    )


def _root(u: float, constant: float) -> float:
    """The larger root by bisection, from the maximum of (log n)/n at e on."""
    low, high = math.e, math.e
    while constant * math.log(high) / high >= u:
        high *= 2
    if high == math.e:
        return math.nan
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if constant * math.log(middle) / middle >= u else (low, middle)
    return high


def _draw(size: Callable[..., Any]) -> Any:
    """(log n)/n and the sizes found."""
    from adatemp import plotting

    n = np.geomspace(2, 1e10, 200)
    fig, axes = plotting.figure(height=2.8)
    axes.plot(n, np.log(n) / n, **plotting.role("tight"))
    found = [float(size(u, 1.0)) for u in _ROUND_OFFS[:5]]
    axes.plot(found, _ROUND_OFFS[:5], **plotting.role("ours") | {"linestyle": ""})
    axes.set(xscale="log", yscale="log", xlabel="items n", ylabel="(log n)/n, and u")
    return plotting.show(
        fig,
        alt="(log n)/n against n on log axes, and your sizes at the unit round-offs of five formats as marks.",
    )

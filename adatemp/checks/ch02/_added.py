"""Exercise 02.5: what is added to a row, how fast its top weight decays, and bounds for each kind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks.ch02._added_rows import (
    KINDS,
    LONGEST,
    ROWS,
    SLACK,
    added_logits,
    appended,
    base_row,
    composed,
    exact_bounds,
    general_bounds,
    in_range,
    lengths,
    top_weight,
)

_TITLE = "02.5 What is added?"
_GIVEN = "rows of 16 and 23 logits of spread 2 and 6, standing at 0 and at 10,000"


def ex5(append: Callable[..., Any], bounds: Callable[..., Any], order: Sequence[str]) -> Report:
    """Checks four ways of adding items to a row, bounds on what is left of its top weight, and their order.

    The row `base` keeps its place at the front; items are added until the row has n. With M its largest logit and m its
    smallest, the added logits are

        "identical"     all equal to M − 1.5
        "random"        independent, uniform on [m, M]
        "near-maximal"  independent, uniform on [M − 0.05, M]
        "mixed"         a third of each; where the number is no multiple of three, the rest are random

    Args:
        append: `append(base, kind, n, key) -> logits [n]`; the first len(base) are `base` itself.
        bounds: `bounds(base, kind, n) -> (low, high)` on the softmax weight of base's largest logit after adding; they
            hold for every draw of the kind and use what the kind says about the logits. Return floats.
        order: the four names, from the slowest decay to the fastest, for a base of spread 6 and n = 4,096.

    Returns:
        The report. Mistakes it names: n items added instead of up to n; a row that is not kept; near-maximal items
        above the maximum; a wider spread; bounds that say nothing; one bound for all kinds; harmless items believed not
        to disperse; the base row left out of the sum.
    """
    return in_turn(
        (
            lambda: examine(append, _TITLE, "append(base, kind, n, key)", _appending()),
            lambda: examine(bounds, _TITLE, "bounds(base, kind, n)", _bounding(append)),
            lambda: examine(lambda: tuple(order), _TITLE, "order", (_ORDER,)),
        ),
        remark="Every kind decays like 1/n in the end; what is added decides only the constant, the mean of e^(x − M).",
        picture=lambda: _draw(append, bounds),
    )


def _appending() -> tuple[Stage, ...]:
    drawn = functools.cache(appended)  # the three stages look at the same rows
    return (
        Stage(
            "the row has n items and begins with the base",
            drawn,
            given=_GIVEN,
            accept=lambda cases: all(
                logits.shape == (n,) and np.allclose(logits[: len(base)], base, atol=SLACK)
                for base, _, n, logits in cases
            ),
            mistakes=(
                Mistake(
                    "compared at unequal n",
                    "The rows have other lengths than n: n items were added, instead of items up to n.",
                    "*Append n* and *append up to n* differ by the length of the base; for the mixed row, threefold.",
                    "A decay in n can only be compared between rows of the same n.",
                    seen=lambda cases: any(logits.size != n for _, _, n, logits in cases),
                ),
                Mistake(
                    "the base row is not kept",
                    "The first entries are not those of `base`.",
                    "A sort, or a shift by the maximum, changes the row on the way.",
                    "Concatenate `base` and the new items, in that order.",
                    seen=lambda cases: not all(np.allclose(logits[: len(base)], base) for base, _, _, logits in cases),
                ),
            ),
            look="Return one array [n].",
        ),
        Stage(
            "the added items stay inside their range",
            drawn,
            given=_GIVEN,
            accept=lambda cases: all(map(in_range, cases)),
            mistakes=(
                Mistake(
                    "near-maximal items above the maximum",
                    "An added item has a larger logit than the base's largest: the row has a new maximum.",
                    "*Near* is symmetric in ordinary speech.",
                    "The weight that is followed has to remain the top weight.",
                    seen=lambda cases: any(added_logits(base, logits).max() > SLACK for base, _, _, logits in cases),
                ),
                Mistake(
                    "the spread grew",
                    "An added item lies below the base's smallest logit.",
                    "A normal distribution, or a uniform one on [0, 1), is the first thing to draw from.",
                    "The bounds are about rows of one spread; compare smallest and largest before and after.",
                    seen=lambda cases: any(
                        added_logits(base, logits).min() < -np.ptp(base) - SLACK for base, _, _, logits in cases
                    ),
                ),
            ),
            look="Compare the smallest and the largest added logit of each kind with the definition.",
        ),
        Stage(
            "random items fill the range, mixed ones are thirds",
            drawn,
            given=_GIVEN,
            accept=lambda cases: all(map(composed, cases)),
            look="Count the mixed items of each kind.",
        ),
    )


def _bounding(append: Callable[..., Any]) -> tuple[Stage, ...]:
    cases = [(base, kind, n) for base, n in ROWS for kind in KINDS]

    def claimed(bounds):
        return np.array([[float(part) for part in bounds(base, kind, n)] for base, kind, n in cases])

    exact = np.array([exact_bounds(base, kind, n) for base, kind, n in cases])
    general = np.array([general_bounds(base, n) for base, _, n in cases])
    without_base = np.array(
        [exact_bounds(np.array([base.max()]), kind, n - len(base) + 1, np.ptp(base)) for base, kind, n in cases]
    )
    same = np.array([kind == "identical" for _, kind, _ in cases])

    def holds(got, slack=5e-3):
        return (got[:, 0] <= exact[:, 0] * (1 + slack)).all() and (got[:, 1] >= exact[:, 1] * (1 - slack)).all()

    vacuous = Mistake(
        "bounds that say nothing",
        "They hold, and would hold for any row.",
        "0 ≤ w ≤ 1 is always true.",
        "The upper bound has to fall with n, and the lower one has to stay above zero.",
        seen=lambda got: (got[:, 0] <= 0).any() or (got[:, 1] >= 1).any(),
    )
    return (
        Stage(
            "the bounds hold for every draw of the kind",
            claimed,
            given=_GIVEN,
            accept=holds,
            mistakes=(
                Mistake(
                    "harmless items believed not to disperse",
                    "The bounds for identical items do not fall as n grows.",
                    "Items that are all alike and all below the maximum seem to compete with nobody.",
                    "Each adds the same small amount to the denominator. How many are there?",
                    seen=lambda got: (
                        got[same & (lengths(cases) == LONGEST)][:, 1].max() > 10 * exact[same][:, 1].min()
                        and got[same][:, 0].min() > 10 * exact[same][:, 1].min()
                    ),
                ),
                Mistake(
                    "the base row left out of the sum",
                    "The bounds are those of the added items alone, with the maximum.",
                    "The base is small beside thousands of new items. At n = 100 it is not.",
                    "The denominator has n terms.",
                    seen=lambda got: np.allclose(got, without_base, rtol=2e-3),
                ),
                Mistake(
                    "low and high exchanged",
                    "The first number is larger than the second.",
                    "The most added mass gives the smallest weight.",
                    "Return the lower bound first.",
                    seen=lambda got: (got[:, 0] > got[:, 1] * (1 + 1e-6)).any(),
                ),
            ),
            look="w = 1 / Σ exp(x − M) over the whole row. Which draw makes the sum largest, which smallest?",
        ),
        Stage(
            "the bounds use what the kind says",
            claimed,
            given=_GIVEN,
            accept=lambda got: (got[:, 1] / got[:, 0] <= 1.01 * exact[:, 1] / exact[:, 0]).all(),
            mistakes=(
                vacuous,
                Mistake(
                    "one bound for all kinds",
                    "The bound of n and the spread came back for every kind.",
                    "It holds for all of them, which is its merit.",
                    "For identical items the weight is known exactly: the two bounds coincide.",
                    seen=lambda got: (
                        np.allclose(got, general, rtol=2e-3)
                        or (np.ptp(got.reshape(len(ROWS), 4, 2), axis=1) < 1e-9).all()
                    ),
                ),
            ),
            look="Let each added item take the smallest, then the largest logit its kind allows.",
        ),
        Stage(
            "your rows lie inside your bounds",
            lambda bounds: [
                (top_weight(append(base, kind, n, jax.random.key(n + 1)), base), bounds(base, kind, n))
                for base, kind, n in cases
            ],
            given="a fresh draw of every kind",
            accept=lambda pairs: all(low * 0.99 <= w <= high * 1.01 for w, (low, high) in pairs),
            look="Compare the weight of `base.max()` with the two bounds for the kind that fails.",
        ),
    )


_ORDER = Stage(
    "the order of decay",
    lambda order: order(),
    given=f"a base of spread 6 and n = {LONGEST:,}",
    accept=lambda order: order == ("random", "identical", "mixed", "near-maximal"),
    mistakes=(
        Mistake(
            "four names are needed",
            "The order does not hold each of the four names once.",
            "A spelling differs, or one is missing.",
            "The names are " + ", ".join(f"`{kind}`" for kind in KINDS) + ".",
            seen=lambda order: sorted(order) != sorted(KINDS),
        ),
        Mistake(
            "harmless items believed not to disperse",
            "Identical items are said to be the gentlest.",
            "All of them are clearly below the maximum, while a random item may come close.",
            "Compare the mean of exp(x − M) over the two kinds: what counts is the sum, not the worst rival.",
            seen=lambda order: order[0] == "identical",
        ),
        Mistake(
            "fastest first",
            "The order is reversed.",
            "Decay and weight run in opposite directions.",
            "The slowest decay leaves the largest weight.",
            seen=lambda order: order == ("near-maximal", "mixed", "identical", "random"),
        ),
    ),
    look="Each added item brings a mean of exp(x − M) to the denominator. Work it out for the four kinds.",
)


def _draw(append: Callable[..., Any], bounds: Callable[..., Any]) -> Any:
    """Top weight against n for the four kinds, each inside its bounds."""
    from adatemp import plotting

    base, sizes = base_row(0), (16, 100, 640, LONGEST)
    figure, axes = plotting.figure()
    words = []
    for kind, colour in zip(KINDS, ("plain", "adaptive", "argmax", "ours"), strict=True):
        weights = [top_weight(append(base, kind, n, jax.random.key(n)), base) for n in sizes]
        low, high = np.array([[float(part) for part in bounds(base, kind, n)] for n in sizes]).T
        axes.plot(sizes, weights, color=plotting.palette[colour], label=kind)
        axes.fill_between(sizes, low, high, color=plotting.palette[colour], alpha=0.15, linewidth=0)
        words.append(f"{kind} {weights[-1]:.1e}")
    axes.set(xscale="log", yscale="log", xlabel="items n", ylabel="top weight")
    axes.legend()
    return plotting.show(
        figure,
        alt=f"Top weight falling with n for four kinds of added items, in their bounds; at {LONGEST:,}: "
        + ", ".join(words),
    )

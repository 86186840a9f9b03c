"""Exercise 07.5, inducing points audited: which attention maps of a set encoder see n keys, and what passes through."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks.ch07._maps import maps

_TITLE = "07.5 Inducing points audited"
_KEYS = (6, 4)  # inducing points, seeds


def ex5(audit: Callable[..., Any], through: Callable[..., Any]) -> Report:
    """Checks an audit of the seven maps of `maps()`, and the weight that passes through inducing points.

    Args:
        audit: `audit(run) -> keys`, from a map's `run(n) -> weights [queries, keys]`: how many keys a query sees as n
            grows without end, a whole number or math.inf. n up to 10,000 is quick enough.
        through: `through(into, out) -> [n, n]`, from weights `into` [m, n] of inducing points over items and `out`
            [n, m] of items over inducing points: the weight of item j in what item i receives.

    Returns:
        The report. Mistakes it names: queries counted for keys; the item-to-inducing map said to disperse; converging
        inducing outputs overlooked; a sharp row taken for few keys; one size looked at; the product the wrong way
        round; the largest of the products for their sum.
    """
    return in_turn(
        (
            lambda: examine(audit, _TITLE, "audit(run)", (_audit_stage(),)),
            lambda: examine(through, _TITLE, "through(into, out)", (_through_stage(),)),
        ),
        remark="Whatever the second map does, an item passes the first one with a weight of order 1/n.",
    )


@functools.cache
def _counted() -> np.ndarray:
    """Keys by running every map at two sizes."""
    counts = [(one.run(50).shape[1], one.run(200).shape[1]) for one in maps()]
    return np.array([few if few == many else math.inf for few, many in counts])


def _audit_stage() -> Stage:
    right = _counted()
    names = [one.name for one in maps()]
    at = {name: names.index(name) for name in names}
    grows = np.array([one.run(200).shape[0] != one.run(50).shape[0] for one in maps()])
    rows = np.array([one.run(50).shape[0] for one in maps()], float)
    return Stage(
        "how many keys a query sees",
        lambda audit: np.array([float(audit(one.run)) for one in maps()]),
        given="the seven maps",
        expected=right,
        rtol=0,
        atol=0.01,
        mistakes=(
            Mistake(
                "queries counted for keys",
                "The number of rows was returned.",
                "Weights have two axes.",
                "Along which of them do weights add up to one?",
                seen=np.where(grows, math.inf, rows),
            ),
            Mistake(
                "the item-to-inducing map said to disperse",
                "B was said to see n keys.",
                "n items take part in it.",
                "They are its queries. What does one of them distribute its weight over?",
                seen=lambda got: got[at["B"]] == math.inf,
            ),
            Mistake(
                "converging inducing outputs overlooked",
                "G was said to see n keys, because its weights even out as n grows.",
                "A largest weight that falls with n looks like dispersion.",
                "To what does it fall, 0 or something else? And what are its keys made of?",
                seen=lambda got: got[at["G"]] == math.inf,
            ),
            Mistake(
                "a sharp row taken for few keys",
                "F was said to see a fixed number of keys.",
                "Its largest weight stays near 1 as far as one looks.",
                "How many keys are there at n = 10,000, whatever their weights are?",
                seen=lambda got: got[at["F"]] != math.inf,
            ),
            Mistake(
                "one size looked at",
                "Every map was given a fixed number of keys.",
                "At one size every map has a number of keys.",
                "Run it at two sizes.",
                seen=lambda got: np.isfinite(got).all(),
            ),
        ),
        look="Weights are [queries, keys]. Which axis grows with n?",
    )


def _through_stage() -> Stage:
    draw = np.random.default_rng(6)
    cases = []
    for m, n in ((2, 5), (6, 9)):
        cases.append((draw.dirichlet(np.ones(n), m), draw.dirichlet(np.ones(m), n)))

    def flat(of: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        return np.concatenate([np.ravel(of(into, out)) for into, out in cases])

    # Item by item and point by point, as a sum over the ways from j to i.
    def by_hand(into: np.ndarray, out: np.ndarray) -> np.ndarray:
        n, m = out.shape
        return np.array([[sum(out[i, a] * into[a, j] for a in range(m)) for j in range(n)] for i in range(n)])

    return Stage(
        "weight that passes through",
        lambda through: flat(lambda into, out: np.asarray(through(into, out), np.float64)),
        given="m = 2, n = 5 and m = 6, n = 9",
        expected=flat(by_hand),
        rtol=1e-9,
        atol=1e-12,
        mistakes=(
            Mistake(
                "the product the wrong way round",
                "Row and column are exchanged: the answer says what item j receives from item i.",
                "Two matrices, and the shapes fit either way once one is transposed.",
                "Do the rows of your answer add up to one?",
                seen=flat(lambda into, out: by_hand(into, out).T),
            ),
            Mistake(
                "the largest of the products for their sum",
                "Only the best way from j to i was counted.",
                "One inducing point is thought to carry an item.",
                "Item j is held by all m of them.",
                seen=flat(lambda into, out: (out[:, :, None] * into[None]).max(1)),
            ),
            Mistake(
                "the weights averaged over inducing points",
                "Every item receives the same.",
                "The mean of what the inducing points hold needs no second map.",
                "Item i weighs the inducing points by its own row of `out`.",
                seen=flat(lambda into, out: np.tile(into.mean(0), (len(out), 1))),
            ),
        ),
        look="Write item i's output as a sum over inducing points, and each of them as a sum over items.",
    )

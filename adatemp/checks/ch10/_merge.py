"""Exercise 10.1, the merge: the state of a row as a commutative monoid, from one block to any split in any order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks import _float64
from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written
from adatemp.checks.ch10 import _planted as planted
from adatemp.checks.ch10._merge_update import Monoid, hidden_blocks, rescaling, update_stages

_TITLE = "10.1 The merge"
_SIGNATURE = "init(shape), update(state, block), merge(state, other), finalise(state)"


def ex1(
    init: Callable[..., Any], update: Callable[..., Any], merge: Callable[..., Any], finalise: Callable[..., Any]
) -> Report:
    """Checks the mergeable state of rows of logits.

    Args:
        init: `init(shape) -> state` of rows of which nothing has been read; `shape` is the rows' shape.
        update: `update(state, block) -> state` after reading one more block, a float32 array of shape `shape + (k,)`
            with the keys last and any k ≥ 1. −∞ is a legal logit and takes no part.
        merge: `merge(state, other) -> state` of the union of two sets of blocks of the same rows.
        finalise: `finalise(state) -> (lse, entropy)`, each of the rows' shape, in nats; (−∞, 0) for a row without a
            finite logit.

    A state is whatever these four functions agree on.

    Returns:
        The report. Mistakes it names: a cross term that is missing or has the wrong sign; the exponent's sign; sums
        that are not rescaled, on one side or on both; a maximum that is kept; an unshifted sum; −∞ − (−∞); an
        initial state that counts as a key.
    """
    four = Monoid(*map(written, (init, update, merge, finalise)))
    return in_turn(
        (
            lambda: examine(init, _TITLE, _SIGNATURE, (_nothing_read(four),)),
            lambda: examine(update, _TITLE, _SIGNATURE, update_stages(four)),
            lambda: examine(merge, _TITLE, _SIGNATURE, _merge_stages(four)),
        ),
        remark="Any tree over any split gives the same row: that is what lets blocks, cores and devices share it.",
    )


def _nothing_read(four: Monoid) -> Stage:
    shape = planted.ROWS
    return Stage(
        "a row of which nothing has been read",
        lambda _: four.pair(four.init(shape)),
        given=f"`finalise(init({shape}))`",
        expected=np.stack([np.full(shape, -np.inf), np.zeros(shape)]),
        look="An empty sum is 0, and its logarithm is −∞. Which of your quotients is 0/0 then?",
        mistakes=(
            Mistake(
                "an empty row without its guard",
                "A row without keys gives NaN.",
                "l is 0 there, so s/l is 0/0, and log l is −∞.",
                "Which rows have l = 0, and what should `finalise` say for them?",
                seen=lambda got: np.isnan(got).any(),
            ),
        ),
    )


def _merge_stages(four: Monoid) -> tuple[Stage, ...]:
    low, high = planted.blocks(151, 0.0, 4.0)
    level = planted.blocks(161, 0.0, 200.0)
    exact = planted.exact(low, high)

    def both(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        first, second = four.read(one), four.read(other)
        return np.stack([four.pair(four.merge(first, second)), four.pair(four.merge(second, first))])

    def alike(mistake: Mistake) -> Mistake:
        """The mistake of a merge, which acts alike in both orders or shows in the first."""
        if callable(mistake.seen):
            seen = functools.partial(lambda got, one: one(got[0]), one=mistake.seen)
        else:
            seen = functools.partial(lambda got, one: np.allclose(got[0], one, rtol=1e-4), one=mistake.seen)
        return Mistake(mistake.name, mistake.wrong, mistake.why, mistake.look, seen=seen)

    return (
        Stage(
            "two states, in either order",
            lambda _: both(low, high),
            given="the states of two blocks, one about 4 nats higher",
            expected=np.stack([exact, exact]),
            rtol=1e-5,
            atol=1e-5,
            look="Relative to which maximum is each of the four sums, before the merge and after it?",
            mistakes=(
                *map(alike, rescaling([low, high])),
                Mistake(
                    "only one side is rescaled",
                    "The merge is right in one order and wrong in the other.",
                    "`update` meets the higher maximum on one side at a time; a merge may meet it on either.",
                    "Exchange the two states. Which formula should not notice?",
                    seen=lambda got: np.allclose(got[0], exact, atol=1e-4) or np.allclose(got[1], exact, atol=1e-4),
                ),
            ),
        ),
        Stage(
            "two states at very different levels",
            lambda _: both(*level),
            given="the states of two blocks 200 nats apart",
            expected=np.stack([planted.exact(*level)] * 2),
            rtol=1e-5,
            atol=5e-4,
            look="What is the largest number that enters `exp`?",
            mistakes=(
                Mistake(
                    "the maximum of one side is kept",
                    "In one order the exponential overflows.",
                    "Any common reference is right on paper, and one of the two is at hand.",
                    "Which of two maxima makes both exponents at most 0?",
                    seen=lambda got: not np.isfinite(got).all(),
                ),
            ),
        ),
        _identity(four),
        hidden_blocks(
            "states of blocks without a finite logit",
            lambda hidden: [
                four.pair(functools.reduce(four.merge, [four.read(block) for block in order])) for order in hidden
            ],
        ),
        _splits(four),
    )


def _identity(four: Monoid) -> Stage:
    (one,) = planted.blocks(171, 1.0)

    def call(_: Any) -> np.ndarray:
        empty, state = four.init(planted.ROWS), four.read(one)
        return np.stack(
            [four.pair(four.merge(*states)) for states in ((empty, state), (state, empty))]
            + [four.pair(four.merge(four.merge(empty, empty), state))]
        )

    return Stage(
        "the empty state changes nothing",
        call,
        given="a state merged with the empty one, from the left, from the right, and with two empty ones",
        expected=np.stack([planted.exact(one)] * 3),
        rtol=1e-5,
        atol=1e-5,
        look="Follow the empty state's three numbers through `merge`.",
        mistakes=(
            Mistake(
                "−∞ − (−∞)",
                "Merging with the empty state gives NaN.",
                "A maximum of −∞ meets another, or its distance is multiplied by a sum that is 0.",
                "Which of your products has a factor of −∞? What should it be where the other factor is 0?",
                seen=lambda got: np.isnan(got).any(),
            ),
        ),
    )


def _splits(four: Monoid) -> Stage:
    row = _float64.logits(181, *planted.ROWS, 3 * planted.KEYS)
    row[0, 0, 5:10] = -np.inf
    row[1, 2] = row[1, 2, 0]  # ties
    cuts = ((5, 10), (1, 5), (10, 14))

    def call(_: Any) -> np.ndarray:
        answers = []
        for cut in cuts:
            a, b, c = (four.read(part) for part in np.split(row, cut, axis=-1))
            merged = (four.merge(four.merge(a, b), c), four.merge(a, four.merge(b, c)), four.merge(four.merge(c, a), b))
            answers += map(four.pair, merged)
        return np.stack(answers)

    return Stage(
        "any split, in any order, by any tree",
        call,
        given="fifteen logits a row cut in three at different places, merged as (ab)c, a(bc) and (ca)b",
        expected=np.stack([planted.exact(row)] * (3 * len(cuts))),
        rtol=1e-5,
        atol=1e-5,
        look="Which of the nine answers differ: those of one cut, or those of one tree?",
        mistakes=(
            Mistake(
                "blocks of one length only",
                "Cuts into equal blocks are right and others are not.",
                "A length was written down while every block was alike.",
                "Look for a number where the block's own length should stand.",
                seen=lambda got: np.allclose(got[:3], planted.exact(row), atol=1e-4),
            ),
        ),
    )

"""Exercise 10.1, the merge: the state of a row as a commutative monoid, from one block to any split in any order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from adatemp.checks import _float64
from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written
from adatemp.checks.ch10 import _planted as planted

_TITLE = "10.1 The merge"
_SIGNATURE = "init(shape), update(state, block), merge(state, other), finalise(state)"
_OFFSET = np.float32(1e4)


class _Monoid(NamedTuple):
    """The reader's four functions."""

    init: Callable[..., Any]
    update: Callable[..., Any]
    merge: Callable[..., Any]
    finalise: Callable[..., Any]

    def read(self, *blocks: np.ndarray) -> Any:
        """The state after reading the blocks one by one."""
        state = self.init(planted.ROWS)
        for block in blocks:
            state = self.update(state, jnp.asarray(block))
        return state

    def pair(self, state: Any) -> Any:
        """(lse, entropy) as an array, or as it came where it is no pair of arrays."""
        answer = self.finalise(state)
        return np.stack([np.asarray(part) for part in answer]) if _is_pair(answer) else answer


def _is_pair(answer: Any) -> bool:
    return isinstance(answer, tuple | list) and len(answer) == 2 and all(part is not None for part in answer)


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
    four = _Monoid(*map(written, (init, update, merge, finalise)))
    return in_turn(
        (
            lambda: examine(init, _TITLE, _SIGNATURE, (_nothing_read(four),)),
            lambda: examine(update, _TITLE, _SIGNATURE, _update_stages(four)),
            lambda: examine(merge, _TITLE, _SIGNATURE, _merge_stages(four)),
        ),
        remark="Any tree over any split gives the same row: that is what lets blocks, cores and devices share it.",
    )


def _nothing_read(four: _Monoid) -> Stage:
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


def _common(parts: list[np.ndarray]) -> tuple[Mistake, ...]:
    """Mistakes of rescaling, as the answer of a fold over blocks of which a later one is higher in every row."""

    def gives(**mistake: Any) -> np.ndarray:
        return planted.finalised(planted.folded(parts, planted.by_side(**mistake)))

    return (
        Mistake(
            "the cross term is missing",
            "Only the exponentials were moved to the new maximum; the factor t inside s was left at the old one.",
            "l needs a factor and nothing else, and s looks like l.",
            "Write out Σ e^(z−m')(z − m') with z − m' = (z − m) + (m − m').",
            seen=gives(first=lambda a, d: a.s),
        ),
        Mistake(
            "the cross term has the wrong sign",
            "The correction of s goes the wrong way.",
            "m − m' and m' − m are easily exchanged.",
            "Is z − m' larger or smaller than z − m when the maximum rises?",
            seen=gives(first=lambda a, d: a.s - d * a.l),
        ),
        Mistake(
            "the cross term lacks its sum",
            "s was moved by m − m' once, as if one key had been read.",
            "For a single key at the maximum, l is 1 and nothing shows.",
            "How many terms of the sum does the shift act on, and with which weights?",
            seen=gives(first=lambda a, d: a.s + d),
        ),
        Mistake(
            "the exponent's sign",
            "The old sums grew where they should shrink.",
            "Whether old or new maximum comes first in the exponent is a coin toss until it is thought through.",
            "A higher maximum makes every term e^(z−m) smaller. Is your factor below 1?",
            seen=lambda got: any(
                np.allclose(got, gives(scale=lambda d: np.exp(-d), first=first), rtol=1e-4)
                for first in (lambda a, d: a.s + d * a.l, lambda a, d: a.s - d * a.l, lambda a, d: a.s)
            ),
        ),
        Mistake(
            "the old sums are not rescaled",
            "What was read before the maximum rose still counts in full.",
            "Adding sums is the whole update as long as the maximum stays.",
            "Relative to which maximum was each of the sums taken?",
            seen=lambda got: any(
                np.allclose(got, gives(rescaled=sides, first=first), rtol=1e-4)
                for sides in ((False, True), (False, False))
                for first in (lambda a, d: a.s + d * a.l, lambda a, d: a.s)
            ),
        ),
    )


def _second_not_rescaled(parts: list[np.ndarray]) -> Mistake:
    return Mistake(
        "only one side is rescaled",
        "The answer is right when the later part holds the larger logit and wrong when the earlier one does.",
        "In a loop the running maximum rises, so it seems that only the old sums ever need a factor.",
        "Relative to which maximum do you sum the new part, and which one do you store?",
        seen=lambda got: any(
            np.allclose(
                got,
                planted.finalised(planted.folded(parts, planted.by_side(rescaled=(True, False), first=first))),
                rtol=1e-4,
            )
            for first in (lambda a, d: a.s + d * a.l, lambda a, d: a.s)
        ),
    )


def _update_stages(four: _Monoid) -> tuple[Stage, ...]:
    (one,) = planted.blocks(101, 0.0)
    rising, falling = planted.blocks(111, 0.0, 4.0), planted.blocks(113, 4.0, 0.0)
    exact_one = planted.exact(one)
    lse, entropy = exact_one
    top = one.max(-1).astype(np.float64)
    normaliser = np.exp(lse - top)
    return (
        Stage(
            "one block",
            lambda _: four.pair(four.read(one)),
            given="a first block of shape (2, 3, 5)",
            expected=exact_one,
            rtol=1e-5,
            atol=1e-5,
            nats=True,
            look="Take three logits and work l, s, log l − s/l through by hand.",
            mistakes=(
                Mistake(
                    "bits for nats",
                    "The entropy is right in bits; this book measures in nats.",
                    "Information theory often uses the logarithm to base 2.",
                    "Look at which logarithm is taken.",
                    seen=np.stack([lse, entropy / np.log(2)]),
                ),
                Mistake(
                    "log-sum-exp without its maximum",
                    "The first result is log l, the logarithm of the shifted sum.",
                    "The entropy needs log l alone, so the maximum is forgotten for the other result too.",
                    "Which of the two results moves when 1 is added to every logit?",
                    seen=np.stack([lse - top, entropy]),
                ),
                Mistake(
                    "the results exchanged",
                    "The entropy stands where log-sum-exp should, and the other way round.",
                    "Both are one number a row.",
                    "`finalise` returns (lse, entropy).",
                    seen=np.stack([entropy, lse]),
                ),
                Mistake(
                    "sign of s",
                    "s/l was added where it has to be taken away.",
                    "s is a sum of terms that are never positive; a minus may have been put into it already.",
                    "Which sign has z − m, and which sign must the entropy have?",
                    seen=np.stack([lse, 2 * np.log(normaliser) - entropy]),
                ),
                Mistake(
                    "s not divided by l",
                    "The mean of z − m was not normalised.",
                    "The sum of e^(z−m)(z − m) looks like a mean already.",
                    "Do the factors e^(z−m) sum to 1?",
                    seen=np.stack([lse, np.log(normaliser) - (np.log(normaliser) - entropy) * normaliser]),
                ),
                Mistake(
                    "the empty state counts as a key",
                    "The row has one key too many, at the logit where the empty state's maximum stands.",
                    "A maximum of 0 or a sum of 1 is a harmless start for many loops.",
                    "Which l, and which m, belong to a row of which nothing has been read?",
                    seen=lambda got: any(
                        np.allclose(got, planted.exact(one, np.full((*planted.ROWS, 1), start)), atol=1e-4)
                        for start in (0.0, 1.0)
                    ),
                ),
                Mistake(
                    "−∞ − (−∞)",
                    "The first block already gives NaN.",
                    "The empty state's maximum is −∞; its difference to the new maximum is −∞ and is multiplied by a "
                    "sum that is 0.",
                    "Which finite number could stand for the maximum of nothing, or which factor can be replaced "
                    "before the product is taken?",
                    seen=lambda got: np.isnan(got).any(),
                ),
            ),
        ),
        Stage(
            "a second block with a higher maximum",
            lambda _: four.pair(four.read(*rising)),
            given="two blocks, the second about 4 nats higher",
            expected=planted.exact(*rising),
            rtol=1e-5,
            atol=1e-5,
            look="Every sum in the state was taken relative to a maximum that has just changed.",
            mistakes=_common(rising),
        ),
        Stage(
            "a second block with a lower maximum",
            lambda _: four.pair(four.read(*falling)),
            given="two blocks, the second about 4 nats lower",
            expected=planted.exact(*falling),
            rtol=1e-5,
            atol=1e-5,
            look="Relative to which maximum is the new block summed?",
            mistakes=(_second_not_rescaled(falling),),
        ),
        _levels(four),
        _hidden(
            "blocks without a finite logit",
            lambda hidden: [four.pair(four.read(*order)) for order in hidden],
        ),
        _offset(four),
    )


def _levels(four: _Monoid) -> Stage:
    parts = planted.blocks(121, 0.0, 200.0, -300.0)
    return Stage(
        "blocks at very different levels",
        lambda _: four.pair(four.read(*parts)),
        given="three blocks, moved by 0, 200 and −300",
        expected=planted.exact(*parts),
        rtol=1e-5,
        atol=5e-4,  # a sum that is not shifted loses digits here already; the offset's stage names it
        look="What is the largest number that enters `exp`?",
        mistakes=(
            Mistake(
                "the first maximum is kept",
                "The exponentials overflow when a later block is much higher.",
                "Any constant may be subtracted on paper, and the first block's maximum is at hand.",
                "When the third block arrives, relative to which number are the sums?",
                seen=lambda got: not np.isfinite(got).all(),
            ),
        ),
    )


def _hidden(name: str, call: Callable[[list[tuple[np.ndarray, ...]]], Any]) -> Stage:
    one, other = planted.blocks(131, 0.0, 1.0)
    one[0, 1, 2] = one[1, 0, 4] = -np.inf
    one[1, 1] = other[1, 1] = -np.inf  # a row without any finite logit
    nothing = np.full_like(one, -np.inf)
    hidden = [(nothing, one, other), (one, nothing, other), (one, other, nothing)]
    alive = np.ones(planted.ROWS, bool)
    alive[1, 1] = False
    whole = np.isfinite(one).all(-1)
    return Stage(
        name,
        lambda _: np.stack([np.asarray(answer) for answer in call(hidden)]),
        given="a block of −∞ first, in the middle and last, and a row of −∞ throughout",
        expected=np.stack([planted.exact(one, other)] * 3),
        rtol=1e-5,
        atol=1e-5,
        look="Follow one row of −∞ through your functions, line by line.",
        mistakes=(
            Mistake(
                "−∞ − (−∞)",
                "Rows whose maximum is still −∞ turn to NaN, and stay so.",
                "z − m is −∞ − (−∞) there, and so is the difference of two such maxima.",
                "Print z − m for a block in which nothing is finite. What should it count as?",
                seen=lambda got: not np.isfinite(got[:, :, whole]).all(),
            ),
            Mistake(
                "0 · (−∞)",
                "A logit of −∞ beside finite ones makes the row NaN.",
                "Its exponential is 0 and its distance to the maximum −∞; the product is NaN, though its limit is 0.",
                "Which factor of the product can be replaced before it is taken?",
                seen=lambda got: not np.isfinite(got[:, :, alive]).all(),
            ),
            Mistake(
                "a dead row without its guard",
                "A row without any finite logit gives NaN.",
                "Its l is 0, or its maximum is −∞; 0/0 and −∞ − (−∞) are both NaN.",
                "What does `finalise` say of a row of which nothing has been read?",
                seen=lambda got: np.isnan(got[:, :, ~alive]).any(),
            ),
            Mistake(
                "hidden keys counted as e⁰",
                "A row without any finite logit is reported as if its keys were all alike.",
                "With a finite stand-in for the maximum, z − m is 0 for keys that stand at the same number.",
                "What is the entropy of a row that attends to nothing?",
                seen=lambda got: (got[:, 1, ~alive] > 0.5).any(),
            ),
        ),
    )


def _offset(four: _Monoid) -> Stage:
    parts = [block + _OFFSET for block in planted.blocks(141, 0.0, 2.0)]
    return Stage(
        "an offset of 10⁴ on every logit leaves the entropy alone",
        lambda _: np.asarray(four.pair(four.read(*parts)))[1],
        given="two blocks of logits near 10⁴",
        expected=planted.exact(*parts)[1],
        rtol=0.0,
        atol=5e-5,
        look="Which two numbers does the last subtraction take, and how large are they?",
        mistakes=(
            Mistake(
                "the sum is not shifted",
                "The entropy is right to about three decimals only.",
                "Σ e^(z−m)·z needs no cross term, which makes it tempting; it and log-sum-exp are both near 10⁴, where "
                "float32 is spaced by 0.001.",
                "Can every number of the state be kept small, whatever the offset?",
                seen=lambda got: np.abs(got - planted.exact(*parts)[1]).max() < 0.05,
            ),
        ),
    )


def _merge_stages(four: _Monoid) -> tuple[Stage, ...]:
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
                *map(alike, _common([low, high])),
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
        _hidden(
            "states of blocks without a finite logit",
            lambda hidden: [
                four.pair(functools.reduce(four.merge, [four.read(block) for block in order])) for order in hidden
            ],
        ),
        _splits(four),
    )


def _identity(four: _Monoid) -> Stage:
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


def _splits(four: _Monoid) -> Stage:
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

"""The reading half of exercise 10.1: blocks of any kind read one by one, and the mistakes of rescaling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from adatemp.checks._stages import Mistake, Stage
from adatemp.checks.ch10 import _planted as planted

_OFFSET = np.float32(1e4)


class Monoid(NamedTuple):
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


def rescaling(parts: list[np.ndarray]) -> tuple[Mistake, ...]:
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


def update_stages(four: Monoid) -> tuple[Stage, ...]:
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
            mistakes=rescaling(rising),
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
        hidden_blocks(
            "blocks without a finite logit",
            lambda hidden: [four.pair(four.read(*order)) for order in hidden],
        ),
        _offset(four),
    )


def _levels(four: Monoid) -> Stage:
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


def hidden_blocks(name: str, call: Callable[[list[tuple[np.ndarray, ...]]], Any]) -> Stage:
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


def _offset(four: Monoid) -> Stage:
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

"""Exercise 10.3, one more moment: the variance of a row from a fourth sum, merged, rounded and repaired."""

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
from adatemp.checks.ch10._moment_mistakes import rescaling

_TITLE = "10.3 One more moment"
_SIGNATURE = "state(block), merge(state, other), variance(state)"
_OFFSET = np.float32(1e4)
_DOUBLINGS = 40


class _Moments(NamedTuple):
    """The reader's three functions."""

    state: Callable[..., Any]
    merge: Callable[..., Any]
    variance: Callable[..., Any]

    def read(self, *blocks: np.ndarray) -> Any:
        """The variance of the rows that the blocks make up, merged from left to right."""
        return self.variance(functools.reduce(self.merge, [self.state(jnp.asarray(block)) for block in blocks]))


def ex3(state: Callable[..., Any], merge: Callable[..., Any], variance: Callable[..., Any]) -> Report:
    """Checks a row state that carries the second moment.

    Args:
        state: `state(block) -> state` of a float32 block [..., k], keys last. −∞ is a legal logit and takes no part.
        merge: `merge(state, other) -> state` of the union of two disjoint blocks of the same rows.
        variance: `variance(state) -> V`, of the rows' shape: the variance of the logits z under softmax(z), in nats²,
            and never negative; 0 for a row without a finite logit.

    Returns:
        The report. Mistakes it names: the variance of the weights, of the logits with equal weights or of the tempered
        row; a standard deviation; a moment about the maximum; a cross term that is missing or has half its weight; a
        shift that is not squared; a negative variance; an unshifted moment; logits of −∞.
    """
    three = _Moments(*map(written, (state, merge, variance)))
    return in_turn(
        (
            lambda: examine(state, _TITLE, _SIGNATURE, (_one_block(three),)),
            lambda: examine(merge, _TITLE, _SIGNATURE, (_two_blocks(three), _order(three), _splits(three))),
            lambda: examine(variance, _TITLE, _SIGNATURE, (_hidden(three), _offset(three), _millions(three))),
        ),
        remark="The variance is the slope of the entropy: dH/dβ = −V at β = 1, for one more sum a row.",
    )


def _one_block(three: _Moments) -> Stage:
    (block,) = planted.blocks(301, 0.0)
    z = block.astype(np.float64)
    weights, right = _float64.softmax(z), planted.variance(block)
    whole = planted.state_of(block)
    tempered = []
    for beta in (_published(_float64.entropy(z)), 2.0, 0.5):
        tilted = np.asarray(beta)[..., None] * z if np.ndim(beta) else beta * z
        tempered += [planted.variance(tilted), planted.variance(tilted) / np.asarray(beta) ** 2]
    return Stage(
        "the variance of one block",
        lambda _: three.read(block),
        given="a block of shape (2, 3, 5)",
        expected=right,
        look="Take three logits: their mean under the weights, then the mean square distance from it.",
        mistakes=(
            Mistake(
                "a moment about the maximum",
                "The answer is the mean of (z − m)², which is a moment about the largest logit.",
                "The fourth sum divided by l is a second moment already.",
                "About which point is a variance taken?",
                seen=whole.q / whole.l,
            ),
            Mistake(
                "a moment not normalised",
                "The sums were subtracted before they were made means.",
                "Two sums over l are easily left with one division.",
                "Which powers of l belong under q, and under s²?",
                seen=lambda got: any(
                    np.allclose(got, wrong, rtol=1e-4)
                    for wrong in (
                        whole.q - whole.s**2,
                        whole.q - whole.s**2 / whole.l,
                        (whole.q - whole.s**2) / whole.l,
                    )
                ),
            ),
            Mistake(
                "equal weights",
                "Every logit counts the same.",
                "A variance without weights is one word in any array library.",
                "Under which distribution is the variance asked for?",
                seen=lambda got: any(np.allclose(got, z.var(-1, ddof=free), rtol=1e-4) for free in (0, 1)),
            ),
            Mistake(
                "the variance of the weights",
                "The answer is how much the weights differ, not the logits.",
                "The weights are what attention shows.",
                "Which quantity has the unit nats²?",
                seen=weights.var(-1),
            ),
            Mistake(
                "a standard deviation",
                "The answer is the square root of the variance.",
                "A spread in nats is easier to picture.",
                "A rule reads V itself; its unit is nats².",
                seen=np.sqrt(right),
            ),
            Mistake(
                "the variance of the tempered row",
                "The answer belongs to β·z, for another β than 1.",
                "The output loop runs over the tempered logits, and a sum is easily added there.",
                "A rule reads the row to choose β. Which row can it have read?",
                seen=lambda got: any(np.allclose(got, wrong, rtol=1e-4) for wrong in tempered),
            ),
            Mistake(
                "bits for nats",
                "The answer is right in bits².",
                "Information theory often uses the logarithm to base 2.",
                "In which unit do the logits stand in the exponential?",
                seen=right / np.log(2) ** 2,
            ),
        ),
    )


def _published(entropy: np.ndarray) -> np.ndarray:
    """β of the published map, for the mistake that applies it first."""
    return np.maximum(np.polyval([-0.037, 0.481, -2.3, 4.917, -1.791], entropy), 1.0)


def _two_blocks(three: _Moments) -> Stage:
    parts = planted.blocks(311, 0.0, 2.0)
    return Stage(
        "two blocks with different maxima",
        lambda _: three.read(*parts),
        given="two blocks, the second about 2 nats higher",
        expected=planted.variance(*parts),
        rtol=2e-5,
        atol=2e-5,
        look="Write t' = t + d inside the sum and expand the square.",
        mistakes=rescaling(parts),
    )


def _order(three: _Moments) -> Stage:
    parts = planted.blocks(313, 2.0, 0.0)
    return Stage(
        "the same in the other order",
        lambda _: three.read(*parts),
        given="two blocks, the second about 2 nats lower",
        expected=planted.variance(*parts),
        rtol=2e-5,
        atol=2e-5,
        look="A merge treats both of its states by one formula. Which of yours does not?",
        mistakes=(
            Mistake(
                "only one side is moved",
                "The merge is right when the second state has the larger maximum, and wrong otherwise.",
                "In a loop over blocks the running maximum rises.",
                "Exchange the two states. Which formula should not notice?",
                seen=lambda got: not np.allclose(got, planted.variance(*parts), atol=1e-4),
            ),
        ),
    )


def _splits(three: _Moments) -> Stage:
    row = _float64.logits(321, *planted.ROWS, 3 * planted.KEYS)
    row[1, 2] = row[1, 2, 0]  # ties throughout: no variance
    row[0, 1, :5] -= 40.0

    def call(_: Any) -> np.ndarray:
        a, b, c = (three.state(jnp.asarray(part)) for part in np.split(row, 3, axis=-1))
        merge = three.merge
        merged = (merge(merge(a, b), c), merge(a, merge(b, c)), merge(merge(c, a), b))
        return np.stack([np.asarray(three.variance(state)) for state in merged])

    return Stage(
        "three blocks by any tree",
        call,
        given="fifteen logits a row in three blocks, merged as (ab)c, a(bc) and (ca)b",
        expected=np.stack([planted.variance(row)] * 3),
        rtol=2e-5,
        atol=2e-5,
        look="Which of the three differ? A merge has to be associative and commutative.",
    )


def _hidden(three: _Moments) -> Stage:
    one, other = planted.blocks(331, 0.0, 1.0)
    one[0, 1, 2] = one[1, 0, 4] = -np.inf
    one[0, 0] = -np.inf
    one[1, 1] = other[1, 1] = -np.inf
    return Stage(
        "logits of −∞",
        lambda _: np.stack([np.asarray(three.read(one, other)), np.asarray(three.read(other, one))]),
        given="a row with some logits −∞, one with a whole block of them, and one with nothing else",
        expected=np.stack([planted.variance(one, other)] * 2),
        rtol=2e-5,
        atol=2e-5,
        look="Follow a logit of −∞ through each of the four sums.",
        mistakes=(
            Mistake(
                "0 · (−∞)² or 0/0",
                "A logit of −∞, or a row without any other, makes NaN.",
                "Its weight is 0 and its square infinite; in float32, so is the square of a stand-in beyond −10¹⁹. A "
                "row without weight has l = 0.",
                "Which factor of the product can be replaced before it is taken, and which divisor can be 0?",
                seen=lambda got: np.isnan(got).any(),
            ),
        ),
    )


def _offset(three: _Moments) -> Stage:
    parts = [block + _OFFSET for block in planted.blocks(341, 0.0, 2.0)]
    return Stage(
        "an offset of 10⁴ on every logit changes nothing",
        lambda _: three.read(*parts),
        given="two blocks of logits near 10⁴",
        expected=planted.variance(*parts),
        rtol=1e-4,
        atol=1e-4,
        look="How large are the two numbers that are subtracted?",
        mistakes=(
            Mistake(
                "the moments are not shifted",
                "The answer has lost most of its digits.",
                "Σ e^(z−m)·z² needs no shift in the merge. It is near 10⁸, where float32 is spaced by 8.",
                "Can every number of the state be kept small, whatever the offset?",
                seen=lambda got: True,
            ),
        ),
    )


def _millions(three: _Moments) -> Stage:
    depths = np.linspace(0.31, 4.07, 200).astype(np.float32)  # of the many keys below the one at the top
    top, many = np.zeros((len(depths), 1), np.float32), -depths[:, None]

    def call(_: Any) -> np.ndarray:
        state = three.state(jnp.asarray(many))
        for _ in range(_DOUBLINGS):
            state = three.merge(state, state)
        return np.asarray(three.variance(three.merge(three.state(jnp.asarray(top)), state)), np.float64)

    return Stage(
        f"2^{_DOUBLINGS} keys at one logit and a single one above",
        call,
        given=f"rows of one key and 2^{_DOUBLINGS} equal ones below it",
        # The exact variance is below 10⁻⁹; what may come back is 0 to within the rounding of two moments near 10.
        accept=lambda got: (got >= 0).all() and (got < 1e-4).all(),
        mistakes=(
            Mistake(
                "a negative variance",
                "Some rows get a variance below 0.",
                "Two almost equal numbers were subtracted, and rounding does not know which should be larger.",
                "What would a square root, or a rule that divides by V, make of this row? What is the least a variance "
                "can be?",
                seen=lambda got: (got < 0).any(),
            ),
        ),
        look="q/l and (s/l)² are almost equal here. What may their difference be?",
    )

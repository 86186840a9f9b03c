"""The mistakes of moving a second moment to another maximum, as the variances that they give (exercise 10.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._stages import Mistake
from adatemp.checks.ch10 import _planted as planted


def rescaling(parts: list[np.ndarray]) -> tuple[Mistake, ...]:
    def gives(**mistake: Any) -> np.ndarray:
        return planted.moment_of(planted.folded(parts, planted.by_side(**mistake)))

    def any_of(*wrong: np.ndarray) -> Callable[[Any], bool]:
        return lambda got: any(np.allclose(got, w, rtol=1e-4) or np.allclose(got, np.maximum(w, 0)) for w in wrong)

    return (
        Mistake(
            "the cross term is missing",
            "(t + d)² was taken for t² + d².",
            "It is the oldest slip of algebra, and with equal maxima d is 0 and nothing shows.",
            "Expand the square, and say which sum each of its terms is.",
            seen=any_of(gives(second=lambda a, d: a.q + d * d * a.l)),
        ),
        Mistake(
            "half a cross term",
            "The mixed term of the square counts once.",
            "The shift of s has d·l once, and q is written after its pattern.",
            "How often does t·d occur in (t + d)(t + d)?",
            seen=any_of(gives(second=lambda a, d: a.q + d * a.s + d * d * a.l)),
        ),
        Mistake(
            "the shift is not squared",
            "The last term is moved by d, not by d².",
            "The shift of s ends in d·l.",
            "Check the units: q is in nats², and so must be each term.",
            seen=any_of(gives(second=lambda a, d: a.q + 2 * d * a.s + d * a.l)),
        ),
        Mistake(
            "the square is not moved",
            "q was rescaled, and its t² left at the old maximum.",
            "For l a factor is enough.",
            "Relative to which maximum is t in each of the sums, after the merge?",
            seen=any_of(gives(second=lambda a, d: a.q)),
        ),
        Mistake(
            "a shift with the wrong sign",
            "The cross term goes the wrong way.",
            "m − m' and m' − m are easily exchanged.",
            "Is z − m' larger or smaller than z − m when the maximum rises?",
            seen=any_of(
                gives(second=lambda a, d: a.q - 2 * d * a.s + d * d * a.l),
                gives(first=lambda a, d: a.s - d * a.l, second=lambda a, d: a.q - 2 * d * a.s + d * d * a.l),
                gives(first=lambda a, d: a.s - d * a.l),
            ),
        ),
        Mistake(
            "s updated before q",
            "q was moved with the new s where the old one is meant.",
            "The lines stand in the order l, s, q, and each overwrites what the next one reads.",
            "Which values do the right-hand sides need: those before the merge, or after it?",
            seen=any_of(
                gives(second=lambda a, d: a.q + 2 * d * np.exp(d) * (a.s + d * a.l) + d * d * a.l),
                gives(second=lambda a, d: a.q + 2 * d * (a.s + d * a.l) + d * d * a.l),
                gives(second=lambda a, d: a.q + 2 * d * np.exp(d) * (a.s + d * a.l) + d * d * np.exp(d) * a.l),
            ),
        ),
        Mistake(
            "the first moment is not moved",
            "The mean that is taken off is relative to another maximum than the second moment.",
            "q is new and gets all the attention.",
            "Does your merge of s still pass the first exercise?",
            seen=any_of(gives(first=lambda a, d: a.s)),
        ),
        Mistake(
            "variances added up",
            "The answer is a mean of the blocks' variances.",
            "Variances add, when what is added is independent.",
            "Two blocks with no spread inside and a gap between them: what is the variance of all?",
            seen=any_of(_within(parts), planted.variance(parts[0]) + planted.variance(parts[1])),
        ),
    )


def _within(parts: list[np.ndarray]) -> np.ndarray:
    """The mean of the blocks' variances by mass: what is left out is the variance between the blocks."""
    states = [planted.state_of(part) for part in parts]
    top = np.maximum(*(state.m for state in states))
    masses = [np.exp(state.m - top) * state.l for state in states]
    return sum(mass * planted.moment_of(state) for mass, state in zip(masses, states)) / sum(masses)

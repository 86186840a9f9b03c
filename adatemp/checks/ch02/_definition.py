"""Exercise 02.1: a definition that excludes nothing, and the local test that does better."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "02.1 A definition that excludes something"
_STRINGS = tuple(bits for n in range(2, 9) for bits in product((0, 1), repeat=n))
_PARITY = np.array([sum(bits) % 2 for bits in _STRINGS])


def ex1(
    choose: Callable[[tuple[int, ...]], Iterable[int]],
    decode: Callable[[tuple[int, ...]], int],
    local_test: Callable[..., tuple[int, bool]],
) -> Report:
    """Checks a proof by construction that the obvious definition is vacuous, and the test of the better one.

    Args:
        choose: `choose(bits) -> positions`; `bits` is a tuple of zeros and ones, `positions` holds at most one index.
        decode: `decode(values) -> 0 or 1`, the parity of all the bits from the values at the chosen positions: a tuple
            with as many entries as positions were chosen. It is told neither the positions nor n.
        local_test: `local_test(f, n, key) -> (count, speaks)`; `count` is the largest number of non-zero partial
            derivatives of f: [n] -> scalar over random points, `speaks` is False where f is constant near all of them.

    Returns:
        The report. Mistakes it names: a choice that grows with n; a value taken for the parity; the parity the other
        way round; points where inputs tie; one point only; a threshold that hides 1/n; a class taken for evidence.
    """
    return in_turn(
        (
            lambda: examine(choose, _TITLE, "choose(bits)", _choice(decode)),
            lambda: examine(local_test, _TITLE, "local_test(f, n, key)", _LOCAL),
        ),
        remark="The class of the maximum comes out as 0-sharp: of functions with finitely many values the definition "
        "says nothing, for or against.",
    )


def _choice(decode: Callable[..., Any]) -> tuple[Stage, ...]:
    def answers(choose):
        return np.array([int(decode(tuple(bits[i] for i in _positions(choose(bits))))) for bits in _STRINGS])

    return (
        Stage(
            "at most one position is chosen, for every n",
            lambda choose: [_positions(choose(bits)) for bits in _STRINGS],
            given=f"each of the {len(_STRINGS)} strings of two to eight bits",
            accept=lambda chosen: all(
                len(s) <= 1 and all(0 <= i < len(bits) for i in s) for s, bits in zip(chosen, _STRINGS, strict=True)
            ),
            mistakes=(
                Mistake(
                    "the choice grows with n",
                    "For longer strings more than one position is chosen.",
                    "All bits are needed to compute a parity, so it is natural to choose all of them.",
                    "The definition does not ask you to compute anything from the chosen inputs alone. Who makes the "
                    "choice, and what may that choice look at?",
                    seen=lambda chosen: max(len(s) for s in chosen) > 1,
                ),
                _NO_SUCH_VALUE,
            ),
            look="Return a set of at most one index between 0 and len(bits) − 1.",
        ),
        Stage(
            "the values at the chosen positions give the parity back",
            answers,
            given=f"each of the {len(_STRINGS)} strings of two to eight bits",
            expected=_PARITY,
            mistakes=(
                Mistake(
                    "the value is taken for the parity",
                    "Strings of ones only, of even length, come out wrong: their parity is 0 and no input is 0.",
                    "Choosing a bit that happens to equal the parity works for almost every string.",
                    "`decode` receives a tuple. What does it know besides the value in it?",
                    seen=lambda got: set(np.flatnonzero(got != _PARITY)) == set(_even_ones()),
                ),
                Mistake(
                    "the parity the other way round",
                    "Every answer is the opposite parity.",
                    "Which of the two choices stands for *odd* is a convention, and your two functions use two.",
                    "Try both functions by hand on the string 1, 0.",
                    seen=1 - _PARITY,
                ),
            ),
            look="Take two strings that differ in one bit and follow them through both functions.",
        ),
    )


_NO_SUCH_VALUE = Mistake(
    "the value is taken for the parity",
    "There is a string in which no input equals the parity, and the search for one fails there.",
    "Choosing a bit that happens to equal the parity works for almost every string.",
    "Look at the string 1, 1. `decode` receives a tuple. What does it know besides the value in it?",
    seen=lambda error: isinstance(error, StopIteration | ValueError | IndexError),
)


def _positions(chosen: Any) -> tuple[int, ...]:
    """The chosen positions in order; a bare index counts as a set of one."""
    members = chosen if isinstance(chosen, Iterable) else (chosen,)
    return tuple(sorted({int(i) for i in members}))


def _even_ones() -> list[int]:
    return [i for i, bits in enumerate(_STRINGS) if len(bits) % 2 == 0 and all(bits)]


# The functions on which the local test is tried.


def _second(x):
    return jnp.sort(x)[-2]


def _top_three(x):
    return jnp.sort(x)[-3:].mean()


def _label_of_maximum(x):
    return jnp.arange(x.size, dtype=x.dtype)[jnp.argmax(x)] % 10


def _patchwork(x):
    """The maximum where the first input is not its group's largest, the mean on the remaining ninth of space."""
    return jnp.where(x[0] > x[1:9].max(), x.mean(), x.max())


def _counts(*cases):
    return lambda test: np.array([_count(test(f, n, jax.random.key(seed))) for seed, (f, n) in enumerate(cases)])


def _count(answer: Any) -> float:
    return float(answer[0]) if isinstance(answer, tuple | list) else float(answer)


_LOCAL = (
    Stage(
        "a count and a verdict come back",
        lambda test: test(jnp.max, 12, jax.random.key(7)),
        given="the maximum of 12 inputs",
        accept=lambda answer: isinstance(answer, tuple | list) and len(answer) == 2,
        look="Return the pair `(count, speaks)`.",
    ),
    Stage(
        "the maximum has one active input",
        _counts((jnp.max, 12)),
        given="the maximum of 12 inputs",
        expected=np.array([1]),
        mistakes=(
            Mistake(
                "evaluated where inputs tie",
                "Every partial derivative of the maximum came out non-zero.",
                "Zeros, ones or integers are convenient points, and there all inputs tie: the derivative of a maximum "
                "is shared out among the tied inputs.",
                "The definition speaks of almost every point. Draw points for which a tie has probability zero.",
                seen=lambda got: (got == 12).all(),
            ),
        ),
        look="Print the gradient of `jnp.max` at one of your points.",
    ),
    Stage(
        "the second largest has one, the mean of the top three has three",
        _counts((_second, 12), (_top_three, 12)),
        given="order statistics of 12 inputs",
        expected=np.array([1, 3]),
        look="Print the gradient at one of your points; a finite step across a tie makes extra inputs look active.",
    ),
    Stage(
        "the mean has all of them, also when there are many",
        _counts((jnp.mean, 12), (jnp.mean, 2049)),
        given="the mean of 12 and of 2,049 inputs",
        expected=np.array([12, 2049]),
        mistakes=(
            Mistake(
                "a threshold that hides 1/n",
                "For a long enough input the mean is said to depend on fewer inputs than it has, or on none.",
                "Each derivative of a mean is 1/n, so any fixed threshold for *zero* is passed by some n.",
                "Automatic differentiation gives an exact zero where there is no dependence. What needs a tolerance?",
                seen=lambda got: got[0] == 12 and got[1] < 2049,
            ),
        ),
        look="Compare with 1/n what your test takes for zero.",
    ),
    Stage(
        "the count is the largest over many points",
        lambda test: np.array([_count(test(_patchwork, 12, jax.random.key(seed))) for seed in range(3)]),
        given="a function that is a mean on one ninth of space and a maximum elsewhere, with three keys",
        expected=np.full(3, 12),
        mistakes=(
            Mistake(
                "one point only",
                "The answer depends on the key: some keys saw only the part of space where the function is a maximum.",
                "One random point is typical of most of the space, and the definition speaks of almost all of it.",
                "How many points does it take to meet a region of probability 1/9 with near certainty? 64 miss it once "
                "in two thousand runs. Take the largest count, not the mean or the last.",
                seen=lambda got: (got < 12).any() and np.isin(got, (1, 12)).all(),
            ),
        ),
        look="The sharpness is the smallest k that serves almost everywhere.",
    ),
    Stage(
        "of the class of the maximum the test says nothing",
        lambda test: np.array([float(part) for part in test(_label_of_maximum, 12, jax.random.key(3))]),
        given="the label of the largest of 12 inputs",
        expected=np.array([0, 0]),
        mistakes=(
            Mistake(
                "a class output taken for evidence of sharpness",
                "The count of zero is right, and the verdict says that the test speaks about this function.",
                "Zero is less than one, so it looks sharper than the maximum. But any function with finitely many "
                "values has no derivatives, parity included.",
                "What do all functions with a count of zero have in common near a typical point?",
                seen=np.array([0, 1]),
            ),
        ),
        look="The label does not change when the inputs move a little.",
    ),
    Stage(
        "of the maximum and the mean it speaks",
        lambda test: np.array([bool(test(f, 12, jax.random.key(5))[1]) for f in (jnp.max, jnp.mean)]),
        given="the maximum and the mean of 12 inputs",
        expected=np.array([1, 1]),
        look="`speaks` is False only where no input is active at any point.",
    ),
)

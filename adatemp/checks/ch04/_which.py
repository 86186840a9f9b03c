"""Exercise 04.2, which hypothesis broke: eight black-box attentions, judged by experiment and given a reason."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks.ch04._suspects import WIDTH, suspects

_TITLE = "04.2 Which hypothesis broke?"
LENGTH = 1.5  # of queries and keys, at most
_KEYS, _BACK = 100_000, 1_000

#: (some key can keep a coefficient above 0.01 at 100,000 keys, the one 1,000 back can have half of all), and why.
TRUTH = {
    "A": (False, False, "covered"),
    "B": (False, False, "covered"),
    "C": (True, False, "bias"),
    "D": (True, True, "temperature"),
    "E": (True, False, "window"),
    "F": (True, True, "hard"),
    "G": (True, False, "not normalised"),
    "H": (False, False, "covered"),
}
REASONS = ("covered", "bias", "temperature", "window", "hard", "not normalised")


def ex2(judge: Callable[..., Any], reason: Callable[..., Any]) -> Report:
    """Checks judgements on eight attentions, and the reasons for them.

    Args:
        judge: `judge(attend) -> (holds, retrieves)`, two yes or no, for a function of `suspects()`, found by calling it
            with a query and keys of length at most 1.5. `holds`: some key can have a coefficient above 0.01 in absolute
            value among 100,000 keys. `retrieves`: the key that 1,000 newer ones follow can have more than half of the
            sum of the absolute coefficients, among 100,000 keys.
        reason: `reason(letter)`, one of "covered", "bias", "temperature", "window", "hard", "not normalised".

    Returns:
        The report. Mistakes it names: rotary positions called an escape; ALiBi called a cure for retrieval; a window
        judged on the wrong n; a coefficient taken for a share; everything covered, or nothing.
    """
    return in_turn(
        (
            lambda: examine(judge, _TITLE, "judge(attend)", _judge_stages()),
            lambda: examine(reason, _TITLE, "reason(letter)", _reason_stages()),
        ),
        remark="Five escape the letter of the theorem; two of them find a key a thousand back.",
    )


def _judge_stages() -> tuple[Stage, ...]:
    called = functools.cache(lambda judge: {letter: judge(attend) for letter, attend in suspects().items()})
    given = "the eight suspects"

    def answers(part: int) -> Callable[..., np.ndarray]:
        return lambda judge: np.array([bool(pair[part]) for pair in called(judge).values()])

    def expected(part: int) -> np.ndarray:
        return np.array([truth[part] for truth in TRUTH.values()])

    def said(letter: str, wrong: bool) -> Callable[[np.ndarray], bool]:
        return lambda got: got["ABCDEFGH".index(letter)] == wrong

    return (
        Stage(
            "two yes or no for each",
            called,
            given=given,
            accept=lambda pairs: all(
                len(pair) == 2 and all(isinstance(x, bool | np.bool_) for x in pair) for pair in pairs.values()
            ),
            look="Return a pair of Python booleans, such as (True, False).",
        ),
        Stage(
            "which can hold a coefficient",
            answers(0),
            given=given,
            accept=lambda got: np.array_equal(got, expected(0)),
            mistakes=(
                Mistake(
                    "everything called covered",
                    "You found no suspect that holds a coefficient.",
                    "With keys drawn at random, or all alike, no coefficient is large.",
                    "Give one key the best score it can have and all others the worst.",
                    seen=lambda got: not got.any(),
                ),
                Mistake(
                    "everything called an escape",
                    "You found a large coefficient in every suspect.",
                    "Among a few keys every softmax has one, and so has one with long queries and keys.",
                    "At how many keys, and with which lengths, does the exercise ask?",
                    seen=lambda got: got.all(),
                ),
                Mistake(
                    "rotary positions called an escape",
                    "You say that B holds a coefficient.",
                    "Its scores depend on the distance, and so do those of the suspect that escapes.",
                    "How far can a rotation move a product of two vectors of given lengths?",
                    seen=said("B", True),
                ),
                Mistake(
                    "a window judged on the wrong n",
                    "You say that E cannot hold a coefficient.",
                    "It was asked about a key that it does not look at, or 100,000 was taken for its n.",
                    "Which keys have a coefficient at all? Try the newest one.",
                    seen=said("E", False),
                ),
                Mistake(
                    "a near key not tried",
                    "You say that C cannot hold a coefficient.",
                    "The favoured key stood far back.",
                    "Move the favoured key and watch its coefficient.",
                    seen=said("C", False),
                ),
            ),
            look="For one key with the best score among 100,000 with the worst, print the coefficients by distance.",
        ),
        Stage(
            "which find a key 1,000 back",
            answers(1),
            given=given,
            accept=lambda got: np.array_equal(got, expected(1)),
            mistakes=(
                Mistake(
                    "ALiBi called a cure for retrieval",
                    "You say that C finds a key 1,000 back.",
                    "It does hold a coefficient, and that seems to be what retrieval needs.",
                    "For which keys does it hold one?",
                    seen=said("C", True),
                ),
                Mistake(
                    "a window judged on the wrong n",
                    "You say that E finds a key 1,000 back.",
                    "The test was made among fewer keys, or on one that is inside the window.",
                    "What coefficient has a key that 1,000 newer ones follow?",
                    seen=said("E", True),
                ),
                Mistake(
                    "a coefficient taken for a share",
                    "You say that G finds a key 1,000 back.",
                    "Its coefficient is large, at any number of keys.",
                    "Divide by the sum of all coefficients: what else reaches the output?",
                    seen=said("G", True),
                ),
            ),
            look="Print the coefficient of that key over the sum of the absolute values of all.",
        ),
    )


def _reason_stages() -> tuple[Stage, ...]:
    called = functools.cache(lambda reason: {letter: reason(letter) for letter in TRUTH})
    given = "the letters A to H"

    def wrong_about(*letters: str) -> Callable[[dict[str, str]], bool]:
        return lambda got: any(got[letter] != TRUTH[letter][2] for letter in letters)

    return (
        Stage(
            "one of the six words for each",
            called,
            given=given,
            accept=lambda got: set(got.values()) <= set(REASONS),
            look=f"The words are {', '.join(REASONS)}.",
        ),
        Stage(
            "the reasons",
            called,
            given=given,
            accept=lambda got: not wrong_about(*TRUTH)(got),
            mistakes=(
                Mistake(
                    "rotary positions called an escape",
                    "B is covered, and you give a reason why it should not be.",
                    "A score that depends on the distance looks like a bias that does.",
                    "Is what the distance does to a score bounded?",
                    seen=wrong_about("B"),
                ),
                Mistake(
                    "a difference of two softmaxes called an escape",
                    "H is covered, and you give a reason why it should not be.",
                    "Its coefficients may be negative and do not sum to one.",
                    "How large can each of its two terms be among n keys?",
                    seen=wrong_about("H"),
                ),
            ),
            look="Feed all-equal keys, and read what the coefficients do with distance, with n, and what they sum to.",
        ),
    )


def extremes(attend: Callable[..., np.ndarray], back: int, keys: int = _KEYS) -> np.ndarray:
    """Coefficients when one key scores best and all others worst."""
    query = LENGTH * np.eye(WIDTH)[0]
    rows = np.tile(-query, (keys, 1))
    rows[keys - 1 - back] = query
    return attend(query, rows)

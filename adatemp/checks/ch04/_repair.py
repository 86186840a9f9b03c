"""Exercise 04.6, repair the statement: six versions of the theorem for causal models, two of them true."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._float64 import softmax
from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine

_SIGNATURE = "refute(letter)"
SPREADS = (2.0, 4.0)  # of the two heads
EPSILON = 0.2
SIZES = tuple(1 + math.exp(spread) * (1 / EPSILON - 1) for spread in SPREADS)  # n′ of each head
TRUE = ("B", "F")
_LETTERS = "ABCDEF"


def ex6(refute: Callable[..., Any]) -> Report:
    """Checks which versions of the theorem for causal models are true, and counter-examples to the others.

    A causal model has two heads; in every row the logits of the first lie within a spread of 2, those of the second
    within 4, at temperature 1. ε is 0.2, κ₁ = e², κ₂ = e⁴, n′(δ) = 1 + e^δ(1/ε − 1), about 30.6 and 219.4. Row i,
    counted from 1, sees keys 1 to i of a sequence of n tokens.

    A: if n > n′(4), every weight of every row of both heads is below ε.
    B: for every i > n′(4), every weight of row i of both heads is below ε.
    C: for every i > n′(2), every weight of row i of both heads is below ε.
    D: every weight of every row of the second head is at most κ₂/(κ₂ + n − 1).
    E: for every i > n′(4), row i of both heads is within 0.2 of uniform in total variation.
    F: no weight of row i of head h exceeds κ_h/(κ_h + i − 1), and for every i some row attains it.

    Args:
        refute: `refute(letter) -> None` for a true version, and for a false one logits [2, n, n] that break it, with n
            of your choice up to 400. Entries above the diagonal are not looked at.

    Returns:
        The report. Mistakes it names: every coefficient, the first row included; n of the sequence for n of the query;
        one head for all heads; dispersion taken for uniformity; a true version refuted; a counter-example that breaks
        nothing, or leaves the spreads.
    """
    return examine(refute, "04.6 Repair the statement", _SIGNATURE, _stages())


def _stages() -> tuple[Stage, ...]:
    called = functools.cache(_answers)
    given = "the letters A to F"

    def standing(letter: str) -> Callable[[dict], bool]:
        return lambda found: found[letter] is None

    return (
        Stage(
            "None, or logits of two heads",
            called,
            given=given,
            accept=lambda found: all(
                logits is None
                or (logits.ndim == 3 and logits.shape[0] == 2 and logits.shape[1] == logits.shape[2] <= 400)
                for logits in found.values()
            ),
            look="Logits have the shape [2, n, n].",
        ),
        Stage(
            "the rows keep their spreads",
            lambda refute: {k: v for k, v in called(refute).items() if v is not None},
            given=given,
            accept=lambda found: all(_within(logits) for logits in found.values()),
            mistakes=(
                Mistake(
                    "spreads exceeded",
                    "A row of a counter-example has a larger spread than its head may have.",
                    "With enough spread anything can be refuted.",
                    "Print the spread of each causal row; the first head has 2, the second 4.",
                    seen=lambda found: True,
                ),
            ),
            look="Print the spread of each causal row.",
        ),
        Stage(
            "which are true",
            called,
            given=given,
            accept=lambda found: all((found[letter] is None) == (letter in TRUE) for letter in _LETTERS),
            mistakes=(
                Mistake(
                    "a true version refuted",
                    "You refute a version that is true.",
                    "It differs by a word from one that is false.",
                    "Run your counter-example: at which row does it break the version?",
                    seen=lambda found: any(found[letter] is not None for letter in TRUE),
                ),
                Mistake(
                    "every coefficient",
                    "You let A stand.",
                    "The theorem is usually quoted for every coefficient of every head.",
                    "What is the weight of the first key in the first row, however long the sequence is?",
                    seen=standing("A"),
                ),
                Mistake(
                    "one head for all heads",
                    "You let C stand.",
                    "One size is asked for, and the first head gives one.",
                    "The second head has a larger spread. From which row on is it below ε?",
                    seen=standing("C"),
                ),
                Mistake(
                    "n of the sequence for n of the query",
                    "You let D stand.",
                    "n is the number of tokens, and the tight bound has an n in it.",
                    "How many keys does an early row see?",
                    seen=standing("D"),
                ),
                Mistake(
                    "dispersion taken for uniformity",
                    "You let E stand.",
                    "Weights that all tend to 0 look alike.",
                    "How far from uniform can a row of spread 4 be, at any size?",
                    seen=standing("E"),
                ),
            ),
            look="For each version, look for the word that makes it too strong.",
        ),
        Stage(
            "the counter-examples break what they are for",
            lambda refute: {k: v for k, v in called(refute).items() if v is not None},
            given="the versions A, C, D and E",
            accept=lambda found: all(_breaks(letter, logits) for letter, logits in found.items()),
            mistakes=(
                Mistake(
                    "a counter-example that breaks nothing",
                    "A counter-example satisfies the version that it is meant to refute.",
                    "The version is false, and these logits do not show it.",
                    "Compute the causal weights and look for the row; A and E also need a long enough sequence.",
                    seen=lambda found: True,
                ),
            ),
            look="Compute the causal weights of your logits.",
        ),
    )


def _answers(refute: Callable[..., Any]) -> dict[str, np.ndarray | None]:
    found = {letter: refute(letter) for letter in _LETTERS}
    if any(answer is Ellipsis for answer in found.values()) or all(answer is None for answer in found.values()):
        raise NotImplementedError
    return {k: None if v is None else np.asarray(v).astype(np.float64) for k, v in found.items()}


def _causal(logits: np.ndarray) -> np.ndarray:
    n = logits.shape[-1]
    return np.where(np.tril(np.ones((n, n), bool)), logits, -np.inf)


def _within(logits: np.ndarray) -> bool:
    rows = _causal(logits)
    low = np.where(np.isfinite(rows), rows, np.inf).min(-1)
    spread = rows.max(-1) - low
    return bool(np.isfinite(spread).all() and (spread <= np.array(SPREADS)[:, None] * (1 + 1e-6)).all())


def _breaks(letter: str, logits: np.ndarray) -> bool:
    weights = softmax(_causal(logits))
    n = logits.shape[-1]
    row = np.arange(1, n + 1)
    top = weights.max(-1)  # [2, n]
    if letter == "A":
        return n > SIZES[1] and bool((top >= EPSILON).any())
    if letter == "C":
        return bool((top[:, row > SIZES[0]] >= EPSILON).any())
    if letter == "D":
        bound = math.exp(SPREADS[1])
        return bool((top[1] > bound / (bound + n - 1) * (1 + 1e-9)).any())
    seen = np.tril(np.ones((n, n)))
    distance = np.maximum(weights - seen / row[:, None], 0).sum(-1)
    return bool((distance[:, row > SIZES[1]] > 0.2).any())

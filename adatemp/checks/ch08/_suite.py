"""Exercise 08.3, write the tests: a suite that passes the right functions and fails seven wrong ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks.ch08._mutants import MUTANTS, RIGHT

_SIGNATURE = "accepts(adaptive)"

# For each mutant: why a suite lets it pass, and what to look at.
_ESCAPES = {
    "reversed": (
        "At an entropy of 1 nat both orders of the coefficients give 1.27, and short rows or sharp ones come out as "
        "they are in either.",
        "At which entropy do the two orders differ, and which row has that entropy?",
    ),
    "temperature for inverse": (
        "Where β is 1 its inverse is too, and weights add up to one whatever multiplies the logits.",
        "Does the top weight rise where the map acts?",
    ),
    "clipped": (
        "Rows drawn from a normal distribution have logits of a few nats, and the clip is far out.",
        "Trained heads have spreads above a hundred nats. Do your rows?",
    ),
    "stopped gradient": (
        "Its values are right to the last bit.",
        "What else than the values is a function in a network asked for?",
    ),
    "bits": (
        "In a row below or above the window in either unit β is 1.",
        "Do you compare the weights of a row inside the window with numbers from another source?",
    ),
    "unmasked entropy": (
        "Without a mask it is right, and with one its weights still add up to one over the visible keys.",
        "May a key that is masked change anything at all?",
    ),
    "one-key rows": (
        "Rows of several keys are right.",
        "Which is the shortest row that a causal mask makes?",
    ),
}


def ex3(accepts: Callable[..., Any]) -> Report:
    """Checks a test suite for the published adaptive-temperature softmax.

    Args:
        accepts: `accepts(adaptive) -> bool`: whether a function passes your tests. `adaptive(logits, where=None)` takes
            a JAX float32 array [..., n] and a boolean mask that broadcasts to it, and returns weights of that shape:
            softmax(β z) over the visible keys with β the published map of the entropy, in nats, of the visible keys'
            softmax; exactly 0 at masked keys, and the complete gradient. An AssertionError counts as False. Three right
            functions must pass and seven wrong ones must not.

    Returns:
        The report. It names the first wrong function that the suite accepts: coefficients reversed, the value used as
        a temperature, logits clipped, the gradient of β stopped, entropy in bits, entropy of the masked keys too, rows
        of one key; and a suite that rejects a right function, or everything.
    """
    return examine(
        accepts,
        "08.3 Write the tests",
        _SIGNATURE,
        _stages(),
        remark="Two of the seven are in public code: the coefficients reversed, and the value used as a temperature.",
    )


def _stages() -> tuple[Stage, ...]:
    verdict = functools.cache(_verdict)

    def survivors(accepts: Callable[..., Any]) -> list[str]:
        return [name for name, mutant in MUTANTS.items() if verdict(accepts, mutant)]

    def escape(name: str) -> Mistake:
        why, look = _ESCAPES[name]
        return Mistake(
            f"{name}: not caught",
            f"The suite accepts a wrong function, “{name}”.",
            why,
            look,
            seen=lambda left: left[0] == name,
        )

    return (
        Stage(
            "a verdict comes back",
            lambda accepts: verdict(accepts, RIGHT["as in the library"]),
            given="a right function",
            accept=lambda answer: isinstance(answer, bool | np.bool_),
            look="Return True if the function passes and False if it does not.",
        ),
        Stage(
            "right functions pass",
            lambda accepts: [name for name, right in RIGHT.items() if not verdict(accepts, right)],
            given="three right functions, one of them with the epsilon of the listing",
            accept=lambda rejected: not rejected,
            mistakes=(
                Mistake(
                    "a false alarm",
                    "The suite rejects a right function.",
                    "A tolerance below the rounding of float32 (terms of the quartic reach a hundred and cancel), "
                    "a kink inside a finite difference, or an expectation computed by a wrong function.",
                    "Print what each of your tests compares, for a function you trust.",
                    seen=lambda rejected: True,
                ),
            ),
            look="Run your suite on `adatemp.adaptive_temperature_softmax`.",
        ),
        Stage(
            "seven wrong functions are caught",
            survivors,
            given="seven wrong functions",
            accept=lambda left: not left,
            mistakes=(
                Mistake(
                    "everything passes",
                    "The suite accepts all seven wrong functions.",
                    "Non-negative weights that add up to one come out of any softmax.",
                    "What does this function do that plain softmax does not?",
                    seen=lambda left: len(left) == len(MUTANTS),
                ),
                *map(escape, MUTANTS),
            ),
            look="Which property does the survivor break?",
        ),
    )


def _verdict(accepts: Callable[..., Any], function: Callable[..., Any]) -> Any:
    try:
        return accepts(function)
    except AssertionError:
        return False

"""Exercise 11.2, the second loop knows the maximum: equal to the tempered row, and nothing rescaled in the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._trace import equations
from adatemp.checks.ch11 import _tile as tile

_TITLE = "11.2 The second loop knows the maximum"
_SIGNATURE = "kernel(beta_ref, m_ref, query_ref, key_ref, value_ref, output_ref, total_ref)"
_WRITTEN = (tile.QUERIES, tile.VALUE_WIDTH), (tile.QUERIES,)
_ABOVE = np.linspace(1.0, 2.4, tile.QUERIES, dtype=np.float32)
_AROUND = np.linspace(0.25, 2.4, tile.QUERIES, dtype=np.float32)

# Whatever takes a maximum, by the names of its primitives.
_MAXIMA = ("reduce_max", "max", "cummax", "argmax", "reduce_window_max")


def ex2(kernel: Callable[..., None]) -> Report:
    """Checks a kernel for the output loop of adaptive attention.

    Args:
        kernel: `kernel(beta_ref, m_ref, query_ref, key_ref, value_ref, output_ref, total_ref)`, a Pallas kernel without
            a grid: every reference is to a whole array. `beta` [16], above 0, and `m` [16], the largest logit of each
            row, are what the first loop found. `query` [16, 8], `key` [48, 8], `value` [48, 4]; logits are
            query·key/√8. It writes `output` [16, 4], the mean of the values under softmax(β·logits), and `total` [16],
            log Σ e^(β(z − m)). It takes the keys 16 at a time, and takes no maximum.

    Run in the interpreter, compiled once.

    Returns:
        The report. Mistakes it names: β left out, or its inverse; a maximum that is not multiplied by β; β below 1
        taken for 1; exponentials that are not shifted; a maximum taken again; sums that are rescaled; all keys at once.
    """
    calls: list[Any] = []

    def run(*arrays: np.ndarray) -> np.ndarray:
        if not calls:
            calls.append(tile.compiled(kernel, *_WRITTEN))
        output, total = calls[0](*arrays)
        return np.concatenate([output, total[:, None]], axis=1)

    return examine(
        kernel,
        _TITLE,
        _SIGNATURE,
        (
            *_values(run),
            _trace(kernel),
        ),
        remark="Plain attention has to carry a running maximum; the second loop of adaptive attention does not.",
    )


def _given(beta: np.ndarray, seed: int, offset: float = 0.0) -> tuple[np.ndarray, ...]:
    query, key, value = tile.arrays(seed, offset)
    return beta, tile.logits(query, key).max(1).astype(np.float32), query, key, value


def _expected(beta: np.ndarray, _: np.ndarray, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Output and total side by side, [16, 5]."""
    z = tile.logits(query, key)
    weights = np.exp(beta[:, None] * (z - z.max(1, keepdims=True)))
    total = weights.sum(1, keepdims=True)
    return np.concatenate([weights @ value / total, np.log(total)], axis=1)


def _values(run: Callable[..., np.ndarray]) -> tuple[Stage, ...]:
    above, around = _given(_ABOVE, 721), _given(_AROUND, 722)
    shifted = _given(_AROUND, 723, offset=400.0)
    right, right_around = _expected(*above), _expected(*around)
    beta, m, *arrays = above
    z = tile.logits(*arrays[:2])
    off = z.max(1)

    def total_is(wrong: np.ndarray) -> Callable[[Any], bool]:
        return lambda got: np.allclose(got[:, -1], wrong, rtol=1e-3, atol=1e-3)

    return (
        Stage(
            "β of 1 and above",
            lambda _: run(*above),
            given="β from 1 to 2.4 over the rows",
            expected=right,
            rtol=1e-4,
            atol=1e-4,
            look="Write e^(βz − c) for a c that is known before the loop. Which c makes the largest exponential 1?",
            mistakes=(
                Mistake(
                    "nothing is written",
                    "A reference that should have been written holds NaN everywhere.",
                    "A kernel returns nothing; what it does not assign to a reference is lost.",
                    "`output_ref[...] = ...`, and the same for the total.",
                    seen=lambda got: np.isnan(got[:, :-1]).all() or np.isnan(got[:, -1]).all(),
                ),
                Mistake(
                    "bits for nats",
                    "The total is right in bits; this book measures in nats.",
                    "Exponentials to base 2 are usual in kernels.",
                    "Look at which logarithm is taken.",
                    seen=total_is(right[:, -1] / np.log(2)),
                ),
                Mistake(
                    "the temperature is left out",
                    "The answer is that of the plain row.",
                    "The loop is that of plain attention, and β enters it in one place only.",
                    "Which numbers does β multiply?",
                    seen=_expected(np.ones_like(beta), *above[1:]),
                ),
                Mistake(
                    "θ for β",
                    "The answer belongs to 1/β.",
                    "A temperature divides the logits; its inverse multiplies them.",
                    "Does a larger β make your row sharper or flatter?",
                    seen=_expected(1 / beta, *above[1:]),
                ),
                Mistake(
                    "the maximum is not multiplied by β",
                    "The output is right, and the total is that of e^(βz − m).",
                    "m is the maximum of the row, and the row of the second loop is another one.",
                    "What is the largest of the numbers βz?",
                    seen=total_is(right[:, -1] + (beta - 1) * off),
                ),
                Mistake(
                    "log-sum-exp for the total",
                    "The total contains the maximum.",
                    "The logarithm of the normaliser is usually wanted whole.",
                    "The total is relative to m; why does this book keep the two apart?",
                    seen=total_is(right[:, -1] + beta * off),
                ),
                Mistake(
                    "the total without its logarithm",
                    "The total is the sum itself.",
                    "The output is divided by the sum.",
                    "`total` is log Σ e^(β(z − m)).",
                    seen=total_is(np.exp(right[:, -1])),
                ),
                Mistake(
                    "the output is not divided",
                    "The total is right, and the output is a sum where a mean is wanted.",
                    "In plain attention the division is the last line, and easily lost.",
                    "Do your weights sum to 1?",
                    seen=lambda got: np.allclose(got[:, -1], right[:, -1], atol=1e-3),
                ),
            ),
        ),
        Stage(
            "β below 1 as well",
            lambda _: run(*around),
            given="β from 0.25 to 2.4 over the rows",
            expected=right_around,
            rtol=1e-4,
            atol=1e-4,
            look="Which of your lines would not hold for every positive β?",
            mistakes=(
                Mistake(
                    "β below 1 taken for 1",
                    "Rows with β below 1 come out plain.",
                    "The published map is never below 1. Other rules are.",
                    "Look for a maximum of β and 1.",
                    seen=_expected(np.maximum(_AROUND, 1.0), *around[1:]),
                ),
            ),
        ),
        Stage(
            "an offset of 400 on every logit",
            lambda _: run(*shifted),
            given="logits near 400 and β from 0.25 to 2.4",
            expected=_expected(*shifted),
            rtol=1e-3,
            atol=2e-3,  # float32 logits near 400 are spaced by 3·10⁻⁵, and β and the sums add theirs
            look="What are the largest and the smallest exponent of a row, at its largest key?",
            mistakes=(
                Mistake(
                    "exponentials that are not shifted",
                    "Rows overflow where β is above 1, or vanish where it is below.",
                    "The plain maximum shifts the plain row. At another β something is left of the offset.",
                    "At the row's largest key, what is your exponent?",
                    seen=lambda got: not np.isfinite(got).all(),
                ),
            ),
        ),
    )


def _trace(kernel: Callable[..., None]) -> Stage:
    def call(_: Any) -> list[tuple[str, tuple[int, ...]]]:
        program = tile.traced(kernel, *_WRITTEN, given=_given(_ABOVE, 721))
        return [
            (equation.primitive.name, tuple(getattr(output.aval, "shape", ())))
            for equation in equations(program)
            for output in equation.outvars
        ]

    def exponentials(found: list[tuple[str, tuple[int, ...]]]) -> list[tuple[int, ...]]:
        return [shape for name, shape in found if name in ("exp", "exp2")]

    def per_row(shape: tuple[int, ...]) -> bool:
        return bool(shape) and int(np.prod(shape)) == tile.QUERIES

    def maxima(found: list[tuple[str, tuple[int, ...]]]) -> bool:
        return any(name in _MAXIMA and (name != "max" or per_row(shape)) for name, shape in found)

    def rescaled(found: list[tuple[str, tuple[int, ...]]]) -> bool:
        return any(per_row(shape) for shape in exponentials(found))

    def whole(found: list[tuple[str, tuple[int, ...]]]) -> bool:
        return any(tile.KEYS in shape for shape in exponentials(found))

    return Stage(
        "no maximum and no rescaling in the traced program",
        call,
        given="the traced kernel",
        accept=lambda found: not (maxima(found) or rescaled(found) or whole(found)),
        look="`jax.make_jaxpr` of the call shows the loop's body. Read it line by line.",
        mistakes=(
            Mistake(
                "all keys at once",
                "An exponential of all 48 keys is taken at once.",
                "At this size the whole row fits, and no loop is needed.",
                "How large is that array at 131,072 keys?",
                seen=whole,
            ),
            Mistake(
                "the maximum of the tempered tile is computed again",
                "The traced kernel takes a maximum.",
                "The loop was copied from the first one, or from plain attention, where it is needed.",
                "Which input of the kernel is this maximum already?",
                seen=maxima,
            ),
            Mistake(
                "the sums are rescaled",
                "The traced kernel takes an exponential of one number a row: a factor for the sums.",
                "In plain attention the sums follow the maximum.",
                "By how much does the maximum move, in this loop?",
                seen=rescaled,
            ),
        ),
    )

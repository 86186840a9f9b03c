"""Exercise 07.3, the causal average in closed form: exactly, and so that it survives rounding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "07.3 The causal average in closed form"
_LAYERS = (0, 1, 2, 5)
_TOKENS = (3, -1, 4, 1, -5, 9, 2)
_LONG = (90, 6)  # tokens and layers for which float64 has lost the closed form and Fractions have not


def ex3(closed: Callable[..., Any], stable: Callable[..., Any]) -> Report:
    """Checks L layers of uniform causal attention: in closed form with Fractions, and in floats for long sequences.

    Args:
        closed: `closed(tokens, layers) -> list of Fractions`, from a list of whole numbers, by eigenvalues and forward
            differences; no loop over layers, which may number a million.
        stable: `stable(tokens, layers) -> [n, d]`, from a float64 array [n, d] of up to thousands of tokens, to 1e-10.

    Returns:
        The report. Mistakes it names: the eigenvalue 1/i for every component; counting from 0; a product for a power;
        floats where Fractions are asked for; cancellation in long sequences; the average of all tokens; a strict mask;
        layers one too many.
    """
    return in_turn(
        (
            lambda: examine(closed, _TITLE, "closed(tokens, layers)", _closed_stages()),
            lambda: examine(stable, _TITLE, "stable(tokens, layers)", _stable_stages()),
        ),
        remark="The closed form explains, the repeated sum computes.",
        picture=lambda: _draw(stable),
    )


def _averaged(tokens: Any, layers: int) -> list[Fraction]:
    """By averaging again and again, exactly."""
    states = [Fraction(token) for token in tokens]
    for _ in range(layers):
        total, after = Fraction(0), []
        for i, state in enumerate(states, 1):
            total += state
            after.append(total / i)
        states = after
    return states


def _series(layers: int, *, first: int = 1, power: Callable[..., Fraction] | None = None) -> np.ndarray:
    """The closed form with eigenvalues to choose, for the mistakes."""
    eigenvalue = power or (lambda k, i: Fraction(1, k + first) ** layers)
    differences = [int(np.diff(_TOKENS, k)[0]) for k in range(len(_TOKENS))]
    return np.array(
        [float(sum(comb(i, k) * eigenvalue(k, i) * differences[k] for k in range(i + 1))) for i in range(len(_TOKENS))]
    )


def _shared_mistakes(values: Callable[[Callable[[int], np.ndarray]], np.ndarray]) -> tuple[Mistake, ...]:
    """Mistakes of the operator itself; `values` makes what a stage compares from an array for each number of layers."""
    exact = {layers: np.array([float(x) for x in _averaged(_TOKENS, layers)]) for layers in range(7)}

    def strict(layers: int) -> np.ndarray:
        states = np.array(_TOKENS, float)
        for _ in range(layers):
            states = np.r_[states[0], np.cumsum(states)[:-1] / np.arange(1, len(states))]
        return states

    return (
        Mistake(
            "the average of all tokens",
            "Every token holds the average of the whole sequence.",
            "Uniform attention without a mask does that.",
            "Which tokens does token 1 see?",
            seen=values(lambda L: exact[0] if L == 0 else np.full(len(_TOKENS), np.mean(_TOKENS))),
        ),
        Mistake(
            "a strict mask",
            "A token does not see itself.",
            "Before is easily read as strictly before.",
            "How many keys does token 2 see?",
            seen=values(strict),
        ),
        Mistake(
            "one layer too many",
            "The answer for L layers is that for L + 1.",
            "A loop that starts at the average has done one layer already.",
            "What is the answer for no layer at all?",
            seen=values(lambda L: exact[L + 1]),
        ),
    )


def _closed_stages() -> tuple[Stage, ...]:
    def values(of: Callable[[int], np.ndarray]) -> np.ndarray:
        return np.concatenate([of(layers) for layers in _LAYERS])

    def backward(layers: int) -> np.ndarray:
        return np.array([float(x) for x in _averaged(_TOKENS[::-1], layers)])

    def run(closed: Callable[..., Any]) -> list[Any]:
        return [value for layers in _LAYERS for value in closed(list(_TOKENS), layers)]

    return (
        Stage(
            "seven tokens, up to five layers",
            lambda closed: np.array([float(value) for value in run(closed)]),
            given=f"tokens {', '.join(map(str, _TOKENS))} and 0, 1, 2 and 5 layers",
            expected=values(lambda L: np.array([float(x) for x in _averaged(_TOKENS, L)])),
            rtol=1e-12,
            atol=1e-12,
            mistakes=(
                Mistake(
                    "the eigenvalue 1/i for every component",
                    "Token i is scaled by i^(−L) as a whole.",
                    "1/i is the diagonal entry of the operator, and the diagonal entries are its eigenvalues.",
                    "Token i is a sum of components. Which of them has which eigenvalue?",
                    seen=values(lambda L: _series(L, power=lambda k, i: Fraction(1, i + 1) ** L)),
                ),
                Mistake(
                    "counting from 0",
                    "The components are there, with the eigenvalues of their neighbours.",
                    "The formula counts from 1 and arrays from 0.",
                    "Which component never dies, and what is its eigenvalue?",
                    seen=values(lambda L: _series(L, first=2)),
                ),
                Mistake(
                    "a product for a power",
                    "A component falls like 1/(k L) instead of k^(−L).",
                    "L layers are L times something.",
                    "What do two layers do to an eigenvector?",
                    seen=values(lambda L: _series(L, power=lambda k, i: Fraction(1, max((k + 1) * L, 1)))),
                ),
                *_shared_mistakes(values),
                Mistake(
                    "backward differences",
                    "The differences were taken at the end of the sequence.",
                    "A list of differences has two ends.",
                    "Token 1 knows nothing of the later ones.",
                    seen=values(backward),
                ),
            ),
            look="Write the first three tokens in forward differences at token 1 and apply one layer by hand.",
        ),
        Stage(
            "exactly",
            lambda closed: list(closed([i * i % 7 for i in range(_LONG[0])], _LONG[1])),
            given=f"{_LONG[0]} tokens and {_LONG[1]} layers",
            accept=lambda got: got == _averaged([i * i % 7 for i in range(_LONG[0])], _LONG[1]),
            mistakes=(
                Mistake(
                    "floats where Fractions are asked for",
                    "The values are floats, and far from right: the terms alternate and reach 10²⁰.",
                    "A power of a float is a float.",
                    "Make k a Fraction before you take its power.",
                    seen=lambda got: any(isinstance(value, float) for value in got),
                ),
            ),
            look="Keep every number a Fraction from the start.",
        ),
        Stage(
            "a million layers",
            lambda closed: np.array([float(value) for value in closed([5, 9, -3], 1_000_000)]),
            given="three tokens",
            expected=np.full(3, 5.0),
            look="A power of a Fraction takes one line, whatever the exponent; or what is left when 2^(−L) is nothing?",
        ),
    )


@functools.cache
def _long() -> tuple[np.ndarray, np.ndarray]:
    """Tokens [120, 2], and the same after three layers, exactly."""
    tokens = np.random.default_rng(3).integers(-9, 10, (120, 2))
    exact = [[float(x) for x in _averaged(column.tolist(), 3)] for column in tokens.T]
    return tokens.astype(float), np.stack(exact, 1)


def _stable_stages() -> tuple[Stage, ...]:
    small = np.array(_TOKENS, float)[:, None] * [1.0, -2.0]
    long, exact = _long()
    longer = np.random.default_rng(4).normal(size=(5_000, 2))

    def values(of: Callable[[int], np.ndarray]) -> np.ndarray:
        return np.stack([of(layers)[:, None] * [1.0, -2.0] for layers in _LAYERS])

    return (
        Stage(
            "seven tokens of two channels",
            lambda stable: np.stack([np.asarray(stable(small, layers), np.float64) for layers in _LAYERS]),
            given="an array [7, 2]",
            expected=values(lambda L: np.array([float(x) for x in _averaged(_TOKENS, L)])),
            rtol=1e-10,
            atol=1e-10,
            mistakes=_shared_mistakes(values),
            look="One layer is a running sum over a running count.",
        ),
        Stage(
            "120 tokens",
            lambda stable: np.asarray(stable(long, 3), np.float64),
            given="an array [120, 2] and 3 layers",
            expected=exact,
            rtol=1e-10,
            atol=1e-10,
            mistakes=(
                Mistake(
                    "cancellation in long sequences",
                    "The first tokens are right, and from about the fortieth on the values explode.",
                    "The closed form is exact, and its terms alternate: they grow like 4^i, and 16 digits cannot hold "
                    "the difference.",
                    "Is there a way to the same numbers without a subtraction?",
                    seen=lambda got: (
                        np.allclose(got[:12], exact[:12], atol=1e-6) and not (np.abs(got[60:] - exact[60:]) < 0.1).all()
                    ),
                ),
            ),
            look="Count the subtractions.",
        ),
        Stage(
            "5,000 tokens stay within the values they started from",
            lambda stable: np.asarray(stable(longer, 40), np.float64),
            given="an array [5000, 2] and 40 layers",
            accept=lambda got: (
                got.shape == longer.shape
                and (got >= longer.min(0)).all()
                and (got <= longer.max(0)).all()
                and np.array_equal(got[0], longer[0])
            ),
            look="An average lies between the smallest and the largest of what it averages.",
        ),
    )


def _draw(stable: Callable[..., Any]) -> Any:
    """A step sequence after a few layers."""
    from adatemp import plotting

    step = np.repeat([0.0, 1.0], 32)[:, None]
    figure, axes = plotting.figure(height=2.8)
    last = []
    for layers, role in ((0, "neutral"), (1, "plain"), (4, "adaptive"), (8, "argmax")):
        values = np.asarray(stable(step, layers), np.float64)[:, 0]
        axes.plot(np.arange(1, 65), values, color=plotting.palette[role], label=f"{layers} layers")
        last.append(f"{values[-1]:.2f} after {layers}")
    axes.set(xlabel="token", ylabel="value")
    axes.legend()
    return plotting.show(figure, alt="A step from 0 to 1 at token 33; token 64 is at " + ", ".join(last) + " layers.")

"""Exercise 01.3, a top weight to order: the inverse temperature for a largest weight, and weights that none gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from adatemp.checks import _float64
from adatemp.checks._stages import Mistake, Stage

SIGNATURE = "inverse_temperature(logits, top_weight)"

# The exercise asks for the weight to this accuracy.
_ACCURACY = 1e-6

Order = tuple[np.ndarray, float]


def reached(row: np.ndarray, beta: float) -> float:
    """The largest weight of the row at β, in float64."""
    return float(_float64.softmax(float(beta) * np.asarray(row, np.float64)).max())


def stages() -> tuple[Stage, ...]:
    """The stages, from basic to subtle."""
    rows = [_float64.logits(21, 7), _float64.logits(22, 10), _float64.logits(23, 33)]
    orders = [(row, weight) for row in rows for weight in (0.2, 0.5, 0.9, 0.999)]
    extreme = [(row * np.float32(scale), weight) for row in rows for scale in (1e-3, 1e3) for weight in (0.3, 0.95)]
    shifted = [(row + np.float32(1e4), weight) for row in rows for weight in (0.3, 0.95)]
    return _common_stages(rows, orders) + _range_stages(extreme, shifted) + _tie_stages() + (_low_stage(rows),)


def _common_stages(rows: list[np.ndarray], orders: list[Order]) -> tuple[Stage, ...]:
    rising = [(rows[0], weight) for weight in (0.25, 0.4, 0.6, 0.8, 0.97)]
    return (
        Stage(
            "a larger weight needs a larger β",
            lambda f: _answers(f, rising),
            given="one row of 7 logits and the weights 0.25, 0.4, 0.6, 0.8, 0.97",
            accept=lambda betas: all(b > a >= 0 for a, b in zip(betas, betas[1:])),
            look="Print β for the five weights.",
            mistakes=(
                Mistake(
                    "temperature for inverse temperature",
                    "The answer is θ = 1/β: it falls as the weight grows.",
                    "Both are called temperature in conversation.",
                    "Which of the two multiplies the logits?",
                    seen=lambda betas: _right([(row, w) for row, w in rising], [1.0 / b for b in betas], 1e-4),
                ),
                Mistake(
                    "negative β",
                    "A negative β favours the smallest logit.",
                    "A search from a bracket around 0 can end on the wrong side.",
                    "What is the largest weight at β and at −β, and which logit has it?",
                    seen=lambda betas: any(b < 0 for b in betas),
                ),
            ),
        ),
        Stage(
            "the top weight is what was ordered",
            lambda f: _answers(f, orders),
            given="rows of 7, 10 and 33 logits and the weights 0.2, 0.5, 0.9 and 0.999",
            accept=lambda betas: _right(orders, betas),
            look="Compute the largest weight at the β you return and compare it with the order.",
            mistakes=(
                Mistake(
                    "all others at the bottom",
                    "The answer is right only if every other logit is the smallest one.",
                    "log((n − 1)w/(1 − w)) divided by the spread is the best case of a bound, not this row.",
                    "Which logits enter your formula?",
                    seen=lambda betas: np.allclose(
                        betas, [math.log((len(r) - 1) * w / (1 - w)) / float(np.ptp(r)) for r, w in orders], rtol=1e-4
                    ),
                ),
                Mistake(
                    "only the runner-up considered",
                    "The answer is right for two keys and too small for more.",
                    "The two largest logits decide most of the weight, so the closed form looks nearly right.",
                    "Which logits enter your formula?",
                    seen=lambda betas: np.allclose(
                        betas, [math.log(w / (1 - w)) / _gap(row) for row, w in orders], rtol=1e-4
                    ),
                ),
                Mistake(
                    "stopped early",
                    "The weights are near the ordered ones and not within 10⁻⁶.",
                    "A fixed number of steps, or a tolerance on β, says little about the weight.",
                    "How far does the weight move in your last step?",
                    seen=lambda betas: _right(orders, betas, 0.02),
                ),
            ),
        ),
    )


def _range_stages(extreme: list[Order], shifted: list[Order]) -> tuple[Stage, ...]:
    overflow = Mistake(
        "no maximum subtracted",
        "The exponentials overflow and the answer is not a number, or the search has followed one.",
        "The row is legal; it only lies far from 0 or is far apart.",
        "The weights depend on differences of logits alone. Which difference is safe to exponentiate?",
        seen=lambda betas: any(not math.isfinite(b) for b in betas),
    )
    return (
        Stage(
            "rows a thousand times flatter and steeper",
            lambda f: _answers(f, extreme),
            given="the rows divided by 1,000 and multiplied by 1,000",
            accept=lambda betas: _right(extreme, betas),
            look="By what should β change when every logit is divided by 1,000?",
            mistakes=(
                overflow,
                Mistake(
                    "no bracket",
                    "The search ended at the edge of its interval: the β wanted lies outside, or far below its steps.",
                    "An interval that suits logits of order one is easily taken for granted.",
                    "At the two ends of your interval, is the weight below and above the order? If not, what then?",
                    seen=lambda betas: any(not _right([order], [b], 1e-4) for order, b in zip(extreme, betas)),
                ),
            ),
        ),
        Stage(
            "an offset of 10⁴ on the logits",
            lambda f: _answers(f, shifted),
            given="the rows plus 10⁴",
            accept=lambda betas: _right(shifted, betas),
            look="What does β · logit round to when the logit is 10⁴?",
            mistakes=(
                overflow,
                Mistake(
                    "scaled before the shift",
                    "The weight is right to about three decimals only.",
                    "β times a logit near 10⁴ is rounded by about 0.001 in float32, before the maximum is subtracted.",
                    "Which of the two comes first: the product with β or the difference from the maximum?",
                    seen=lambda betas: _right(shifted, betas, 0.05),
                ),
            ),
        ),
    )


def _tie_stages() -> tuple[Stage, ...]:
    two, three = _tied(24, 9, 2), _tied(25, 12, 3)
    within = [(two, 0.45), (three, 0.3), (two, 0.3), (three, 0.27)]
    beyond = [(two, 0.5), (two, 0.6), (three, 0.34), (three, 0.9), (np.zeros(5, np.float32), 0.3)]

    def capped(inverse_temperature: Callable[..., Any]) -> list[float]:
        return [_or_error(inverse_temperature, row, weight, math.inf) for row, weight in beyond]

    return (
        Stage(
            "ties for the top, weights within reach",
            lambda f: _answers(f, within),
            given="rows with two and three logits tied at the top",
            accept=lambda betas: _right(within, betas),
            look="What is the weight of one of the tied keys at the β you return?",
            mistakes=(
                Mistake(
                    "tied keys counted as one",
                    "The tied keys together have the weight that one of them should have.",
                    "Comparing logits with the maximum selects all of them.",
                    "What is the weight of a single tied key?",
                    seen=lambda betas: all(
                        abs(_multiplicity(row) * reached(row, b) - w) < 1e-4 for (row, w), b in zip(within, betas)
                    ),
                ),
                Mistake(
                    "tied keys left out",
                    "The ties are missing from the normaliser.",
                    "Dropping the maximum from the competitors drops its ties too.",
                    "How many terms has your normaliser?",
                    seen=lambda betas: all(abs(_without_ties(row, b) - w) < 1e-4 for (row, w), b in zip(within, betas)),
                ),
            ),
        ),
        Stage(
            "ties for the top, weights that no β gives",
            capped,
            given="rows whose tied keys can get 1/2, 1/3 or 1/5 at most, and larger orders",
            accept=lambda betas: all(b == math.inf for b in betas),
            look="To what does the top weight tend as β grows, and is it ever reached?",
            mistakes=(
                Mistake(
                    "NaN for a weight out of reach",
                    "The answer is NaN where no β is large enough.",
                    "∞ · 0 in the last step of a search that never closed.",
                    "Decide before the search whether the order can be met at all.",
                    seen=lambda betas: any(math.isnan(b) for b in betas),
                ),
                Mistake(
                    "ties ignored",
                    "A finite β is returned for a weight that the tied keys never reach.",
                    "Without ties every weight below 1 can be reached, and most rows have none.",
                    "How is the weight shared between keys that tie at the top?",
                    seen=lambda betas: any(math.isfinite(b) for b in betas),
                ),
            ),
        ),
    )


def _low_stage(rows: list[np.ndarray]) -> Stage:
    low = [(row, 0.9 / len(row)) for row in rows]
    return Stage(
        "weights below 1/n",
        lambda f: [_or_error(f, row, weight, math.nan) for row, weight in low],
        given="orders of 0.9/n",
        accept=lambda betas: all(math.isnan(b) for b in betas),
        look="What is the top weight at β = 0, and can it be less?",
        mistakes=(
            Mistake(
                "negative β",
                "A negative β turns the order round; the largest weight is then another key's, and above 1/n.",
                "Solving for the weight of the largest logit gives such a β without complaint.",
                "Which key has the largest weight at the β you return?",
                seen=lambda betas: any(b < 0 for b in betas),
            ),
            Mistake(
                "an answer where there is none",
                "A β is returned for a weight below 1/n, and it gives another weight.",
                "A search returns the end it stopped at, whether or not it found anything.",
                "Which β gives the smallest top weight? Compare that weight with the order first.",
                seen=lambda betas: any(not math.isnan(b) for b in betas),
            ),
        ),
    )


def _answers(inverse_temperature: Callable[..., Any], orders: list[Order]) -> list[float | None]:
    """The reader's β for each order; an answer that is missing stays None, so that a stub is recognised."""
    betas = [inverse_temperature(jnp.asarray(row), weight) for row, weight in orders]
    return [beta if beta is None or beta is Ellipsis else float(np.asarray(beta)) for beta in betas]


def _or_error(inverse_temperature: Callable[..., Any], row: np.ndarray, weight: float, on_error: float) -> float:
    try:
        return float(np.asarray(inverse_temperature(jnp.asarray(row), weight)))
    except ValueError:
        return on_error


def _right(orders: list[Order], betas: list[float], accuracy: float = _ACCURACY) -> bool:
    return all(b >= 0 and abs(reached(row, b) - w) <= accuracy for (row, w), b in zip(orders, betas, strict=True))


def _gap(row: np.ndarray) -> float:
    second, first = np.sort(row.astype(np.float64))[-2:]
    return float(first - second)


def _tied(seed: int, n: int, multiplicity: int) -> np.ndarray:
    """A row whose largest logit stands `multiplicity` times, not side by side."""
    row = _float64.logits(seed, n)
    row[:: n // multiplicity][:multiplicity] = row.max() + 0.5
    return row


def _multiplicity(row: np.ndarray) -> int:
    return int((row == row.max()).sum())


def _without_ties(row: np.ndarray, beta: float) -> float:
    return reached(np.append(row[row < row.max()], row.max()), beta)


def picture(inverse_temperature: Callable[..., Any]) -> Any:
    """Top weight against β for a row with a two-way tie, with the β that the reader's function gives for six orders."""
    from adatemp import plotting

    row = _tied(24, 9, 2)
    betas = np.linspace(0.0, 8.0, 200)
    orders = [0.25, 0.3, 0.35, 0.4, 0.45, 0.48]
    answers = _answers(inverse_temperature, [(row, weight) for weight in orders])
    fig, axis = plotting.figure()
    axis.plot(betas, [reached(row, b) for b in betas], color=plotting.palette["neutral"], label="top weight of the row")
    axis.plot(answers, orders, label="your β for six orders", **plotting.role("plain") | {"linestyle": ""})
    axis.axhline(0.5, label="1/2: two keys tie", color=plotting.palette["bound"], linestyle="--")
    axis.set_xlim(0.0, 8.0)
    axis.set_xlabel("inverse temperature β")
    axis.set_ylabel("weight")
    axis.legend()
    worst = max(abs(reached(row, beta) - weight) for beta, weight in zip(answers, orders))
    alt = (
        "Line chart: the top weight of nine logits, two tied at the top, rises with β from 1/9 towards 1/2 and stays "
        f"below it. Your six answers lie within {worst:.1g} of the curve."
    )
    return plotting.show(fig, alt=alt)

"""Exercise 03.2, the smallest n′: the size from which no row of a given spread has a weight of ε."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine

_SIGNATURE = "size(epsilon, spread, temperature)"

_FLAT = ((0.5, 0.0, 1.0), (0.3, 0.0, 2.0), (0.125, 0.0, 0.5), (0.0625, 0.0, 3.0), (0.03, 0.0, 1.0))
_SPREAD = (
    (0.5, 2.0, 1.0),
    (0.5, 5.75, 2.0),
    (0.25, 3.0, 0.5),
    (0.1, 1.5, 1.0),
    (0.03, 4.0, 1.25),
    (0.75, 8.0, 1.0),
    (0.96875, 0.5, 1.0),
)
_LONG = ((0.01, 20.0, 1.0), (0.001, 9.0, 0.5), (0.5, 48.0, 2.0))
_TRIVIAL = ((1.0, 3.0, 1.0), (1.0, 0.0, 2.0), (1.5, 3.0, 1.0), (2.0, 10.0, 0.5))


def ex2(size: Callable[..., Any]) -> Report:
    """Checks the smallest n′ such that every weight of every row of n ≥ n′ logits is below ε.

    Args:
        size: `size(epsilon, spread, temperature) -> n′`, an integer of at least 1, for any ε > 0, δ ≥ 0, θ > 0. Below
            means strictly below. Sizes up to 10¹³ are asked for, which float64 holds with room to spare.

    Returns:
        The report. Mistakes it names: a float; a weight of ε counted as below ε; the simple sufficient threshold; the
        item counted among its competitors; δ for δ/θ; a size below one where ε exceeds every weight.
    """
    return examine(size, "03.2 The smallest n′", _SIGNATURE, _stages(), picture=_draw)


def largest_weight(n: int, spread: float, temperature: float) -> decimal.Decimal:
    """The largest weight that a row of n logits can hold, to 50 digits, from the row that holds it."""
    with decimal.localcontext(prec=50):
        s = decimal.Decimal(spread) / decimal.Decimal(temperature)
        return 1 / (1 + (n - 1) * (-s).exp())


def smallest_size(epsilon: float, spread: float, temperature: float) -> int:
    """n′ by bisection on the definition: the largest weight falls as n grows."""
    target = decimal.Decimal(epsilon)
    low, high = 0, 1
    while largest_weight(high, spread, temperature) >= target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if largest_weight(middle, spread, temperature) >= target:
            low = middle
        else:
            high = middle
    return high


def _stages() -> tuple[Stage, ...]:
    spread_expected = _expected(_SPREAD)
    return (
        Stage(
            "an integer comes back",
            lambda size: size(0.3, 2.0, 1.5),
            given="ε = 0.3, δ = 2, θ = 1.5",
            accept=lambda answer: isinstance(answer, int | np.integer) and not isinstance(answer, bool),
            mistakes=(
                Mistake(
                    "a float for an integer",
                    "The answer is a float.",
                    "`np.floor` and `np.ceil` return floats; `math.floor` and `math.ceil` return integers.",
                    "Rows have whole numbers of items.",
                    seen=lambda answer: isinstance(answer, float | np.floating) or np.ndim(answer) == 0,
                ),
            ),
            look="Return one Python int.",
        ),
        Stage(
            "rows without spread",
            lambda size: _answers(size, _FLAT),
            given="δ = 0 and ε = 1/2, 0.3, 1/8, 1/16, 0.03",
            expected=_expected(_FLAT),
            rtol=0,
            atol=0,
            mistakes=(
                Mistake(
                    "a weight of ε counted as below ε",
                    "At the size you return, a row without spread has weights of exactly ε.",
                    "Rounding a threshold up gives the first integer at or above it; below is asked for.",
                    "What is 1/n at n = 8, and is it below 1/8?",
                    seen=lambda got: np.array_equal(got, [math.ceil(1 / Fraction(e)) for e, *_ in _FLAT]),
                ),
                _too_large(_FLAT),
            ),
            look="All weights are 1/n here. From which n on is that below ε?",
        ),
        Stage(
            "no row at n′ holds ε, and one at n′ − 1 does",
            lambda size: _answers(size, _SPREAD),
            given="seven triples of ε, δ and θ",
            expected=spread_expected,
            rtol=0,
            atol=0,
            mistakes=(
                Mistake(
                    "the simple sufficient threshold",
                    "The answer is the first size above e^(δ/θ)/ε. It suffices, and smaller ones do too.",
                    "It is what the simple bound gives, and the form that is usually quoted.",
                    "Which row attains the bound that you solved for n?",
                    seen=lambda got: any(
                        np.abs(got - [math.exp(d / t) / e for e, d, t in _SPREAD]).max() <= slack for slack in (1, 2)
                    ),
                ),
                Mistake(
                    "δ for δ/θ",
                    "The answers are right at temperature 1 and at no other.",
                    "The temperature is easily set to 1 and forgotten.",
                    "By what is a logit divided before it is exponentiated?",
                    seen=_expected([(e, d, 1.0) for e, d, _ in _SPREAD]),
                ),
                Mistake(
                    "multiplied by the temperature",
                    "δθ stands where δ/θ should.",
                    "β multiplies logits, θ divides them, and the two are mixed up easily.",
                    "Does a high temperature make a row flatter or sharper?",
                    seen=_expected([(e, d * t, 1.0) for e, d, t in _SPREAD]),
                ),
                Mistake(
                    "off by one",
                    "The answers are one too small: at n′ a row still holds ε.",
                    "Either the item was counted among its own n − 1 competitors, or the floor was taken for the next "
                    "integer.",
                    "Put your n′ back into the tight bound and compare with ε.",
                    seen=spread_expected - 1,
                ),
                _too_large(_SPREAD),
            ),
            look="Solve the tight bound for n, then ask which integer is the first beyond the solution.",
        ),
        Stage(
            "long rows",
            lambda size: _answers(size, _LONG),
            given="sizes from 10¹⁰ to 10¹¹",
            accept=lambda got: np.array_equal(got, _expected(_LONG)),
            look="Solve for n in closed form: a search by ones does not get there, and float32 has seven digits.",
        ),
        Stage(
            "ε of 1 and more",
            lambda size: _answers(size, _TRIVIAL),
            given="ε = 1, where a row of one item has weight 1, and ε = 1.5 and 2, which no weight reaches",
            expected=_expected(_TRIVIAL),
            rtol=0,
            atol=0,
            mistakes=(
                Mistake(
                    "a size below one",
                    "For ε above 1 the answer is zero or negative.",
                    "1/ε − 1 is negative there, and the formula goes on as if nothing had happened.",
                    "Which is the shortest row that has any weight at all?",
                    seen=lambda got: got.min() < 1,
                ),
            ),
            look="What is the weight of a single item, whatever the spread?",
        ),
    )


def _answers(size: Callable[..., Any], cases: Any) -> np.ndarray:
    return np.array([float(size(*case)) for case in cases])


def _expected(cases: Any) -> np.ndarray:
    return np.array([float(smallest_size(*case)) for case in cases])


def _too_large(cases: Any) -> Mistake:
    return Mistake(
        "one too large",
        "At the size before yours every weight is below ε already.",
        "A one was added for the item itself and another for safety.",
        "The floor of a number plus one is beyond the number, also when the number is whole.",
        seen=_expected(cases) + 1,
    )


def _draw(size: Callable[..., Any]) -> Any:
    """The largest weight about n′ for one case."""
    from adatemp import plotting

    epsilon, spread, temperature = 0.25, 3.0, 1.5
    found = int(size(epsilon, spread, temperature))
    sizes = np.arange(max(found - 8, 1), max(found + 9, 10))
    weights = [float(largest_weight(int(n), spread, temperature)) for n in sizes]
    figure, axes = plotting.figure(height=2.6)
    axes.plot(sizes, weights, **plotting.role("tight") | {"marker": "o"})
    axes.axhline(epsilon, **plotting.role("bound"))
    axes.axvline(found, color=plotting.palette["highlight"])
    axes.set(xlabel="items n", ylabel="largest weight")
    return plotting.show(
        figure,
        alt=f"Largest possible weight against n for spread {spread:g} at temperature {temperature:g}; it crosses "
        f"ε = {epsilon:g} at your size {found:,}.",
    )

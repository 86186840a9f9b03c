"""The size from which every softmax weight is below a given one, as an exact integer and as a logarithm."""

from __future__ import annotations

import decimal
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from adatemp._bound_arguments import prepare, require_scale, require_weight

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float

# Python refuses to print longer integers.
_MOST_DIGITS = 4300


def size_for_weight_below(epsilon: Any, spread: Any, temperature: Any = 1.0) -> Any:
    """The smallest n′ such that every weight of every row of n ≥ n′ logits within a spread δ is below ε.

    From the tight bound, n′ = ⌊1 + e^(δ/θ)(1/ε − 1)⌋ + 1: at n′ no row has a weight of ε, at n′ − 1 the upper extremal
    row has one. The integer is exact, whatever its size: e^(δ/θ) is computed to as many digits as the floor needs.

    Args:
        epsilon: ε in (0, 1). Floats count as the decimal they print as, so that 0.1 means one tenth; pass a
            `fractions.Fraction` for a value that no short decimal holds.
        spread: δ, likewise.
        temperature: θ, likewise.

    Returns:
        A Python int, or an object array of them where an argument is an array.

    Raises:
        ValueError: if an argument is out of range, or n′ has more than 4,300 digits.

    >>> size_for_weight_below(0.1, 0.0)
    11
    >>> size_for_weight_below(0.5, 5.69)
    297
    """
    if all(np.ndim(value) == 0 for value in (epsilon, spread, temperature)):
        return _exact_size(epsilon, spread, temperature)
    return np.vectorize(_exact_size, otypes=[object])(epsilon, spread, temperature)


def log_size_for_weight_below(
    epsilon: Float[ArrayLike, "..."], spread: Float[ArrayLike, "..."], temperature: Float[ArrayLike, "..."] = 1.0
) -> Any:
    """The logarithm of the size beyond which every weight is below ε: log(1 + e^(δ/θ)(1/ε − 1)).

    For plots and gradients, and where `size_for_weight_below` would have too many digits.

    Args:
        epsilon: ε in (0, 1).
        spread: δ, in the unit of the logits.
        temperature: θ, in the unit of the logits.

    Returns:
        The natural logarithm of the threshold, broadcast.

    Raises:
        ValueError: if an argument is out of range.
    """
    require_weight(epsilon)
    require_scale(spread, temperature)
    xp, epsilon, s = prepare(epsilon, spread, temperature)
    return xp.logaddexp(0.0, s + xp.log1p(-epsilon) - xp.log(epsilon))


def _exact_size(epsilon: Any, spread: Any, temperature: Any) -> int:
    require_weight(epsilon)
    require_scale(spread, temperature)
    epsilon, spread, temperature = _as_written(epsilon), _as_written(spread), _as_written(temperature)
    s, odds = spread / temperature, (1 - epsilon) / epsilon
    if s == 0:
        return math.floor(1 + odds) + 1
    digits = (float(s) + _log(odds)) / math.log(10)
    if digits > _MOST_DIGITS:
        raise ValueError(
            f"epsilon={float(epsilon):g}, spread={float(spread):g} and temperature={float(temperature):g} need a size "
            f"of about {digits:.0f} digits; use log_size_for_weight_below"
        )
    # e^s is irrational for rational s ≠ 0, so some number of digits always settles the floor.
    guard = 25
    while True:
        with decimal.localcontext() as context:
            context.prec = max(int(digits), 0) + guard + len(str(s.numerator))
            growth = (decimal.Decimal(s.numerator) / s.denominator).exp() * odds.numerator / odds.denominator
            margin = growth.scaleb(5 - guard - max(int(digits), 0))
            below, above = (int((growth + step).to_integral_value(decimal.ROUND_FLOOR)) for step in (-margin, margin))
        if below == above:
            return below + 2
        guard *= 2


def _as_written(value: Any) -> Fraction:
    return Fraction(repr(float(value))) if isinstance(value, float | np.floating | jax.Array) else Fraction(value)


def _log(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)

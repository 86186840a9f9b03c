"""How far from uniform a row of bounded spread can be, in total variation, and the spread that a distance needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adatemp._bound_arguments import floats, prepare, require_fraction, require_scale

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float


def distance_ceiling(spread: Float[ArrayLike, "..."], temperature: Float[ArrayLike, "..."] = 1.0) -> Any:
    """The largest total variation distance from uniform that a spread allows, at any n: tanh(δ/(4θ)).

    With y = e^(z/θ) in [1, κ] and its mean ȳ, the distance is the mean of max(y/ȳ − 1, 0), which is convex in y and so
    at most (ȳ − 1)(κ − ȳ)/((κ − 1)ȳ), largest at ȳ = √κ. A row of two levels with the fraction 1/(1 + √κ) of its
    logits high attains it.

    Args:
        spread: δ, in the unit of the logits.
        temperature: θ, in the unit of the logits.

    Returns:
        The mass, below 1, that would have to be moved to make the weights equal, broadcast.

    Raises:
        ValueError: if δ is negative or not finite, or θ is not positive.

    >>> round(float(distance_ceiling(4.0)), 4)
    0.7616
    """
    require_scale(spread, temperature)
    xp, _, s = prepare(1.0, spread, temperature)
    return xp.tanh(s / 4.0)[()]


def spread_for_distance(distance: Float[ArrayLike, "..."], temperature: Float[ArrayLike, "..."] = 1.0) -> Any:
    """The least spread with which a row can be that far from uniform: 4θ artanh(distance).

    Args:
        distance: total variation distance from the uniform row, at least 0 and below 1.
        temperature: θ, in the unit of the logits.

    Returns:
        δ in the unit of the logits, broadcast.

    Raises:
        ValueError: if the distance is not in [0, 1), or θ is not positive.
    """
    require_fraction("distance", distance)
    require_scale(0.0, temperature)
    xp, distance, temperature = floats(distance, temperature)
    return (4.0 * temperature * xp.arctanh(distance))[()]

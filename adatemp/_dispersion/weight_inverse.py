"""The tight bound on a weight read backwards: the spread that a top weight needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adatemp._bound_arguments import floats, require_scale, require_size, require_weight

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float


def spread_for_weight(n: ArrayLike, weight: Float[ArrayLike, "..."], temperature: Float[ArrayLike, "..."] = 1.0) -> Any:
    """The least spread with which a row of n keys can hold a weight w: δ = θ log((n−1)w/(1−w)).

    The upper bound of `weight_bounds` solved for δ; `upper_extremal_row` of that spread has the weight. Other rows need
    more, in a crowd up to n times as much.

    Args:
        n: number of keys, at least 1.
        weight: w, in the open interval (0, 1).
        temperature: θ, in the unit of the logits.

    Returns:
        δ in the unit of the logits, broadcast; 0 where w is 1/n or less, and for a single key.

    Raises:
        ValueError: if n < 1, w is not in (0, 1), or θ is not positive.

    >>> round(float(spread_for_weight(1_000, 0.5)), 3)
    6.907
    """
    require_size(n)
    require_weight(weight, "weight")
    require_scale(0.0, temperature)
    xp, n, weight, temperature = floats(n, weight, temperature)
    alone = n <= 1.0
    log_odds = xp.log(xp.where(alone, 1.0, n - 1.0)) + xp.log(weight) - xp.log1p(-weight)
    return (temperature * xp.where(alone, 0.0, xp.maximum(log_odds, 0.0)))[()]

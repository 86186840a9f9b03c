"""Attention with linear biases (ALiBi): what the nearest key keeps at any length, what a far key gets at most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adatemp._bound_arguments import floats, require_not_negative, require_positive, require_scale, require_size

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float


def alibi_floor(
    slope: Float[ArrayLike, "..."],
    spread: Float[ArrayLike, "..."],
    temperature: Float[ArrayLike, "..."] = 1.0,
    n: ArrayLike = np.inf,
) -> Any:
    """The least weight of the nearest key: 1/(1 + e^s (r + r² + … + r^(n−1))), r = e^(−slope/θ), s = δ/θ.

    ALiBi takes slope × distance from the logit of a key. The biases are unbounded, so the theorem on dispersion does
    not apply, and indeed the sum is at most r/(1 − r) for any n: the nearest key keeps a weight. It is attained where
    the content of the nearest key is δ below that of all others. Far keys are another matter: see `alibi_ceiling`.

    Args:
        slope: of the bias, in the unit of the logits a position, positive.
        spread: δ of the logits before the bias.
        temperature: θ, which divides the biased logits.
        n: number of keys, one at each distance from 0; any number by default.

    Returns:
        The floor, broadcast.

    Raises:
        ValueError: if the slope or θ is not positive, δ is negative or not finite, or n < 1.

    >>> round(float(alibi_floor(0.25, 2.0)), 4)
    0.037
    """
    xp, slope, s, n = _checked(slope, spread, temperature, n)
    others = xp.exp(-slope) * -xp.expm1(-slope * (n - 1.0)) / -xp.expm1(-slope)  # r + r² + … + r^(n−1)
    falling = xp.exp(-s)
    return xp.where(others == 0, 1.0, falling / (falling + others))[()]


def alibi_ceiling(
    distance: ArrayLike,
    slope: Float[ArrayLike, "..."],
    spread: Float[ArrayLike, "..."],
    temperature: Float[ArrayLike, "..."] = 1.0,
    n: ArrayLike = np.inf,
) -> Any:
    """The largest weight of the key at a distance k: r^k/(r^k + e^(−s)(1 + r + … + r^(n−1) − r^k)).

    With r = e^(−slope/θ) and s = δ/θ it falls like e^(s − slope·k/θ): beyond about δ/slope positions nothing can be
    retrieved. It is attained where the content of that key is δ above that of all others.

    Args:
        distance: k, from 0 for the nearest key.
        slope: of the bias, in the unit of the logits a position, positive.
        spread: δ of the logits before the bias.
        temperature: θ, which divides the biased logits.
        n: number of keys, one at each distance from 0, more than k; any number by default.

    Returns:
        The ceiling, broadcast.

    Raises:
        ValueError: if k is negative or not below n, the slope or θ is not positive, δ is negative or not finite, or
            n < 1.
    """
    require_not_negative("distance", distance, "the number of positions between key and query")
    xp, slope, s, n = _checked(slope, spread, temperature, n)
    (_, k) = floats(distance) if xp is np else (xp, xp.asarray(distance, slope.dtype))
    if xp is np and np.any(k >= n):
        raise ValueError(f"distance must be below n, the number of keys; got {np.max(k):g} for n={np.min(n):g}")
    before = -xp.expm1(-slope * k) / -xp.expm1(-slope)  # 1 + … + r^(k−1)
    # r^(k+1) + … + r^(n−1), over r^k
    after = xp.exp(-slope) * -xp.expm1(-slope * (n - 1.0 - k)) / -xp.expm1(-slope)
    # over r^k, with the growing exponential kept under the fraction bar until it may overflow to a weight of 0
    with np.errstate(over="ignore"):
        others = xp.exp(slope * k - s) * before + xp.exp(-s) * after
    return (1.0 / (1.0 + others))[()]


def _checked(slope: Any, spread: Any, temperature: Any, n: Any) -> tuple[Any, Any, Any, Any]:
    """(array module, slope/θ, δ/θ, n)."""
    require_positive("slope", slope, "what ALiBi takes from a logit for each position of distance")
    require_scale(spread, temperature)
    require_size(n)
    xp, slope, spread, temperature, n = floats(slope, spread, temperature, n)
    return xp, slope / temperature, spread / temperature, n

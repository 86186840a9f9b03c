"""Rows of logits that attain the dispersion bounds; each has two levels, δ apart."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from adatemp._bound_arguments import prepare, require_scale, require_size

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float


def upper_extremal_row(n: int, spread: Float[ArrayLike, "*rows"]) -> Float[ArrayLike, "*rows n"]:
    """The row whose first weight attains the upper bound of `weight_bounds`: one logit δ, the others 0.

    Args:
        n: number of keys, an integer of at least 1.
        spread: δ, any shape.

    Returns:
        Logits, the keys on a new last axis.

    >>> upper_extremal_row(4, 3.0)
    array([3., 0., 0., 0.])
    """
    return _two_levels(n, spread, lambda n, s: 1)


def lower_extremal_row(n: int, spread: Float[ArrayLike, "*rows"]) -> Float[ArrayLike, "*rows n"]:
    """The row whose first weight attains the lower bound of `weight_bounds`: one logit 0, the others δ.

    Args:
        n: number of keys, an integer of at least 1.
        spread: δ, any shape.

    Returns:
        Logits, the keys on a new last axis.

    >>> lower_extremal_row(4, 3.0)
    array([0., 3., 3., 3.])
    """
    return _two_levels(n, spread, lambda n, s: n - 1)[..., ::-1]


def entropy_extremal_row(
    n: int, spread: Float[ArrayLike, "*rows"], temperature: Float[ArrayLike, "*rows"] = 1.0
) -> Float[ArrayLike, "*rows n"]:
    """The row of least entropy among all rows of n logits within a spread δ: k logits at δ, the others at 0.

    With s = δ/θ and x = s/(1 − e^(−s)), k is n(x − 1)/(e^s − 1) rounded to the better neighbour in 1 to n − 1: near
    half of the keys for a small spread, one key for a large one.

    Args:
        n: number of keys, an integer of at least 1.
        spread: δ, any shape.
        temperature: θ of the softmax whose entropy is meant.

    Returns:
        Logits before the temperature, the high ones first, the keys on a new last axis.

    >>> entropy_extremal_row(6, 1.0)
    array([1., 1., 0., 0., 0., 0.])
    """
    return _two_levels(n, spread, _lowest_entropy_count, temperature)


def peak_normaliser(xp: Any, s: Any) -> Any:
    """x = s/(1 − e^(−s)), which tends to 1 as s does to 0."""
    flat = s == 0
    safe = xp.where(flat, 1.0, s)  # also keeps the derivative at 0 free of 0/0
    return xp.where(flat, 1.0 + s / 2.0, safe / -xp.expm1(-safe))


def _lowest_entropy_count(n: int, s: Any) -> Any:
    """How many of n keys are high in the row of least entropy."""
    xp = jnp if isinstance(s, jax.Array) else np
    x = peak_normaliser(xp, s)
    flat = s == 0
    safe = xp.where(flat, 1.0, s)
    # (x − 1)/(e^s − 1), free of overflow
    fraction = xp.where(flat, 0.5, (x - 1.0) * xp.exp(-safe) / -xp.expm1(-safe))
    below = xp.clip(xp.floor(fraction * n), 1, max(n - 1, 1))
    above = xp.clip(below + 1, 1, max(n - 1, 1))

    def deficit(count: Any) -> Any:
        # log n − H of a two-level row; log Z through logaddexp, as e^s may overflow
        log_z = xp.logaddexp(xp.log1p(-count / max(n, 2)), s + xp.log(count / max(n, 2)))
        return -x * xp.expm1(-log_z) - log_z

    return xp.where(deficit(above) > deficit(below), above, below)


def _two_levels(n: int, spread: Any, count: Callable[[int, Any], Any], temperature: Any = 1.0) -> Any:
    """Rows of n logits, the first `count(n, δ/θ)` at δ and the others at 0."""
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(f"n must be an integer, the length of the row; got {type(n).__name__}") from None
    require_size(n)
    require_scale(spread, temperature)
    xp, _, s = prepare(n, spread, temperature)
    height = xp.broadcast_to(xp.asarray(spread, s.dtype), s.shape)[..., None]
    high = xp.asarray(count(n, s))[..., None]
    return xp.where(xp.arange(n) < high, height, 0.0)

"""The root of a decreasing function, one for each row: Newton's steps where they work, halving where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Array, Float

_MOST_STEPS = 100


def decreasing_root(
    function: Callable[[Float[Array, "*rows"]], tuple[Float[Array, "*rows"], Float[Array, "*rows"]]],
    low: Float[Array, "*rows"],
    high: Float[Array, "*rows"],
) -> Float[Array, "*rows"]:
    """x in [low, high] with f(x) = 0, for each row its own; the nearer end where f has one sign on the interval.

    A Newton step is taken if it stays inside the bracket and the last one at least halved |f|; else the bracket is
    halved. So the error shrinks at least by halves and near the root by squares. Every row runs until the last has
    converged to a few units in the last place of the dtype. Not to be differentiated: give the result its
    implicit derivative.

    Args:
        function: x [*rows] to (f(x), f'(x)), with f decreasing in each row.
        low: Lower ends of the brackets.
        high: Upper ends, above the lower.
    """
    precision = 4 * jnp.finfo(low.dtype).eps
    at_low, at_high = function(low)[0], function(high)[0]
    no_root = ~((at_low > 0) & (at_high < 0))  # also where either is NaN

    def unfinished(carry):
        step, _, _, _, _, done = carry
        return (step < _MOST_STEPS) & ~jnp.all(done)

    def improve(carry):
        step, a, b, x, last, done = carry
        value, slope = function(x)
        a, b = jnp.where(value > 0, x, a), jnp.where(value > 0, b, x)
        newton = x - value / jnp.where(slope < 0, slope, -1)
        trusted = (newton > a) & (newton < b) & (slope < 0) & (2 * jnp.abs(value) <= last)
        better = jnp.where(trusted, newton, a + (b - a) / 2)
        converged = (value == 0) | (jnp.abs(better - x) <= precision * jnp.maximum(1, jnp.abs(x)))
        x = jnp.where(done | (value == 0), x, better)
        return step + 1, a, b, x, jnp.abs(value), done | converged

    middle = low + (high - low) / 2
    start = (0, low, high, middle, jnp.full_like(middle, jnp.inf), no_root)
    x = jax.lax.while_loop(unfinished, improve, start)[3]
    x = jnp.where(at_low <= 0, low, jnp.where(at_high >= 0, high, x))
    return jnp.where(jnp.isnan(at_low) | jnp.isnan(at_high), jnp.nan, x)

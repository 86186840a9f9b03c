"""The rule that holds a sharp head's spread, and leaves an averaging head alone.

exp(H) is the number of keys that a row is effectively spread over, so exp(H) - 1 is how many there are beside one. Let
a head be asked for one key, its logits spread evenly over a range S below the largest. Then, with r = n / S,

    exp(H) - 1 ~ (pi^2 / 6) r  for small r,        exp(H) - 1 ~ e r  for large r:

proportional to n at both ends, with constants 1.64 and 2.72. Multiplying the logits by beta divides r by beta. So

    beta = (exp(H) - 1) / (exp(h) - 1)

brings the row back to the r at which its entropy was h, up to the ratio 1.65 of the constants and on the sharper side.
`exp_offset` has exp(H) in the place of exp(H) - 1: the same for dispersed rows, too weak by a factor of up to 1 / h
where h is that of a sharp head.

A head that averages over its keys has an entropy that grows like log n by design. For it h grows with n:

    h(n) = level + slope log n,

with slope 0 for a head that looks for a fixed number of keys and 1 for one that looks at a fixed share of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp

from adatemp._rule import RowStatistics, parameter, rule, setting

if TYPE_CHECKING:
    from jaxtyping import Array, ArrayLike, Float

#: Lowest h in nats. A head below it is one-hot for all purposes, and dividing by exp(h) - 1 needs a limit.
LOWEST = 0.01


@rule("level", "slope")
class Guarded:
    """beta is the row's number of keys beside one, over that of an entropy that may grow with n; see `guarded`."""

    level: Float[ArrayLike, "..."]
    slope: Float[ArrayLike, "..."]
    beta_max: float | None
    differentiate: bool = True
    range = None
    needs = frozenset({"entropy", "count"})

    def beta(self, stats: RowStatistics) -> Float[Array, "..."]:
        dtype = stats.entropy.dtype
        count = jnp.where(stats.count > 1, stats.count, 1).astype(dtype)
        held = jnp.asarray(self.level, dtype) + jnp.asarray(self.slope, dtype) * jnp.log(count)
        held = jnp.where(held <= LOWEST, LOWEST, held)
        beta = jnp.expm1(stats.entropy) / jnp.expm1(held)
        # Selections and not maxima, for one-sided derivatives and so that a NaN stays one.
        beta = jnp.where(beta <= 1, 1, beta)
        return beta if self.beta_max is None else jnp.where(beta >= self.beta_max, self.beta_max, beta)


def guarded(
    level: Float[ArrayLike, "..."],
    slope: Float[ArrayLike, "..."] = 0.0,
    beta_max: float | None = None,
    *,
    differentiate: bool = True,
) -> Guarded:
    """The rule beta = max(1, (exp(H) - 1) / (exp(h) - 1)) with h = level + slope log n, at most beta_max.

    `fit_guarded` finds level and slope from what a head does at its training lengths. With slope 0 the row keeps the
    shape that it had at entropy `level`, whatever its length; with slope 1 a head whose entropy grows like log n is
    left alone. h is taken to be at least 0.01 nats.

    Args:
        level: Entropy in nats at n = 1 on the line; with slope 0, the entropy up to which a row is left alone.
            Broadcasts against the row's shape.
        slope: Growth of that entropy per unit of log n, broadcasting likewise.
        beta_max: Highest beta, at least 1; None for no limit.
        differentiate: False stops the gradient through the entropy.

    Raises:
        TypeError: Level or slope is not a real number.
        ValueError: Level or slope is not finite, or beta_max is below 1.
    """
    if beta_max is not None:
        beta_max = setting("beta_max", beta_max)
        if beta_max < 1:
            raise ValueError(f"beta_max must be at least 1, got {beta_max}; this rule only sharpens")
    return Guarded(
        level=parameter("level", level),
        slope=parameter("slope", slope),
        beta_max=beta_max,
        differentiate=differentiate,
    )

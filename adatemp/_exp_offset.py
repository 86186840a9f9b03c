"""The rule that is exponential in the entropy in excess of an offset."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax.numpy as jnp

from adatemp._rule import RowStatistics, parameter, rule, setting

if TYPE_CHECKING:
    from jaxtyping import Array, ArrayLike, Float


@rule("offset")
class ExpOffset:
    """beta is the exponential of the entropy in excess of an offset; see `exp_offset`."""

    offset: Float[ArrayLike, "..."]
    beta_max: float | None
    differentiate: bool = True
    range = None
    needs = frozenset({"entropy"})

    def beta(self, stats: RowStatistics) -> Float[Array, "..."]:
        excess = stats.entropy - jnp.asarray(self.offset, stats.entropy.dtype)
        excess = jnp.where(excess <= 0, 0, excess)
        if self.beta_max is not None:
            highest = math.log(self.beta_max)
            excess = jnp.where(excess >= highest, highest, excess)
        return jnp.exp(excess)


def exp_offset(
    offset: Float[ArrayLike, "..."], beta_max: float | None = None, *, differentiate: bool = True
) -> ExpOffset:
    """The rule beta = exp(max(0, H - offset)), at most beta_max.

    When the logits are spread evenly over a range S and n is much larger than S, H = 1 + log(n / S). This beta then
    keeps n / (beta S), and with it the shape of the sharpened row, the same for every n.

    Args:
        offset: Entropy in nats up to which a row is left alone. Broadcasts against the row's shape.
        beta_max: Highest beta, at least 1; None for no limit.
        differentiate: False stops the gradient through the entropy.

    Raises:
        TypeError: The offset is not a real number.
        ValueError: The offset is not finite, or beta_max is below 1.
    """
    if beta_max is not None:
        beta_max = setting("beta_max", beta_max)
        if beta_max < 1:
            raise ValueError(f"beta_max must be at least 1, got {beta_max}; this rule only sharpens")
    return ExpOffset(offset=parameter("offset", offset), beta_max=beta_max, differentiate=differentiate)

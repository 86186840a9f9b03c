"""The rule that steps once towards a target entropy, by the slope that the row's own variance gives.

With p = softmax(beta z), dH/dbeta = -beta Var_p(z), because H = log sum exp(beta z) - beta E_p[z] and
dE_p[z]/dbeta = Var_p(z). So in the logarithm of beta

    dH / d log beta = -beta^2 Var_p(z),

which at beta = 1 is -V, with V the variance of the row that every implementation streams beside the entropy. One step
of Newton from there towards an entropy h is

    log beta = (H - h) / V.

Logits spread evenly over a wide range have V = 1 at every size: for them the step is that of `exp_offset`. A flat row
has V near 0 and no step could be trusted, so V is taken to be at least 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax.numpy as jnp

from adatemp._rule import RowStatistics, parameter, rule, setting

if TYPE_CHECKING:
    from jaxtyping import Array, ArrayLike, Float


@rule("target")
class Newton:
    """beta is one Newton step in its logarithm towards a target entropy; see `newton`."""

    target: Float[ArrayLike, "..."]
    beta_max: float | None
    differentiate: bool = True
    range = None
    needs = frozenset({"entropy", "variance"})

    def beta(self, stats: RowStatistics) -> Float[Array, "..."]:
        excess = stats.entropy - jnp.asarray(self.target, stats.entropy.dtype)
        step = excess / jnp.where(stats.variance <= 1, 1, stats.variance)
        step = jnp.where(step <= 0, 0, step)
        if self.beta_max is not None:
            highest = math.log(self.beta_max)
            step = jnp.where(step >= highest, highest, step)
        return jnp.exp(step)


def newton(target: Float[ArrayLike, "..."], beta_max: float | None = None, *, differentiate: bool = True) -> Newton:
    """The rule log beta = max(0, H - target) / max(V, 1), with V the variance of the row's logits, at most beta_max.

    One step towards the entropy that `target_entropy` solves for, from statistics that stream. It lands on the target
    as far as H is straight in log beta between the two, and falls short where the slope -beta^2 Var_beta flattens on
    the way. It overshoots on a nearly flat row, whose V is below 1.

    Args:
        target: Entropy in nats to step towards. Broadcasts against the row's shape.
        beta_max: Highest beta, at least 1; None for no limit.
        differentiate: False stops the gradient through the entropy and the variance.

    Raises:
        TypeError: The target is not a real number.
        ValueError: The target is not finite, or beta_max is below 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import adaptive_temperature_softmax, newton
        >>> logits = jnp.linspace(0, 100, 8_000)
        >>> weights, stats = adaptive_temperature_softmax(logits, temperature=newton(2.0), return_stats=True)
        >>> print(f"{stats.entropy:.2f} -> {-jnp.sum(weights * jnp.log(weights + 1e-30)):.2f} at beta {stats.beta:.1f}")
        5.38 -> 2.01 at beta 29.4
    """
    if beta_max is not None:
        beta_max = setting("beta_max", beta_max)
        if beta_max < 1:
            raise ValueError(f"beta_max must be at least 1, got {beta_max}; this rule only sharpens")
    return Newton(target=parameter("target", target), beta_max=beta_max, differentiate=differentiate)

"""The rule that gives every row the same entropy, by solving for each row's inverse temperature."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._monotone_root import decreasing_root
from adatemp._row_state import row_state, spread_about_maximum
from adatemp._rule import RowStatistics, parameter, rule, setting

if TYPE_CHECKING:
    from jaxtyping import Array, ArrayLike, Float


@rule("entropy")
class TargetEntropy:
    """beta is whatever brings the row to a given entropy; see `target_entropy`."""

    entropy: Float[ArrayLike, "..."]
    beta_min: float
    beta_max: float
    differentiate: bool = True
    range = None
    needs = frozenset({"row"})

    def beta(self, stats: RowStatistics) -> Float[Array, "*rows"]:
        # The largest logit of a row is 0, but a dead row has only huge ones, of which a compiler that fuses a product
        # with a subtraction makes anything. What beta they get does not matter.
        t = jnp.where(jnp.max(stats.row, -1, keepdims=True) < 0, 0, stats.row)
        target = jnp.broadcast_to(jnp.asarray(self.entropy, t.dtype), t.shape[:-1])
        return _solve(self.beta_min, self.beta_max, target, t)


def target_entropy(
    entropy: Float[ArrayLike, "..."], *, beta_min: float = 1.0, beta_max: float = 1e6, differentiate: bool = True
) -> TargetEntropy:
    """The rule that chooses beta so that softmax(beta z) has a given entropy, within [beta_min, beta_max].

    The entropy of softmax(beta z) falls strictly in beta, unless all logits are equal, from log n at 0 to the
    logarithm of the number of largest logits. So the solution is unique, and where none exists the rule gives the
    nearest it may:

    - a row that is below the target already keeps beta_min, which is 1 by default: the rule sharpens and never blunts;
    - a row that stays above the target, because all its logits are equal, because more than exp(entropy) of them tie
      for the largest, or because their differences are tiny, gets beta_max.

    The gradient is that of the exact solution, by the implicit function theorem, and 0 where beta sits on a limit.
    Solving needs the whole row several times over, so this rule cannot stream.

    Args:
        entropy: Target in nats, above 0. Broadcasts against the row's shape.
        beta_min: Lowest beta, above 0. Below 1, rows that are too sharp are blunted up to the target.
        beta_max: Highest beta.
        differentiate: False stops the gradient through the row.

    Raises:
        TypeError: The target is not a real number.
        ValueError: The target is not finite and above 0, or the limits are not in order.

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import adaptive_temperature_softmax, target_entropy
        >>> logits = jnp.linspace(0, 1, 1000)
        >>> rule = target_entropy(2.0)
        >>> weights, stats = adaptive_temperature_softmax(logits, temperature=rule, return_stats=True)
        >>> print(f"{stats.entropy:.3f} -> {-jnp.sum(weights * jnp.log(weights + 1e-30)):.3f} at beta {stats.beta:.1f}")
        6.867 -> 2.000 at beta 369.6
    """
    reason = "an entropy of 0 is reached only in the limit of large beta"
    target = parameter("entropy", entropy, above=0, reason=reason)
    beta_min, beta_max = setting("beta_min", beta_min), setting("beta_max", beta_max)
    if not 0 < beta_min < beta_max:
        raise ValueError(f"beta_min and beta_max must satisfy 0 < beta_min < beta_max, got {beta_min} and {beta_max}")
    return TargetEntropy(entropy=target, beta_min=beta_min, beta_max=beta_max, differentiate=differentiate)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _solve(beta_min: float, beta_max: float, target, t):
    """beta with H(softmax(beta t)) = target.

    With a = softmax(beta t), c = t - E_a[t] and V = E_a[c^2], the entropy H of a moves by

        dH = -beta V dbeta - beta^2 sum a c dt.

    Holding H at the target and solving for dbeta gives

        dbeta = -(beta sum a c dt + dtarget / beta) / V.
    """

    def excess(log_beta):
        # In log beta the slope is -V of the scaled row: of order 1 where the row is neither flat nor settled.
        state = row_state(jnp.exp(log_beta)[..., None] * t, (-1,), second_moment=True)
        _, entropy, variance = spread_about_maximum(state)
        return entropy - target, -variance

    low, high = (jnp.full_like(target, jnp.log(limit)) for limit in (beta_min, beta_max))
    log_beta = decreasing_root(excess, low, high)
    # The limits themselves and not exp(log(limit)): a row at beta_min = 1 is left alone to the bit.
    return jnp.where(log_beta <= low, beta_min, jnp.where(log_beta >= high, beta_max, jnp.exp(log_beta)))


@_solve.defjvp
def _solve_jvp(beta_min, beta_max, primals, tangents):
    (target, t), (d_target, dt) = primals, tangents
    beta = _solve(beta_min, beta_max, target, t)
    e = jnp.exp(beta[..., None] * t)
    a = e / jnp.maximum(1, jnp.sum(e, -1, keepdims=True))
    c = t - jnp.sum(a * t, -1, keepdims=True)
    variance = jnp.sum(a * c * c, -1)
    solved = (beta > beta_min) & (beta < beta_max) & (variance > 0)
    slope = -beta * jnp.where(solved, variance, 1)
    d_beta = (beta * beta * jnp.sum(a * c * dt, -1) + d_target) / slope
    return beta, jnp.where(solved, d_beta, 0)

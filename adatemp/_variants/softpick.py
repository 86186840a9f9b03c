"""Softpick: a rectified softmax whose weights need not sum to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._row_state import sum_over
from adatemp._rule import setting
from adatemp._variants.rows import over_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, ArrayLike, Bool, Float


def softpick(
    logits: Float[Array, "..."],
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
    *,
    epsilon: float = 1e-8,
) -> Float[Array, "..."]:
    """max(0, exp(z_i) - 1) / (epsilon + sum_j |exp(z_j) - 1|).

    Keys with a logit of 0 or less have no weight, but weigh in the normaliser, by at most 1 each: they are what a row
    with nothing to say spends its weight on. Where logits are large it is softmax over the positive ones, so dispersion
    among those stays. Unlike softmax it changes when a number is added to every logit.

    Dense here. One pass with a running maximum suffices, so a kernel could stream it.

    Everything is scaled by exp(-m) with m = max(0, max z), so nothing overflows, and exp(z) - 1 keeps its digits near
    0. A row without live keys gets weights and gradient 0; NaN or +inf in a live key makes its row NaN, and no other.
    At a logit of exactly 0 the derivative of both kinks is taken as 0.

    Args:
        logits: Floating array; computed in at least float32.
        axis: The axis or axes that run over the keys of a row, as in `jax.nn.softmax`; None for all of them.
        where: Mask that broadcasts to the logits, True where a key takes part. A logit of -inf never does, so it does
            not weigh in the normaliser either; a large negative one does, by 1.
        epsilon: Above 0; it only matters in a row whose logits are all 0, up to about itself.

    Returns:
        Weights of the logits' shape and dtype, with a sum below 1.

    Raises:
        TypeError: Logits that are not floating point, a mask that is not boolean.
        ValueError: An axis that does not exist or has no keys, a mask that does not broadcast, an epsilon that is not
            above 0.

    References:
        "Softpick: No Attention Sink, No Massive Activations with Rectified Softmax", https://arxiv.org/abs/2504.20966

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import variants
        >>> z = jnp.log(jnp.array([3.0, 2.0, 0.5, 0.5]))
        >>> print(*(f"{p:.3f}" for p in variants.softpick(z)))
        0.500 0.250 0.000 0.000
    """
    epsilon = setting("epsilon", epsilon)
    if not epsilon > 0:
        raise ValueError(f"epsilon must be above 0, got {epsilon}; without it a row of zeros would be 0/0")
    return over_rows(_weigh, logits, axis, where, settings=(epsilon,))


def _weigh(z, live, epsilon):
    z = jnp.where(live, z, 0)
    # Every term scales with exp(-m), so the weights do not depend on m.
    m = jax.lax.stop_gradient(jnp.maximum(jnp.max(z, -1, keepdims=True), 0))
    positive, negative = jnp.where(z <= 0, 0, z), jnp.where(z >= 0, 0, z)  # NaN is kept in both
    picked = jnp.exp(positive - m) * -jnp.expm1(-positive)
    rest = jnp.exp(-m) * -jnp.expm1(negative)
    total = jnp.expand_dims(sum_over(picked + rest, (z.ndim - 1,)), -1) + epsilon * jnp.exp(-m)
    return picked / total

"""The entropy of a softmax row, and the derivative of every row statistic."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._row_state import check_rows, live_logits, row_state, shifted, spread_about_maximum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, ArrayLike, Bool, Float


def entropy(
    logits: Float[Array, "..."],
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Shannon entropy of softmax(logits), in nats.

    H = -sum_i p_i log p_i = log l - s / l, with l = sum exp(t), s = sum exp(t) t and t the logits less their maximum.
    There is no epsilon inside a logarithm, so nothing is biased and float16 does not turn into NaN.

    Args:
        logits: Floating array of any shape. Not probabilities: these would be a softmax too many.
        axis: The axis or axes that run over the keys of a row, as in `jax.nn.softmax`; None for all of them.
        where: Mask that broadcasts to the logits, True where a key takes part. A logit of -inf never does.

    Returns:
        The logits' shape without `axis`, in promote_types(dtype, float32): from 0 (one key has all the weight) to
        log n (n keys share it evenly). 0 for a row without live keys.

    Raises:
        TypeError: Logits that are not floating point, a mask that is not boolean.
        ValueError: An axis that does not exist or has no keys, a mask that does not broadcast.

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import entropy
        >>> print(f"{entropy(jnp.zeros(8)):.4f} {jnp.log(8):.4f}")  # uniform over 8 keys
        2.0794 2.0794
    """
    logits, axes, where = check_rows(logits, axis, where)
    return _entropy(axes, logits, where)


@partial(jax.jit, static_argnums=0)
def _entropy(axes, logits, where):
    return row_statistics(axes, False, live_logits(logits, where))[2]


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def row_statistics(axes: tuple[int, ...], with_variance: bool, z):
    """(m, log l, H, V) of whole rows of live logits; V is None unless asked for.

    The derivative, with p the softmax of the row, mu = E_p[z] and c = z - mu:

        d lse = sum p dz
        d H   = -sum p c dz                        from H = lse - mu and d mu = sum p (1 + c) dz
        d V   = sum p (c^2 - V + 2 c) dz           from V = E_p[z^2] - mu^2

    m is the point the row was shifted by, a constant to differentiation: d lse is carried by log l alone. The rule is
    written with its own outputs, so differentiating it again gives the second derivative, and so on. Against plain
    automatic differentiation it saves the subtraction of p from p inside dH.
    """
    state = row_state(z, axes, second_moment=with_variance)
    return state.m, *spread_about_maximum(state)


@row_statistics.defjvp
def _row_statistics_jvp(axes, with_variance, primals, tangents):
    (z,), (dz,) = primals, tangents
    m, log_l, entropy, variance = row_statistics(axes, with_variance, z)
    keys = partial(jnp.expand_dims, axis=axes)
    t = shifted(z, m, axes)
    p_dz = jnp.exp(t - keys(log_l)) * dz
    c = t - keys(log_l - entropy)  # E_p[t] = s / l = log l - H
    d_log_l = jnp.sum(p_dz, axes)
    d_entropy = -jnp.sum(p_dz * c, axes)
    d_variance = jnp.sum(p_dz * (c * c - keys(variance) + 2 * c), axes) if with_variance else None
    return (m, log_l, entropy, variance), (jnp.zeros_like(m), d_log_l, d_entropy, d_variance)

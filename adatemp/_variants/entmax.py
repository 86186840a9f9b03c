"""Sparse weights: sparsemax and 1.5-entmax, their thresholds found exactly by sorting.

For alpha > 1 the weights of alpha-entmax are p_i = max(0, (alpha - 1) z_i - tau)^(1 / (alpha - 1)), with the threshold
tau that makes their sum 1. They are those of the row less its maximum, so let x = (alpha - 1) (z - max z) <= 0. If the
k largest keys have weight and no other, tau follows from their sums alone:

    alpha = 2:    sum (x_i - tau) = 1        gives  tau = M - 1/k
    alpha = 1.5:  sum (x_i - tau)^2 = 1      gives  tau = M - sqrt((1 - S) / k)

with M the mean of the k largest and S the sum of their squared distances from M. The right k is the largest for which
the k-th key is above the threshold that k gives. Running sums of a long row are rounded, and S is a small difference
of large ones, so two of Newton's steps follow on sum p = 1, a convex decreasing function of tau, with the terms of the
row itself: they leave the threshold as it is but for the rounding.

With s_i = p_i^(2 - alpha) on the keys that have weight and 0 elsewhere, the derivative is

    dp_i = s_i (dz_i - sum_j s_j dz_j / sum_j s_j).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._row_state import sum_over
from adatemp._variants.rows import over_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, ArrayLike, Bool, Float


def sparsemax(
    logits: Float[Array, "..."],
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """The point of the simplex nearest to the logits: p = max(0, z - tau) with sum 1.

    Only keys within 1 of the largest logit can have weight. How many have it stays bounded as n grows where the best
    keys keep their distance from the rest, and grows with n where they crowd together. Dense: the threshold needs the
    whole row, sorted, in O(n log n).

    A row without live keys gets weights and gradient 0; NaN or +inf in a live key makes its row NaN, and no other.
    At logits where a key is about to gain or lose its weight the gradient is that of the keys that have weight.

    Args:
        logits: Floating array; computed in at least float32.
        axis: The axis or axes that run over the keys of a row, as in `jax.nn.softmax`; None for all of them.
        where: Mask that broadcasts to the logits, True where a key takes part. A logit of -inf never does.

    Returns:
        Weights of the logits' shape and dtype, with exact zeros and sum 1.

    Raises:
        TypeError: Logits that are not floating point, a mask that is not boolean.
        ValueError: An axis that does not exist or has no keys, a mask that does not broadcast.

    References:
        "From Softmax to Sparsemax", https://arxiv.org/abs/1602.02068. One row at a time and without a mask it is also
        `optax.projections.projection_simplex`, which the tests compare with.

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import variants
        >>> print(variants.sparsemax(jnp.array([1.0, 0.5, -0.5])))
        [0.75 0.25 0.  ]
    """
    return over_rows(_weigh_sparsemax, logits, axis, where)


def entmax15(
    logits: Float[Array, "..."],
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """1.5-entmax, half way from softmax to sparsemax: p = max(0, z/2 - tau)^2 with sum 1.

    Only keys within 2 of the largest logit can have weight. Arguments, errors and edge cases are those of `sparsemax`;
    like it, it is dense.

    References:
        "Sparse Sequence-to-Sequence Models", https://arxiv.org/abs/1905.05702; the threshold by sorting is its
        algorithm 2.

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import variants
        >>> print(*(f"{p:.3f}" for p in variants.entmax15(jnp.array([1.0, 0.6, -0.8]))))
        0.640 0.360 0.000
    """
    return over_rows(_weigh_entmax15, logits, axis, where)


def _weigh_sparsemax(z, live):
    return _sparsemax(_from_top(z, 1))


def _weigh_entmax15(z, live):
    return _entmax15(_from_top(z, 0.5))


def _from_top(z, factor: float):
    """x = factor (z - max z), cut at -2: no key below -1 has weight, and none at -2 comes near to it by rounding."""
    # Weights move with z as they do with z less a constant, so the maximum need not be differentiated.
    m = jax.lax.stop_gradient(jnp.max(z, -1, keepdims=True))
    return factor * jnp.maximum(z - jnp.where(m == -jnp.inf, 0, m), -2 / factor)


@jax.custom_jvp
def _sparsemax(x):
    top = _sorted(x)
    k, mean, _ = _running(top)
    tau = _largest_support(top, mean - 1 / k)
    for _ in range(2):
        above = jnp.maximum(x - tau, 0)
        tau = tau + (_total(above) - 1) / jnp.maximum(_total((above > 0).astype(x.dtype)), 1)
    return jnp.maximum(x - tau, 0)


@_sparsemax.defjvp
def _sparsemax_jvp(primals, tangents):
    p = _sparsemax(*primals)
    return p, _tangent((p > 0).astype(p.dtype), *tangents)


@jax.custom_jvp
def _entmax15(x):
    top = _sorted(x)
    k, mean, spread = _running(top)
    tau = _largest_support(top, mean - jnp.sqrt(jnp.maximum(1 - spread, 0) / k))
    for _ in range(2):
        above = jnp.maximum(x - tau, 0)
        tau = tau + (_total(above * above) - 1) / (2 * jnp.maximum(_total(above), jnp.finfo(x.dtype).tiny))
    return jnp.square(jnp.maximum(x - tau, 0))


@_entmax15.defjvp
def _entmax15_jvp(primals, tangents):
    p = _entmax15(*primals)
    # The square root has no derivative at 0, and none is wanted there. x = z / 2 makes the factor 2.
    return p, 2 * _tangent(jnp.where(p > 0, jnp.sqrt(jnp.where(p > 0, p, 1)), 0), *tangents)


def _tangent(s, dx):
    """s_i (dx_i - the mean of dx under s)."""
    return s * (dx - _total(s * dx) / jnp.maximum(_total(s), jnp.finfo(s.dtype).tiny))


def _sorted(x):
    return -jnp.sort(-x, axis=-1)  # largest first, NaN last


def _running(top):
    """(k, mean of the k largest, sum of their squared distances from it) for every k, [*rows, n]."""
    k = jnp.arange(1, top.shape[-1] + 1, dtype=top.dtype)
    mean = jnp.cumsum(top, -1) / k
    return k, mean, jnp.cumsum(top * top, -1) - k * mean * mean


def _largest_support(top, tau):
    """The threshold of the largest k whose k-th key is above the threshold that k gives; every smaller k passes too."""
    passes = tau < top
    size = jnp.where(jnp.all(passes, -1), top.shape[-1], jnp.argmin(passes, -1))
    return jnp.take_along_axis(tau, jnp.maximum(size - 1, 0)[..., None], -1)


def _total(x):
    return jnp.expand_dims(sum_over(x, (x.ndim - 1,)), -1)

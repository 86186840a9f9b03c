"""Weights for the best keys alone: softmax over the k largest logits, and all weight on the largest."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._softmax import adaptive_temperature_softmax
from adatemp._variants.rows import over_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, ArrayLike, Bool, Float


def top_k(
    logits: Float[Array, "..."],
    k: int,
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Softmax over the k largest logits of each row, 0 elsewhere.

    Exactly k keys are kept: of keys that tie for the last place, the first ones. A row of at most k live keys is plain
    softmax. It removes the far tail, so it holds a needle that stands out from noise; it does nothing against the k - 1
    nearest competitors, and starves a head that must average over more than k keys. Which keys are kept is constant to
    differentiation: the gradient is that of softmax over them, and 0 for the others.

    Dense: the selection needs the whole row. A row without live keys gets weights and gradient 0; NaN or +inf in a live
    key makes its row NaN, and no other.

    Args:
        logits: Floating array; computed in at least float32.
        k: How many keys may have weight: a Python integer, at least 1.
        axis: The axis or axes that run over the keys of a row, as in `jax.nn.softmax`; None for all of them.
        where: Mask that broadcasts to the logits, True where a key takes part. A logit of -inf never does.

    Returns:
        Weights of the logits' shape and dtype, with sum 1.

    Raises:
        TypeError: Logits that are not floating point, a mask that is not boolean, a k that is not an integer.
        ValueError: An axis that does not exist or has no keys, a mask that does not broadcast, a k below 1.

    References:
        "Memory-efficient Transformers via Top-k Attention", https://arxiv.org/abs/2106.06899

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import variants
        >>> print(variants.top_k(jnp.array([0.0, 1.0, 1.0, 1.0]), k=2))
        [0.  0.5 0.5 0. ]
    """
    try:
        if isinstance(k, bool):
            raise TypeError
        k = operator.index(k)
    except TypeError:
        raise TypeError(f"k counts keys and chooses code, so it must be a Python integer, got {k!r}") from None
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}; a row keeps its k largest logits")
    return over_rows(_weigh_top_k, logits, axis, where, settings=(k,))


def _weigh_top_k(z, live, k):
    if k < z.shape[-1]:
        rank = jax.lax.stop_gradient(z)
        lowest = jax.lax.top_k(rank, k)[0][..., -1:]
        above, tied = rank > lowest, rank == lowest
        room = k - jnp.sum(above, -1, keepdims=True, dtype=jnp.int32)
        kept = above | (tied & (jnp.cumsum(tied, -1, dtype=jnp.int32) <= room))
        spoilt = ~(jnp.max(rank, -1, keepdims=True) < jnp.inf)  # NaN or +inf, to show in the whole row
        live = live & (kept | spoilt)
    return adaptive_temperature_softmax(z, where=live, temperature=None)


def hard(
    logits: Float[Array, "..."],
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """All weight on the largest logit, on the first of those that tie for it: softmax in the limit of large beta.

    No temperature can do better, for none changes which key is first: the ceiling of every comparison. The gradient is
    0 everywhere, so a head cannot be trained through it.

    Dense here; a running maximum with its value would stream. A row without live keys gets weights 0; NaN in a live
    key makes its row NaN, and no other; +inf is the largest.

    Args:
        logits: Floating array.
        axis: The axis or axes that run over the keys of a row, as in `jax.nn.softmax`; None for all of them.
        where: Mask that broadcasts to the logits, True where a key takes part. A logit of -inf never does.

    Returns:
        Weights of the logits' shape and dtype: 1 at one key of each row, 0 elsewhere.

    Raises:
        TypeError: Logits that are not floating point, a mask that is not boolean.
        ValueError: An axis that does not exist or has no keys, a mask that does not broadcast.

    References:
        "Theoretical Limitations of Self-Attention in Neural Sequence Models", https://arxiv.org/abs/1906.06755

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import variants
        >>> print(variants.hard(jnp.array([0.0, 1.0, 1.0])))
        [0. 1. 0.]
    """
    return over_rows(_weigh_hard, logits, axis, where)


def _weigh_hard(z, live):
    z = jax.lax.stop_gradient(z)
    first = jnp.argmax(z, -1, keepdims=True) == jnp.arange(z.shape[-1])
    return jnp.where(jnp.any(jnp.isnan(z), -1, keepdims=True), jnp.nan, first.astype(z.dtype))

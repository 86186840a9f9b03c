"""Stick-breaking weights: the newest key takes its share first, the next a share of what is left, and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._variants.rows import over_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, ArrayLike, Bool, Float


def stick_breaking(
    logits: Float[Array, "..."],
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """sigmoid(z_i) times the product of 1 - sigmoid(z_j) over the live keys j after i: the last key goes first.

    With keys in the order of time, as in causal attention, that is the newest key first. A key's weight depends on the
    keys after it alone, so older keys take nothing from it however many they are; the keys after it do, and a key
    found among n distractors keeps its weight only if their logits are as low as -log n. What is left at the end, the
    product over all keys, goes nowhere. The order replaces a position code. In the published form a token does not
    attend to itself: hide the diagonal with `where`.

    Dense here. A kernel can stream it, newest key first; states of separate blocks do not merge in any other order.

    A row without live keys gets weights and gradient 0. NaN makes its own weight and those of earlier keys NaN; +inf
    takes all that is left.

    Args:
        logits: Floating array; computed in at least float32, the product as a sum of logarithms.
        axis: The axis or axes that run over the keys of a row, as in `jax.nn.softmax`; None for all of them. With
            several the last one counts fastest.
        where: Mask that broadcasts to the logits, True where a key takes part. A logit of -inf never does.

    Returns:
        Weights of the logits' shape and dtype, with a sum of at most 1.

    Raises:
        TypeError: Logits that are not floating point, a mask that is not boolean.
        ValueError: An axis that does not exist or has no keys, a mask that does not broadcast.

    References:
        "Scaling Stick-Breaking Attention", https://arxiv.org/abs/2410.17980

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import variants
        >>> print(variants.stick_breaking(jnp.zeros(3)))
        [0.125 0.25  0.5  ]
    """
    return over_rows(_weigh, logits, axis, where)


def _weigh(z, live):
    z = jnp.where(live, z, 0)
    left = jnp.where(live, -jax.nn.softplus(z), 0)  # log of what each key leaves of what it finds
    after = jax.lax.cumsum(left, z.ndim - 1, reverse=True)
    # Shifted by a place rather than less its own term, which would lose digits and make -inf - -inf.
    found = jnp.concatenate([after[..., 1:], jnp.zeros_like(after[..., :1])], -1)
    return jnp.exp(found - jax.nn.softplus(-z))

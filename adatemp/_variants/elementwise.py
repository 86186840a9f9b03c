"""Weights that each key gets by itself, without competition: sigmoid attention, and ReLU over the number of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._variants.rows import live_count, over_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, ArrayLike, Bool, Float


def sigmoid(
    logits: Float[Array, "..."],
    bias: Float[ArrayLike, "..."] | None = None,
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """1 / (1 + exp(-(z_i + b))), with b = -log n for a row of n live keys unless a bias is given.

    No key takes weight from another, so the weights do not sum to 1: n keys at logit 0 have n / (1 + n) together. A
    fixed bias makes the weights independent of n, and then the sum over n keys of noise grows with n; b = -log n holds
    that sum, and a single key's weight then falls like 1/n unless its logit grows with log n. What reads the output
    must bear another norm than that of an average.

    Dense here. It needs nothing of the row but its count, so a kernel could stream it.

    A row without live keys gets weights and gradient 0. NaN stays with its key; +inf has weight 1.

    Args:
        logits: Floating array; computed in at least float32.
        bias: b; a number, or an array that broadcasts to the rows, the logits without `axis`. None for -log n.
        axis: The axis or axes that run over the keys of a row, as in `jax.nn.softmax`; None for all of them.
        where: Mask that broadcasts to the logits, True where a key takes part. A logit of -inf never does.

    Returns:
        Weights of the logits' shape and dtype, each between 0 and 1.

    Raises:
        TypeError: Logits that are not floating point, a mask that is not boolean, a bias that is not real.
        ValueError: An axis that does not exist or has no keys, a mask or a bias that does not broadcast.

    References:
        "Theory, Analysis, and Best Practices for Sigmoid Self-Attention", https://arxiv.org/abs/2409.04431

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import variants
        >>> print(variants.sigmoid(jnp.zeros(4)))
        [0.2 0.2 0.2 0.2]
    """
    if bias is None:
        return over_rows(_weigh_sigmoid, logits, axis, where)
    return over_rows(_weigh_sigmoid, logits, axis, where, bias=bias)


def _weigh_sigmoid(z, live, bias=None):
    return jax.nn.sigmoid(z - jnp.log(live_count(live, z.dtype)) if bias is None else z + bias)


def relu(
    logits: Float[Array, "..."],
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """max(0, z_i) / n for a row of n live keys.

    No key takes weight from another and a weight has no limit, so the sum may be anything from 0 up. A key keeps its
    weight as n grows only if its logit grows like n.

    Dense here. It needs nothing of the row but its count, so a kernel could stream it.

    A row without live keys gets weights and gradient 0. NaN and +inf stay with their key. The derivative at 0 is 0.

    Args:
        logits: Floating array; computed in at least float32.
        axis: The axis or axes that run over the keys of a row, as in `jax.nn.softmax`; None for all of them.
        where: Mask that broadcasts to the logits, True where a key takes part. A logit of -inf never does.

    Returns:
        Weights of the logits' shape and dtype, at least 0.

    Raises:
        TypeError: Logits that are not floating point, a mask that is not boolean.
        ValueError: An axis that does not exist or has no keys, a mask that does not broadcast.

    References:
        "Replacing softmax with ReLU in Vision Transformers", https://arxiv.org/abs/2309.08586

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import variants
        >>> print(variants.relu(jnp.array([2.0, -1.0, 1.0, 0.0])))
        [0.5  0.   0.25 0.  ]
    """
    return over_rows(_weigh_relu, logits, axis, where)


def _weigh_relu(z, live):
    return jax.nn.relu(z) / live_count(live, z.dtype)

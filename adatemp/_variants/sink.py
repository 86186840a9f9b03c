"""Softmax that may spend its weight on nothing: a null slot, or a sink whose logit is learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._row_state import LOWEST_DIFFERENCE, sum_over
from adatemp._variants.rows import over_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, ArrayLike, Bool, Float


def sink_softmax(
    logits: Float[Array, "..."],
    sink: Float[ArrayLike, "..."] = 0.0,
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """exp(z_i) / (exp(S) + sum_j exp(z_j)): softmax with one more logit S in the normaliser, whose weight is dropped.

    The weights are softmax(z) times sigmoid(lse(z) - S), so a sink is a gate: it lets a row with nothing to say attend
    to nothing, and leaves the ratios of the weights, and with them dispersion, as they are. S = 0 is a null slot, also
    called softmax off by one. S learned a head is the sink of gpt-oss.

    It streams: `dot_product_attention(..., sink=S)` is the same with O(n) memory. Computed about the larger of S and
    the row's maximum, so nothing overflows: the 1 of the null slot becomes exp(-m) after the shift.

    A row without live keys gets weights and gradient 0; NaN or +inf in a live key makes its row NaN, and no other.

    Args:
        logits: Floating array; computed in at least float32.
        sink: S; a number, or an array that broadcasts to the rows, the logits without `axis`: a logit a head is
            [heads, 1] for logits [batch, heads, queries, keys]. -inf is plain softmax.
        axis: The axis or axes that run over the keys of a row, as in `jax.nn.softmax`; None for all of them.
        where: Mask that broadcasts to the logits, True where a key takes part. A logit of -inf never does.

    Returns:
        Weights of the logits' shape and dtype, with sum sigmoid(lse(z) - S).

    Raises:
        TypeError: Logits that are not floating point, a mask that is not boolean, a sink that is not real.
        ValueError: An axis that does not exist or has no keys, a mask or a sink that does not broadcast.

    References:
        "Attention Is Off By One", https://www.evanmiller.org/attention-is-off-by-one.html, and "gpt-oss-120b &
        gpt-oss-20b Model Card", https://arxiv.org/abs/2508.10925.

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import variants
        >>> print(variants.sink_softmax(jnp.zeros(3)))  # three keys and the null slot
        [0.25 0.25 0.25]
    """
    return over_rows(_weigh, logits, axis, where, sink=sink)


def _weigh(z, live, sink):
    highest = jnp.maximum(jnp.max(z, -1, keepdims=True), sink)
    # The weights do not depend on the point everything is shifted by; it is finite, so that -inf - -inf never is.
    m = jax.lax.stop_gradient(jnp.maximum(highest, jnp.finfo(z.dtype).min))
    e = jnp.exp(jnp.maximum(z - m, LOWEST_DIFFERENCE))
    total = jnp.expand_dims(sum_over(e, (z.ndim - 1,)), -1) + jnp.exp(jnp.maximum(sink - m, LOWEST_DIFFERENCE))
    return e / jnp.where(total == 0, 1, total)

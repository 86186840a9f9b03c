"""Rules that read how many keys a query sees: scalable softmax, and what two families of language models ship."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from adatemp._constant import Constant
from adatemp._rule import RowStatistics, is_concrete, parameter, rule

if TYPE_CHECKING:
    from jaxtyping import Array, ArrayLike, Float

# Attention takes beta to be positive. At this one, logits that differ by less than 1,000 get equal weights.
LOWEST_BETA = 1e-6


@rule("scale", "offset")
class Scalable:
    """beta is affine in the logarithm of the number of keys; see `scalable`."""

    scale: Float[ArrayLike, "..."]
    offset: Float[ArrayLike, "..."]
    differentiate: bool = True
    range = None
    needs = frozenset({"count"})

    def beta(self, stats: RowStatistics) -> Float[Array, "..."]:
        scale, offset = jnp.asarray(self.scale), jnp.asarray(self.offset)
        # Parameters may be bfloat16, and a count of 131,071 is not.
        dtype = jnp.promote_types(jnp.result_type(scale, offset), jnp.float32)
        log_count = jnp.log(jnp.maximum(stats.count, 1).astype(dtype))
        beta = jnp.maximum(scale * log_count + offset, LOWEST_BETA)
        return jnp.where(stats.count > 1, beta, 1)  # one key leaves nothing to decide


def scalable(
    scale: Float[ArrayLike, "..."], offset: Float[ArrayLike, "..."] = 0.0, *, differentiate: bool = True
) -> Scalable:
    """The rule beta = scale log n + offset for a row of n live keys: scalable softmax, softmax(scale log n z).

    With an offset of 0 the weights are n^(scale z), normalised. A needle that stands out by a gap g from n - 1 keys of
    one level keeps its weight for every n if scale * g > 1, and loses it if scale * g < 1. Scale and offset are meant
    to be learned, a value a head. The count is that of the keys a query sees, so padding, packing and a cache change
    nothing.

    A row of one key has beta 1. Where learned parameters would make beta 0 or negative, beta is 1e-6, nearly uniform
    weights, and their gradient is 0; a parameter that must not get stuck there can be the softplus of another.

    Args:
        scale: s, at least 0. Broadcasts against the row's shape.
        offset: b. Broadcasts against the row's shape.
        differentiate: Taken by every constructor; a count has no gradient.

    Raises:
        TypeError: Scale or offset is not a real number.
        ValueError: They are not finite, a known scale is negative, or it is 0 with an offset that is not above 0.

    References:
        "Scalable-Softmax Is Superior for Attention", https://arxiv.org/abs/2501.19399
    """
    scale, offset = parameter("scale", scale), parameter("offset", offset)
    if is_concrete(scale):
        known = np.asarray(scale, np.float64)
        if np.any(known < 0):
            raise ValueError(
                f"scale must be at least 0, got {known.tolist()}; a negative scale would turn the order of the keys "
                "round, which a temperature never does"
            )
        if is_concrete(offset) and np.any((known == 0) & (np.asarray(offset, np.float64) <= 0)):
            raise ValueError(
                f"scale 0 with offset {np.asarray(offset).tolist()} makes beta at most 0 for every row; give a scale "
                "above 0, or an offset above 0 for a beta that does not grow"
            )
    return Scalable(scale=scale, offset=offset, differentiate=differentiate)


def yarn(
    factor: Float[ArrayLike, "..."], coefficient: Float[ArrayLike, "..."] = 0.1, *, differentiate: bool = True
) -> Constant:
    """The constant rule beta = (coefficient log factor + 1)^2 of a context stretched by a factor, as in YaRN.

    It reads nothing of the row: the factor is chosen once, for the longest context. Implementations multiply query and
    key by the square root of beta each; a factor applied to one of them alone is a known mistake. Beta is at least 1,
    so it sharpens; a factor of 1 gives `constant(1.0)`, plain attention to the bit.

    Args:
        factor: s, the length of the stretched context over that of training: at least 1. A traced one below 1 counts
            as 1.
        coefficient: 0.1 as published for Llama models, at least 0; DeepSeek multiplies it by its `mscale`.
        differentiate: Taken by every constructor; this rule reads no statistics to stop the gradient through.

    Raises:
        TypeError: Factor or coefficient is not a real number.
        ValueError: They are not finite, a known factor is below 1 or a known coefficient below 0.

    References:
        "YaRN: Efficient Context Window Extension of Large Language Models", https://arxiv.org/abs/2309.00071

    Example:
        >>> from adatemp.temperature import yarn
        >>> print(f"{yarn(40.0).inverse_temperature:.3f}")
        1.874
    """
    factor, coefficient = parameter("factor", factor), parameter("coefficient", coefficient)
    if is_concrete(factor) and np.any(np.asarray(factor, np.float64) < 1):
        raise ValueError(
            f"factor must be at least 1, got {np.asarray(factor).tolist()}; it is the stretched length over the length "
            "of training, not the other way round"
        )
    if is_concrete(coefficient) and np.any(np.asarray(coefficient, np.float64) < 0):
        raise ValueError(f"coefficient must be at least 0, got {np.asarray(coefficient).tolist()}; YaRN's is 0.1")
    if isinstance(factor, float) and isinstance(coefficient, float):
        beta = (coefficient * math.log(factor) + 1) ** 2
    else:
        beta = (coefficient * jnp.log(jnp.maximum(factor, 1)) + 1) ** 2
    return Constant(inverse_temperature=beta, differentiate=differentiate)


@rule("coefficient")
class Llama4:
    """beta steps up each time the number of keys passes a multiple of a length; see `llama4`."""

    coefficient: Float[ArrayLike, "..."]
    floor_scale: int
    differentiate: bool = True
    range = None
    needs = frozenset({"count"})

    def beta(self, stats: RowStatistics) -> Float[Array, "..."]:
        coefficient = jnp.asarray(self.coefficient)
        dtype = jnp.promote_types(coefficient.dtype, jnp.float32)
        # Whole numbers, so that a count on a multiple falls on the right side of the step.
        steps = jax.lax.div(stats.count, jnp.full_like(stats.count, self.floor_scale))
        return 1 + coefficient * jnp.log(1 + steps.astype(dtype))


def llama4(
    coefficient: Float[ArrayLike, "..."] = 0.1, *, floor_scale: int = 8192, differentiate: bool = True
) -> Llama4:
    """The rule beta = 1 + coefficient log(1 + floor(n / floor_scale)) for a row of n live keys, as in Llama 4.

    Rows of fewer than floor_scale keys are left alone; 131,071 keys have beta 1.277. The published code counts
    positions, and applies this in layers without positional encoding, where a query at position p (from 0) sees
    n = p + 1 keys: the same number, except under padding, packing or a window, where this rule counts what the query
    sees.

    Args:
        coefficient: 0.1 as published; at least 0. Broadcasts against the row's shape.
        floor_scale: Number of keys from one step to the next; 8,192 as published.
        differentiate: Taken by every constructor; a count has no gradient.

    Raises:
        TypeError: The coefficient is not a real number, or floor_scale not a whole one.
        ValueError: The coefficient is not finite, or a known one is below 0; floor_scale is below 1.

    References:
        https://github.com/meta-llama/llama-models, models/llama4/model.py
    """
    coefficient = parameter("coefficient", coefficient)
    if is_concrete(coefficient) and np.any(np.asarray(coefficient, np.float64) < 0):
        raise ValueError(
            f"coefficient must be at least 0, got {np.asarray(coefficient).tolist()}; this rule only sharpens, and a "
            "negative one makes beta negative in long rows"
        )
    try:
        floor_scale = operator.index(floor_scale)
    except TypeError:
        raise TypeError(
            f"floor_scale counts keys and chooses code, so it must be a Python integer, got {floor_scale!r}"
        ) from None
    if not 1 <= floor_scale < 2**31:
        raise ValueError(f"floor_scale must be from 1 to 2**31 - 1, got {floor_scale}; Llama 4's is 8192")
    return Llama4(coefficient=coefficient, floor_scale=floor_scale, differentiate=differentiate)

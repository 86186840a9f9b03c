"""What a number format can tell apart: its unit round-off, its spacing, and where an exponential becomes 0."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float


@dataclasses.dataclass(frozen=True)
class NumberFormat:
    """A floating-point format with p significant bits.

    The spacing and the unit round-off are often confused. The spacing 2^(1−p) separates 1 from the next number above
    (what NumPy calls eps); rounding to nearest errs by at most half of that, relative to the number: the unit round-off
    u = 2^(−p).

    Attributes:
        name: of the dtype.
        bits: p, significant bits, the leading one included.
        smallest_normal: below it the spacing no longer shrinks.
        smallest: the smallest positive number, a subnormal.
        largest: the largest finite number.
    """

    name: str
    bits: int
    smallest_normal: float
    smallest: float
    largest: float

    @property
    def spacing(self) -> float:
        """2^(1−p), the distance from 1 to the next number above."""
        return 2.0 ** (1 - self.bits)

    @property
    def unit_roundoff(self) -> float:
        """2^(−p), the largest relative error of rounding to nearest."""
        return 2.0**-self.bits


def number_format(dtype: Any) -> NumberFormat:
    """The format of a floating-point dtype, such as "bfloat16" or `jnp.float8_e4m3fn`.

    Raises:
        TypeError: if the dtype is no floating-point one. The steps of integers are absolute: see
            `collision_size_int8`.

    >>> number_format("bfloat16").unit_roundoff == 2**-8
    True
    """
    dtype = jnp.dtype(dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(
            f"dtype must be floating point, got {dtype.name}; integers have absolute steps, not relative ones"
        )
    info = jnp.finfo(dtype)
    return NumberFormat(
        dtype.name,
        int(info.nmant) + 1,
        float(info.smallest_normal),
        float(info.smallest_subnormal),
        float(info.max),
    )


def half_spacing(value: Float[ArrayLike, "..."], dtype: Any, toward: Float[ArrayLike, "..."] = math.inf) -> Any:
    """How far a number may be moved before rounding to nearest gives its neighbour: half the gap to it.

    Relative to the number this lies between u/2 and u: u just at a power of two, and half of it just below the next.
    Down from a power of two the gap is only half as wide, so there it is u/2.

    Args:
        value: first rounded to the dtype; finite.
        dtype: a floating-point dtype.
        toward: on which side the neighbour is meant.

    Returns:
        Half the gap, float64, broadcast.

    >>> form = number_format("bfloat16")
    >>> print(half_spacing(1.0, "bfloat16") / form.unit_roundoff, half_spacing(1.99, "bfloat16") / 1.99 * 2**8)
    1.0 0.5025125628140703
    """
    form = number_format(dtype)
    value = rounded(value, dtype)
    size, toward = np.abs(value), np.asarray(toward, np.float64)
    mantissa, exponent = np.frexp(size)  # size = mantissa · 2^exponent, mantissa in [1/2, 1)
    inward = np.where(value > 0, toward < value, toward > value) & (value != 0)
    below_power = inward & (mantissa == 0.5) & (size > form.smallest_normal)
    gap = np.maximum(np.ldexp(1.0, exponent - form.bits - below_power), form.smallest)
    return (np.where(value == 0, form.smallest, gap) / 2.0)[()]


def rounded(value: Float[ArrayLike, "..."], dtype: Any) -> Any:
    """A number as the dtype holds it, in float64."""
    return np.asarray(value, np.float64).astype(jnp.dtype(dtype)).astype(np.float64)


def underflow_spread(dtype: Any, temperature: Float[ArrayLike, "..."] = 1.0, *, flush: bool = False) -> Any:
    """The spread from which e^(−δ/θ) is 0 in a dtype, so that a head with one top logit is exactly one-hot.

    A result up to half the smallest positive number rounds to 0: δ = θ log(2/smallest). Processors that flush
    subnormals to 0, as XLA's do, get there at θ log(1/smallest normal).

    Args:
        dtype: in which the exponential is taken.
        temperature: θ, in the unit of the logits.
        flush: whether subnormal results become 0.

    Returns:
        δ in the unit of the logits, float64.

    >>> print(f"{underflow_spread('float16'):.2f}, {underflow_spread('float32', flush=True):.2f}")
    17.33, 87.34
    """
    form = number_format(dtype)
    smallest = form.smallest_normal if flush else form.smallest / 2.0
    return (np.asarray(temperature, np.float64) * -math.log(smallest))[()]

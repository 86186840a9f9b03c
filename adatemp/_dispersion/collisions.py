"""The size at which {A, B, …, B} and {B, …, B} give one number: it depends on where the machine rounds.

A has the largest logit, δ above those of the n − 1 others; s = δ/θ. Its weight is α = 1/(1 + (n−1)e^(−s)), and the
pooled value is v_B + α(v_A − v_B). All functions here speak of one coordinate; vectors collide at the largest size of
any. All of them give infinity where the Bs' exponentials underflow: A is then alone at any size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from adatemp._bound_arguments import require_positive, require_scale
from adatemp._dispersion.number_formats import half_spacing, number_format, rounded, underflow_spread

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float


def collision_size_output(
    value_a: Float[ArrayLike, "..."],
    value_b: Float[ArrayLike, "..."],
    spread: Float[ArrayLike, "..."],
    temperature: Float[ArrayLike, "..."] = 1.0,
    *,
    dtype: Any,
    exp_dtype: Any = "float32",
    flush: bool = False,
) -> Any:
    """Weights and sum precise, the output cast: n = 1 + e^s(|v_A − v_B|/h − 1), h half the gap next to v_B.

    Rounding is monotone, so this is a threshold: outputs differ at smaller sizes and coincide at larger ones, up to the
    error of the precise sum. h is between u/2 and u of |v_B|, so n is about e^s/u where |v_A − v_B| = |v_B|, and at
    most twice that.

    Args:
        value_a: v_A, rounded to the dtype first.
        value_b: v_B, likewise.
        spread: δ, in the unit of the logits.
        temperature: θ, in the unit of the logits.
        dtype: of the values and the output.
        exp_dtype: in which the exponentials are taken.
        flush: whether its subnormal results become 0, as in XLA on CPU and GPU.

    Returns:
        n, float64; 1 where the values are equal, infinity where e^(−s) underflows.

    Raises:
        TypeError: if the dtype is no floating-point one.
        ValueError: if δ is negative or not finite, or θ is not positive.

    >>> float(collision_size_output(2.0, 1.0, 0.0, dtype="bfloat16"))
    256.0
    """
    a, b = rounded(value_a, dtype), rounded(value_b, dtype)
    s = _scaled(spread, temperature)
    size = _linear(np.abs(a - b) / half_spacing(b, dtype, toward=np.where(a > b, np.inf, -np.inf)), s)
    return _unless_alone(np.where(a == b, 1.0, size), s, exp_dtype, flush)


def collision_size_weights(
    value_a: Float[ArrayLike, "..."],
    value_b: Float[ArrayLike, "..."],
    spread: Float[ArrayLike, "..."],
    temperature: Float[ArrayLike, "..."] = 1.0,
    *,
    dtype: Any,
    flush: bool = False,
) -> Any:
    """Weights cast before a precise sum, and the output too: the size at which half of all sizes collide.

    It is the size of `collision_size_output`, and what is a threshold there is ragged here. Rounded weights do not
    sum to 1, and equal ones err alike, so nothing averages out: the outputs of both sets are moved by up to a gap, and
    whether they meet depends on the size's luck. Of the sizes near n half collide; beyond, the share that still differs
    falls like 1/n, so single sizes differ at a hundred times it. Where the weights 1/n are subnormal, beyond 2^14 items
    in float16, their rounding is absolute and coarser, and the half is reached within a factor of four only.

    Arguments, result and errors as in `collision_size_output`; infinity where e^(−s) underflows in the dtype itself.
    """
    return collision_size_output(value_a, value_b, spread, temperature, dtype=dtype, exp_dtype=dtype, flush=flush)


def collision_size_accumulator(
    value_a: Float[ArrayLike, "..."],
    value_b: Float[ArrayLike, "..."],
    spread: Float[ArrayLike, "..."],
    temperature: Float[ArrayLike, "..."] = 1.0,
    *,
    dtype: Any,
    order: Literal["first", "last"] = "first",
) -> Any:
    """The sum itself runs in the dtype, item after item: about √2/u sizes, whatever the spread, or never.

    A running sum stops growing once it is 1/u of its terms, at n between 1/u and 2/u. With A first and e^s below 1/u,
    both sums stop at the same power of two: they collide, and both are wrong. With a larger e^s the Bs are invisible
    beside A. With A last, it lands on a sum that has stopped, and is seen unless its term is no larger than a B's. The
    order of summation decides, not the rounding of any one number.

    Args:
        value_a: v_A.
        value_b: v_B, not 0.
        spread: δ, in the unit of the logits.
        temperature: θ, in the unit of the logits.
        dtype: of the terms and of the running sum.
        order: whether A is added first or last.

    Returns:
        n, float64, right to a factor of 2; infinity where the two never collide for good.

    Raises:
        TypeError: if the dtype is no floating-point one.
        ValueError: as in `collision_size_output`, or for another order.
    """
    if order not in ("first", "last"):
        raise ValueError(f"order must be 'first' or 'last', when A is added; got {order!r}")
    form = number_format(dtype)
    s = _scaled(spread, temperature)
    with np.errstate(over="ignore", divide="ignore"):
        # A's term in units of a B's
        ratio = np.exp(s) * np.abs(np.asarray(value_a, np.float64) / np.asarray(value_b, np.float64))
    seen = ratio >= (1.0 / form.unit_roundoff if order == "first" else 1.0)
    return np.where(seen, np.inf, np.sqrt(2.0) / form.unit_roundoff)[()]


def collision_size_int8(
    value_a: Float[ArrayLike, "..."],
    value_b: Float[ArrayLike, "..."],
    spread: Float[ArrayLike, "..."],
    temperature: Float[ArrayLike, "..."] = 1.0,
    *,
    step: Float[ArrayLike, "..."],
    exp_dtype: Any = "float32",
    flush: bool = False,
) -> Any:
    """Values and output in integers times a step: n = 1 + e^s(2|v_A − v_B|/step − 1).

    The steps of int8 are absolute: half a step is lost next to any value, so the relative formula e^s/u does not apply,
    and a small v_B collides no later than a large one. With a symmetric scale, step = max|v|/127.

    Args:
        value_a: v_A, rounded to a multiple of the step first.
        value_b: v_B, likewise.
        spread: δ, in the unit of the logits.
        temperature: θ, in the unit of the logits.
        step: what one integer is worth.
        exp_dtype: in which the exponentials are taken.
        flush: whether its subnormal results become 0.

    Returns:
        n, float64: outputs differ at smaller sizes and coincide at larger ones; 1 where the values are equal.

    Raises:
        ValueError: if the step or θ is not positive, or δ is negative or not finite.
    """
    require_positive("step", step, "what one integer is worth, in the unit of the values")
    s = _scaled(spread, temperature)
    a, b = (np.rint(np.asarray(value, np.float64) / step) for value in (value_a, value_b))
    return _unless_alone(np.where(a == b, 1.0, _linear(2.0 * np.abs(a - b), s)), s, exp_dtype, flush)


def _scaled(spread: Any, temperature: Any) -> Any:
    require_scale(spread, temperature)
    return np.asarray(spread, np.float64) / np.asarray(temperature, np.float64)


def _linear(halves: Any, s: Any) -> Any:
    """The n at which A's weight is one in so many halves of a gap."""
    with np.errstate(over="ignore"):
        return 1.0 + np.exp(s) * (halves - 1.0)


def _unless_alone(size: Any, s: Any, dtype: Any, flush: bool) -> Any:
    return np.where(s >= underflow_spread(dtype, flush=flush), np.inf, size)[()]

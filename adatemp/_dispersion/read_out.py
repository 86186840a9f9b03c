"""From a weight to an answer: how many items a read-out of given margin and slope survives."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from adatemp._bound_arguments import floats, prepare, require_not_negative, require_positive, require_scale
from adatemp._exact_size import size_for_weight_below

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float, Int

# The steepest slope of each activation, rounded up. Of gelu it is Φ(√2) + √2 φ(√2) = 1.1289, of its approximation by
# tanh 1.1290; of silu 1.0998.
ACTIVATION_SLOPES = {"identity": 1.0, "relu": 1.0, "tanh": 1.0, "gelu": 1.13, "silu": 1.1, "sigmoid": 0.25}


def margin(logits: Float[ArrayLike, "*batch classes"], label: Int[ArrayLike, "*batch"]) -> Any:
    """By how much the logit of the label exceeds that of its best rival: γ, negative where the answer is wrong.

    Args:
        logits: class logits, at least two classes on the last axis.
        label: index of the class meant.

    Returns:
        γ, without the last axis.

    Raises:
        ValueError: if there is no rival.

    >>> float(margin([1.0, 4.0, 2.5], 1))
    1.5
    """
    xp, logits = floats(logits)
    if logits.shape[-1] < 2:
        raise ValueError(f"logits must have two classes at least on the last axis, got shape {logits.shape}")
    mine = xp.arange(logits.shape[-1]) == xp.asarray(label)[..., None]
    own = xp.max(xp.where(mine, logits, -xp.inf), -1)
    return (own - xp.max(xp.where(mine, -xp.inf, logits), -1))[()]


def mlp_lipschitz(kernels: Sequence[Float[ArrayLike, "inputs outputs"]], activation: str = "gelu") -> Any:
    """How fast any one class logit of an MLP can change: the product of its layers' largest stretches.

    The hidden layers stretch by their largest singular value and by the steepest slope of the activation, the last by
    the longest of its columns, one a class. It holds everywhere, so on the segment between two values in particular;
    the true constant there may be much smaller.

    Args:
        kernels: of the layers in order, as Flax stores them.
        activation: between the layers: identity, relu, tanh, gelu, silu or sigmoid.

    Returns:
        L, in logits a unit of the input's length.

    Raises:
        ValueError: if the activation's slope is not known, or there is no kernel.
    """
    if activation not in ACTIVATION_SLOPES:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATION_SLOPES)}, got {activation!r}")
    if not kernels:
        raise ValueError("kernels must have one layer at least, got none")
    xp, *kernels = floats(*kernels)
    steepest = ACTIVATION_SLOPES[activation] ** (len(kernels) - 1)
    for kernel in kernels[:-1]:
        steepest = steepest * xp.linalg.norm(kernel, 2)
    return (steepest * xp.max(xp.linalg.norm(kernels[-1], axis=0)))[()]


def certified_size(margin: Any, lipschitz: Any, distance: Any, spread: Any, temperature: Any = 1.0) -> Any:
    """The least n′ such that from n′ items on {A, B, …, B} is answered like {B, …, B}, though A is in it.

    The pooled vector is v_B + α(v_A − v_B) with α at most the upper bound of `weight_bounds`. Each class logit moves by
    at most Lα‖v_A − v_B‖, the difference of two by twice that, so the answer stands as soon as
    2Lα‖v_A − v_B‖ < γ: n > 1 + e^(δ/θ)(2L‖v_A − v_B‖/γ − 1). Sharpness is bought exponentially through δ and only
    linearly through the read-out's L/γ.

    It assumes that the read-out sees nothing but the pooled vector (no residual path from A's own position), that
    it and the values do not depend on n, that {B, …, B} is answered with a positive margin, and that L holds on the
    segment from v_B to v_A.

    Args:
        margin: γ of the read-out at v_B, positive; see `margin`.
        lipschitz: L of each class logit on the segment; see `mlp_lipschitz`.
        distance: ‖v_A − v_B‖, in the norm that L is meant in.
        spread: δ, in the unit of the logits.
        temperature: θ, in the unit of the logits.

    Returns:
        An exact Python int, or an object array of them where an argument is an array.

    Raises:
        ValueError: if an argument is out of range, or n′ has more than 4,300 digits: see `log_certified_size`.

    References:
        Veličković, Perivolaropoulos, Barbero, Pascanu: Softmax is Not Enough (for Sharp Size Generalisation), ICML
        2025, Corollary B.1, which argues by rounding. https://arxiv.org/abs/2410.01104

    >>> certified_size(margin=0.5, lipschitz=1.0, distance=2.0, spread=0.0)
    9
    """
    _require(margin, lipschitz, distance)
    if any(np.ndim(value) for value in (margin, lipschitz, distance, spread, temperature)):
        return np.vectorize(certified_size, otypes=[object])(margin, lipschitz, distance, spread, temperature)
    require_scale(spread, temperature)
    reach = 2 * _fraction(lipschitz) * _fraction(distance)
    if reach < _fraction(margin):
        return 1
    if reach == _fraction(margin):
        return 2  # any weight below 1
    return size_for_weight_below(_fraction(margin) / reach, spread, temperature)


def log_certified_size(
    margin: Float[ArrayLike, "..."],
    lipschitz: Float[ArrayLike, "..."],
    distance: Float[ArrayLike, "..."],
    spread: Float[ArrayLike, "..."],
    temperature: Float[ArrayLike, "..."] = 1.0,
) -> Any:
    """The logarithm of the size beyond which the answer is certain: log(1 + e^(δ/θ)(2L‖v_A − v_B‖/γ − 1)).

    For plots and gradients. Arguments and errors as in `certified_size`; 0 where every size is certain.
    """
    _require(margin, lipschitz, distance)
    require_scale(spread, temperature)
    xp, spread, temperature, margin, lipschitz, distance = floats(spread, temperature, margin, lipschitz, distance)
    _, _, s = prepare(1.0, spread, temperature)
    excess = 2.0 * lipschitz * distance / margin - 1.0
    certain = excess <= 0
    return xp.where(certain, 0.0, xp.logaddexp(0.0, s + xp.log(xp.where(certain, 1.0, excess))))[()]


def _require(margin: Any, lipschitz: Any, distance: Any) -> None:
    require_positive("margin", margin, "by how much the read-out prefers B at the value of B; no tie can be certified")
    require_not_negative("lipschitz", lipschitz, "the largest slope of a class logit between the two values")
    require_not_negative("distance", distance, "the length of the difference of the two values")


def _fraction(value: Any) -> Fraction:
    """A float counts as the decimal it prints as, like in `size_for_weight_below`."""
    if isinstance(value, float | np.floating | jax.Array):
        return Fraction(repr(float(value)))
    return Fraction(value)

"""Bounds on softmax weights and entropies when n logits have a bounded spread, and the rows that attain them.

Throughout, n logits lie within a spread δ = max − min, θ is the temperature and s = δ/θ. Nothing else enters a bound.
Python numbers and NumPy arrays give float64 results; JAX arrays give traceable ones in their own precision.

What follows from the bounds, and where a spread comes from, is built in `adatemp._dispersion` and named here: the
inverses of the bounds, the distance from uniform, read-outs and their margins, number formats and collisions, spectral
bounds and radii, the spread of real attention, ALiBi, and repeated uniform causal attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from adatemp._bound_arguments import prepare, require_scale, require_size
from adatemp._dispersion.alibi import alibi_ceiling, alibi_floor
from adatemp._dispersion.cesaro import cesaro_closed_form, cesaro_power, cesaro_weights, layers_until_first
from adatemp._dispersion.collisions import (
    collision_size_accumulator,
    collision_size_int8,
    collision_size_output,
    collision_size_weights,
)
from adatemp._dispersion.floor_inverse import log_size_for_entropy_above, spread_for_entropy
from adatemp._dispersion.measured import attention_spread
from adatemp._dispersion.number_formats import NumberFormat, half_spacing, number_format, underflow_spread
from adatemp._dispersion.radius import (
    activation_radius,
    affine_radius,
    attention_radius,
    gated_mlp_radius,
    layer_norm_radius,
    mlp_radius,
    residual_radius,
    rms_norm_radius,
)
from adatemp._dispersion.read_out import certified_size, log_certified_size, margin, mlp_lipschitz
from adatemp._dispersion.spectral import (
    diameter,
    least_spectral_product,
    qk_norm_ceiling,
    score_norm,
    spread_bound_keys,
    spread_bound_norms,
    spread_bound_tight,
)
from adatemp._dispersion.uniform_distance import distance_ceiling, spread_for_distance
from adatemp._dispersion.weight_inverse import spread_for_weight
from adatemp._exact_size import log_size_for_weight_below, size_for_weight_below
from adatemp._extremal_rows import entropy_extremal_row, lower_extremal_row, peak_normaliser, upper_extremal_row

if TYPE_CHECKING:
    from jaxtyping import Array, ArrayLike, Bool, Float

__all__ = [
    "spread",
    "simple_bounds",
    "weight_bounds",
    "upper_extremal_row",
    "lower_extremal_row",
    "entropy_floor",
    "entropy_floor_linear",
    "entropy_floor_quadratic",
    "entropy_extremal_row",
    "size_for_weight_below",
    "log_size_for_weight_below",
    # how far from uniform
    "distance_ceiling",
    # the bounds read backwards
    "spread_for_weight",
    "spread_for_distance",
    "spread_for_entropy",
    "log_size_for_entropy_above",
    # read-outs
    "margin",
    "mlp_lipschitz",
    "certified_size",
    "log_certified_size",
    # number formats
    "NumberFormat",
    "number_format",
    "half_spacing",
    "underflow_spread",
    "collision_size_output",
    "collision_size_weights",
    "collision_size_accumulator",
    "collision_size_int8",
    # where a spread comes from
    "attention_spread",
    "spread_bound_norms",
    "spread_bound_tight",
    "spread_bound_keys",
    "score_norm",
    "diameter",
    "qk_norm_ceiling",
    "least_spectral_product",
    # radii
    "layer_norm_radius",
    "rms_norm_radius",
    "affine_radius",
    "activation_radius",
    "mlp_radius",
    "gated_mlp_radius",
    "attention_radius",
    "residual_radius",
    # positions and depth
    "alibi_floor",
    "alibi_ceiling",
    "cesaro_power",
    "cesaro_closed_form",
    "cesaro_weights",
    "layers_until_first",
]


def spread(
    logits: Float[ArrayLike, "..."],
    axis: int | tuple[int, ...] = -1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Largest minus smallest logit among the keys that can get weight: δ = max_k e_k − min_k e_k.

    Args:
        logits: floating-point array. A logit of −∞ is a masked key and does not count.
        axis: the axis or axes of the keys.
        where: True where a key is visible; broadcasts against `logits`. None means all are.

    Returns:
        δ in the unit of the logits, without `axis`, in promote_types(dtype, float32); 0 for a row without visible keys,
        and NaN where a visible logit is NaN.

    Raises:
        TypeError: if the logits are not floating point.
        ValueError: if there are no keys, or `where` does not broadcast.

    >>> spread(np.array([0.5, 3.0, -1.0, 40.0]), where=np.array([True, True, True, False])).item()
    4.0
    """
    logits = jnp.asarray(logits)
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise TypeError(
            f"logits must be floating point, got {logits.dtype}: convert them first, for example with "
            "logits.astype(jnp.float32)"
        )
    # The difference of two float16 numbers can overflow float16.
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    visible = logits != -jnp.inf
    if where is not None:
        where = jnp.asarray(where, bool)
        try:
            visible, logits = jnp.broadcast_arrays(visible & where, logits)
        except (TypeError, ValueError):
            raise ValueError(
                f"where must broadcast against logits of shape {logits.shape}, got shape {where.shape}: add axes of "
                "length 1 where one mask serves many rows"
            ) from None
    alive = jnp.any(visible, axis)  # also refuses an axis that is not there
    if any(logits.shape[a] == 0 for a in (axis if isinstance(axis, tuple) else (axis,))):
        raise ValueError(f"logits must have at least one key along axis {axis}, got shape {logits.shape}")
    high = jnp.max(logits, axis, where=visible, initial=-jnp.inf)
    low = jnp.min(logits, axis, where=visible, initial=jnp.inf)
    return jnp.where(alive, high, 0.0) - jnp.where(alive, low, 0.0)


def simple_bounds(
    n: ArrayLike, spread: Float[ArrayLike, "..."], temperature: Float[ArrayLike, "..."] = 1.0
) -> tuple[Any, Any]:
    """The textbook bounds on any weight: e^(−δ/θ)/n ≤ α_k ≤ e^(δ/θ)/n.

    Both follow from bounding every term of the normaliser by an extreme one. They show that α_k is of order 1/n;
    neither is attained once δ > 0.

    Args:
        n: number of keys, at least 1.
        spread: δ, in the unit of the logits.
        temperature: θ, in the unit of the logits.

    Returns:
        (low, high), broadcast; high may exceed 1, and is infinite where e^(δ/θ) overflows.

    Raises:
        ValueError: if n < 1, δ is negative or not finite, or θ is not positive.

    References:
        Veličković, Perivolaropoulos, Barbero, Pascanu: Softmax is Not Enough (for Sharp Size Generalisation), ICML
        2025, Lemma 2.1. https://arxiv.org/abs/2410.01104
    """
    xp, n, s = _checked(n, spread, temperature)
    with np.errstate(over="ignore"):
        return xp.exp(-s) / n, xp.exp(s) / n


def weight_bounds(
    n: ArrayLike, spread: Float[ArrayLike, "..."], temperature: Float[ArrayLike, "..."] = 1.0
) -> tuple[Any, Any]:
    """The tight bounds on any weight: 1/(1 + (n−1)e^(δ/θ)) ≤ α_k ≤ 1/(1 + (n−1)e^(−δ/θ)).

    A weight is largest when its own logit is δ above all others, and smallest when it is δ below them. From three keys
    on these are different rows: see `upper_extremal_row` and `lower_extremal_row`.

    Args:
        n: number of keys, at least 1.
        spread: δ, in the unit of the logits.
        temperature: θ, in the unit of the logits.

    Returns:
        (low, high), broadcast; both 1 for n = 1.

    Raises:
        ValueError: if n < 1, δ is negative or not finite, or θ is not positive.

    >>> low, high = weight_bounds(5, 2.0, temperature=0.5)
    >>> bool(low < 0.2 < high)
    True
    """
    xp, n, s = _checked(n, spread, temperature)
    others = n - 1
    # e^(δ/θ) overflows long before the lower bound underflows, so both are written with the decaying exponential.
    falling = xp.exp(-s)
    alone = others == 0
    low = xp.where(alone, 1.0, falling / xp.where(alone, 1.0, falling + others))
    return low[()], 1.0 / (1.0 + others * falling)


def entropy_floor(n: ArrayLike, spread: Float[ArrayLike, "..."], temperature: Float[ArrayLike, "..."] = 1.0) -> Any:
    """The least entropy that a spread allows: H ≥ log n − (x − 1 − log x), with x = s/(1 − e^(−s)) and s = δ/θ.

    Entropy is concave, so on the polytope of weights with ratios at most e^s it is least at a corner, and the weights
    of a corner have two levels. With a fraction f at the high one, Z = 1 + f(e^s − 1) is the normaliser over n, and
    log n − H = x(1 − 1/Z) − log Z is largest at Z = x. `entropy_extremal_row` attains the floor up to the rounding of
    f·n to an integer.

    Args:
        n: number of keys, at least 1.
        spread: δ, in the unit of the logits.
        temperature: θ, in the unit of the logits.

    Returns:
        The floor in nats, broadcast, never below 0.

    Raises:
        ValueError: if n < 1, δ is negative or not finite, or θ is not positive.
    """
    xp, n, s = _checked(n, spread, temperature)
    excess = peak_normaliser(xp, s) - 1.0
    return xp.maximum(xp.log(n) - (excess - xp.log1p(excess)), 0.0)[()]


def entropy_floor_linear(
    n: ArrayLike, spread: Float[ArrayLike, "..."], temperature: Float[ArrayLike, "..."] = 1.0
) -> Any:
    """A simpler floor, H ≥ log n − δ/θ: the largest weight is at most e^(δ/θ)/n, and H ≥ −log of the largest weight.

    Arguments, result and errors as in `entropy_floor`.
    """
    xp, n, s = _checked(n, spread, temperature)
    return xp.maximum(xp.log(n) - s, 0.0)[()]


def entropy_floor_quadratic(
    n: ArrayLike, spread: Float[ArrayLike, "..."], temperature: Float[ArrayLike, "..."] = 1.0
) -> Any:
    """A simpler floor, H ≥ log n − (δ/θ)²/8, the better of the two simple ones for δ < 8θ.

    With β = 1/θ, d(log n − H)/dβ is β times the variance of the logits, and a variable of range δ has a variance of at
    most δ²/4.

    Arguments, result and errors as in `entropy_floor`.
    """
    xp, n, s = _checked(n, spread, temperature)
    with np.errstate(over="ignore"):
        return xp.maximum(xp.log(n) - s * s / 8.0, 0.0)[()]


def _checked(n: Any, spread: Any, temperature: Any) -> tuple[Any, Any, Any]:
    """(array module, n, δ/θ) after the checks that need values."""
    require_size(n)
    require_scale(spread, temperature)
    return prepare(n, spread, temperature)

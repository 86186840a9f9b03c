"""How large a spread given weights allow, and how large the weights must be for a given sharpness.

Kernels are stored as Flax stores them, [width in, head width]: q = y W_Q and k = x W_K for one head, and the logits are
scale · ⟨q, k⟩. A bias is one more row of the kernel, met by a constant 1 in y or x.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from adatemp._bound_arguments import (
    floats,
    require_not_negative,
    require_positive,
    require_scale,
    require_size,
    require_weight,
)

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float


def spread_bound_norms(
    query_kernel: Float[ArrayLike, "D H"],
    key_kernel: Float[ArrayLike, "D_key H"],
    query_norm: Float[ArrayLike, "..."],
    item_norm: Float[ArrayLike, "..."],
    *,
    scale: float | None = None,
) -> Any:
    """The norm form: δ ≤ 2 · scale · σ_max(W_Q) σ_max(W_K) ‖y‖ max_i‖x_i‖.

    It holds with rotary positions too, since rotations keep norms. The factor 2 is attained by two opposite items along
    the top singular direction.

    Args:
        query_kernel: W_Q of one head.
        key_kernel: W_K of the same head.
        query_norm: ‖y‖, as it enters W_Q: after any normalisation.
        item_norm: the largest ‖x_i‖, as they enter W_K.
        scale: of the logits; 1/√H by default.

    Returns:
        The bound on δ, broadcast over the norms.

    References:
        Veličković, Perivolaropoulos, Barbero, Pascanu: Softmax is Not Enough (for Sharp Size Generalisation), ICML
        2025, Proposition 3.1. https://arxiv.org/abs/2410.01104
    """
    require_not_negative("query_norm", query_norm, "the length of the query's input")
    require_not_negative("item_norm", item_norm, "the largest length of an item")
    xp, query_kernel, key_kernel, query_norm, item_norm = floats(query_kernel, key_kernel, query_norm, item_norm)
    scale = _scale(scale, query_kernel)
    stretch = xp.linalg.norm(query_kernel, 2) * xp.linalg.norm(key_kernel, 2)
    return (2.0 * scale * stretch * query_norm * item_norm)[()]


def spread_bound_tight(
    query_kernel: Float[ArrayLike, "D H"],
    key_kernel: Float[ArrayLike, "D_key H"],
    query_norm: Float[ArrayLike, "..."],
    item_diameter: Float[ArrayLike, "..."],
    *,
    scale: float | None = None,
) -> Any:
    """The tight form: δ ≤ scale · σ_max(W_Q W_Kᵀ) ‖y‖ max_{i,j}‖x_i − x_j‖.

    Only where a logit depends on nothing but the contents of query and item. With rotary positions, or any other score
    that depends on where an item stands, it is false: two equal items have diameter 0 and unequal logits. Use
    `spread_bound_keys` there.

    Args:
        query_kernel: W_Q of one head.
        key_kernel: W_K of the same head.
        query_norm: ‖y‖, as it enters W_Q.
        item_diameter: the largest distance of two items, as they enter W_K; see `diameter`.
        scale: of the logits; 1/√H by default.

    Returns:
        The bound on δ, broadcast.
    """
    require_not_negative("query_norm", query_norm, "the length of the query's input")
    require_not_negative("item_diameter", item_diameter, "the largest distance of two items")
    xp, query_norm, item_diameter, query_kernel = floats(query_norm, item_diameter, query_kernel)
    stretch = score_norm(query_kernel, key_kernel)
    return (_scale(scale, query_kernel) * stretch * query_norm * item_diameter)[()]


def spread_bound_keys(
    query: Float[ArrayLike, "*rows H"], keys: Float[ArrayLike, "n H"], *, scale: float | None = None
) -> Any:
    """The tight form repaired for positions: δ ≤ scale · ‖q‖ max_{i,j}‖k_i − k_j‖, with keys as the product sees them.

    With rotary positions q = R_t W_Q y, which has the norm of W_Q y, and k_i = R_i W_K x_i. Each key has its own
    rotation, so the difference cannot be moved through it. Attained where q is along the difference of two keys.

    Args:
        query: after projection, normalisation and rotation.
        keys: likewise, all keys that the query sees.
        scale: of the logits; 1/√H by default.

    Returns:
        The bound on δ, one a query.
    """
    xp, query, keys = floats(query, keys)
    return (_scale(scale, keys) * xp.linalg.norm(query, axis=-1) * diameter(keys))[()]


def diameter(points: Float[ArrayLike, "n width"]) -> Any:
    """The largest distance between two points, in O(n) memory and O(n²) time."""
    xp, points = floats(points)

    def reach(point):
        return xp.max(xp.sum((points - point) ** 2, -1))

    squares = jax.lax.map(reach, points) if xp is jnp else np.array([reach(point) for point in points])
    return xp.sqrt(xp.max(squares))


def score_norm(query_kernel: Float[ArrayLike, "D H"], key_kernel: Float[ArrayLike, "D_key H"]) -> Any:
    """σ_max(W_Q W_Kᵀ), from two triangular factors of the head's width instead of a matrix of the model's."""
    xp, query_kernel, key_kernel = floats(query_kernel, key_kernel)
    of_query, of_key = (xp.linalg.qr(kernel, mode="r") for kernel in (query_kernel, key_kernel))
    return xp.linalg.norm(of_query @ of_key.T, 2)


def qk_norm_ceiling(
    query_gain: Float[ArrayLike, " H"],
    key_gain: Float[ArrayLike, " H"],
    *,
    norm: Literal["rms", "layer", "l2"] = "rms",
    rotated: bool = False,
    scale: float | None = None,
) -> Any:
    """The largest spread of a head whose queries and keys are normalised just before the product.

    A normalised vector has length √H (1 for "l2"), whatever came before, so |logit| ≤ scale · H · max_c |g_Q,c g_K,c|
    and δ is at most twice that: the gains alone buy sharpness. One channel that holds everything attains it. A layer
    norm also takes the mean away, which lowers the ceiling a little: to the largest |eigenvalue| of the diagonal
    matrix of products on vectors of mean 0. With a rotation between gain and product the channels of query and key
    mix, and max|g_Q| max|g_K| takes the place of the largest product.

    Args:
        query_gain: gain of each channel of the query's norm; one that is written 1 + w is passed so.
        key_gain: of the key's norm.
        norm: "rms", "layer" (without bias) or "l2".
        rotated: whether rotary positions are applied after the norms.
        scale: of the logits; 1/√H by default.

    Returns:
        The ceiling on δ.

    Raises:
        ValueError: if the norm is another one.

    >>> float(qk_norm_ceiling(np.ones(64), np.ones(64)))
    16.0
    """
    if norm not in ("rms", "layer", "l2"):
        raise ValueError(f"norm must be 'rms', 'layer' or 'l2', got {norm!r}")
    xp, query_gain, key_gain = floats(query_gain, key_gain)
    width = query_gain.shape[-1]
    if rotated:
        stretch = xp.max(xp.abs(query_gain)) * xp.max(xp.abs(key_gain))
    elif norm == "layer":
        centre = xp.eye(width) - 1.0 / width
        stretch = xp.linalg.norm(centre * (query_gain * key_gain) @ centre, 2)
    else:
        stretch = xp.max(xp.abs(query_gain * key_gain))
    squared_length = 1.0 if norm == "l2" else width
    return 2.0 * (1.0 / math.sqrt(width) if scale is None else scale) * squared_length * stretch


def least_spectral_product(
    n: ArrayLike,
    weight: Float[ArrayLike, "..."],
    query_norm: Float[ArrayLike, "..."],
    item_norm: Float[ArrayLike, "..."],
    temperature: Float[ArrayLike, "..."] = 1.0,
    *,
    scale: Float[ArrayLike, "..."],
) -> Any:
    """The least σ_max(W_Q) σ_max(W_K) with which any row of n keys can hold a weight w.

    A weight w needs a spread of θ log((n−1)w/(1−w)), and the norm form bounds the spread: the product is at least half
    of that over scale · ‖y‖ max‖x‖. It grows like log n. Necessary, not sufficient.

    Args:
        n: number of keys, at least 1.
        weight: w, in the open interval (0, 1).
        query_norm: ‖y‖, positive.
        item_norm: max‖x_i‖, positive.
        temperature: θ, in the unit of the logits.
        scale: of the logits, 1/√H as a rule.

    Returns:
        The least product, broadcast; 0 where 1/n is w or more.

    Raises:
        ValueError: if an argument is out of range.
    """
    require_size(n)
    require_scale(0.0, temperature)
    require_positive("query_norm", query_norm, "the length of the query's input")
    require_positive("item_norm", item_norm, "the largest length of an item")
    require_positive("scale", scale, "what multiplies the products, 1/sqrt(head width) as a rule")
    require_weight(weight, "weight")
    xp, n, w, y, x, theta, scale = floats(n, weight, query_norm, item_norm, temperature, scale)
    alone = n <= 1.0
    spread = theta * (xp.log(xp.where(alone, 1.0, n - 1.0)) + xp.log(w) - xp.log1p(-w))
    return xp.where(alone, 0.0, xp.maximum(spread, 0.0) / (2.0 * scale * y * x))[()]


def _scale(scale: float | None, kernel: Any) -> float:
    return 1.0 / math.sqrt(kernel.shape[-1]) if scale is None else scale

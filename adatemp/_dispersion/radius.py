"""A certificate that does not know n: how far from the origin a Transformer's hidden states can be, by layer.

If every item's vector has a length of at most R, then so has every weighted average of them, for any n and any
weights. A map that is bounded on bounded sets sends the ball of radius R into another ball. Continuity is not needed:
a layer norm without epsilon and a sign function have radii; only a map such as x/‖x‖², unbounded near 0, has none. The
radius before a head's projections bounds its spread: `spread_bound_norms(W_Q, W_K, radius, radius)`.

Kernels are stored as Flax stores them, [inputs, outputs]; heads as [inputs, heads, width] and [heads, width, outputs].
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from adatemp._bound_arguments import floats, require_not_negative

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float

# |f(x)| ≤ |x| for these, entry by entry, so that lengths do not grow; of the bounded ones no entry exceeds 1.
_SHRINKING = ("identity", "relu", "gelu", "silu", "tanh")
_BOUNDED = ("tanh", "sigmoid", "sign")


def layer_norm_radius(
    radius: Float[ArrayLike, ""],
    gain: Float[ArrayLike, " D"],
    bias: Float[ArrayLike, " D"] | None = None,
    *,
    epsilon: float = 0.0,
) -> Any:
    """After g ⊙ (x − mean)/√(variance + ε) + b: max|g| · √D R/√(R² + Dε) + ‖b‖, and √D for the middle when ε = 0."""
    return _norm_radius(radius, gain, bias, epsilon)


def rms_norm_radius(
    radius: Float[ArrayLike, ""], gain: Float[ArrayLike, " D"], *, epsilon: float = 0.0
) -> Float[ArrayLike, ""]:
    """After g ⊙ x/√(mean square + ε): max|g| · √D R/√(R² + Dε), and √D for the middle when ε = 0."""
    return _norm_radius(radius, gain, None, epsilon)


def affine_radius(
    radius: Float[ArrayLike, ""],
    kernel: Float[ArrayLike, "inputs outputs"],
    bias: Float[ArrayLike, " outputs"] | None = None,
) -> Any:
    """After x W + b: σ_max(W) R + ‖b‖."""
    xp, radius, kernel, bias = _floats(radius, kernel, bias)
    return xp.linalg.norm(kernel, 2) * radius + _length(xp, bias)


def activation_radius(radius: Float[ArrayLike, ""], width: int, activation: str) -> Any:
    """After an activation on each of `width` entries: R where |f(x)| ≤ |x|, √width where |f| ≤ 1, the least of both.

    Args:
        radius: R before it.
        width: number of entries.
        activation: identity, relu, gelu, silu, tanh, sigmoid or sign.

    Raises:
        ValueError: if the activation is another one.
    """
    xp, radius = _floats(radius)
    known = {**dict.fromkeys(_SHRINKING, radius), **dict.fromkeys(_BOUNDED, xp.full_like(radius, math.sqrt(width)))}
    if activation not in known:
        raise ValueError(f"activation must be one of {', '.join(known)}, got {activation!r}")
    return xp.minimum(known[activation], radius) if activation == "tanh" else known[activation]


def mlp_radius(
    radius: Float[ArrayLike, ""],
    kernels: list[Float[ArrayLike, "inputs outputs"]],
    biases: list[Float[ArrayLike, " outputs"] | None] | None = None,
    *,
    activation: str = "gelu",
) -> Any:
    """After affine maps with an activation between them, by `affine_radius` and `activation_radius` in turn."""
    biases = [None] * len(kernels) if biases is None else biases
    for layer, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
        if layer:
            radius = activation_radius(radius, kernel.shape[0], activation)
        radius = affine_radius(radius, kernel, bias)
    return radius


def gated_mlp_radius(
    radius: Float[ArrayLike, ""],
    gate: Float[ArrayLike, "D width"],
    up: Float[ArrayLike, "D width"],
    down: Float[ArrayLike, "width D"],
    *,
    activation: str = "silu",
) -> Any:
    """After (f(x W_gate) ⊙ x W_up) W_down.

    The product of two vectors is no longer than one times the other's largest entry. An entry of x W is at most R times
    the longest column of W.
    """
    xp, radius, gate, up, down = _floats(radius, gate, up, down)
    if activation not in _SHRINKING + _BOUNDED:
        activation_radius(radius, 1, activation)  # raises
    gated_length = activation_radius(affine_radius(radius, gate), gate.shape[1], activation)
    gated_entry = activation_radius(xp.max(xp.linalg.norm(gate, axis=0)) * radius, 1, activation)
    up_length = affine_radius(radius, up)
    up_entry = xp.max(xp.linalg.norm(up, axis=0)) * radius
    return xp.linalg.norm(down, 2) * xp.minimum(gated_entry * up_length, gated_length * up_entry)


def attention_radius(
    radius: Float[ArrayLike, ""],
    value_kernel: Float[ArrayLike, "D K width"],
    out_kernel: Float[ArrayLike, "N width D_out"],
    value_bias: Float[ArrayLike, "K width"] | None = None,
    out_bias: Float[ArrayLike, " D_out"] | None = None,
) -> Any:
    """After softmax attention with any weights: averages stay in the ball, the values' and the output map move it.

    An average of affine images is the image of an average, so head h gives x̄_h W_h O_h with ‖x̄_h‖ ≤ R. The sum over
    heads is at most R times Σ_h σ_max(W_h O_h), and at most R √N times σ_max of the stack of W_h O_h; the biases of
    the values come out whole, since weights sum to 1. It is not R times the number of keys.

    Args:
        radius: R of what the values are projected from.
        value_kernel: of K heads; query head h reads head h // (N // K).
        out_kernel: of N heads.
        value_bias: of the values.
        out_bias: of the output.
    """
    xp, radius, value_kernel, out_kernel, value_bias, out_bias = _floats(
        radius, value_kernel, out_kernel, value_bias, out_bias
    )
    heads, group = out_kernel.shape[0], out_kernel.shape[0] // value_kernel.shape[1]
    maps = xp.einsum("dnw,nwo->ndo", xp.repeat(value_kernel, group, 1), out_kernel)
    one_by_one = xp.sum(xp.linalg.norm(maps, 2, axis=(1, 2)))
    together = math.sqrt(heads) * xp.linalg.norm(maps.reshape(-1, maps.shape[-1]), 2)
    constant = 0.0 if out_bias is None else out_bias
    if value_bias is not None:
        constant = constant + xp.einsum("nw,nwo->o", xp.repeat(value_bias, group, 0), out_kernel)
    return radius * xp.minimum(one_by_one, together) + xp.linalg.norm(xp.asarray(constant, radius.dtype).reshape(-1))


def residual_radius(radius: Float[ArrayLike, ""], branch: Float[ArrayLike, ""]) -> Any:
    """After x + f(x): the two radii added."""
    _, radius, branch = _floats(radius, branch)
    return radius + branch


def _norm_radius(radius: Any, gain: Any, bias: Any, epsilon: float) -> Any:
    require_not_negative("epsilon", epsilon, "what is added to the variance")
    xp, radius, gain, bias = _floats(radius, gain, bias)
    width = gain.shape[-1]
    # A constant vector under ε = 0 is 0/0, and counts as whatever it is defined to be within the ball.
    share = 1.0 if epsilon == 0 else radius / xp.hypot(radius, xp.asarray(math.sqrt(width * epsilon), radius.dtype))
    return xp.max(xp.abs(gain)) * math.sqrt(width) * share + _length(xp, bias)


def _floats(radius: Any, *others: Any) -> tuple[Any, ...]:
    require_not_negative("radius", radius, "the largest length of any vector that may come in")
    return floats(radius, *others)


def _length(xp: Any, vector: Any) -> Any:
    return 0.0 if vector is None else xp.linalg.norm(vector)

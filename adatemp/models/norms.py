"""Normalisation: layer norm, RMS norm or none, with any epsilon, 0 included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import jax.numpy as jnp
from flax import nnx

if TYPE_CHECKING:
    from jaxtyping import Array, Float

KINDS = ("layer", "rms", "none")


def normalise(
    x: Float[Array, "*batch D"], kind: Literal["layer", "rms", "none"], epsilon: float = 1e-6
) -> Float[Array, "*batch D"]:
    """x over its root mean square, for "layer" after its mean is taken off: √(mean square + ε) divides.

    Statistics are float32 at least. With ε = 0 the map is discontinuous where there is nothing to divide by (a constant
    vector for "layer", zero for "rms"); there it is defined to be 0, with gradient 0.
    """
    return x if kind == "none" else _normalised(x, kind, epsilon).astype(x.dtype)


class Norm(nnx.Module):
    """`normalise` with a gain for each channel and, for layer norm, a bias.

    Args:
        width: number of channels.
        kind: "layer", "rms" or "none"; the last has no parameters and changes nothing.
        epsilon: added to the mean square.
        from_one: whether the stored gain is the excess over 1, as in Gemma, so that decay pulls it to 1 and not to 0.
        use_bias: whether a layer norm has a bias.
    """

    def __init__(
        self, width: int, kind: str = "layer", *, epsilon: float = 1e-6, from_one: bool = False, use_bias: bool = True
    ):
        self.kind, self.epsilon, self.from_one = kind, epsilon, from_one
        self.gain = None if kind == "none" else nnx.Param(jnp.full(width, 0.0 if from_one else 1.0))
        self.bias = nnx.Param(jnp.zeros(width)) if kind == "layer" and use_bias else None

    def __call__(self, x: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
        if self.gain is None:
            return x
        gain = 1 + self.gain[...] if self.from_one else self.gain[...]
        y = gain * _normalised(x, self.kind, self.epsilon)
        return (y if self.bias is None else y + self.bias[...]).astype(x.dtype)


def _normalised(x, kind: str, epsilon: float):
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    if kind == "layer":
        wide = wide - jnp.mean(wide, -1, keepdims=True)
    square = jnp.mean(wide * wide, -1, keepdims=True) + epsilon
    nothing = square == 0
    return jnp.where(nothing, 0, wide / jnp.sqrt(jnp.where(nothing, 1, square)))

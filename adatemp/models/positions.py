"""How a Transformer is told where its tokens stand: added to the input, turned into queries and keys, or as a bias."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

KINDS = ("none", "learned", "sinusoidal", "rotary", "alibi")


def sinusoidal(positions: Int[Array, "*batch T"], width: int, base: float = 10_000.0) -> Float[Array, "*batch T width"]:
    """sin(t/base^(2i/width)) in channel 2i and the cosine in channel 2i + 1: bounded, and defined at any position."""
    angle = positions[..., None] * base ** (-jnp.arange(0, width, 2) / width)
    pairs = jnp.stack([jnp.sin(angle), jnp.cos(angle)], -1)
    return pairs.reshape(*positions.shape, -1)[..., :width]


def rotary(
    x: Float[Array, "*batch T N H"], positions: Int[Array, "*#batch T"], base: float = 10_000.0
) -> Float[Array, "*batch T N H"]:
    """RoPE: channels i and i + H/2 are a plane, turned by the angle t · base^(−2i/H).

    Norms stay, and the product of a query turned by t and a key turned by s depends on t − s alone. Channels are paired
    by halves, as in Llama's and Gemma's published code.

    Args:
        x: queries or keys, H even.
        positions: of the tokens.
        base: of the wavelengths, which run from 2π to 2π·base positions.

    Raises:
        ValueError: if H is odd.
    """
    width = x.shape[-1]
    if width % 2:
        raise ValueError(f"rotary positions need an even head width, got {width}")
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    angle = positions[..., None, None] * base ** (-jnp.arange(width // 2, dtype=wide.dtype) / (width // 2))
    first, second = jnp.split(wide, 2, -1)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    turned = jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)
    return turned.astype(x.dtype)


def alibi_slopes(heads: int) -> Float[Array, " heads"]:
    """ALiBi's slopes: 2^(−8/N), 2^(−16/N), …, 2^(−8) for N heads, N a power of two.

    For another N, those of the power of two below, then every second one of the power above, as the authors do.

    References:
        Press, Smith, Lewis: Train Short, Test Long, ICLR 2022. https://arxiv.org/abs/2108.12409

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** int(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-4.0 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return jnp.asarray((slopes + between)[:heads])


def alibi_bias(
    heads: int, query_positions: Int[Array, "*batch T"], key_positions: Int[Array, "*batch S"]
) -> Float[Array, "*batch N T S"]:
    """−slope · |distance| for every head, query and key, with an axis of length 1 in front where there is no batch."""
    distance = jnp.abs(query_positions[..., :, None] - key_positions[..., None, :])
    distance = distance if distance.ndim == 3 else distance[None]
    return -alibi_slopes(heads)[:, None, None] * distance[:, None]

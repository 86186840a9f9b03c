"""Tiles of the GPU kernels."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jax import lax

from adatemp.attention._pallas_tiles import Tile


@dataclasses.dataclass(frozen=True)
class PallasConfig:
    block_q: int | None = None
    block_k: int | None = None
    num_warps: int | None = None
    num_stages: int | None = None
    block_q_backward: int | None = None
    block_k_backward: int | None = None
    num_warps_backward: int | None = None
    num_stages_backward: int | None = None
    compensated: bool = True
    interpret: bool = False


def tiles(config, dtype, width, value_width):
    f = Tile(config.block_q or 64, config.block_k or 64, config.num_warps or 4, config.num_stages or 2)
    b = Tile(
        config.block_q_backward or 64,
        config.block_k_backward or 64,
        config.num_warps_backward or 4,
        config.num_stages_backward or 2,
    )
    return f, b


def products_precision(dtype, precision, interpret):
    if dtype != jnp.float32:
        return None
    if interpret:
        return lax.Precision.HIGHEST
    if precision is None:
        return lax.DotAlgorithmPreset.TF32_TF32_F32_X3
    return precision


def refusal_of_sizes(problem):
    return None

"""What the kernel exercises of chapter 11 have in common: one tile of queries, three tiles of keys, and the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Powers of two, as a GPU wants them, and no two alike but for the tile of keys and that of queries.
QUERIES, BLOCK, TILES, WIDTH, VALUE_WIDTH = 16, 16, 3, 8, 4
KEYS = BLOCK * TILES
SCALE = WIDTH**-0.5


def arrays(seed: int, offset: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Query [16, 8], key [48, 8] and value [48, 4] of float32; `offset` is added to every logit."""
    draw = np.random.default_rng(seed)
    shapes = ((QUERIES, WIDTH), (KEYS, WIDTH), (KEYS, VALUE_WIDTH))
    query, key, value = (draw.normal(size=shape).astype(np.float32) for shape in shapes)
    query *= np.linspace(0.5, 4.0, QUERIES, dtype=np.float32)[:, None]
    if offset:
        query[:, 0], key[:, 0] = 16.0, offset / (16.0 * SCALE)
    return query, key, value


def logits(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """The scaled logits in float64, [16, 48]."""
    return SCALE * query.astype(np.float64) @ key.astype(np.float64).T


def outcome(query: np.ndarray, key: np.ndarray, value: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Output and entropy side by side, [16, 5], in float64; rows without a visible key are 0."""
    z = np.where(visible, logits(query, key), -np.inf)
    return of_logits(z, value)


def of_logits(z: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Output and entropy of logits in which −∞ hides a key."""
    top = z.max(-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    weights = np.exp(z - top)
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total > 0, total, 1.0)
    entropy = -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(-1)
    return np.concatenate([weights @ value.astype(np.float64), entropy[:, None]], axis=1)


def compiled(kernel: Callable[..., None], *written: Sequence[int]) -> Callable[..., list[np.ndarray]]:
    """The kernel in the interpreter, on whole arrays and without a grid; it writes float32 of the given shapes."""
    from jax.experimental import pallas as pl

    shapes = [jax.ShapeDtypeStruct(tuple(shape), jnp.float32) for shape in written]
    call = jax.jit(pl.pallas_call(kernel, out_shape=shapes, interpret=True))
    return lambda *arrays: [np.asarray(answer) for answer in call(*map(jnp.asarray, arrays))]


def traced(kernel: Callable[..., None], *written: Sequence[int], given: Sequence[np.ndarray]) -> Any:
    """The program of the call, the kernel's own inside it."""
    from jax.experimental import pallas as pl

    shapes = [jax.ShapeDtypeStruct(tuple(shape), jnp.float32) for shape in written]
    return jax.make_jaxpr(pl.pallas_call(kernel, out_shape=shapes, interpret=True))(*map(jnp.asarray, given))

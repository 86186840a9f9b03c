"""Where two sets collide, by simulation: the pipelines of exercise 06.2 run on {A, B, …, B} and {B, …, B}."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

_MOST = 2.0**200


def exponential(s: float, dtype: str) -> float:
    """e^(−s) as the format holds it."""
    return float(_cast(math.exp(-s) if s < 740 else 0.0, dtype))


def output_size(a: float, b: float, s: float, dtype: str) -> float:
    """By bisection, for the finished average rounded to a format; exponentials in float32."""
    kept = exponential(s, "float32")
    return _threshold(lambda n: _cast(_average(n, a, b, kept), dtype) == _cast(b, dtype))


def int8_size(a: float, b: float, s: float, step: float) -> float:
    """By bisection, for an average rounded to a multiple of a step."""
    kept = exponential(s, "float32")
    return _threshold(lambda n: np.rint(_average(n, a, b, kept) / step) == np.rint(b / step))


def weights_size(a: float, b: float, s: float, dtype: str) -> float:
    """The middle of the first window of sizes of which half collide."""
    kept = exponential(s, dtype)
    if kept == 0:
        return math.inf
    for middle in np.geomspace(4, 1e9, 200):
        n = np.unique(np.geomspace(middle / 1.4, middle * 1.4, 400).astype(np.int64))
        if np.mean(_weights_collide(n, a, b, kept, dtype)) >= 0.5:
            return float(middle)
    return math.inf


def accumulator_size(a: float, b: float, s: float, dtype: str, order: str) -> float:
    """The first of a grid of sizes from which on at least four fifths of those up to eight times it collide."""
    sizes = np.unique(np.geomspace(4, 60 / float(jnp.finfo(dtype).eps), 60).astype(np.int64))
    collide = running_sum(sizes, a, b, s, dtype, order) == running_sum(sizes, b, b, 0.0, dtype, order)
    for index in range(len(sizes)):
        ahead = collide[(sizes >= sizes[index]) & (sizes <= 8 * sizes[index])]
        if collide[index] and sizes[-1] >= 8 * sizes[index] and ahead.mean() >= 0.8:
            return float(sizes[index])
    return math.inf


def running_sum(sizes: np.ndarray, a: float, b: float, s: float, dtype: str, order: str) -> np.ndarray:
    """Sums of weighted values, one product after another, each partial sum rounded; for many sizes at once."""
    total = 1 + (sizes - 1) * math.exp(-s)
    term = _cast(_cast(math.exp(-s) / total, dtype) * b, dtype)
    own = _cast(_cast(1 / total, dtype) * a, dtype)
    running = own.copy() if order == "first" else term.copy()
    steps = int(sizes.max()) - (1 if order == "first" else 2)
    done = 1 if order == "first" else 1
    left = sizes - (1 if order == "first" else 2)
    for step in range(steps):
        after = np.where(step < left, _cast(running + term, dtype), running)
        if np.array_equal(after, running):
            break
        running = after
        done += 1
    return running if order == "first" else _cast(running + own, dtype)


def _average(n: float, a: float, b: float, kept: float) -> float:
    return b + (a - b) / (1 + (n - 1) * kept)


def _weights_collide(n: np.ndarray, a: float, b: float, kept: float, dtype: str) -> np.ndarray:
    total = 1 + (n - 1) * kept
    top, other, flat = (_cast(w, dtype) for w in (1 / total, kept / total, 1 / n))
    return _cast(top * a + (n - 1) * other * b, dtype) == _cast(n * flat * b, dtype)


def _threshold(collided) -> float:
    """The n from which on a monotone property holds, to 1 in 10,000."""
    low, high = 1.0, 2.0
    while not collided(high):
        low, high = high, 2 * high
        if high > _MOST:
            return math.inf
    while high / low > 1.0001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if collided(middle) else (middle, high)
    return high


def _cast(x, dtype: str):
    return np.asarray(x, np.float64).astype(jnp.dtype(dtype)).astype(np.float64)

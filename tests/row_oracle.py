"""Rows computed another way: float64 numpy, one row at a time, dead keys removed before any arithmetic."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

# arXiv 2410.01104, highest power first.
QUARTIC = (-0.037, 0.481, -2.3, 4.917, -1.791)
# The entropies at which the quartic crosses 1, by bisection on it in exact rationals.
KINKS = (0.848582, 5.944521)


class Row(NamedTuple):
    weights: np.ndarray
    entropy: float
    variance: float
    beta: float
    lse: float
    lse_scaled: float


def published_beta(entropy: float) -> float:
    """The published map in words: above 0.5 nats the larger of 1 and the quartic, else 1."""
    return max(1.0, sum(c * entropy ** (4 - i) for i, c in enumerate(QUARTIC))) if entropy > 0.5 else 1.0


def oracle_row(z, where=None, beta_of=published_beta) -> Row:
    """One row [n] by the definitions; `beta_of` maps its entropy to beta."""
    z = np.asarray(z, np.float64)
    keep = (np.ones(z.shape, bool) if where is None else np.asarray(where)) & (z != -np.inf)
    weights = np.zeros(z.shape)
    if not keep.any():
        return Row(weights, 0.0, 0.0, 1.0, -np.inf, -np.inf)
    live = z[keep]
    lse = live.max() + np.log(np.exp(live - live.max()).sum())
    p = np.exp(live - lse)
    mean = (p * live).sum()
    entropy = -sum(x * np.log(x) for x in p if x > 0)
    beta = beta_of(entropy)
    lse_scaled = beta * live.max() + np.log(np.exp(beta * (live - live.max())).sum())
    weights[keep] = np.exp(beta * live - lse_scaled)
    return Row(weights, entropy, (p * (live - mean) ** 2).sum(), beta, lse, lse_scaled)


def oracle(z, where=None, beta_of=published_beta) -> Row:
    """Rows [*rows, n]; the fields of the result are stacked to [*rows, n] and [*rows]."""
    z = np.asarray(z, np.float64)
    masks = np.broadcast_to(True if where is None else where, z.shape)
    rows = [oracle_row(*pair, beta_of) for pair in zip(z.reshape(-1, z.shape[-1]), masks.reshape(-1, z.shape[-1]))]
    stacked = (np.array(field) for field in zip(*rows))
    return Row(*(field.reshape(z.shape[:-1] + field.shape[1:]) for field in stacked))


def listing(logits):
    """The published function as it is described: (weights, entropy, beta), everything in the logits' dtype."""
    p = jax.nn.softmax(logits, -1)
    entropy = jnp.sum(-p * jnp.log(p + 1e-9), -1, keepdims=True)
    value = jnp.polyval(jnp.array(QUARTIC, logits.dtype), entropy)
    beta = jnp.where(entropy > 0.5, jnp.maximum(value, 1), 1)
    return jax.nn.softmax(logits * beta, -1), entropy[..., 0], beta[..., 0]


def away_from_kinks(entropy, margin: float) -> bool:
    return bool(np.all([np.abs(entropy - kink) > margin for kink in (0.5, *KINKS)]))


@st.composite
def rows(draw, shape=(3, 9), dtype=np.float32, widest=12.0):
    """Rows [*rows, n] of plain, tied, constant, spiked, stepped and far-offset logits."""
    z = draw(st_numpy.arrays(dtype, shape, elements=st.floats(-widest, widest, width=32)))
    kind = draw(st.sampled_from(["plain", "ties", "constant", "spike", "step", "narrow", "offset"]))
    if kind == "ties":
        z = np.round(z)
    elif kind == "constant":
        z = np.broadcast_to(z[..., :1], shape).copy()
    elif kind == "spike":
        z = np.zeros_like(z)
        z[..., draw(st.integers(0, shape[-1] - 1))] = draw(st.floats(0, 40, width=32))
    elif kind == "step":
        z = np.where(np.arange(shape[-1]) < draw(st.integers(1, shape[-1])), z[..., :1], z[..., -1:])
    elif kind == "narrow":
        z = z * dtype(1e-3)
    elif kind == "offset":
        z = z + dtype(500)
    return z.astype(dtype)


@st.composite
def masks(draw, shape=(3, 9)):
    """Masks [*rows, n], all-false rows among them."""
    mask = draw(st_numpy.arrays(bool, shape))
    if draw(st.booleans()):
        mask[draw(st.integers(0, shape[0] - 1))] = False
    return mask

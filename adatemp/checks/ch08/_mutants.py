"""Three right forms of the published adaptive-temperature softmax, and seven wrong ones, for exercise 08.3."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adatemp import adaptive_temperature_softmax
from adatemp.temperature import PAPER_COEFFICIENTS as PAPER


def _masked(logits: Any, where: Any) -> tuple[Any, Any]:
    """Logits with a finite value at masked keys, and the mask."""
    keep = jnp.broadcast_to(True if where is None else where, logits.shape)
    return jnp.where(keep, logits, -1e30), keep


def _entropy(z: Any, keep: Any) -> Any:
    """Entropy in nats over the kept keys, by log l − s/l."""
    t = jnp.where(keep, z - jax.lax.stop_gradient(jnp.max(z, -1, keepdims=True)), 0.0)
    e = jnp.where(keep, jnp.exp(t), 0.0)
    total = jnp.sum(e, -1, keepdims=True)
    return jnp.log(total) - jnp.sum(e * t, -1, keepdims=True) / total


def _map(entropy: Any, coefficients: Any = PAPER) -> Any:
    value = jnp.polyval(jnp.asarray(coefficients, jnp.float32), entropy)
    return jnp.where(entropy > 0.5, jnp.maximum(value, 1.0), 1.0)


def _apply(beta: Any, z: Any, keep: Any) -> Any:
    top = jnp.max(z, -1, keepdims=True)
    return jnp.where(keep, jax.nn.softmax(jnp.where(keep, beta * (z - top), -1e30), -1), 0.0)


@jax.jit
def _library(logits: Any, where: Any = None) -> Any:
    return adaptive_temperature_softmax(logits, where=where)


@jax.jit
def _listing(logits: Any, where: Any = None) -> Any:
    """As the published code is described: an epsilon inside the logarithm."""
    z, keep = _masked(logits, where)
    p = jax.nn.softmax(z, -1)
    entropy = -jnp.sum(p * jnp.log(p + 1e-9), -1, keepdims=True)
    return _apply(_map(entropy), z, keep)


@jax.jit
def _horner(logits: Any, where: Any = None) -> Any:
    z, keep = _masked(logits, where)
    entropy = _entropy(z, keep)
    value = 0.0
    for coefficient in PAPER:
        value = value * entropy + coefficient
    return _apply(jnp.where(value > 1, value, 1.0), z, keep)


RIGHT: dict[str, Callable[..., Any]] = {
    "as in the library": _library,
    "as in the listing": _listing,
    "by Horner's rule": _horner,
}


@functools.partial(jax.jit, static_argnames="how")
def _wrong(logits: Any, where: Any, how: str) -> Any:
    z, keep = _masked(logits, where)
    if how == "clipped":
        z = jnp.where(keep, jnp.clip(z, -50.0, 50.0), z)
    entropy = _entropy(z, keep)
    if how == "unmasked entropy":
        entropy = _entropy(logits, jnp.ones_like(keep))
    if how == "bits":
        entropy = entropy / np.log(2.0)
    beta = _map(entropy, PAPER[::-1] if how == "reversed" else PAPER)
    if how == "temperature for inverse":
        beta = 1 / beta
    if how == "stopped gradient":
        beta = jax.lax.stop_gradient(beta)
    if how == "one-key rows":
        alone = jnp.sum(keep, -1, keepdims=True) == 1
        beta = jnp.where(alone, jnp.nan, beta)  # an entropy divided by log n, at n = 1
    return _apply(beta, z, keep)


def _mutant(how: str) -> Callable[..., Any]:
    def adaptive(logits: Any, where: Any = None) -> Any:
        return _wrong(logits, where, how)

    adaptive.__name__ = "adaptive"
    return adaptive


MUTANTS: dict[str, Callable[..., Any]] = {
    how: _mutant(how)
    for how in (
        "reversed",
        "temperature for inverse",
        "clipped",
        "stopped gradient",
        "bits",
        "unmasked entropy",
        "one-key rows",
    )
}

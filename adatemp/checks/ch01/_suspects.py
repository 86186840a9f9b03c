"""Five causal self-attentions for exercise 01.5. Reading on before solving it spoils the exercise."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def honest(query: jax.Array, key: jax.Array, value: jax.Array, where: jax.Array) -> jax.Array:
    """Hidden keys are removed before the softmax."""
    return _read(_softmax(_logits(query, key), _visible(where)), value)


def late_mask(query: jax.Array, key: jax.Array, value: jax.Array, where: jax.Array) -> jax.Array:
    """Hidden keys get weight 0 after the softmax, and stay in its normaliser."""
    weights = jax.nn.softmax(_logits(query, key), axis=-1)
    return _read(jnp.where(_visible(where), weights, 0.0), value)


def unpadded(query: jax.Array, key: jax.Array, value: jax.Array, where: jax.Array) -> jax.Array:
    """Causal, and padding is visible."""
    return _read(_softmax(_logits(query, key), _visible(jnp.ones_like(where))), value)


def strict(query: jax.Array, key: jax.Array, value: jax.Array, where: jax.Array) -> jax.Array:
    """A query does not see its own position; the first row sees nothing and is 0."""
    return _read(_softmax(_logits(query, key), _visible(where, diagonal=-1)), value)


def shared_temperature(query: jax.Array, key: jax.Array, value: jax.Array, where: jax.Array) -> jax.Array:
    """The weights are 0 at hidden keys and sum to 1, but the temperature is read off the row before the causal mask."""
    logits = _logits(query, key)
    whole = jnp.broadcast_to(where[:, None, None, :], logits.shape)
    plain = _softmax(logits, whole)
    entropy = -jnp.sum(plain * jnp.log(jnp.where(plain > 0, plain, 1.0)), axis=-1, keepdims=True)
    return _read(_softmax((1.0 + 0.3 * entropy) * logits, _visible(where)), value)


def _logits(query: jax.Array, key: jax.Array) -> jax.Array:
    return jnp.einsum("btnh,bsnh->bnts", query, key) / jnp.sqrt(query.shape[-1])


def _visible(where: jax.Array, diagonal: int = 0) -> jax.Array:
    """Boolean [B, 1, T, S]: s is real and not after t + diagonal."""
    length = where.shape[1]
    return jnp.tril(jnp.ones((length, length), bool), diagonal) & where[:, None, None, :]


def _softmax(logits: jax.Array, visible: jax.Array) -> jax.Array:
    """Weights over the visible keys; rows without any are 0, and derivatives at hidden keys are exactly 0."""
    alive = visible.any(axis=-1, keepdims=True)
    kept = jnp.where(alive, jnp.where(visible, logits, -jnp.inf), 0.0)
    return jnp.where(visible, jax.nn.softmax(kept, axis=-1), 0.0)


def _read(weights: jax.Array, value: jax.Array) -> jax.Array:
    return jnp.einsum("bnts,bsnh->btnh", weights, value)

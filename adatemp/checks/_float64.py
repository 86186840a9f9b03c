"""Softmax, entropy and attention in NumPy float64, which the checks compare with, and the logits they are tried on."""

from __future__ import annotations

import numpy as np

# Multiples of 1/64 stay exact in float32 when 10⁴ is added, so that such a shift must change nothing.
_STEP = 1.0 / 64.0


def logits(seed: int, *shape: int) -> np.ndarray:
    """Normal float32 logits of mean 1 and deviation 2, rounded to multiples of 1/64."""
    drawn = 1.0 + 2.0 * np.random.default_rng(seed).normal(size=shape)
    return (np.round(drawn / _STEP) * _STEP).astype(np.float32)


def softmax(logits: np.ndarray, axis: int = -1, where: np.ndarray | None = None) -> np.ndarray:
    """Weights in float64; masked keys and −∞ logits get 0, rows without a visible key are 0."""
    logits = np.asarray(logits).astype(np.float64)
    visible = logits > -np.inf if where is None else (logits > -np.inf) & where
    kept = np.where(visible, logits, -np.inf)
    top = kept.max(axis, keepdims=True)
    powers = np.where(visible, np.exp(kept - np.where(np.isfinite(top), top, 0.0)), 0.0)
    total = powers.sum(axis, keepdims=True)
    return powers / np.where(total == 0, 1.0, total)


def softmax_gradient(logits: np.ndarray, cotangent: np.ndarray, where: np.ndarray | None = None) -> np.ndarray:
    """Gradient of ⟨cotangent, softmax(logits)⟩ over the last axis: p(g − ⟨p, g⟩)."""
    weights = softmax(logits, -1, where)
    return weights * (cotangent - (weights * cotangent).sum(-1, keepdims=True))


def entropy(logits: np.ndarray, axis: int = -1) -> np.ndarray:
    """Entropy in nats of softmax(logits), in float64, as −Σ p log p with 0 log 0 = 0."""
    weights = softmax(logits, axis)
    return -np.sum(weights * np.log(np.where(weights > 0, weights, 1.0)), axis)


def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, visible: np.ndarray | None = None) -> np.ndarray:
    """Multi-head attention over [B, T, N, H] arrays; `visible` broadcasts against [B, N, T, S]."""
    query, key, value = (np.asarray(x).astype(np.float64) for x in (query, key, value))
    logits = np.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(query.shape[-1])
    where = None if visible is None else np.broadcast_to(visible, logits.shape)
    return np.einsum("bnts,bsnh->btnh", softmax(logits, -1, where), value)

"""Six inequalities about softmax rows of bounded spread, two of them false: what exercise 03.4 attacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Claim:
    """An inequality about every row of n logits within a spread δ at temperature θ.

    Attributes:
        name: a letter.
        says: the inequality in words and symbols.
        excess: `excess(logits, spread, temperature)`, a scalar that is positive exactly where the row breaks the
            inequality, in nats (F: in mass). JAX arrays give a differentiable JAX scalar, NumPy arrays a float64.
    """

    name: str
    says: str
    excess: Callable[[Any, Any, Any], Any]


def claims() -> tuple[Claim, ...]:
    """The six inequalities of exercise 03.4. With κ = e^(δ/θ) and ζ = κ log κ/(κ − 1), for rows of n logits:

    >>> for claim in claims():
    ...     print(claim.name, claim.says)
    A no weight exceeds κ/(κ + n − 1)
    B the largest and the smallest weight have a geometric mean of at most 1/n
    C no weight is below 1/(1 + (n − 1)κ)
    D log n − H is at most ζ − 1 − log ζ
    E log n − H is at most (δ/θ)²/12
    F the total variation distance from uniform is at most tanh(δ/(4θ))
    """
    return (
        Claim("A", "no weight exceeds κ/(κ + n − 1)", _above_the_top),
        Claim("B", "the largest and the smallest weight have a geometric mean of at most 1/n", _geometric_mean),
        Claim("C", "no weight is below 1/(1 + (n − 1)κ)", _below_the_bottom),
        Claim("D", "log n − H is at most ζ − 1 − log ζ", _exact_deficit),
        Claim("E", "log n − H is at most (δ/θ)²/12", _twelfth),
        Claim("F", "the total variation distance from uniform is at most tanh(δ/(4θ))", _total_variation),
    )


def _log_weights(logits: Any, temperature: Any) -> tuple[Any, Any]:
    """(array module, log of the softmax weights)."""
    if isinstance(logits, jax.Array):
        return jnp, jax.nn.log_softmax(logits / temperature)
    z = np.asarray(logits, np.float64) / temperature
    return np, z - z.max() - np.log(np.exp(z - z.max()).sum())


def _above_the_top(logits: Any, spread: Any, temperature: Any) -> Any:
    xp, log_p = _log_weights(logits, temperature)
    return log_p.max() + xp.log1p((log_p.size - 1) * xp.exp(-spread / temperature))


def _below_the_bottom(logits: Any, spread: Any, temperature: Any) -> Any:
    xp, log_p = _log_weights(logits, temperature)
    return -log_p.min() - xp.log1p((log_p.size - 1) * xp.exp(spread / temperature))


def _geometric_mean(logits: Any, spread: Any, temperature: Any) -> Any:
    xp, log_p = _log_weights(logits, temperature)
    return (log_p.max() + log_p.min()) / 2 + np.log(log_p.size)


def _deficit(logits: Any, temperature: Any) -> tuple[Any, Any]:
    xp, log_p = _log_weights(logits, temperature)
    return xp, np.log(log_p.size) + (xp.exp(log_p) * log_p).sum()


def _exact_deficit(logits: Any, spread: Any, temperature: Any) -> Any:
    xp, lost = _deficit(logits, temperature)
    s = spread / temperature
    zeta = s / -xp.expm1(-s)
    return lost - (zeta - 1 - xp.log(zeta))


def _twelfth(logits: Any, spread: Any, temperature: Any) -> Any:
    return _deficit(logits, temperature)[1] - (spread / temperature) ** 2 / 12


def _total_variation(logits: Any, spread: Any, temperature: Any) -> Any:
    xp, log_p = _log_weights(logits, temperature)
    return xp.maximum(xp.exp(log_p) - 1 / log_p.size, 0).sum() - xp.tanh(spread / (4 * temperature))

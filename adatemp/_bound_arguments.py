"""Checked arguments of the dispersion bounds: sizes, spreads, temperatures, in one array library and dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def prepare(size: Any, spread: Any, temperature: Any) -> tuple[Any, Any, Any]:
    """Brings a size (or a weight), a spread and a temperature together.

    Returns:
        (array module, size, δ/θ): NumPy and float64 when no argument is a JAX array, else JAX and the arguments'
        dtype, float32 at least.
    """
    traced = [value for value in (size, spread, temperature) if isinstance(value, jax.Array)]
    xp = jnp if traced else np
    dtype = jnp.promote_types(jnp.result_type(*traced), jnp.float32) if traced else np.float64
    size, spread, temperature = (xp.asarray(value, dtype) for value in (size, spread, temperature))
    with np.errstate(over="ignore"):
        ratio = spread / temperature
    # A ratio that overflows stays finite, so that differences of two large terms are never ∞ − ∞.
    return xp, size, xp.minimum(ratio, np.finfo(dtype).max)


def floats(*values: Any) -> tuple[Any, ...]:
    """(array module, values): NumPy and float64 when none is a JAX array, else JAX and float32 at least.

    None stays None.
    """
    traced = [value for value in values if isinstance(value, jax.Array)]
    xp = jnp if traced else np
    dtype = jnp.promote_types(jnp.result_type(*traced), jnp.float32) if traced else np.float64
    return xp, *(None if value is None else xp.asarray(value, dtype) for value in values)


def require_size(n: Any) -> None:
    """Raises ValueError unless every n is at least 1."""
    _require("n", n, lambda v: v >= 1, "at least 1: count the keys that a query sees")


def require_scale(spread: Any, temperature: Any) -> None:
    """Raises ValueError unless every spread is finite and not negative and every temperature positive and finite."""
    _require(
        "spread",
        spread,
        lambda v: (v >= 0) & (v < np.inf),
        "finite and not negative: pass the largest minus the smallest visible logit, as dispersion.spread gives it",
    )
    _require(
        "temperature",
        temperature,
        lambda v: (v > 0) & (v < np.inf),
        "positive and finite: for an inverse temperature beta pass temperature=1/beta",
    )


def require_weight(epsilon: Any, name: str = "epsilon") -> None:
    """Raises ValueError unless every epsilon is a weight strictly between 0 and 1."""
    _require(name, epsilon, lambda v: (v > 0) & (v < 1), "a weight in the open interval (0, 1)")


def require_fraction(name: str, value: Any) -> None:
    """Raises ValueError unless every value is at least 0 and below 1."""
    _require(name, value, lambda v: (v >= 0) & (v < 1), "in [0, 1): a share of the mass")


def require_not_negative(name: str, value: Any, meaning: str) -> None:
    """Raises ValueError unless every value is finite and at least 0; `meaning` says what to pass."""
    _require(name, value, lambda v: (v >= 0) & (v < np.inf), f"finite and not negative: pass {meaning}")


def require_positive(name: str, value: Any, meaning: str) -> None:
    """Raises ValueError unless every value is finite and above 0; `meaning` says what to pass."""
    _require(name, value, lambda v: (v > 0) & (v < np.inf), f"positive and finite: pass {meaning}")


def _require(name: str, value: Any, holds: Callable[[np.ndarray], np.ndarray], allowed: str) -> None:
    try:
        concrete = np.asarray(value).astype(np.float64)
    except jax.errors.TracerArrayConversionError:
        return  # under jit there is no value to look at
    good = np.asarray(holds(concrete))
    if not good.all():
        raise ValueError(f"{name} must be {allowed}; got {concrete[~good].flat[0]:g}")

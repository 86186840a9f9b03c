"""A fitted map whose every number is a leaf, so that one compiled program serves the maps of all heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from adatemp._rule import RowStatistics, rule

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from adatemp._polynomial import Polynomial

DEGREE = 4


@rule("coefficients", "low", "high", "centre", "scale")
class LeafMap:
    """beta is a polynomial of degree four in the entropy, never below 1, its end values held outside low to high."""

    coefficients: Float[Array, "5"]
    low: float
    high: float
    centre: float
    scale: float
    differentiate: bool = True
    range = None
    needs = frozenset({"entropy"})

    def beta(self, stats: RowStatistics) -> Float[Array, "..."]:
        x = (jnp.clip(stats.entropy, self.low, self.high) - self.centre) / self.scale
        value = jnp.polyval(jnp.asarray(self.coefficients, x.dtype), x)
        return jnp.where(value <= 1, 1, value)


def leaf_map(fitted: Polynomial) -> LeafMap:
    """The same map as a rule from `fit_inverse_temperature`, of degree at most four."""
    coefficients = np.zeros(DEGREE + 1)
    coefficients[DEGREE + 1 - len(fitted.coefficients) :] = fitted.coefficients
    low, high = fitted.clip
    return LeafMap(coefficients=coefficients, low=low, high=high, centre=fitted.centre, scale=fitted.scale)

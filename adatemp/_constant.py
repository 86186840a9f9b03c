"""The rule that gives every row the same inverse temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp

from adatemp._rule import RowStatistics, parameter, rule

if TYPE_CHECKING:
    from jaxtyping import Array, ArrayLike, Float


@rule("inverse_temperature")
class Constant:
    """beta is the same whatever the row; see `constant`."""

    inverse_temperature: Float[ArrayLike, "..."]
    differentiate: bool = True
    range = None
    needs = frozenset()

    def beta(self, stats: RowStatistics) -> Float[Array, "..."]:
        return jnp.asarray(self.inverse_temperature)


def constant(beta: Float[ArrayLike, "..."], *, differentiate: bool = True) -> Constant:
    """The rule beta = a constant: ordinary softmax at temperature 1 / beta.

    Args:
        beta: Inverse temperature, above 0: 2.0 sharpens, 0.5 blunts. Broadcasts against the row's shape.
        differentiate: Taken by every constructor; this rule reads no statistics to stop the gradient through.

    Raises:
        TypeError: beta is not a real number.
        ValueError: beta is not positive and finite.
    """
    reason = (
        "it is the inverse temperature, so a temperature of 0 (always the largest logit) is the limit of large beta"
    )
    return Constant(inverse_temperature=parameter("beta", beta, above=0, reason=reason), differentiate=differentiate)


def is_one(rule) -> bool:
    """Whether the rule is constant(1.0) with its value known on the host, so that no gradient is asked of it."""
    return isinstance(rule, Constant) and isinstance(rule.inverse_temperature, float) and rule.inverse_temperature == 1

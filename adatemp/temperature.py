"""Temperature rules: how sharp a softmax row should be, given what its own statistics say.

A rule turns the statistics of a row into beta, the *inverse* temperature that multiplies its logits: beta above 1
sharpens. Rules are values. They are frozen dataclasses registered as pytrees, whose parameters are leaves, so a rule
can be differentiated, vmapped, trained and passed through jit; whatever chooses code is static. A parameter
broadcasts against the row's shape: one number for all rows or, for logits [B, N, T, S] and a value a head, [N, 1].

`constant`, `polynomial`, `log_ratio`, `exp_offset` and `target_entropy` build rules and check what they are given.
`PAPER` is the published quartic, `PAPER_HELD` the same held at its peak. `fit_inverse_temperature` fits a new map.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax.numpy as jnp

from adatemp._fit import TemperatureFit, fit_inverse_temperature
from adatemp._polynomial import PAPER, PAPER_COEFFICIENTS, PAPER_HELD, polynomial
from adatemp._rule import RowStatistics, TemperatureRule, parameter, rule, setting
from adatemp._target_entropy import target_entropy

if TYPE_CHECKING:
    from jaxtyping import Array, ArrayLike, Float

__all__ = [
    "PAPER",
    "PAPER_COEFFICIENTS",
    "PAPER_HELD",
    "RowStatistics",
    "TemperatureFit",
    "TemperatureRule",
    "constant",
    "exp_offset",
    "fit_inverse_temperature",
    "log_ratio",
    "polynomial",
    "target_entropy",
]


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


@rule("reference_count")
class LogRatio:
    """beta grows with the logarithm of the number of keys; see `log_ratio`."""

    reference_count: Float[ArrayLike, "..."]
    differentiate: bool = True
    range = None
    needs = frozenset({"count"})

    def beta(self, stats: RowStatistics) -> Float[Array, "..."]:
        reference = jnp.asarray(self.reference_count)
        count = stats.count.astype(reference.dtype)
        count = jnp.where(count > 1, count, reference)  # one key leaves nothing to decide: beta 1
        return jnp.log(count) / jnp.log(reference)


def log_ratio(reference_count: Float[ArrayLike, "..."], *, differentiate: bool = True) -> LogRatio:
    """The rule beta = log n / log n0 for a row of n live keys: 1 at n0 keys, above 1 beyond, below 1 before.

    It reads the count alone. It keeps up with n where one key stands out by a fixed margin, and not where competitors
    crowd ever closer to the best.

    Args:
        reference_count: n0, the number of keys at which the logits are left alone: above 1.
        differentiate: Taken by every constructor; a count has no gradient.

    Raises:
        TypeError: n0 is not a real number.
        ValueError: n0 is not finite and above 1.
    """
    reason = "log 1 = 0 would divide; give the number of keys at which beta should be 1"
    reference = parameter("reference_count", reference_count, above=1, reason=reason)
    return LogRatio(reference_count=reference, differentiate=differentiate)


@rule("offset")
class ExpOffset:
    """beta is the exponential of the entropy in excess of an offset; see `exp_offset`."""

    offset: Float[ArrayLike, "..."]
    beta_max: float | None
    differentiate: bool = True
    range = None
    needs = frozenset({"entropy"})

    def beta(self, stats: RowStatistics) -> Float[Array, "..."]:
        excess = stats.entropy - jnp.asarray(self.offset, stats.entropy.dtype)
        excess = jnp.where(excess <= 0, 0, excess)
        if self.beta_max is not None:
            highest = math.log(self.beta_max)
            excess = jnp.where(excess >= highest, highest, excess)
        return jnp.exp(excess)


def exp_offset(
    offset: Float[ArrayLike, "..."], beta_max: float | None = None, *, differentiate: bool = True
) -> ExpOffset:
    """The rule beta = exp(max(0, H - offset)), at most beta_max.

    When the logits are spread evenly over a range S and n is much larger than S, H = 1 + log(n / S). This beta then
    keeps n / (beta S), and with it the shape of the sharpened row, the same for every n.

    Args:
        offset: Entropy in nats up to which a row is left alone. Broadcasts against the row's shape.
        beta_max: Highest beta, at least 1; None for no limit.
        differentiate: False stops the gradient through the entropy.

    Raises:
        TypeError: The offset is not a real number.
        ValueError: The offset is not finite, or beta_max is below 1.
    """
    if beta_max is not None:
        beta_max = setting("beta_max", beta_max)
        if beta_max < 1:
            raise ValueError(f"beta_max must be at least 1, got {beta_max}; this rule only sharpens")
    return ExpOffset(offset=parameter("offset", offset), beta_max=beta_max, differentiate=differentiate)

"""The rule that grows with the logarithm of the number of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp

from adatemp._rule import RowStatistics, parameter, rule

if TYPE_CHECKING:
    from jaxtyping import Array, ArrayLike, Float


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

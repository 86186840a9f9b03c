"""What a tempered softmax tells about its rows, and a printable report of it."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Array, Float


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["entropy", "beta", "lse", "lse_scaled"],
    meta_fields=["range"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class AttentionStats:
    """Statistics of each row, differentiable; fields have the row's shape and at least float32.

    Attributes:
        entropy: Entropy of softmax(z), before any temperature, in nats; 0 in a row without live keys.
        beta: Inverse temperature the rule chose; 1 in a row without live keys.
        lse: log sum exp(z); -inf in a row without live keys.
        lse_scaled: log sum exp(beta z), the normaliser of the weights; -inf likewise.
        range: Entropies (lowest, highest) the rule was made for, or None. Static: not an array, not a leaf.
    """

    entropy: Float[Array, "*rows"]
    beta: Float[Array, "*rows"]
    lse: Float[Array, "*rows"]
    lse_scaled: Float[Array, "*rows"]
    range: tuple[float, float] | None = None

    def report(self) -> StatsReport:
        """Counts the rows inside and outside the rule's range.

        Raises:
            TypeError: Inside jit, grad, vmap or scan, where the rows have no values to count yet.

        Example:
            >>> import jax.numpy as jnp
            >>> from adatemp import adaptive_temperature_softmax
            >>> _, stats = adaptive_temperature_softmax(jnp.zeros((2, 1000)), return_stats=True)
            >>> print(stats.report())
            2 rows, mean entropy 6.908 nats, mean beta 1.000, beta exactly 1 in 2
            0 below, 0 inside, 2 above the range of the temperature rule, 0.849 to 5.945 nats
        """
        fields = (self.entropy, self.beta, self.lse)
        if any(isinstance(field, jax.core.Tracer) for field in fields):
            raise TypeError(
                "stats.report() counts rows, which needs their values, and here they are traced (inside jit, grad, "
                "vmap or scan); return the stats from the traced function and call report() on what it returns"
            )
        entropy, beta, lse = (np.asarray(field, np.float64).ravel() for field in fields)
        dead, undefined = np.isneginf(lse), np.isnan(entropy) | np.isnan(beta)
        entropy, beta = entropy[~dead & ~undefined], beta[~dead & ~undefined]
        low, high = self.range or (-np.inf, np.inf)
        below, above = entropy < low, entropy > high
        return StatsReport(
            rows=entropy.size,
            below=int(below.sum()),
            inside=int((~below & ~above).sum()),
            above=int(above.sum()),
            unchanged=int((beta == 1).sum()),
            dead=int(dead.sum()),
            undefined=int((undefined & ~dead).sum()),
            mean_entropy=float(entropy.mean()) if entropy.size else float("nan"),
            mean_beta=float(beta.mean()) if beta.size else float("nan"),
            range=self.range,
        )


@dataclasses.dataclass(frozen=True)
class StatsReport:
    """Counts and means over rows; dead and undefined rows are counted apart and enter no mean.

    Attributes:
        rows: Rows with live keys and without NaN.
        below: Rows whose entropy is under the rule's range; 0 when the rule has none.
        inside: Rows within the range.
        above: Rows past the range, where the published map does nothing.
        unchanged: Rows whose beta is exactly 1.
        dead: Rows without live keys.
        undefined: Rows with a NaN.
        mean_entropy: In nats.
        mean_beta: Mean inverse temperature.
        range: The rule's range in nats, or None.
    """

    rows: int
    below: int
    inside: int
    above: int
    unchanged: int
    dead: int
    undefined: int
    mean_entropy: float
    mean_beta: float
    range: tuple[float, float] | None

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} rows, mean entropy {self.mean_entropy:.3f} nats, mean beta {self.mean_beta:.3f}, "
            f"beta exactly 1 in {self.unchanged:,}"
        ]
        if self.range is None:
            lines.append("the temperature rule has no range of entropies to be outside of")
        else:
            low, high = self.range
            lines.append(
                f"{self.below:,} below, {self.inside:,} inside, {self.above:,} above the range of the temperature "
                f"rule, {low:.3f} to {high:.3f} nats"
            )
        if self.dead or self.undefined:
            lines.append(f"not counted: {self.dead:,} rows without live keys, {self.undefined:,} with NaN")
        return "\n".join(lines)

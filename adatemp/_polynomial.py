"""Maps from a row's entropy to its inverse temperature by a polynomial, the published one among them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from adatemp._rule import RowStatistics, is_concrete, parameter, rule, setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, ArrayLike, Float


@rule("coefficients")
class Polynomial:
    """beta is a polynomial in the entropy, never below 1; see `polynomial`."""

    coefficients: tuple[Float[ArrayLike, "..."], ...]
    threshold: float
    clip: tuple[float, float] | None
    centre: float
    scale: float
    range: tuple[float, float] | None
    differentiate: bool = True
    needs = frozenset({"entropy"})

    def beta(self, stats: RowStatistics) -> Float[Array, "..."]:
        entropy = stats.entropy
        x = entropy
        if self.clip is not None:
            low, high = self.clip
            x = jnp.where(x < low, low, jnp.where(x > high, high, x))
        x = (x - self.centre) / self.scale
        value = jnp.zeros((), entropy.dtype)
        for coefficient in self.coefficients:
            value = value * x + jnp.asarray(coefficient, entropy.dtype)
        # Selections and not a maximum: at a kink the derivative is that of one side, never the average of two, and a
        # NaN entropy gives a NaN.
        return jnp.where((entropy <= self.threshold) | (value <= 1), 1, value)


def polynomial(
    coefficients: Sequence[Float[ArrayLike, "..."]] | Float[Array, "powers ..."],
    *,
    threshold: float = 0.5,
    clip: tuple[float, float] | None = None,
    centre: float = 0.0,
    scale: float = 1.0,
    differentiate: bool = True,
) -> Polynomial:
    """The rule beta = max(1, P(H)) for entropies H above a threshold, and 1 up to it.

    P is evaluated at (clip(H) - centre) / scale. With the defaults that is H itself; a fitted map uses them to stay
    well conditioned, and to stay inside the entropies it was fitted to.

    Args:
        coefficients: Highest power first, as in `numpy.polyval`. Each broadcasts against the row's shape, so that each
            head may have a map of its own.
        threshold: Entropy in nats up to which beta is 1.
        clip: (lowest, highest) entropy in nats between which P is evaluated; None for no limits.
        centre: Entropy in nats that maps to the polynomial's origin.
        scale: Entropy in nats that maps to the polynomial's unit.
        differentiate: False stops the gradient through the entropy.

    Raises:
        TypeError: Coefficients that are not real numbers.
        ValueError: Coefficients that are not finite, or limits that are not in order.

    Example:
        >>> from adatemp import PAPER
        >>> print(f"acts from {PAPER.range[0]:.4f} to {PAPER.range[1]:.4f} nats")
        acts from 0.8486 to 5.9445 nats
    """
    try:
        coefficients = tuple(parameter("coefficients", coefficient) for coefficient in coefficients)
    except TypeError as error:
        if np.ndim(coefficients):  # a sequence, so it is what is in it
            raise
        raise TypeError(
            f"coefficients must be a sequence, highest power first, got {coefficients!r}; "
            "for one inverse temperature everywhere write constant(beta=...)"
        ) from error
    if not coefficients:
        raise ValueError("coefficients must list at least one number, highest power first")
    threshold, centre, scale = setting("threshold", threshold), setting("centre", centre), setting("scale", scale)
    if not scale > 0:
        raise ValueError(f"scale must be above 0, got {scale}; it is a width of entropies in nats")
    if clip is not None:
        clip = tuple(setting("clip", limit) for limit in clip)
        if len(clip) != 2 or not clip[0] < clip[1]:
            raise ValueError(f"clip must be two entropies, the lowest first, got {clip}")
    active = None
    if all(is_concrete(coefficient) and np.ndim(coefficient) == 0 for coefficient in coefficients):
        active = _active_range(np.asarray(coefficients, np.float64), threshold, clip or (0.0, math.inf), centre, scale)
    return Polynomial(
        coefficients=coefficients,
        threshold=threshold,
        clip=clip,
        centre=centre,
        scale=scale,
        range=active,
        differentiate=differentiate,
    )


def _active_range(coefficients, threshold, clip, centre, scale) -> tuple[float, float] | None:
    """From the first to the last entropy, above the threshold and within the clip, at which P exceeds 1."""
    roots = np.roots(np.trim_zeros(np.polysub(coefficients, [1.0]), "f"))
    crossings = np.sort(centre + scale * roots[np.abs(roots.imag) < 1e-9].real)
    low, high = max(threshold, clip[0], 0.0), clip[1]
    edges = [low, *(c for c in crossings if low < c < high), high]
    # P - 1 has one sign between neighbouring edges, so one point of each interval tells.
    inside = [a + 1 if b == math.inf else (a + b) / 2 for a, b in zip(edges, edges[1:])]
    above = [i for i, x in enumerate(inside) if np.polyval(coefficients, (x - centre) / scale) > 1]
    return (float(edges[above[0]]), float(edges[above[-1] + 1])) if above else None


# The listing of arXiv 2410.01104, highest power first.
PAPER_COEFFICIENTS = (-0.037, 0.481, -2.3, 4.917, -1.791)

# Above 1 for entropies from 0.8486 to 5.9445 nats: an effective 2.34 to 382 keys. A row spread over more keys, which
# needs sharpening most, is left as it is; `AttentionStats.report` counts such rows.
PAPER = polynomial(PAPER_COEFFICIENTS, threshold=0.5)

# The one real critical point of the quartic: beta = 2.4214 at H = 4.4124.
_PEAK = float(next(root.real for root in np.roots(np.polyder(PAPER_COEFFICIENTS)) if abs(root.imag) < 1e-9))

# The published map up to its peak, and its peak beyond.
PAPER_HELD = polynomial(PAPER_COEFFICIENTS, threshold=0.5, clip=(0.0, _PEAK))

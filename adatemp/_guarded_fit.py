"""Fits the guarded rule to a head: what its entropy is at its training lengths, and whether it grows with them.

A function that is sharp depends on a fixed number of keys, and the entropy of a head that computes it need not grow
with n. A head that averages looks at a fixed share of its keys, and its entropy is log n less a constant. Trained heads
lie near one or the other, so the least-squares slope of the entropy in log n over the training lengths is taken to the
nearer of 0 and 1. What is left of a sharp head's slope is dispersion that is under way at training lengths already; to
extrapolate it would be to ask for more of it. A head that averages gets h(n) just above log n, which no entropy
exceeds: beta is 1 in all its rows.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from adatemp._guarded import Guarded, guarded
from adatemp._rule import broadcasts, is_concrete

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Bool, Float, Int

# By how much the float32 entropy of a row of equal logits may exceed log n, with room.
_ROUNDING = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class GuardedFit:
    """A fitted rule and what it was fitted to. Fields are numbers, or arrays [heads] when fitted head by head.

    Attributes:
        rule: The rule, whose slope is 0 or 1.
        entropy: Entropy in nats of the fitted line at the longest row: the h of `exp_offset`, `newton` and
            `target_entropy` for the same head.
        slope: Slope of the fitted line in log n, before it was taken to the nearer of 0 and 1.
        averages: Whether that was 1, so that beta is 1 in all rows of the head.
        longest: Largest number of live keys among the rows.
        rows: Number of rows used, those with at least two live keys.
    """

    rule: Guarded
    entropy: Float[np.ndarray, "..."] | float
    slope: Float[np.ndarray, "..."] | float
    averages: Bool[np.ndarray, "..."] | bool
    longest: int
    rows: int

    def __str__(self) -> str:
        heads = zip(np.atleast_1d(self.entropy), np.atleast_1d(self.slope), np.atleast_1d(self.averages))
        lines = [
            f"entropy {entropy:.3f} nats at {self.longest} keys, slope {slope:.3f}: "
            + ("averages, left alone" if averages else "sharp, held")
            for entropy, slope, averages in heads
        ]
        return f"{self.rows:,} rows\n" + "\n".join(lines)


def fit_guarded(
    entropy: Float[ArrayLike, "..."],
    count: Int[ArrayLike, "..."],
    *,
    per_head: bool = False,
    beta_max: float | None = None,
    differentiate: bool = True,
) -> GuardedFit:
    """Fits `guarded` to rows of a trained head at its training lengths, without labels.

    The line entropy = a + b log n is fitted by least squares. A head with b below 1/2 is taken for sharp: its slope is
    0 and its level the line's entropy at the longest rows given. Another averages: its slope is 1 and its level just
    above 0, so that it is left as it is at every length.

    The slope errs on the side of leaving alone: a sharp head that disperses at its training lengths already, because
    its logits span no more than log n or so, looks like one that averages. It is then plain softmax, no worse and no
    better.

    Args:
        entropy: Entropy of each row's plain softmax in nats: from `entropy`, `attention_entropy` or the statistics that
            attention returns, [B, T, N] with heads last.
        count: Number of live keys of each row; broadcasts against the rows, heads left out when `per_head`. At least
            two different numbers above 1 are needed. Rows of one or no key say nothing and are left out.
        per_head: Whether the last axis of `entropy` is heads, each with a level and a slope of its own.
        beta_max: As in `guarded`.
        differentiate: As in `guarded`.

    Returns:
        `GuardedFit`, whose `rule` goes to `temperature=`.

    Raises:
        TypeError: Traced values, or counts that are not integers.
        ValueError: NaN, shapes that do not match, entropies below 0 or above log n, counts that are all the same.

    Example:
        >>> import numpy as np
        >>> from adatemp import fit_guarded
        >>> n = np.array([4, 8, 16, 32])
        >>> print(fit_guarded(np.stack([0.1 + 0.02 * np.log(n), np.log(n) - 0.1], -1), n, per_head=True))
        4 rows
        entropy 0.169 nats at 32 keys, slope 0.020: sharp, held
        entropy 3.366 nats at 32 keys, slope 1.000: averages, left alone
    """
    rows, count = _check_points(entropy, count, per_head)
    log_n = np.log(count)
    if len(np.unique(count)) < 2:
        found = f"all rows have {int(count[0])}" if count.size else "no row has two keys"
        raise ValueError(
            f"count: at least two different numbers of keys are needed to see whether the entropy grows, and {found}; "
            "give rows of several training lengths"
        )
    centred = log_n - log_n.mean()
    slope = centred @ rows / (centred @ centred)
    longest = int(count.max())
    held = rows.mean(0) + slope * (np.log(longest) - log_n.mean())
    averages = slope >= 0.5
    level, of_rule = np.where(averages, _ROUNDING, held), averages.astype(np.float64)
    if not per_head:
        held, slope, averages, level, of_rule = (x.item() for x in (held, slope, averages, level, of_rule))
    rule = guarded(level, of_rule, beta_max, differentiate=differentiate)
    return GuardedFit(rule=rule, entropy=held, slope=slope, averages=averages, longest=longest, rows=len(rows))


def _check_points(entropy, count, per_head):
    """Entropies [rows, heads], heads 1 when they are not told apart, and counts [rows] of at least 2."""
    if not is_concrete(entropy) or not is_concrete(count):
        raise TypeError(
            "entropy and count must have values, and here they are traced; call fit_guarded outside jit, grad and vmap"
        )
    rows, count = np.asarray(entropy, np.float64), np.asarray(count)
    if count.dtype.kind not in "iu":
        raise TypeError(f"count must be integers, the numbers of live keys, got {count.dtype}")
    if per_head and rows.ndim < 2:
        raise ValueError(f"entropy must be [*rows, heads] with per_head=True, got shape {rows.shape}")
    shape = rows.shape[:-1] if per_head else rows.shape
    if not broadcasts(count.shape, shape):
        raise ValueError(f"count must broadcast to the rows' shape {shape}, got {count.shape}")
    count = np.broadcast_to(count, shape).reshape(-1)
    rows = rows.reshape(len(count), -1)[count > 1]
    count = count[count > 1]
    if not np.isfinite(rows).all():
        raise ValueError(f"entropy must be finite, got {rows[~np.isfinite(rows)][0]}")
    if (rows < -_ROUNDING).any():
        raise ValueError(f"entropy must be at least 0, got {rows.min()}")
    above = rows - np.log(count)[:, None]
    if above.size and above.max() > _ROUNDING:
        row = int(above.max(-1).argmax())
        raise ValueError(
            f"entropy must be at most log n, got {rows[row].max():.4g} for a row of {count[row]} keys, "
            f"log n = {np.log(count[row]):.4g}; entropies are in nats: multiply bits by log 2"
        )
    return rows, count

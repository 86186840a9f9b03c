"""The state of a row of logits: five numbers from which its log-sum-exp, entropy and variance follow.

For the live logits z of a row, with m their maximum and t = z - m <= 0,

    l = sum exp(t),    s = sum exp(t) t,    q = sum exp(t) t^2,

and with p = exp(t) / l the softmax of the row

    lse = m + log l,    H = log l - s / l,    Var_p(z) = q / l - (s / l)^2.

Shifting by m keeps every exponential at most 1 and makes H a difference of small numbers however large the logits
are; the form lse - sum(p z) loses all its digits when a row shares a large offset. No epsilon is needed: a probability
that underflows contributes exp(t) t = 0, which is its limit.

States of disjoint blocks merge, so a row can be read in any order and in any number of pieces. With d_k = m_k - m,

    m = max(m_1, m_2),    l = sum_k e^d_k l_k,    s = sum_k e^d_k (s_k + d_k l_k),
    q = sum_k e^d_k (q_k + 2 d_k s_k + d_k^2 l_k),

the last two by expanding (t + d) and (t + d)^2. The merge is commutative and associative and `RowState.empty` is its
identity: a commutative monoid.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from adatemp._rule import broadcasts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, ArrayLike, Bool, Float, Int

# Differences of logits are cut here, so that a logit of -inf enters sums as 0 times a finite number and never as
# 0 * -inf. Far past the underflow of exp in float64 (-745), and with a square that is finite in float32.
LOWEST_DIFFERENCE = -1e15

# Keys whose terms are summed before they join a longer sum.
_PIECE = 128

_FLOATING = ("float16", "bfloat16", "float32", "float64")


class RowSummary(NamedTuple):
    """What a row state says about its row; each field has the row's shape."""

    lse: Float[Array, "*rows"]
    entropy: Float[Array, "*rows"]
    variance: Float[Array, "*rows"] | None


class RowState(NamedTuple):
    """The mergeable statistics of a row of logits; see the top of this file for the formulas.

    Fields have the row's shape: that of the logits without the reduced axes.

    Attributes:
        m: Largest live logit; the dtype's lowest finite value while no live logit has been seen. It is finite so that
            m - m is 0 in an empty state, where -inf - -inf would be NaN.
        l: Sum of exp(z - m) over the live logits, at least 1 in a row that has any.
        s: Sum of exp(z - m) (z - m), in nats.
        count: Number of live logits.
        q: Sum of exp(z - m) (z - m)^2, or None when it was not asked for.

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import RowState
        >>> left, right = jnp.array([0.0, 1.0]), jnp.array([2.0])
        >>> parts = RowState.from_block(left).merge(RowState.from_block(right))
        >>> whole = RowState.from_block(jnp.concatenate([left, right]))
        >>> print(f"{parts.finalise().entropy:.5f} {whole.finalise().entropy:.5f}")
        0.83240 0.83240
    """

    m: Float[Array, "*rows"]
    l: Float[Array, "*rows"]
    s: Float[Array, "*rows"]
    count: Int[Array, "*rows"]
    q: Float[Array, "*rows"] | None = None

    @classmethod
    def empty(cls, shape: Sequence[int] = (), dtype=jnp.float32, *, second_moment: bool = False) -> RowState:
        """The state of rows of which nothing has been read: the identity of `merge`."""
        zeros = jnp.zeros(shape, dtype)
        lowest = jnp.full(shape, jnp.finfo(dtype).min, dtype)
        return cls(lowest, zeros, zeros, jnp.zeros(shape, jnp.int32), zeros if second_moment else None)

    @classmethod
    def from_block(
        cls,
        logits: Float[Array, "..."],
        axis: int | Sequence[int] | None = -1,
        where: Bool[ArrayLike, "..."] | None = None,
        *,
        second_moment: bool = False,
    ) -> RowState:
        """The state of a block of logits.

        Args:
            logits: Floating array; the sums are taken in promote_types(dtype, float32).
            axis: The axis or axes that run over the keys of a row; None for all of them.
            where: Mask that broadcasts to the logits, True where a key takes part. A logit of -inf never does.
            second_moment: Whether to carry q, which only the variance needs.
        """
        logits, axes, where = check_rows(logits, axis, where)
        return row_state(live_logits(logits, where), axes, second_moment=second_moment)

    def merge(self, other: RowState) -> RowState:
        """The state of the union of two disjoint blocks of the same rows."""
        if (self.q is None) != (other.q is None):
            raise ValueError(
                "other: one state carries the second moment and this one does not, or the reverse; "
                "build both with the same second_moment="
            )
        m = jnp.maximum(self.m, other.m)
        l, s, q = 0, 0, None if self.q is None else 0
        for part in (self, other):
            d = jnp.maximum(part.m - m, LOWEST_DIFFERENCE)
            a = jnp.exp(d)
            l = l + a * part.l
            s = s + a * (part.s + d * part.l)
            if q is not None:
                q = q + a * (part.q + d * (2 * part.s + d * part.l))
        return RowState(m, l, s, self.count + other.count, q)

    def finalise(self) -> RowSummary:
        """Log-sum-exp, entropy in nats and, where carried, variance; (-inf, 0, 0) for a row without live logits."""
        log_l, entropy, variance = spread_about_maximum(self)
        return RowSummary(jnp.where(self.l == 0, -jnp.inf, self.m + log_l), entropy, variance)


def live_logits(logits, where):
    """The logits in the dtype of the statistics, at least float32, with -inf at the keys that take no part.

    After this a masked key is a logit of -inf, which has no weight and, in everything below, no gradient. Whatever
    stood there, NaN included, is gone before any arithmetic.
    """
    logits = logits.astype(jnp.float64 if logits.dtype == jnp.float64 else jnp.float32)
    return logits if where is None else jnp.where(where, logits, -jnp.inf)


def row_state(z, axes: tuple[int, ...], *, second_moment: bool) -> RowState:
    """The state of rows of live logits."""
    # Nothing that is made of a state depends on the point m it is shifted by, so m is a constant to differentiation
    # of every order, and the gradient of a maximum never enters.
    m = jax.lax.stop_gradient(jnp.maximum(jnp.max(z, axes), jnp.finfo(z.dtype).min))
    t = shifted(z, m, axes)
    e = jnp.exp(t)
    return RowState(
        m=m,
        l=sum_over(e, axes),
        s=sum_over(e * t, axes),
        count=jnp.sum(z != -jnp.inf, axes, dtype=jnp.int32),  # a NaN counts, so that it shows
        q=sum_over(e * t * t, axes) if second_moment else None,
    )


def sum_over(x, axes: tuple[int, ...]):
    """Sum over the keys, where they are many in pieces of which each is summed first.

    A running sum of many equal small terms is rounded each time in the same direction: with 2,048 keys an entropy was
    off by 2e-5 nats, with 131,072 by 8e-5. The barrier keeps the compiler from making one sum of the two.
    """
    n = x.shape[-1]
    if axes != (x.ndim - 1,) or n < 4 * _PIECE:
        return jnp.sum(x, axes)
    whole = n // _PIECE * _PIECE
    pieces = jnp.sum(x[..., :whole].reshape(*x.shape[:-1], -1, _PIECE), -1)
    total = sum_over(jax.lax.optimization_barrier(pieces), axes)
    return total if whole == n else total + jnp.sum(x[..., whole:], -1)


def shifted(z, m, axes: tuple[int, ...], lowest: float = LOWEST_DIFFERENCE):
    """The logits less the maximum of their row."""
    return jnp.maximum(z - jnp.expand_dims(m, axes), lowest)


def spread_about_maximum(state: RowState):
    """(log l, H, variance) of a state: everything about its row that does not move with a common offset."""
    l = jnp.where(state.l == 0, 1, state.l)
    mean = state.s / l
    log_l = jnp.log(l)
    entropy = log_l - mean
    variance = None if state.q is None else state.q / l - mean * mean
    # Rounding can take either a few units below 0. Written so that a NaN stays one.
    return log_l, jnp.where(entropy < 0, 0, entropy), None if variance is None else jnp.where(variance < 0, 0, variance)


def check_rows(logits, axis, where):
    """Checks the arguments every row function shares; returns logits, axes (sorted, non-negative) and where.

    Raises:
        TypeError: Logits or mask of a kind that cannot be meant.
        ValueError: An axis that does not exist or is empty, or a mask that does not broadcast.
    """
    if not hasattr(logits, "shape") or not hasattr(logits, "dtype"):
        raise TypeError(f"logits must be an array, got {type(logits).__name__}; wrap it in jnp.asarray(...)")
    logits = jnp.asarray(logits)
    if logits.dtype.name not in _FLOATING:
        raise TypeError(
            f"logits must have one of the dtypes {', '.join(_FLOATING)}, got {logits.dtype.name}; "
            "cast with logits.astype(jnp.float32)"
        )
    axes = _check_axes(axis, logits.shape)
    if where is None:
        return logits, axes, None
    where = jnp.asarray(where)
    if where.dtype != bool:
        raise TypeError(
            f"where must be boolean, True where a key takes part, got {where.dtype.name}; "
            "write where=mask.astype(bool), or add a mask of 0 and -inf to the logits"
        )
    if not broadcasts(where.shape, logits.shape):
        raise ValueError(
            f"where of shape {where.shape} does not broadcast to the logits' shape {logits.shape}; "
            "give each of its axes the logits' length or 1"
        )
    return logits, axes, where


def _check_axes(axis, shape: tuple[int, ...]) -> tuple[int, ...]:
    if axis is None:
        axis = tuple(range(len(shape)))
    try:
        given = tuple(map(operator.index, axis if isinstance(axis, (tuple, list)) else (axis,)))
    except TypeError:
        raise TypeError(f"axis must be an integer, a tuple of integers or None, got {axis!r}") from None
    for a in given:
        if not -len(shape) <= a < len(shape):
            raise ValueError(
                f"axis {a} does not exist in logits of shape {shape}; "
                + (f"use {-len(shape)} to {len(shape) - 1}" if shape else "logits need at least one axis")
            )
    axes = tuple(sorted({a % len(shape) for a in given}))
    if len(axes) != len(given):
        raise ValueError(f"axis {axis!r} names an axis of logits of shape {shape} twice; name each once")
    if not axes:
        raise ValueError("axis is empty: a row needs at least one axis; leave axis out for the last one")
    if any(shape[a] == 0 for a in axes):
        raise ValueError(f"axis {axis!r} of logits of shape {shape} has no keys; a softmax needs at least one")
    return axes

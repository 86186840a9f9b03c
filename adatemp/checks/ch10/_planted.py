"""Blocks of logits for chapter 10, and what folding them with a right or a mistaken merge gives, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from adatemp.checks import _float64

# Rows in two axes of different length, so that neither can be taken for the axis of the keys.
ROWS = (2, 3)
KEYS = 5


class State(NamedTuple):
    """Row state in float64: the maximum, Σ e^t, Σ e^t·t and Σ e^t·t² with t = z − m."""

    m: np.ndarray
    l: np.ndarray
    s: np.ndarray
    q: np.ndarray


# A merge of two states. It is handed them with their distances to the common maximum, d ≤ 0.
Merge = Callable[[State, np.ndarray, State, np.ndarray, np.ndarray], State]


def blocks(seed: int, *levels: float, keys: int = KEYS) -> list[np.ndarray]:
    """Blocks of logits [2, 3, keys], moved to the given levels; multiples of 1/64."""
    return [_float64.logits(seed + i, *ROWS, keys) + np.float32(level) for i, level in enumerate(levels)]


def exact(*parts: np.ndarray) -> np.ndarray:
    """(lse, entropy) of the rows that the blocks make up, stacked: [2, 2, 3]; (−∞, 0) where no logit is finite."""
    row = np.concatenate(parts, axis=-1).astype(np.float64)
    top = row.max(-1)
    finite = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        lse = finite + np.log(np.exp(row - finite[..., None]).sum(-1))
    return np.stack([lse, _float64.entropy(row)])


def variance(*parts: np.ndarray) -> np.ndarray:
    """Variance of the logits under their softmax; 0 where no logit is finite."""
    row = np.concatenate(parts, axis=-1).astype(np.float64)
    weights = _float64.softmax(row)
    finite = np.where(weights > 0, row, 0.0)
    mean = (weights * finite).sum(-1, keepdims=True)
    return (weights * (finite - mean) ** 2).sum(-1)


def state_of(block: np.ndarray) -> State:
    """The state of one block of finite logits."""
    block = block.astype(np.float64)
    m = block.max(-1)
    t = block - m[..., None]
    return State(m, *(np.sum(np.exp(t) * t**power, -1) for power in range(3)))


def folded(parts: Sequence[np.ndarray], merge: Merge) -> State:
    """The blocks' states merged from left to right."""
    state, *others = map(state_of, parts)
    for other in others:
        m = np.maximum(state.m, other.m)
        state = merge(state, state.m - m, other, other.m - m, m)
    return state


def finalised(state: State) -> np.ndarray:
    """(lse, entropy) of a state, stacked."""
    return np.stack([state.m + np.log(state.l), np.log(state.l) - state.s / state.l])


def moment_of(state: State) -> np.ndarray:
    """The variance that a state gives."""
    return state.q / state.l - (state.s / state.l) ** 2


def by_side(
    scale: Callable[[np.ndarray], np.ndarray] = np.exp,
    first: Callable[[State, np.ndarray], np.ndarray] = lambda a, d: a.s + d * a.l,
    second: Callable[[State, np.ndarray], np.ndarray] = lambda a, d: a.q + 2 * d * a.s + d * d * a.l,
    rescaled: tuple[bool, bool] = (True, True),
) -> Merge:
    """A merge that treats its two sides by the same formula; the defaults are right, a mistake replaces one of them."""

    def merge(a: State, da: np.ndarray, b: State, db: np.ndarray, m: np.ndarray) -> State:
        factor_a, factor_b = (scale(d) if on else np.ones_like(d) for d, on in zip((da, db), rescaled, strict=True))
        return State(
            m,
            factor_a * a.l + factor_b * b.l,
            factor_a * first(a, da) + factor_b * first(b, db),
            factor_a * second(a, da) + factor_b * second(b, db),
        )

    return merge

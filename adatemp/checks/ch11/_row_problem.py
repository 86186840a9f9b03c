"""Rows of logits with every cotangent, for exercise 11.3: the gradient in float64, and what mistakes would give."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

_ROWS, _KEYS, _TILE, _WIDTH = 6, 20, 5, 3
_STEP = 1.0 / 64.0
_LOWEST = float(np.finfo(np.float32).min)


class Rows(NamedTuple):
    """What the backward pass knows of each row besides its logits: arrays of shape [T].

    Attributes:
        m: The largest logit; the lowest finite number in a row without keys.
        log_l: log Σ e^(z − m); −∞ in a row without keys.
        log_total: log Σ e^(β(z − m)); −∞ likewise.
        entropy: Of the plain row, in nats; 0 likewise.
        beta: The inverse temperature; 1 likewise.
        slope: dβ/dH; 0 where the gradient is to stop at the entropy.
        delta: ⟨dO, o⟩, the product of the output with its cotangent; 0 likewise.
        d_entropy: Cotangent of the entropy.
        d_lse: Cotangent of the plain log-sum-exp.
    """

    m: Any
    log_l: Any
    log_total: Any
    entropy: Any
    beta: Any
    slope: Any
    delta: Any
    d_entropy: Any
    d_lse: Any


@dataclasses.dataclass(frozen=True)
class Problem:
    """Logits [T, S] in which −∞ hides a key, values, cotangents, and a rule β(H), all in float64."""

    z: np.ndarray
    value: np.ndarray
    d_output: np.ndarray
    d_entropy: np.ndarray
    d_lse: np.ndarray
    rule: Callable[[Any], Any]
    stop: bool

    @property
    def visible(self) -> np.ndarray:
        return self.z > -np.inf

    @property
    def dp(self) -> np.ndarray:
        """⟨dO, v⟩, NaN at hidden keys."""
        return np.where(self.visible, self.d_output @ self.value.T, np.nan)

    def _weights(self, scale: np.ndarray) -> np.ndarray:
        z = np.where(self.visible, self.z, -np.inf)
        top = np.where(self.visible.any(1), z.max(1), 0.0)[:, None]
        powers = np.where(self.visible, np.exp(scale[:, None] * (np.where(self.visible, z, 0.0) - top)), 0.0)
        total = powers.sum(1, keepdims=True)
        return powers / np.where(total > 0, total, 1.0)

    @property
    def p(self) -> np.ndarray:
        return self._weights(np.ones(len(self.z)))

    @property
    def a(self) -> np.ndarray:
        return self._weights(self.beta)

    @property
    def entropy(self) -> np.ndarray:
        return -(self.p * np.log(np.where(self.p > 0, self.p, 1.0))).sum(1)

    @property
    def beta(self) -> np.ndarray:
        return np.where(self.visible.any(1), np.asarray(self.rule(self.entropy), np.float64), 1.0)

    @property
    def slope(self) -> np.ndarray:
        """dβ/dH by a complex step, 0 where the gradient stops."""
        if self.stop:
            return np.zeros(len(self.z))
        return np.where(self.visible.any(1), np.imag(self.rule(self.entropy + 1e-30j)) / 1e-30, 0.0)

    @property
    def finite(self) -> np.ndarray:
        """The logits, 0 at hidden keys."""
        return np.where(self.visible, self.z, 0.0)

    @property
    def delta(self) -> np.ndarray:
        return (self.a * np.where(self.visible, self.dp, 0.0)).sum(1)

    @property
    def w(self) -> np.ndarray:
        return self.a * (np.where(self.visible, self.dp, 0.0) - self.delta[:, None])

    @property
    def d_beta(self) -> np.ndarray:
        return (self.finite * self.w).sum(1)

    def rows(self) -> Rows:
        alive = self.visible.any(1)
        m = np.where(alive, np.where(self.visible, self.z, -np.inf).max(1), _LOWEST)
        t = np.where(self.visible, self.z - m[:, None], -np.inf)
        with np.errstate(divide="ignore"):
            log_l = np.log(np.exp(t).sum(1))
            log_total = np.log(np.exp(self.beta[:, None] * t).sum(1))
        fields = (m, log_l, log_total, self.entropy, self.beta, self.slope, self.delta, self.d_entropy, self.d_lse)
        return Rows(*(jnp.asarray(field.astype(np.float32)) for field in fields))

    def tiles(self) -> list[tuple[Any, Any]]:
        """(z, dp) of each tile of keys, float32 [T, 5]."""
        arrays = (jnp.asarray(array.astype(np.float32)) for array in (self.z, self.dp))
        return list(zip(*(jnp.split(array, _KEYS // _TILE, axis=1) for array in arrays)))

    def gradient(self) -> np.ndarray:
        """The gradient of ⟨dO, o⟩ + ⟨dH, H⟩ + ⟨dL, lse⟩ in the logits, by a complex step: no formula of derivatives."""
        return np.stack([self._row_gradient(i) for i in range(len(self.z))])

    def _row_gradient(self, i: int) -> np.ndarray:
        visible = self.visible[i]
        if not visible.any():
            return np.zeros(_KEYS)
        # Row j of this table is the row of logits with logit j moved by an imaginary step.
        moved = self.finite[i] + 1e-30j * np.eye(_KEYS)
        top = self.z[i][visible].max()
        powers = np.where(visible, np.exp(moved - top), 0.0)
        l = powers.sum(1)
        lse = top + np.log(l)
        entropy = lse - (powers * moved).sum(1) / l
        beta = self.rule(np.real(entropy) if self.stop else entropy)
        tempered = np.where(visible, np.exp(np.asarray(beta)[:, None] * (moved - top)), 0.0)
        output = tempered @ self.value / tempered.sum(1, keepdims=True)
        total = output @ self.d_output[i] + self.d_entropy[i] * entropy + self.d_lse[i] * lse
        return np.where(visible, np.imag(total) / 1e-30, 0.0)


def published(entropy: Any) -> Any:
    """The published map, for real and for complex entropies."""
    quartic = np.polyval([-0.037, 0.481, -2.3, 4.917, -1.791], entropy)
    return np.where(np.real(quartic) > 1.0, quartic, 1.0)


def straight(entropy: Any) -> Any:
    """A rule that may fall below 1."""
    return 0.4 + 0.6 * entropy


def problem(
    seed: int,
    *,
    rule: Callable[[Any], Any] = straight,
    stop: bool = False,
    statistics: bool = False,
    hidden: bool = False,
    dead: bool = False,
    offset: float = 0.0,
) -> Problem:
    """Six rows of twenty logits, from flat to sharp.

    Args:
        seed: of the random numbers.
        rule: the temperature rule.
        stop: whether the gradient stops at the entropy.
        statistics: whether the entropy and the log-sum-exp have cotangents.
        hidden: whether some keys are hidden.
        dead: whether the first and the fourth row have no keys at all.
        offset: added to every logit.
    """
    draw = np.random.default_rng(seed)
    z = draw.normal(size=(_ROWS, _KEYS)) * np.linspace(0.3, 3.0, _ROWS)[:, None]
    z = np.round(z / _STEP) * _STEP + offset  # exact in float32, with the offset too
    value, d_output = draw.normal(size=(_KEYS, _WIDTH)), draw.normal(size=(_ROWS, _WIDTH))
    d_entropy, d_lse = draw.normal(size=(2, _ROWS)) * statistics
    if hidden:
        z[draw.uniform(size=z.shape) < 0.3] = -np.inf
        z[1, :_TILE] = z[2, -_TILE:] = -np.inf  # whole tiles
        z[5, 1:] = -np.inf  # a single key
        z[5, 0] = offset
    if dead:
        z[[0, 3]] = -np.inf
        d_entropy[[0, 3]] = d_lse[[0, 3]] = 0.0
    return Problem(z, value, d_output, d_entropy, d_lse, rule, stop)

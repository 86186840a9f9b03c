"""Temperature rules for the tests: each one the library's object, and its formula written again beside it.

A formula takes the rows' statistics, the parameters and the namespace it computes in. Given `oracle.Row` and numpy it
makes one float, given `plain.RowArrays` and jax.numpy all rows at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from row_oracle import QUARTIC

from adatemp import PAPER, PAPER_HELD, constant, exp_offset, guarded, log_ratio, newton, polynomial, target_entropy
from adatemp._rule import rule as make_rule


@make_rule("gain", "slope")
class EverythingRule:
    """A rule of a user's own: reads all four statistics that stream, and has parameters a head."""

    gain: jax.Array
    slope: jax.Array
    differentiate: bool = True
    range = None
    needs = frozenset({"count", "entropy", "variance", "position"})

    def beta(self, stats):
        return everything(stats, {"gain": self.gain, "slope": self.slope}, jnp)


@make_rule("gain")
class VarianceRule:
    """Reads the variance alone."""

    gain: float
    differentiate: bool = True
    range = None
    needs = frozenset({"variance"})

    def beta(self, stats):
        return 1 + self.gain * stats.variance / (1 + stats.variance)


@make_rule("slope")
class PositionRule:
    """Reads the position alone, so that the row needs no first pass."""

    slope: jax.Array
    differentiate: bool = True
    range = None
    needs = frozenset({"position"})

    def beta(self, stats):
        return 1 + self.slope * jnp.log1p(stats.position.astype(jnp.result_type(self.slope)))


def everything(stats, parameters, xp):
    curved = parameters["gain"] * stats.variance / (1 + stats.variance) + 0.2 * xp.sin(stats.entropy)
    return 1.2 + curved + parameters["slope"] * xp.log(1.0 + stats.position) / (1.0 + stats.count)


def published(stats, parameters, xp):
    return _above_one(stats.entropy, QUARTIC, xp)


def held(stats, parameters, xp):
    # The peak: the one real root of the derivative, by bisection.
    low, high = 4.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        slope = sum((4 - i) * c * middle ** (3 - i) for i, c in enumerate(QUARTIC[:4]))
        low, high = (middle, high) if slope > 0 else (low, middle)
    return _above_one(xp.where(stats.entropy > low, low, stats.entropy), QUARTIC, xp)


def by_head(stats, parameters, xp):
    return _above_one(stats.entropy, parameters["coefficients"], xp)


def _above_one(entropy, coefficients, xp):
    degree = len(coefficients) - 1
    value = sum(c * entropy ** (degree - i) for i, c in enumerate(coefficients))
    return xp.where((entropy > 0.5) & (value > 1), value, 1.0)


def offset(stats, parameters, xp):
    excess = stats.entropy - parameters["offset"]
    return xp.exp(xp.where(excess > 0, xp.where(excess < np.log(3.0), excess, np.log(3.0)), 0.0))


def one_step(stats, parameters, xp):
    excess = stats.entropy - parameters["target"]
    return xp.exp(xp.where(excess > 0, excess, 0.0) / xp.where(stats.variance > 1, stats.variance, 1.0))


def beside_one(stats, parameters, xp):
    held = parameters["level"] + parameters["slope"] * xp.log(xp.maximum(stats.count, 1) * 1.0)
    value = (xp.exp(stats.entropy) - 1) / (xp.exp(held) - 1)
    return xp.where(value > 1, xp.where(value < 6.0, value, 6.0), 1.0)


def ratio(stats, parameters, xp):
    return xp.where(
        stats.count > 1, xp.log(xp.maximum(stats.count, 2) * 1.0) / xp.log(parameters["reference_count"]), 1.0
    )


def solved(stats, parameters, xp):
    """beta in [1, 50] with the entropy of softmax(beta z) at a target: bisection, then one Newton step.

    The step changes nothing but the derivative, which it makes that of the exact solution.
    """
    z, axis = (stats.logits, -1) if xp is jnp else (stats.logits - np.max(stats.logits), -1)
    seen = stats.seen if xp is jnp else np.ones(z.shape, bool)
    target = parameters["entropy"]

    def tempered(beta, z, target):
        e = xp.where(seen, xp.exp(beta[..., None] * z), 0.0)
        total = xp.where(xp.sum(e, axis) == 0, 1.0, xp.sum(e, axis))
        mean = xp.sum(e * z, axis) / total
        variance = xp.sum(e * (z - mean[..., None]) ** 2, axis) / total
        return xp.log(total) - beta * mean - target, variance

    stop = jax.lax.stop_gradient if xp is jnp else lambda x: x
    low, high = xp.ones(z.shape[:-1]), xp.full(z.shape[:-1], 50.0)
    for _ in range(60):
        middle = (low + high) / 2
        above = tempered(middle, stop(z), stop(target))[0] > 0
        low, high = xp.where(above, middle, low), xp.where(above, high, middle)
    beta = stop((low + high) / 2)
    excess, variance = tempered(beta, z, target)
    solved = (beta > 1 + 1e-9) & (beta < 50 - 1e-9)
    step = excess / stop(xp.where(solved, beta * variance, 1.0))
    return xp.where(solved, beta + step, xp.where(beta < 2, 1.0, 50.0))


class Case(NamedTuple):
    """`make(parameters)` gives the rule, `formula` its beta; `parameters` are pytrees of numpy arrays [N] or floats."""

    make: object
    formula: object
    parameters: dict
    streams: bool = True
    stopped: bool = False


def _heads(low, high, heads=4):
    return np.linspace(low, high, heads)


RULES = {
    "paper": Case(lambda p: PAPER, published, {}),
    "held": Case(lambda p: PAPER_HELD, held, {}),
    "stopped": Case(lambda p: polynomial(QUARTIC, differentiate=False), published, {}, stopped=True),
    "constant": Case(lambda p: constant(p["beta"]), lambda s, p, xp: p["beta"], {"beta": np.float64(1.7)}),
    "constants": Case(lambda p: constant(p["beta"]), lambda s, p, xp: p["beta"], {"beta": _heads(0.6, 2)}),
    "coefficients": Case(
        lambda p: polynomial(p["coefficients"]),
        by_head,
        {"coefficients": tuple(c * _heads(0.9, 1.1) for c in QUARTIC)},
    ),
    "offset": Case(lambda p: exp_offset(p["offset"], 3.0), offset, {"offset": _heads(0.4, 1.6)}),
    "newton": Case(lambda p: newton(p["target"]), one_step, {"target": _heads(0.4, 1.6)}),
    "guarded": Case(
        lambda p: guarded(p["level"], p["slope"], 6.0),
        beside_one,
        {"level": _heads(0.3, 0.9), "slope": _heads(0.0, 0.3)},
    ),
    "ratio": Case(lambda p: log_ratio(p["reference_count"]), ratio, {"reference_count": _heads(3, 20)}),
    "solved": Case(
        lambda p: target_entropy(p["entropy"], beta_max=50.0), solved, {"entropy": _heads(0.8, 1.4)}, streams=False
    ),
    "variance": Case(
        lambda p: VarianceRule(gain=p["gain"]),
        lambda s, p, xp: 1 + p["gain"] * s.variance / (1 + s.variance),
        {"gain": np.float64(0.9)},
    ),
    "position": Case(
        lambda p: PositionRule(slope=p["slope"]),
        lambda s, p, xp: 1 + p["slope"] * xp.log(1.0 + s.position),
        {"slope": _heads(0.1, 0.5)},
    ),
    "everything": Case(lambda p: EverythingRule(**p), everything, {"gain": _heads(0.5, 1), "slope": _heads(0.1, 0.4)}),
}

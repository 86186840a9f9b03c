"""Exercise 10.5: exact and approximate grids pass with bounds of their own, and every planted mistake is named."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from adatemp.checks import ch10


def unwritten(*_):
    raise NotImplementedError


# Two rows with one state


ROW = np.log([1.0, 0.6, 0.6, 0.01])


def pair():
    wanted = [np.exp(ROW).sum(), (np.exp(ROW) * ROW).sum()]

    def gap(free):
        other = np.array([0.0, free[0], free[1], free[1]])
        return [np.exp(other).sum() - wanted[0], (np.exp(other) * other).sum() - wanted[1]]

    top, low = optimize.fsolve(gap, np.log([0.93, 0.14]), xtol=1e-12)
    return ROW, np.array([0.0, top, low, low]), 2.0


# A grid of β


def interpolated(kind="linear", scale=lambda beta, d: jnp.exp(beta * d)):
    def one_pass(blocks, grid, choose):
        beta = jnp.asarray(grid)[:, None]
        m = None
        for logits, values in blocks:
            top = logits.max(-1) if m is None else jnp.maximum(m, logits.max(-1))
            t = logits - top[:, None]
            e = jnp.exp(t)
            weights = jnp.exp(beta[..., None] * t)
            if m is None:
                l = s = jnp.zeros_like(top)
                norm, out = jnp.zeros(weights.shape[:2]), jnp.zeros((*weights.shape[:2], values.shape[1]))
                d = jnp.zeros_like(top)
            else:
                d = m - top
            a = scale(beta, d)
            norm, out = a * norm + weights.sum(-1), a[..., None] * out + weights @ values
            s = jnp.exp(d) * (s + d * l) + (e * t).sum(-1)
            l = jnp.exp(d) * l + e.sum(-1)
            m = top
        chosen = jnp.asarray(choose(jnp.log(l) - s / l))
        outputs = out / norm[..., None]
        place = (chosen - grid[0]) / (grid[1] - grid[0])
        rows = jnp.arange(len(chosen))
        if kind == "nearest":
            return outputs[jnp.round(place).astype(int), rows]
        low = jnp.clip(jnp.floor(place + 1e-4), 0, len(grid) - 2).astype(int)
        part = (place - low)[:, None]
        return (1 - part) * outputs[low, rows] + part * outputs[low + 1, rows]

    return one_pass


linear, nearest = interpolated(), interpolated("nearest")


def linear_bound(spread, values, step):
    return values * (spread * step) ** 2 / 32


def nearest_bound(spread, values, step):
    return values * spread * step / 8


def cost(keys, width, points):
    return keys * width * (1 + points), keys * points, 3 + points * (1 + width)


@pytest.mark.parametrize(("one_pass", "bound"), [(linear, linear_bound), (nearest, nearest_bound)])
def test_the_right_answer_passes_with_its_own_bound(one_pass, bound):
    assert ch10.ex5(pair, one_pass, bound, cost).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda: None, "not written yet"),
        (lambda: (ROW, np.append(ROW, -9.0), 2.0), "two lengths"),
        (lambda: (ROW, ROW + 1.0, 2.0), "the rows differ by an offset"),
        (lambda: (ROW, np.log([1.0, 0.8, 0.4, 0.01]), 2.0),
         "the same normaliser and another entropy"),
        (lambda: (*pair()[:2], -1.0), "β is not positive"),
        (lambda: (*pair()[:2], 1.0), "β = 1"),
        (lambda: (ROW, ROW[::-1], 2.0), "one row in another order"),
    ],
)  # fmt: skip
def test_mistakes_in_the_pair_are_named(answer, mistake):
    assert ch10.ex5(answer, linear, linear_bound, cost).mistake == mistake


def plain(blocks, grid, choose):
    beta = {}

    def remember(entropy):
        beta["chosen"] = jnp.asarray(choose(entropy))
        return jnp.ones_like(beta["chosen"])

    return linear(blocks, grid, remember)


def inverse(blocks, grid, choose):
    fine = np.linspace(0.3, 2.6, 2_000)
    return linear(blocks, fine, lambda entropy: 1 / jnp.asarray(choose(entropy)))


def two_passes(blocks, grid, choose):
    plain = [0.0, 0.0, 0.0]
    for logits, _ in blocks:  # offsets are small here: no maximum is taken
        plain[0] += jnp.exp(logits).sum(-1)
        plain[1] += (jnp.exp(logits) * logits).sum(-1)
    beta = jnp.asarray(choose(jnp.log(plain[0]) - plain[1] / plain[0]))
    norm, out = 0.0, 0.0
    for logits, values in blocks:
        weights = jnp.exp(beta[:, None] * logits)
        norm, out = norm + weights.sum(-1), out + weights @ values
    return out / norm


def kept(blocks, grid, choose):
    parts = list(blocks)
    logits = jnp.concatenate([z for z, _ in parts], axis=1)
    return logits


def early(blocks, grid, choose):
    """Asks after the first block, and uses the answer to the last question."""
    asked = []

    def watching():
        for logits, values in blocks:
            if not asked:
                p = jnp.exp(logits - logits.max(-1, keepdims=True))
                p = p / p.sum(-1, keepdims=True)
                asked.append(choose(-(p * jnp.log(p)).sum(-1)))
            yield logits, values

    return linear(watching(), grid, lambda _: asked[0])


def out_of_step(blocks, grid, choose):
    step = grid[1] - grid[0]
    return linear(blocks, grid, lambda entropy: jnp.asarray(choose(entropy)) + (step if step < 0.1 else 0.0))


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda *_: None, "not written yet"),
        (lambda *args: linear(*args).T, "wrong shape"),
        (plain, "rescaled by a scalar"),
        (interpolated(scale=lambda beta, d: jnp.exp(d) + 0.0 * beta), "one factor for every point of the grid"),
        (inverse, "θ for β"),
        (early, "β chosen before the row ends"),
        (two_passes, "a second pass"),
        (kept, "the blocks are kept"),
        (out_of_step, "an index out of step"),
    ],
)
def test_mistakes_in_the_pass_are_named(answer, mistake):
    assert ch10.ex5(pair, answer, linear_bound, cost).mistake == mistake


@pytest.mark.parametrize(
    ("bound", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda spread, values, step: np.nan, "NaN"),
        (lambda spread, values, step: 0.0025 * values * (spread * step) ** 2, "a bound from random rows"),
        (lambda spread, values, step: 0.0, "does not hold"),
        (lambda spread, values, step: (spread * step) ** 2 / 32, "the values' range is forgotten"),
        (lambda spread, values, step: values, "a bound that promises nothing"),
        (nearest_bound, "a first-order bound for a second-order error"),
    ],
)
def test_mistakes_in_the_bound_are_named(bound, mistake):
    assert ch10.ex5(pair, linear, bound, cost).mistake == mistake


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda n, d, g: (n * d * (1 + g), n * g), "not three numbers"),
        (lambda n, d, g: (2 * n * d, n * g, 3 + g * (1 + d)), "one output for every point of the grid"),
        (lambda n, d, g: (n * d * g, n * g, 3), "the logits are forgotten, or counted for every point"),
        (lambda n, d, g: (2 * n * d * (1 + g), n * g, 3), "floating-point operations for multiply-adds"),
        (lambda n, d, g: (n * d * (1 + g), n, 3 + g * (1 + d)), "exponentials are counted once"),
        (lambda n, d, g: (n * d * (1 + g), n * g, 3 + g), "the outputs are not carried"),
    ],
)
def test_mistakes_in_the_cost_are_named(wrong, mistake):
    assert ch10.ex5(pair, linear, linear_bound, wrong).mistake == mistake

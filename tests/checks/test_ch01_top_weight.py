"""Exercise 01.3: right inverse temperatures pass in JAX and in NumPy, and every planted mistake is named."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from adatemp.checks import ch01


def right(logits, top_weight):
    below = np.asarray(logits, np.float64)
    below = below - below.max()
    if top_weight >= 1 / (below == 0).sum():
        return math.inf
    if top_weight < 1 / below.size:
        raise ValueError("no inverse temperature gives a top weight below 1/n")
    low, high = 0.0, 1.0
    while 1 / np.exp(high * below).sum() < top_weight:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 / np.exp(middle * below).sum() < top_weight else (low, middle)
    return high


def right_in_jax(logits, top_weight):
    below = logits - logits.max()
    multiplicity = int((below == 0).sum())
    if top_weight >= 1 / multiplicity:
        raise ValueError("no inverse temperature reaches this weight")
    if top_weight < 1 / below.size:
        return jnp.nan
    betas = jnp.logspace(-7, 7, 40)
    for _ in range(9):
        reached = 1 / jnp.exp(betas[:, None] * below).sum(1)
        first = int(jnp.argmax(reached >= top_weight))
        betas = jnp.linspace(betas[max(first - 1, 0)], betas[first], 40)
    return betas[20]


def stub(logits, top_weight): ...


def temperature(logits, top_weight):
    return 1 / right(logits, top_weight)


def below_zero(logits, top_weight):
    return -right(logits, top_weight)


def bottom_formula(logits, top_weight):
    return math.log((logits.size - 1) * top_weight / (1 - top_weight)) / float(logits.max() - logits.min())


def runner_up(logits, top_weight):
    second, first = np.sort(np.asarray(logits, np.float64))[-2:]
    # below 1/2 the formula is negative; the first stage asks for β ≥ 0 and gets the mistake's usual clamp
    return max(math.log(top_weight / (1 - top_weight)), 0.01 * top_weight) / (first - second)


def few_steps(logits, top_weight):
    return float(f"{right(logits, top_weight):.2g}")


def fixed_interval(logits, top_weight):
    return min(max(right(logits, top_weight), 1e-2), 1e2)


def without_maximum(logits, top_weight):
    z = np.asarray(logits, np.float64)
    with np.errstate(all="ignore"):
        weight = lambda beta: np.exp(beta * z.max()) / np.exp(beta * z).sum()  # noqa: E731
        low, high = 0.0, 1.0
        while weight(high) < top_weight:
            low, high = high, 2 * high
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if weight(middle) < top_weight else (low, middle)
        return high if np.isfinite(weight(high)) else math.nan


def scaled_before_shift(logits, top_weight):
    if float(logits.max()) < 5_000 or float(logits.min()) < 5_000:
        return right(logits, top_weight)
    rounded = np.asarray(np.float32(1.7) * np.asarray(logits, np.float32), np.float64) / np.float32(1.7)
    return right(rounded, top_weight)


def ties_as_one(logits, top_weight):
    z = np.asarray(logits, np.float64)
    multiplicity = (z == z.max()).sum()
    return right(z, top_weight / multiplicity) if multiplicity > 1 else right(z, top_weight)


def ties_left_out(logits, top_weight):
    z = np.asarray(logits, np.float64)
    return right(np.append(z[z < z.max()], z.max()), top_weight)


def ties_ignored(logits, top_weight):
    answer = right(logits, top_weight)
    return 1e6 if answer == math.inf else answer


def nan_out_of_reach(logits, top_weight):
    answer = right(logits, top_weight)
    return math.nan if answer == math.inf else answer


def negative_out_of_reach(logits, top_weight):
    try:
        return right(logits, top_weight)
    except ValueError:
        return -0.3


def zero_out_of_reach(logits, top_weight):
    try:
        return right(logits, top_weight)
    except ValueError:
        return 0.0


MISTAKES = {
    stub: "not written yet",
    temperature: "temperature for inverse temperature",
    below_zero: "negative β",
    bottom_formula: "all others at the bottom",
    few_steps: "stopped early",
    fixed_interval: "no bracket",
    without_maximum: "no maximum subtracted",
    scaled_before_shift: "scaled before the shift",
    ties_as_one: "tied keys counted as one",
    ties_left_out: "tied keys left out",
    ties_ignored: "ties ignored",
    nan_out_of_reach: "NaN for a weight out of reach",
    negative_out_of_reach: "negative β",
    zero_out_of_reach: "an answer where there is none",
}


@pytest.mark.parametrize("inverse_temperature", [right, right_in_jax])
def test_right_answers_pass(inverse_temperature):
    ch01.ex3(inverse_temperature).require()


@pytest.mark.parametrize(("answer", "name"), MISTAKES.items(), ids=lambda x: getattr(x, "__name__", None))
def test_planted_mistakes_are_named(answer, name):
    assert ch01.ex3(answer).mistake == name


def test_the_report_draws_the_curve():
    assert "Your six answers" in ch01.ex3(ties_as_one)._repr_html_()

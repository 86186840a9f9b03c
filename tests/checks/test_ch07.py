"""Checks of chapter 07: the right answer passes, the stub is recognised, each planted mistake gets its own name."""

from __future__ import annotations

import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from adatemp import dispersion
from adatemp.checks import ch07


def unwritten(*_, **__):
    raise NotImplementedError


# 07.1 Dispersed, not uniform


def head(n):
    side = np.where(np.arange(n) < (n + 1) // 2, 1.0, -1.0)[:, None]
    return np.array([[1.0], [-1.0]]), side, side


def head_with(queries=None, keys=None, values=None):
    def made(n):
        q, k, v = head(n)
        return (
            q if queries is None else queries(n),
            k if keys is None else keys(n),
            v if values is None else values(n),
        )

    return made


def noise(n):
    return np.random.default_rng(n).choice([-1.0, 1.0], (n, 1))


def collapses(weights):
    return bool(np.allclose(weights, weights[:, :1]))


def test_right_answers_to_exercise_1_pass():
    ch07.ex1(head, collapses).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, collapses), "not written yet"),
        ((head, unwritten), "not written yet"),
        ((lambda n: head(n)[:2], collapses), "raised an exception"),
        ((head_with(values=lambda n: np.ones(n)), collapses), "raised an exception"),
        ((head_with(queries=lambda n: np.ones((1, 1))), collapses), "one query for two"),
        ((head_with(keys=lambda n: np.where(np.arange(n) < 1, 9.0, 0.0)[:, None]), collapses), "a weight above 2/n"),
        ((head_with(values=lambda n: math.sqrt(n) * noise(n)), collapses), "values that grow"),
        ((head_with(queries=lambda n: np.zeros((2, 1))), collapses), "each weight tends to 0 read as uniform"),
        ((head_with(queries=lambda n: np.ones((2, 1))), collapses), "each weight tends to 0 read as uniform"),
        ((head_with(values=noise), collapses), "values that cancel"),
        ((head_with(values=lambda n: np.full((n, 1), np.nan)), collapses), "does not hold"),
        ((head, lambda w: np.allclose(w, 1 / w.shape[-1])), "uniform demanded"),
        ((head, lambda w: w.max() < 2 / w.shape[-1] or collapses(w)), "small weights taken for equal rows"),
        ((head, lambda w: collapses(w[:1])), "one head looked at"),
        ((head, lambda w: np.allclose(w, w[:1])), "heads compared with each other"),
        ((head, lambda w: np.allclose(w[:, 0], w[:, 1])), "one row looked at"),
    ],
)
def test_mistakes_in_exercise_1_are_named(answer, mistake):
    assert ch07.ex1(*answer).mistake == mistake


# 07.2 What a common shift does


def same(norm, shift):
    if norm == "none":
        return True, False, False
    return (norm == "layer" and shift == "ones",) * 3


def bounds(states, shift, score, i):
    own, common = np.ptp(states @ (states[i] @ score)), np.ptp(states @ (shift @ score))
    return abs(own - common), own + common


def bounds_with(low=lambda own, common: abs(own - common), high=lambda own, common: own + common):
    def answer(states, shift, score, i):
        own, common = np.ptp(states @ (states[i] @ score)), np.ptp(states @ (shift @ score))
        return low(own, common), high(own, common)

    return answer


def far(x, y, shift, t):
    unit = shift / np.linalg.norm(shift)
    across = (x - y) - unit * ((x - y) @ unit)
    return np.sqrt(len(x)) * np.linalg.norm(across) / (t * np.linalg.norm(shift))


def test_right_answers_to_exercise_2_pass():
    ch07.ex2(same, bounds, far).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, bounds, far), "not written yet"),
        ((same, unwritten, far), "not written yet"),
        ((same, bounds, unwritten), "not written yet"),
        ((lambda norm, shift: (True,), bounds, far), "wrong shape"),
        ((lambda norm, shift: (True, False, True), bounds, far), "the spread called constant"),
        ((lambda norm, shift: (False,) * 3, bounds, far), "key differences called changed"),
        ((lambda norm, shift: (True, False, False), bounds, far), "the norm ignored"),
        ((lambda norm, shift: (norm == "none", False, False), bounds, far), "layer norm taken for rms norm"),
        (
            (lambda norm, shift: same(norm, shift) if norm != "rms" else same("layer", shift), bounds, far),
            "rms norm taken for layer norm",
        ),
        ((same, bounds_with(lambda a, c: a, lambda a, c: a), far), "the spread called constant"),
        ((same, bounds_with(lambda a, c: a), far), "a shift that can only widen"),
        ((same, bounds_with(lambda a, c: 0.0), far), "a shift that can only widen"),
        ((same, bounds_with(high=lambda a, c: a + 2 * c), far), "the shift counted twice"),
        ((same, lambda *_: (np.nan, np.nan), far), "NaN"),
        (
            (same, bounds, lambda x, y, c, t: len(x) ** 0.5 * np.linalg.norm(x - y) / (t * np.linalg.norm(c))),
            "the whole difference for its part across the shift",
        ),
        ((same, bounds, lambda x, y, c, t: far(x, y, c, t) / len(x) ** 0.5), "√D forgotten"),
        ((same, bounds, lambda x, y, c, t: far(x, y, c, t) * t), "t forgotten"),
    ],
)
def test_mistakes_in_exercise_2_are_named(answer, mistake):
    assert ch07.ex2(*answer).mistake == mistake


# 07.3 The causal average in closed form


def series(tokens, layers, eigenvalue=lambda k, i, L: Fraction(1, k) ** L, number=Fraction):
    row, differences = [number(x) for x in tokens], []
    while row:
        differences.append(row[0])
        row = [after - before for before, after in zip(row, row[1:])]
    return [
        sum(comb(i - 1, k - 1) * eigenvalue(k, i, layers) * differences[k - 1] for k in range(1, i + 1))
        for i in range(1, len(tokens) + 1)
    ]


def closed(tokens, layers):
    return series(tokens, layers)


def stable(tokens, layers):
    for _ in range(layers):
        tokens = np.cumsum(tokens, 0) / np.arange(1, len(tokens) + 1)[:, None]
    return tokens


def with_eigenvalue(eigenvalue):
    return lambda tokens, layers: series(tokens, layers, eigenvalue)


def in_floats(tokens, layers):
    return series(tokens, layers, lambda k, i, L: float(k) ** -L, float)


def strictly_before(tokens, layers):
    for _ in range(layers):
        before = np.cumsum(tokens, 0)[:-1] / np.arange(1, len(tokens))[:, None]
        tokens = np.concatenate([tokens[:1], before])
    return tokens


def naive(tokens, layers):
    return np.stack([in_floats(column.tolist(), layers) for column in tokens.T], 1)


def test_right_answers_to_exercise_3_pass():
    ch07.ex3(closed, stable).require()
    ch07.ex3(closed, dispersion.cesaro_power).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, stable), "not written yet"),
        ((closed, unwritten), "not written yet"),
        ((lambda x, L: closed(x, L)[:-1], stable), "wrong shape"),
        ((with_eigenvalue(lambda k, i, L: Fraction(1, i) ** L), stable), "the eigenvalue 1/i for every component"),
        ((with_eigenvalue(lambda k, i, L: Fraction(1, k + 1) ** L), stable), "counting from 0"),
        ((with_eigenvalue(lambda k, i, L: Fraction(1, max(k * L, 1))), stable), "a product for a power"),
        ((lambda x, L: closed(x[::-1], L), stable), "backward differences"),
        ((lambda x, L: [Fraction(sum(x), len(x))] * len(x) if L else x, stable), "the average of all tokens"),
        ((lambda x, L: closed(x, L + 1), stable), "one layer too many"),
        ((in_floats, stable), "floats where Fractions are asked for"),
        ((closed, strictly_before), "a strict mask"),
        ((closed, lambda x, L: stable(x, L + 1)), "one layer too many"),
        ((closed, lambda x, L: stable(x, L)[:, 0]), "wrong shape"),
        ((closed, lambda x, L: stable(x, L) * np.nan), "NaN"),
        ((closed, naive), "cancellation in long sequences"),
    ],
)
def test_mistakes_in_exercise_3_are_named(answer, mistake):
    assert ch07.ex3(*answer).mistake == mistake


# 07.4 Who goes first?


def layers(i, epsilon):
    rest, count = np.r_[0.0, np.ones(i - 1)], 0
    while rest[-1] > epsilon:
        rest, count = np.cumsum(rest) / np.arange(1, i + 1), count + 1
    return count


def late(states):
    after = np.cumsum(states, 0) / np.arange(1, len(states) + 1)[:, None]
    return np.ptp(after[len(states) // 2 :], axis=0)


def exponent(kind):
    return {"noise": -0.5, "step": 0.0}[kind]


def after_one(states):
    return np.cumsum(states, 0) / np.arange(1, len(states) + 1)[:, None]


def test_right_answers_to_exercise_4_pass():
    ch07.ex4(layers, late, exponent).require()
    ch07.ex4(dispersion.layers_until_first, late, exponent).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, late, exponent), "not written yet"),
        ((layers, unwritten, exponent), "not written yet"),
        ((layers, late, unwritten), "not written yet"),
        ((lambda i, e: math.ceil(math.log2((i - 1) / e)), late, exponent), "the bound given for the least number"),
        ((lambda i, e: math.ceil(math.log((i - 1) / e)), late, exponent), "natural logarithms"),
        ((lambda i, e: math.ceil(math.log2(1 / e) * 12 / i), late, exponent), "late tokens first"),
        ((lambda i, e: 1, late, exponent), "the unmasked average"),
        ((lambda i, e: layers(i, e) + 1, late, exponent), "one layer too many"),
        ((lambda i, e: layers(i, e) - 0.3, late, exponent), "a logarithm for a count"),
        ((layers, lambda x: np.ptp(x[len(x) // 2 :], axis=0), exponent), "the spread before the layer"),
        ((layers, lambda x: np.ptp(after_one(x[len(x) // 2 :]), axis=0), exponent), "the late half averaged by itself"),
        ((layers, lambda x: np.ptp(after_one(x), axis=0), exponent), "the spread of all tokens"),
        (
            (layers, lambda x: np.abs(np.diff(after_one(x)[len(x) // 2 :], axis=0)).max(0), exponent),
            "neighbouring rows",
        ),
        ((layers, lambda x: np.ptp(after_one(x)[len(x) // 2 :]), exponent), "one number for all channels"),
        ((layers, lambda x: late(x) * np.nan, exponent), "NaN"),
        ((layers, late, lambda kind: -1), "1/n taken from neighbouring rows"),
        ((layers, late, lambda kind: -0.5), "a step taken for noise"),
        ((layers, late, lambda kind: -exponent(kind)), "the sign of the exponent"),
    ],
)
def test_mistakes_in_exercise_4_are_named(answer, mistake):
    assert ch07.ex4(*answer).mistake == mistake


# 07.5 Inducing points audited


def audit(run):
    few, many = run(50).shape[1], run(200).shape[1]
    return few if few == many else math.inf


def by_largest_weight(run):
    falls = run(10_000).max() < 0.5 * run(100).max()
    return math.inf if falls else run(100).shape[1]


def through(into, out):
    return out @ into


def test_right_answers_to_exercise_5_pass():
    ch07.ex5(audit, through).require()


def test_the_maps_are_rows_of_weights_and_the_closing_one_evens_out_over_its_six_keys():
    for one in ch07.maps():
        np.testing.assert_allclose(one.run(40).sum(1), 1, rtol=1e-12)
    closing = next(one for one in ch07.maps() if one.name == "G")
    assert closing.run(50).max() > 2 / 6 and closing.run(10_000).max() < 1.2 / 6
    sharp = next(one for one in ch07.maps() if one.name == "F")
    assert sharp.run(10_000).max() > 0.9


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, through), "not written yet"),
        ((audit, unwritten), "not written yet"),
        ((lambda run: run(50).shape[0] if run(50).shape[0] == run(99).shape[0] else math.inf, through),
         "queries counted for keys"),
        ((lambda run: math.inf if run(50).shape != run(99).shape else run(50).shape[1], through),
         "the item-to-inducing map said to disperse"),
        ((lambda run: math.inf if run(10_000).max() < 0.5 * run(50).max() else audit(run), through),
         "converging inducing outputs overlooked"),
        ((lambda run: run(100).shape[1] if run(10_000).max() > 0.9 else audit(run), through),
         "a sharp row taken for few keys"),
        ((lambda run: run(100).shape[1], through), "a sharp row taken for few keys"),
        ((audit, lambda into, out: (out @ into).T), "the product the wrong way round"),
        ((audit, lambda into, out: (out[:, :, None] * into[None]).max(1)), "the largest of the products for their sum"),
        ((audit, lambda into, out: np.tile(into.mean(0), (len(out), 1))), "the weights averaged over inducing points"),
        ((audit, lambda into, out: into @ out), "wrong shape"),
        ((audit, lambda into, out: out @ into * np.nan), "NaN"),
    ],
)  # fmt: skip
def test_mistakes_in_exercise_5_are_named(answer, mistake):
    assert ch07.ex5(*answer).mistake == mistake

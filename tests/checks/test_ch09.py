"""Checks of chapter 09, exercises 1 to 3: right answers pass, stubs are recognised, each planted mistake is named."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp.checks import ch09
from adatemp.checks.ch09._entmax import oracle, threshold


def unwritten(*_, **__):
    raise NotImplementedError


# 09.1 The length-free threshold


def weight(n, scale, gap, log=np.log, others=1):
    return 1 / (1 + np.exp(np.log(n - others) - scale * gap * log(n)))


def limit(scale, gap):
    return (np.sign(np.asarray(scale) * gap - 1) + 1) / 2


def critical_scale(gaps, exponents):
    return max(a / g for g, a in zip(gaps, exponents))


def overflowing(n, scale, gap):
    power = n ** (scale * gap)
    return power / (power + n - 1)


def overflowing_to_infinity(n, scale, gap):
    return overflowing(np.float64(n), scale, gap)


def test_right_answers_to_exercise_1_pass():
    ch09.ex1(weight, limit, critical_scale).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, limit, critical_scale), "not written yet"),
        ((weight, lambda s, g: None, critical_scale), "not written yet"),
        ((lambda n, s, g: weight(n, s, g, np.log2), limit, critical_scale), "another base of the logarithm"),
        ((lambda n, s, g: weight(n, s, g, np.log10), limit, critical_scale), "another base of the logarithm"),
        ((lambda n, s, g: weight(n, s, g, others=0), limit, critical_scale), "n for n − 1"),
        ((overflowing, limit, critical_scale), "an overflow"),
        ((overflowing_to_infinity, limit, critical_scale), "an overflow"),
        ((lambda n, s, g: 1 / (1 + np.exp(np.log(n - 1) - g)), limit, critical_scale), "the plain softmax"),
        ((lambda n, s, g: np.nan, limit, critical_scale), "NaN"),
        ((weight, lambda s, g: (np.asarray(s) * g > 1) * 1.0, critical_scale), "no value on the line"),
        ((weight, lambda s, g: 1 - limit(s, g), critical_scale), "the sides exchanged"),
        (
            (weight, lambda s, g: (np.asarray(s) * g * np.log(2) > 1) * 1.0, critical_scale),
            "another base of the logarithm",
        ),
        ((weight, lambda s, g: limit(s, g).sum(), critical_scale), "wrong shape"),
        ((weight, limit, lambda g, a: max(a) / max(g)), "the spread for the gap"),
        ((weight, limit, lambda g, a: a[int(np.argmin(g))] / min(g)), "the nearest level alone"),
        ((weight, limit, lambda g, a: 1 / min(g)), "the exponents ignored"),
        ((weight, limit, lambda g, a: sum(np.array(a) / g)), "the levels added"),
        ((weight, limit, lambda g, a: 1 / critical_scale(g, a)), "the inverse"),
    ],
)
def test_mistakes_in_exercise_1_are_named(answer, mistake):
    assert ch09.ex1(*answer).mistake == mistake


# 09.2 1.5-entmax, exactly


def entmax(logits, power=2.0, factor=0.5, change=0, sort=True, root=-1, guard=True, empty=0.0):
    z = np.asarray(logits, np.float64) * factor
    if guard:
        top = z.max(-1, keepdims=True)
        dead = top == -np.inf
        z = np.maximum(np.where(dead, 0.0, z) - np.where(dead, 0.0, top), -5.0)
    else:
        dead = np.zeros(z.shape[:-1] + (1,), bool)
    u = -np.sort(-z, -1) if sort else z
    k = np.arange(1, z.shape[-1] + 1)
    mean = np.cumsum(u, -1) / k
    squares = np.cumsum(u**2, -1) - k * mean**2
    reach = np.sqrt(np.maximum(1 - squares, 0) / k)
    size = ((mean - reach <= u) & (squares < 1)).sum(-1, keepdims=True)
    size = np.clip(size + change, 1, z.shape[-1])
    tau = np.take_along_axis(mean + root * reach, size - 1, -1)
    weights = np.maximum(z - tau, 0.0) ** power
    hidden = np.asarray(logits) == -np.inf
    return np.where(dead, empty, np.where(hidden, 0.0, weights) if guard else weights)


@jax.jit
def in_jax(logits):
    half = jnp.asarray(logits, jnp.float32) / 2
    top = half.max(-1, keepdims=True)
    dead = top == -jnp.inf
    half = jnp.where(dead, 0.0, jnp.maximum(half - jnp.where(dead, 0.0, top), -2.0))
    u = jnp.sort(half, -1, descending=True)
    squares = jnp.sum(jnp.maximum(u[..., :, None] - u[..., None, :], 0.0) ** 2, -2)
    size = jnp.sum(squares < 1, -1, keepdims=True)
    inside = jnp.arange(u.shape[-1]) < size
    mean = jnp.sum(jnp.where(inside, u, 0.0), -1, keepdims=True) / size
    spread = jnp.sum(jnp.where(inside, (u - mean) ** 2, 0.0), -1, keepdims=True)
    tau = mean - jnp.sqrt((1 - spread) / size)
    return jnp.where(dead, 0.0, jnp.maximum(half - tau, 0.0) ** 2)


def gradient(logits, cotangent, q=lambda logits: np.sqrt(entmax(logits))):
    q = q(logits)
    total = q.sum(-1, keepdims=True)
    return q * (cotangent - (q * cotangent).sum(-1, keepdims=True) / np.where(total > 0, total, 1.0))


def unguarded(logits, cotangent):
    q = np.sqrt(entmax(logits))
    return q * (cotangent - (q * cotangent).sum(-1, keepdims=True) / q.sum(-1, keepdims=True))


def everywhere(logits, cotangent):
    q = np.sqrt(entmax(logits))
    return q * cotangent - (q * cotangent).sum(-1, keepdims=True) / q.sum(-1, keepdims=True)


def of_softmax(logits, cotangent):
    p = np.asarray(jax.nn.softmax(logits))
    return p * (cotangent - (p * cotangent).sum(-1, keepdims=True))


def nan_rows(logits):
    return np.where((np.asarray(logits) == -np.inf).any(-1, keepdims=True), np.nan, entmax(logits))


def shifted_badly(logits):
    return entmax(logits) if np.abs(logits[np.isfinite(logits)]).max() < 100 else entmax(logits) + 0.1


def test_right_answers_to_exercise_2_pass():
    ch09.ex2(entmax, gradient).require()
    ch09.ex2(in_jax, gradient).require()


def test_the_oracle_of_exercise_2_meets_the_optimality_conditions():
    logits = np.random.default_rng(0).normal(size=(50, 9)) * 3
    half, weights = logits / 2, oracle(logits)
    tau = threshold(half)
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.sqrt(weights), np.maximum(half - tau, 0), atol=1e-12)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, gradient), "not written yet"),
        ((entmax, unwritten), "not written yet"),
        ((lambda z: entmax(z)[0], gradient), "wrong shape"),
        ((lambda z: oracle(z, factor=1.0), gradient), "the logits not halved"),
        ((lambda z: oracle(z, 1.0, 1.0), gradient), "sparsemax"),
        ((jax.nn.softmax, gradient), "softmax"),
        ((lambda z: entmax(z, change=1), gradient), "the support off by one"),
        ((lambda z: entmax(z, change=-1), gradient), "the support off by one"),
        ((lambda z: entmax(z, root=1), gradient), "the other root"),
        ((lambda z: entmax(z, sort=False), gradient), "no sorting"),
        ((nan_rows, gradient), "a row of −∞"),
        ((lambda z: entmax(z, empty=1 / 8), gradient), "weight on hidden keys"),
        ((shifted_badly, gradient), "squares of large numbers"),
        ((entmax, everywhere), "a gradient outside the support"),
        ((entmax, lambda z, g: gradient(z, g, entmax)), "weights for their roots"),
        ((entmax, lambda z, g: np.sqrt(entmax(z)) * g), "the threshold held fixed"),
        ((entmax, lambda z, g: 2 * gradient(z, g)), "twice the gradient"),
        ((entmax, of_softmax), "the gradient of softmax"),
        ((entmax, unguarded), "0/0 in a row of −∞"),
    ],
)
def test_mistakes_in_exercise_2_are_named(answer, mistake):
    with np.errstate(all="ignore"):
        assert ch09.ex2(*answer).mistake == mistake


# 09.3 A sink logit is a gate


def gate(lse, sink):
    with np.errstate(all="ignore"):
        return np.where(lse == -np.inf, 0.0, 1 / (1 + np.exp(np.where(lse == -np.inf, 0.0, sink - np.asarray(lse)))))


def merged(parts):
    m = np.max([part[0] for part in parts], axis=0)
    safe = np.where(np.isfinite(m), m, 0.0)
    factors = [np.exp(part[0] - safe) for part in parts]
    l = sum(a * part[1] for a, part in zip(factors, parts))
    r = sum(a[:, None] * part[2] for a, part in zip(factors, parts))
    return m, l, r


def attend(parts, sink, term=lambda m, sink, parts: np.exp(sink - m)):
    m, l, r = merged(parts)
    with np.errstate(all="ignore"):
        total = np.where(l > 0, l + term(m, sink, parts), 1.0)
    return np.where(l > 0, 1 / total, 0.0)[:, None] * r


def naive_gate(lse, sink):
    with np.errstate(all="ignore"):
        return np.exp(lse) / (np.exp(lse) + np.exp(sink))


def unscaled(parts, sink):
    l, r = sum(part[1] for part in parts), sum(part[2] for part in parts)
    return attend([(np.max([part[0] for part in parts], axis=0), l, r)], sink)


def test_right_answers_to_exercise_3_pass():
    ch09.ex3(gate, attend).require()
    ch09.ex3(lambda lse, sink: np.where(lse == -np.inf, 0.0, jax.nn.sigmoid(lse - sink)), attend).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, attend), "not written yet"),
        ((gate, unwritten), "not written yet"),
        ((lambda lse, sink: 1 - gate(lse, sink), attend), "the mass of the sink"),
        ((lambda lse, sink: 1 / (1 + np.exp(sink)) + 0 * lse, attend), "the mass against that of one key"),
        ((naive_gate, attend), "a ratio that overflows"),
        ((lambda lse, sink: gate(lse, sink)[0], attend), "wrong shape"),
        (
            (gate, lambda parts, sink: attend(parts, sink, lambda m, s, p: np.exp(np.minimum(s, 50)))),
            "1 in place of e^(−m)",
        ),
        (
            (gate, lambda parts, sink: attend(parts, sink, lambda m, s, p: len(p) * np.exp(s - m))),
            "the sink added once per split",
        ),
        ((gate, lambda parts, sink: attend(parts, sink, lambda m, s, p: 0 * m)), "no sink"),
        ((gate, unscaled), "splits not brought to one maximum"),
        ((gate, lambda parts, sink: attend(parts, sink) * np.nan), "NaN"),
    ],
)
def test_mistakes_in_exercise_3_are_named(answer, mistake):
    with np.errstate(all="ignore"):
        assert ch09.ex3(*answer).mistake == mistake

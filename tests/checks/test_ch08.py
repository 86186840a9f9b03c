"""Checks of chapter 08: the right answer passes, the stub is recognised, each planted mistake gets its own name."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from adatemp import PAPER, adaptive_temperature_softmax, dispersion
from adatemp.checks import ch08
from adatemp.checks.ch08 import _gradient, _mutants, _offset, _window
from adatemp.checks.ch08._best import true_beta
from adatemp.checks.ch08._untouched import least_entropy
from adatemp.temperature import PAPER_COEFFICIENTS


def unwritten(*_, **__):
    raise NotImplementedError


# 08.1 The window


def window(coefficients, threshold):
    roots = np.roots(np.polysub(coefficients, [1.0]))
    real = np.sort(roots[np.abs(roots.imag) < 1e-9].real)
    low, high = (max(x, threshold) for x in real[real > 0][[0, -1]])
    critical = np.roots(np.polyder(coefficients))
    inside = [x.real for x in critical if abs(x.imag) < 1e-9 and low < x.real < high]
    at = max(inside, key=lambda x: np.polyval(coefficients, x))
    return low, high, at, np.polyval(coefficients, at)


def guard_is_dead(coefficients, threshold):
    critical = np.roots(np.polyder(coefficients))
    inside = [x.real for x in critical if abs(x.imag) < 1e-9 and 0 < x.real < threshold]
    return bool(max(np.polyval(coefficients, x) for x in (0.0, threshold, *inside)) <= 1)


def changed(how):
    return lambda c, t: how(*window(c, t))


def on_a_grid(coefficients, threshold):
    grid = np.arange(threshold, 12, 1e-3)
    value = np.polyval(coefficients, grid)
    inside = grid[value > 1]
    return inside[0], inside[-1], grid[value.argmax()], value.max()


def roots_of_p(coefficients, threshold):
    real = sorted(x.real for x in np.roots(coefficients) if abs(x.imag) < 1e-9)
    return (*real[-2:], *window(coefficients, threshold)[2:])


def guard_on_a_grid(coefficients, threshold):
    return bool(np.polyval(coefficients, np.linspace(0, threshold, 1001)).max() <= 1)


def guard_between(coefficients, threshold):
    critical = [x.real for x in np.roots(np.polyder(coefficients)) if abs(x.imag) < 1e-9]
    return all(np.polyval(coefficients, x) <= 1 for x in critical if 0 < x < threshold)


def guard_anywhere(coefficients, threshold):
    critical = [x.real for x in np.roots(np.polyder(coefficients)) if abs(x.imag) < 1e-9]
    return all(np.polyval(coefficients, x) <= 1 for x in (0.0, threshold, *critical))


def guard_beyond_zero(coefficients, threshold):
    critical = [x.real for x in np.roots(np.polyder(coefficients)) if abs(x.imag) < 1e-9 and x.real < threshold]
    return all(np.polyval(coefficients, x) <= 1 for x in (0.0, threshold, *critical))


def test_the_right_answer_to_exercise_1_passes_and_has_the_published_numbers():
    ch08.ex1(window, guard_is_dead).require()
    assert _window.exact_window(PAPER_COEFFICIENTS, 0.5) == pytest.approx(
        (0.848582, 5.944521, 4.412402, 2.421388), abs=1e-6
    )


@pytest.mark.parametrize(
    ("answers", "mistake"),
    [
        ((unwritten, guard_is_dead), "not written yet"),
        ((lambda c, t: window(c[::-1], t), guard_is_dead), "coefficients read upwards"),
        ((changed(lambda a, b, x, y: (a / math.log(2), b / math.log(2), x, y)), guard_is_dead), "bits for nats"),
        ((roots_of_p, guard_is_dead), "the roots of P"),
        ((on_a_grid, guard_is_dead), "a grid where a root is asked for"),
        ((lambda c, t: window(c, 0.5), guard_is_dead), "the threshold ignored"),
        ((lambda c, t: window(PAPER_COEFFICIENTS, 0.5), guard_is_dead), "the published numbers for every map"),
        ((changed(lambda a, b, x, y: (a, b, x)), guard_is_dead), "does not hold"),
        ((changed(lambda a, b, x, y: (math.nan, b, x, y)), guard_is_dead), "NaN"),
        ((window, unwritten), "not written yet"),
        ((window, guard_on_a_grid), "a sampled grid taken for a proof"),
        ((window, guard_between), "the ends left out"),
        ((window, guard_anywhere), "points outside the interval"),
        ((window, guard_beyond_zero), "points outside the interval"),
        ((window, lambda c, t: bool(np.polyval(c, t) <= 1)), "judged at the threshold"),
        ((window, lambda c, t: not guard_is_dead(c, t)), "the answer turned round"),
        ((window, lambda c, t: 0.5), "does not hold"),
    ],
)
def test_mistakes_in_exercise_1_are_named(answers, mistake):
    assert ch08.ex1(*answers).mistake == mistake


# 08.2 Provably untouched


def deficit(spread):
    zeta = spread / -math.expm1(-spread) if spread else 1.0
    return zeta - 1 - math.log(zeta)


def touched_by(floor):
    return lambda n, spread, low, high: bool(floor(n, spread) < high and math.log(n) > low)


def limit_by(floor):
    return lambda n, low, high: brentq(lambda d: floor(n, d) - high, 1e-9, 60)


def exact(n, spread):
    return math.log(n) - deficit(spread)


def quadratic(n, spread):
    return math.log(n) - spread**2 / 8


def linear(n, spread):
    return math.log(n) - spread


def evenly(n, spread):
    p = np.exp(np.linspace(0, spread, n))
    p /= p.sum()
    return float(-(p * np.log(p)).sum())


def one_leader(n, spread):
    p = np.exp(np.r_[0.0, np.full(n - 1, -spread)])
    p /= p.sum()
    return float(-(p * np.log(np.where(p > 0, p, 1))).sum())


touched, limit = touched_by(exact), limit_by(exact)


def test_the_right_answers_to_exercise_2_pass():
    ch08.ex2(touched, limit).require()

    def floor(n, d):
        return float(dispersion.entropy_floor(n, d))

    ch08.ex2(touched_by(floor), lambda n, low, high: float(dispersion.spread_for_entropy(n, high))).require()
    assert limit(131_072, 0.848582, 5.944521) == pytest.approx(9.04, abs=5e-3)


@pytest.mark.parametrize(("n", "spread"), [(3, 2.0), (40, 5.0), (7_419, 5.69), (131_072, 9.0)])
def test_the_least_entropy_of_the_check_is_the_floor_up_to_one_key(n, spread):
    floor = float(dispersion.entropy_floor(n, spread))
    assert floor - 1e-9 <= least_entropy(n, spread) <= floor + 2 / n


@pytest.mark.parametrize(
    ("answers", "mistake"),
    [
        ((unwritten, limit), "not written yet"),
        ((lambda *a: not touched(*a), limit), "the inequality reversed"),
        ((touched_by(quadratic), limit), "a looser floor"),
        ((touched_by(linear), limit), "a looser floor"),
        ((touched_by(lambda n, d: max(linear(n, d), quadratic(n, d))), limit), "a looser floor"),
        ((lambda n, d, low, high: math.log(n) < high, limit), "the flat row for every row"),
        ((touched_by(evenly), limit), "a typical row for every row"),
        ((touched_by(one_leader), limit), "a single leader for every row"),
        ((lambda n, d, low, high: bool(least_entropy(n, d) < high), limit), "the lower end forgotten"),
        ((lambda *a: float(touched(*a)), limit), "does not hold"),
        ((touched, unwritten), "not written yet"),
        ((touched, limit_by(quadratic)), "a looser floor"),
        ((touched, limit_by(linear)), "a looser floor"),
        ((touched, lambda n, low, high: limit(n, low, low)), "the lower end of the window"),
        ((touched, lambda n, low, high: math.nan), "NaN"),
    ],
)
def test_mistakes_in_exercise_2_are_named(answers, mistake):
    assert ch08.ex2(*answers).mistake == mistake


# 08.3 Write the tests


def reference(z, keep):
    """Weights by the definition in float64, for rows [n]."""
    weights = np.zeros(z.shape)
    live = z[keep].astype(np.float64)
    p = np.exp(live - live.max())
    p /= p.sum()
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum()
    beta = max(1.0, np.polyval(PAPER_COEFFICIENTS, entropy)) if entropy > 0.5 else 1.0
    q = np.exp(beta * (live - live.max()))
    weights[keep] = q / q.sum()
    return weights


def values(adaptive, n, scale, share=1.0, seed=0):
    draw = np.random.default_rng(seed)
    z = (scale * draw.normal(size=(4, n))).astype(np.float32)
    keep = draw.uniform(size=(4, n)) < share
    keep[:, 0] = True
    got = np.asarray(adaptive(jnp.asarray(z), jnp.asarray(keep)), np.float64)
    want = np.stack([reference(*row) for row in zip(z, keep)])
    return np.allclose(got, want, atol=2e-4)


def slope(adaptive, n=30, scale=1.5):
    draw = np.random.default_rng(1)
    z, v = (scale * draw.normal(size=n)).astype(np.float32), draw.normal(size=n)
    got = jax.grad(lambda z: jnp.dot(adaptive(z), v.astype(np.float32)))(z)
    keep, steps = np.ones(n, bool), 1e-5 * np.eye(n)
    z = z.astype(np.float64)
    want = [(reference(z + e, keep) - reference(z - e, keep)) @ v / 2e-5 for e in steps]
    return np.allclose(got, want, atol=2e-3)


def accepts(adaptive, *, without=()):
    checks = {
        "plain": lambda: values(adaptive, 100, 1.5) and values(adaptive, 30, 1.0),
        "wide": lambda: values(adaptive, 100, 120.0) and wide(adaptive),
        "masked": lambda: values(adaptive, 60, 1.5, share=0.5),
        "one": lambda: np.allclose(adaptive(jnp.zeros((2, 1)), None), 1.0),
        "slope": lambda: slope(adaptive),
    }
    return all(bool(check()) for name, check in checks.items() if name not in without)


def wide(adaptive):
    """Two logits far above the others, and both beyond 50."""
    z = jnp.asarray(np.r_[90.0, 89.0, np.zeros(50)], jnp.float32)
    return np.allclose(np.asarray(adaptive(z), np.float64), reference(np.asarray(z), np.ones(52, bool)), atol=1e-4)


def sums(adaptive):
    return bool(np.allclose(adaptive(jnp.zeros((3, 7))).sum(-1), 1, atol=1e-4))


def test_the_right_answer_to_exercise_3_passes():
    ch08.ex3(accepts).require()

    def asserts(adaptive):
        assert accepts(adaptive)
        return True

    ch08.ex3(asserts).require()


@pytest.mark.parametrize("name", _mutants.RIGHT)
def test_right_functions_of_exercise_3_are_the_library_s(name):
    draw = np.random.default_rng(3)
    for n, scale in ((1, 1.0), (9, 2.0), (200, 1.0)):
        z, keep = jnp.asarray(scale * draw.normal(size=(5, n)), jnp.float32), draw.uniform(size=(5, n)) < 0.7
        keep[:, 0] = True
        np.testing.assert_allclose(
            _mutants.RIGHT[name](z, keep), adaptive_temperature_softmax(z, where=keep, temperature=PAPER), atol=1e-4
        )


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda f: 1.0, "does not hold"),
        (lambda f: True, "everything passes"),
        (sums, "everything passes"),
        (lambda f: False, "a false alarm"),
        (lambda f: values(f, 100, 1.5) and accepts(f, without=("slope",)), "stopped gradient: not caught"),
        (functools.partial(accepts, without=("wide",)), "clipped: not caught"),
        (functools.partial(accepts, without=("masked",)), "unmasked entropy: not caught"),
        (functools.partial(accepts, without=("one",)), "one-key rows: not caught"),
        (functools.partial(accepts, without=("plain", "wide", "masked", "slope")), "reversed: not caught"),
    ],
)
def test_mistakes_in_exercise_3_are_named(answer, mistake):
    assert ch08.ex3(answer).mistake == mistake


# 08.4 The gradient of β


def gradients(z, v):
    return _gradient.derivative(z, v), _gradient.derivative(z, v, through=0.0)


falling = _gradient.falling_interval


def test_the_derivative_of_exercise_4_is_that_of_differences():
    for z, v in _gradient._rows():
        h = 1e-6
        want = [(_gradient.output(z + e, v) - _gradient.output(z - e, v)) / (2 * h) for e in h * np.eye(z.size)[:20]]
        np.testing.assert_allclose(_gradient.derivative(z, v)[:20], want, rtol=1e-5, atol=1e-7)


def autodiff(z, v):
    def output(z, temperature):
        return jnp.dot(adaptive_temperature_softmax(z, temperature=temperature), jnp.asarray(v, jnp.float32))

    z = jnp.asarray(z, jnp.float32)
    stopped = functools.partial(jax.grad(output), temperature=_stopped())
    return jax.grad(output)(z, PAPER), stopped(z)


def _stopped():
    import dataclasses

    return dataclasses.replace(PAPER, differentiate=False)


def test_the_right_answers_to_exercise_4_pass():
    ch08.ex4(gradients, falling).require()
    ch08.ex4(autodiff, falling).require()


def test_the_interval_of_exercise_4_is_where_the_top_weight_falls():
    for row in _gradient._leaders():
        low, high = falling(row)

        def top(s, row=row):
            beta, _ = _gradient._map(_gradient._entropy(_gradient._softmax(s * row)))
            return _gradient._softmax(beta * s * row).max()

        inside = np.linspace(low, high, 60)[1:-1]
        assert (np.diff([top(s) for s in inside]) < 0).all()
        assert top(low * 0.98) < top(low) and top(high * 1.02) > top(high)


def where_beta_falls(row):
    low, high = falling(row)
    scales = np.linspace(0.2, 1, 2000) * high
    betas = [_gradient._map(_gradient._entropy(_gradient._softmax(s * row)))[0] for s in scales]
    return scales[int(np.argmax(betas))], high


def without_beta(z, v):
    beta, _ = _gradient._map(_gradient._entropy(_gradient._softmax(z)))
    full, stopped = gradients(z, v)
    return full, stopped / beta


def with_full(**planted):
    return lambda z, v: (_gradient.derivative(z, v, **planted), gradients(z, v)[1])


def on_scales(row, step):
    low, high = falling(row)
    return step * math.ceil(low / step), step * math.floor(high / step)


@pytest.mark.parametrize(
    ("answers", "mistake"),
    [
        ((unwritten, falling), "not written yet"),
        ((lambda z, v: gradients(z, v)[0], falling), "does not hold"),
        ((lambda z, v: gradients(z, v)[::-1], falling), "the two exchanged"),
        ((without_beta, falling), "a factor β left out"),
        ((lambda z, v: (gradients(z, v)[1],) * 2, falling), "the chain through H left out"),
        ((with_full(sign=-1.0), falling), "the sign of the entropy's derivative"),
        ((with_full(mean=0.0), falling), "the entropy's derivative without its mean"),
        ((lambda z, v: (np.full(z.shape, np.nan), gradients(z, v)[1]), falling), "NaN"),
        ((gradients, unwritten), "not written yet"),
        ((gradients, where_beta_falls), "the interval where β falls"),
        ((gradients, functools.partial(on_scales, step=0.05)), "a kink inside the stencil"),
        ((gradients, lambda row: (0.9985, 0.9212)), "scales in the place of top weights"),
    ],
)
def test_mistakes_in_exercise_4_are_named(answers, mistake):
    assert ch08.ex4(*answers).mistake == mistake


# 08.5 The best β for a row


def clipped(floor):
    return lambda z, t: max(true_beta(z, t), floor)


def capped(z, t):
    beta = true_beta(z, t)
    return beta if not np.isfinite(beta) else min(beta, 100.0)


def argmax_only(z, t):
    return np.inf if z.argmax() == t else min(true_beta(z, t), 1e6)


def test_the_right_answer_to_exercise_5_passes_and_is_the_maximiser():
    ch08.ex5(true_beta).require()
    draw = np.random.default_rng(5)
    for _ in range(20):
        z = draw.normal(size=8)
        beta = true_beta(z, int(np.argsort(z)[draw.integers(1, 7)]))
        t = int(np.argmin(np.abs(z - (np.exp(beta * z) @ z / np.exp(beta * z).sum()))))
        around = [b * z[t] - np.log(np.exp(b * z).sum()) for b in (beta - 1e-3, beta, beta + 1e-3)]
        assert around[1] >= max(around)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda z, t: 1 / true_beta(z, t), "the temperature"),
        (lambda z, t: 1.0, "the plain mean"),
        (lambda z, t: np.inf, "an item on top assumed"),
        (lambda z, t: min(true_beta(z, t), 64.0), "a finite β for the item on top"),
        (argmax_only, "a tie for the top overlooked"),
        (clipped(1.0), "clipped without saying"),
        (clipped(0.0), "clipped without saying"),
        (lambda z, t: max(true_beta(z, t), -1e3), "−∞ for the lowest item missed"),
        (capped, "a bracket that ends too soon"),
        (lambda z, t: np.nan, "NaN"),
    ],
)
def test_mistakes_in_exercise_5_are_named(answer, mistake):
    assert ch08.ex5(answer).mistake == mistake


# 08.6 The offset, not the target


def reached(offset):
    ratio = math.exp(offset - 1)
    return ratio, _offset.mean_entropy(ratio, sets=3000, seed=99)


def choose(sample):
    logits, _ = sample(16, 4000)
    two = np.sort(logits, axis=1)[:, -2:]
    slope = 17 * (two[:, 1] - two[:, 0]).mean()
    return 1 + math.log(16 / slope)


def entropies(z):
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return -(p * np.log(np.where(p > 0, p, 1))).sum(1)


def control(offset, z):
    before = entropies(z)
    beta = np.exp(np.maximum(before - offset, 0))
    return np.exp(before).mean(), np.exp(entropies(beta[:, None] * z)).mean()


def training_entropy(sample):
    return entropies(sample(16, 4000)[0]).mean()


def from_long_rows(sample):
    logits, _ = sample(4096, 50)
    return 1 + math.log(16 / (4096 * np.exp(1 - entropies(logits).mean())))


def mean_row(offset):
    ratio = math.exp(offset - 1)
    t = np.arange(2000) / ratio
    p = np.exp(-t)
    p /= p.sum()
    return ratio, -(p * np.log(np.where(p > 0, p, 1))).sum()


def test_the_right_answers_to_exercise_6_pass():
    ch08.ex6(reached, choose, control).require()


@pytest.mark.parametrize(
    ("answers", "mistake"),
    [
        ((unwritten, choose, control), "not written yet"),
        ((lambda h: (math.exp(h), reached(h)[1]), choose, control), "e^h for e^(h − 1)"),
        ((lambda h: (math.exp(1 - h), reached(h)[1]), choose, control), "upside down"),
        ((lambda h: (math.exp(h - 1), max(h, 0.0)), choose, control), "h taken for the entropy that is reached"),
        ((lambda h: (math.exp(h - 1), h), choose, control), "h taken for the entropy that is reached"),
        ((lambda h: (math.exp(h - 1), reached(h)[1] / math.log(2)), choose, control), "bits for nats"),
        ((reached, unwritten, control), "not written yet"),
        ((reached, training_entropy, control), "the training entropy taken for h"),
        ((reached, from_long_rows, control), "h chosen at test sizes"),
        ((reached, lambda sample: 0.5, control), "no row looked at"),
        ((reached, lambda sample: choose(sample) - 3, control), "sharper than asked"),
        ((reached, lambda sample: choose(sample) + 0.5, control), "blunter than asked"),
        ((reached, choose, unwritten), "not written yet"),
        ((reached, choose, lambda h, z: (control(h, z)[0],) * 2), "a control reported as untouched"),
        ((reached, choose, lambda h, z: np.log(control(h, z))), "entropies for numbers of items"),
        ((reached, choose, lambda h, z: 2 ** np.log(control(h, z))), "bits for nats"),
    ],
)
def test_mistakes_in_exercise_6_are_named(answers, mistake):
    assert ch08.ex6(*answers).mistake == mistake

"""Exercise 10.2: the right answer passes, the stub is recognised, each planted mistake gets its own name."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from adatemp.checks import _float64, ch10


def unwritten(*_):
    raise NotImplementedError


def forms(logits):
    z = jnp.asarray(logits)
    m = z.max(-1)
    t = z - m[:, None]
    e = jnp.exp(t)
    l = e.sum(-1)
    return jnp.log(l) - (e * t).sum(-1) / l, m + jnp.log(l) - (e * z).sum(-1) / l


def forms_in_numpy(logits, dtype=np.float32):
    z = np.asarray(logits, dtype)
    m = z.max(-1)
    t = z - m[:, None]
    e = np.exp(t)
    l = e.sum(-1)
    return np.log(l) - (e * t).sum(-1) / l, m + np.log(l) - (e * z).sum(-1) / l


def forms_block_by_block(logits):
    z = jnp.asarray(logits)
    m, l, s, u = jnp.full(len(z), -1e30), 0.0, 0.0, 0.0
    for start in range(0, z.shape[1], 32):
        block = z[:, start : start + 32]
        top = jnp.maximum(m, block.max(-1))
        a, t = jnp.exp(m - top), block - top[:, None]
        e = jnp.exp(t)
        s = a * (s + (m - top) * l) + (e * t).sum(-1)
        l, u, m = a * l + e.sum(-1), a * u + (e * block).sum(-1), top
    return jnp.log(l) - s / l, m + jnp.log(l) - u / l


def errors(forms, logits, offsets):
    exact = _float64.entropy(logits)
    got = [np.asarray(forms(logits + offset), np.float64) for offset in offsets]
    return np.stack([np.abs(answer - exact).mean(-1) for answer in got], axis=-1)


RIGHT = (1.0, 2.0**-24)


@pytest.mark.parametrize("written", [forms, forms_in_numpy, forms_block_by_block])
@pytest.mark.parametrize("constant", [2.0**-25, 2.0**-24, 2.0**-23])
def test_the_right_answer_passes_whoever_sums(written, constant):
    assert ch10.ex2(written, errors, (1.0, constant)).require()


def without_maximum(z):
    e = jnp.exp(jnp.asarray(z))
    h = jnp.log(e.sum(-1)) - (e * z).sum(-1) / e.sum(-1)
    return h, h


def mixed(z):
    shifted, _ = forms(z)
    e = jnp.exp(z - z.max(-1, keepdims=True))
    return shifted, jnp.log(e.sum(-1)) - (e * z).sum(-1) / e.sum(-1)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda z: (None, None), "not written yet"),
        (lambda z: forms_in_numpy(z, np.float64), "computed in float64"),
        (mixed, "one form mixed with the other"),
        (lambda z: tuple(h / jnp.log(2.0) for h in forms(z)), "bits for nats"),
        (lambda z: forms(z)[::-1], "the forms exchanged"),
        (without_maximum, "no maximum subtracted"),
        (lambda z: (forms(z)[0],) * 2, "both forms shifted"),
        (lambda z: (forms(z)[1],) * 2, "both forms unshifted"),
    ],
)
def test_mistakes_in_the_forms_are_named(answer, mistake):
    assert ch10.ex2(answer, errors, RIGHT).mistake == mistake


def measured(reduce, *, judge=_float64.entropy, move=lambda z, offset: z + offset):
    def answer(forms, logits, offsets):
        rows = []
        for offset in offsets:
            given = move(logits, offset)
            rows.append(reduce(np.asarray(forms(given), np.float64) - judge(given)))
        return np.stack(rows, axis=-1)

    return answer


def mean_size(error):
    return np.abs(error).mean(-1)


def first_block_moved(z, offset):
    moved = z.copy()
    moved[:, :32] += offset
    return moved


def own_judge(forms, logits, offsets):
    got = [np.asarray(forms(logits + offset), np.float64) for offset in offsets]
    return np.stack([np.abs(answer - answer[0]).mean(-1) for answer in got], axis=-1)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda *_: None, "not written yet"),
        (lambda *args: errors(*args)[:, :2], "wrong shape"),
        (lambda *args: errors(*args) * np.nan, "NaN"),
        (measured(mean_size, move=lambda z, offset: z.astype(np.float64) + offset), "judged in float64"),
        (measured(mean_size, move=lambda z, offset: z), "the offset is never applied"),
        (measured(mean_size, move=first_block_moved), "the offset is applied to one block"),
        (own_judge, "a form is its own judge"),
        (measured(lambda error: error.mean(-1)), "errors of both signs cancel"),
        (measured(lambda error: np.abs(error).max(-1)), "the largest error for the mean"),
        (measured(lambda error: np.sqrt((error**2).mean(-1))), "the root of the mean square"),
        (lambda *args: errors(*args).T, "axes exchanged"),
        (lambda *args: errors(*args) / 2.7, "relative errors"),
    ],
)
def test_mistakes_in_the_measurement_are_named(answer, mistake):
    assert ch10.ex2(forms, answer, RIGHT).mistake == mistake


@pytest.mark.parametrize(
    ("prediction", "mistake"),
    [
        (None, "not written yet"),
        ((None, None), "not written yet"),
        ((0.0, 1e-7), "a constant error predicted"),
        ((0.5, 1e-7), "a random walk predicted"),
        ((2.0, 1e-7), "an error of second order predicted"),
        ((1.0, np.log10(2.0**-24)), "a logarithm for the constant"),
        ((1.0, 2.0**-52), "the roundoff of another precision"),
        ((1.0, 2e-4), "the error at one offset for the constant"),
    ],
)
def test_mistakes_in_the_prediction_are_named(prediction, mistake):
    assert ch10.ex2(forms, errors, prediction).mistake == mistake


def test_a_constant_ten_times_too_large_does_not_pass():
    assert not ch10.ex2(forms, errors, (1.0, 6e-7))


def test_the_picture_is_drawn():
    assert "<svg" in ch10.ex2(forms, errors, RIGHT)._repr_html_()

"""Exercise 01.1: right softmaxes pass in JAX and in NumPy, and every planted mistake is named."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp.checks import ch01


def right(logits, axis=-1, where=None):
    z = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    visible = z > -jnp.inf
    if where is not None:
        visible &= where
    z = jnp.where(visible, z, 0.0)
    top = jax.lax.stop_gradient(jnp.max(z, axis, where=visible, initial=-jnp.inf, keepdims=True))
    top = jnp.where(top == -jnp.inf, 0.0, top)
    powers = jnp.where(visible, jnp.exp(jnp.where(visible, z - top, 0.0)), 0.0)
    total = powers.sum(axis, keepdims=True)
    return (powers / jnp.where(total == 0.0, 1.0, total)).astype(logits.dtype)


def right_in_numpy(logits, axis=-1, where=None):
    z = np.array(logits, np.float64)
    visible = z > -np.inf
    if where is not None:
        visible &= np.asarray(where)
    z = np.where(visible, z, -np.inf)
    top = z.max(axis, keepdims=True)
    powers = np.where(visible, np.exp(z - np.where(np.isfinite(top), top, 0.0)), 0.0)
    total = powers.sum(axis, keepdims=True)
    return (powers / np.where(total > 0, total, 1.0)).astype(np.asarray(logits).dtype)


def _masked(logits, where, value=-jnp.inf):
    return logits if where is None else jnp.where(where, logits, value)


def stub(logits, axis=-1, where=None):
    raise NotImplementedError("your code here")


def no_division(z, axis=-1, where=None):
    return jnp.exp(z - z.max(axis, keepdims=True))


def over_everything(z, axis=-1, where=None):
    return jnp.exp(z) / jnp.exp(z).sum()


def without_keepdims(z, axis=-1, where=None):
    return jnp.exp(z) / jnp.exp(z).sum(axis)


def columns(z, axis=-1, where=None):
    return right(z, axis=0, where=where)


def powers_of_two(z, axis=-1, where=None):
    return jnp.exp2(z) / jnp.exp2(z).sum(axis, keepdims=True)


def last_axis(z, axis=-1, where=None):
    return right(z, where=where)


def without_maximum(z, axis=-1, where=None):
    return jnp.exp(z) / jnp.exp(z).sum(axis, keepdims=True)


def one_maximum(z, axis=-1, where=None):
    powers = jnp.exp(z - z.max())
    return powers / powers.sum(axis, keepdims=True)


def dead_row_nan(z, axis=-1, where=None):
    z = _masked(z, where)
    powers = jnp.exp(z - z.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def large_negative(z, axis=-1, where=None):
    z = jnp.maximum(_masked(z, where), -1e9)
    powers = jnp.exp(z - z.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def small_for_zero(z, axis=-1, where=None):
    alive = (z > -jnp.inf).any(axis, keepdims=True)
    if where is not None:
        alive &= where.any(axis, keepdims=True)
    low = jnp.where(jnp.isfinite(z), z, 0.0).min(axis, keepdims=True)
    kept = right(_masked(z, where, low - 8.0), axis)
    return jnp.where(alive, kept, 0.0).astype(z.dtype)


def maximum_over_masked(z, axis=-1, where=None):
    where = jnp.ones(z.shape, bool) if where is None else where
    top = z.max(axis, keepdims=True)
    powers = jnp.where(where, jnp.exp(z - jnp.where(top == -jnp.inf, 0.0, top)), 0.0)
    total = powers.sum(axis, keepdims=True)
    return powers / jnp.where(total == 0, 1.0, total)


def mask_after_softmax(z, axis=-1, where=None):
    weights = right(z, axis)
    return weights if where is None else jnp.where(where, weights, 0.0)


def mask_ignored(z, axis=-1, where=None):
    return right(z, axis)


def mask_inverted(z, axis=-1, where=None):
    return right(z, axis, None if where is None else ~where)


def mask_multiplied(z, axis=-1, where=None):
    if where is None:
        return right(z, axis)
    top = jnp.where(where, z, -jnp.inf).max(axis, keepdims=True)
    powers = jnp.exp(jnp.minimum(z - jnp.where(top == -jnp.inf, 0.0, top), 80.0)) * where.astype(z.dtype)
    total = powers.sum(axis, keepdims=True)
    return powers / jnp.where(total == 0, 1.0, total)


def mask_after_exponential(z, axis=-1, where=None):
    where = (z > -jnp.inf) if where is None else where & (z > -jnp.inf)
    top = jnp.where(where, z, -jnp.inf).max(axis, keepdims=True)
    powers = jnp.where(where, jnp.exp(z - jnp.where(top == -jnp.inf, 0.0, top)), 0.0)
    total = powers.sum(axis, keepdims=True)
    return powers / jnp.where(total == 0, 1.0, total)


def mask_after_division(z, axis=-1, where=None):
    where = (z > -jnp.inf) if where is None else where & (z > -jnp.inf)
    powers = jnp.exp(z - jnp.max(z, axis, where=where, initial=-jnp.inf, keepdims=True))
    return jnp.where(where, powers / jnp.sum(powers, axis, where=where, keepdims=True), 0.0)


def mask_added(z, axis=-1, where=None):
    z = z if where is None else z + jnp.where(where, 0.0, -jnp.inf).astype(z.dtype)
    alive = (z > -jnp.inf).any(axis, keepdims=True)
    return jnp.where(alive, jax.nn.softmax(z, axis), 0.0)


def gradient_stopped(z, axis=-1, where=None):
    return jax.lax.stop_gradient(right(z, axis, where))


def always_float32(z, axis=-1, where=None):
    return right(z, axis, where).astype(jnp.float32)


def sum_in_half(z, axis=-1, where=None):
    if z.dtype != jnp.float16:
        return right(z, axis, where)
    powers = jnp.exp(z - z.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


MISTAKES = {
    stub: "not written yet",
    no_division: "no division",
    over_everything: "one normaliser for all rows",
    without_keepdims: "the sum lost its axis",
    columns: "wrong axis",
    powers_of_two: "powers of two",
    last_axis: "axis ignored",
    without_maximum: "no maximum subtracted",
    one_maximum: "one maximum for all rows",
    dead_row_nan: "a dead row divides 0 by 0",
    large_negative: "a large negative number for −∞",
    small_for_zero: "masked weights small, not 0",
    maximum_over_masked: "maximum taken over masked keys",
    mask_after_softmax: "masked keys left in the normaliser",
    mask_ignored: "mask ignored",
    mask_inverted: "mask read the wrong way round",
    mask_multiplied: "mask mixed in by arithmetic",
    mask_added: "mask mixed in by arithmetic",
    mask_after_exponential: "mask applied after the exponential",
    mask_after_division: "mask applied after the division",
    gradient_stopped: "gradient stopped",
    always_float32: "answered in another precision",
    sum_in_half: "the sum overflows float16",
}


def test_a_right_softmax_passes():
    report = ch01.ex1(right)
    assert report.passed and all(f.outcome == "passed" for f in report.findings)


def test_numpy_passes_and_its_gradient_is_left_out_aloud():
    report = ch01.ex1(right_in_numpy)
    assert report.passed
    left_out = [f for f in report.findings if f.outcome == "left out"]
    assert [f.stage for f in left_out] == ["the gradient is finite and right"] and "NumPy" in left_out[0].note


@pytest.mark.parametrize(("softmax", "name"), MISTAKES.items(), ids=lambda x: getattr(x, "__name__", None))
def test_planted_mistakes_are_named(softmax, name):
    assert ch01.ex1(softmax).mistake == name


def test_the_square_test_that_hides_a_wrong_axis_would_have_passed_it():
    # why the check uses (4, 7): on a symmetric square array the lost axis goes unnoticed
    square = jnp.array([[1.0, 2.0], [2.0, 1.0]])
    np.testing.assert_allclose(without_keepdims(square), right(square), rtol=1e-6)


def test_the_report_draws_the_weights():
    shown = ch01.ex1(maximum_over_masked)._repr_html_()
    assert "<svg" in shown and "yours beside float64" in shown

"""Exercise 01.2: right entropies pass in JAX and in NumPy, and every planted mistake is named."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp.checks import ch01


def right(logits, axis=-1):
    z = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    shifted = z - z.max(axis, keepdims=True)
    powers = jnp.exp(shifted)
    total = powers.sum(axis)
    return jnp.log(total) - (powers * jnp.where(powers > 0, shifted, 0.0)).sum(axis) / total


def right_in_numpy(logits, axis=-1):
    z = np.asarray(logits, np.float64)
    shifted = z - z.max(axis, keepdims=True)
    powers = np.exp(shifted)
    total = powers.sum(axis)
    return np.log(total) - (powers * np.where(powers > 0, shifted, 0.0)).sum(axis) / total


def _weights(z, axis):
    return jax.nn.softmax(z.astype(jnp.float32), axis)


def stub(logits, axis=-1):
    return None


def bits(z, axis=-1):
    return right(z, axis) / jnp.log(2.0)


def unshifted_mean(z, axis=-1):
    top = z.max(axis)
    return jnp.log(jnp.exp(z - z.max(axis, keepdims=True)).sum(axis)) - (_weights(z, axis) * z).sum(axis) + 0.0 * top


def unshifted_normaliser(z, axis=-1):
    return right(z, axis) + z.max(axis)


def unweighted_mean(z, axis=-1):
    shifted = z - z.max(axis, keepdims=True)
    return jnp.log(jnp.exp(shifted).sum(axis)) - shifted.mean(axis)


def mean_not_normalised(z, axis=-1):
    shifted = z - z.max(axis, keepdims=True)
    return jnp.log(jnp.exp(shifted).sum(axis)) - (jnp.exp(shifted) * shifted).sum(axis)


def negative(z, axis=-1):
    return -right(z, axis)


def perplexity(z, axis=-1):
    return jnp.exp(right(z, axis))


def columns(z, axis=-1):
    return right(z, 0)


def last_axis(z, axis=-1):
    return right(z)


def without_maximum(z, axis=-1):
    powers = jnp.exp(z)
    return jnp.log(powers.sum(axis)) - (powers * z).sum(axis) / powers.sum(axis)


def large_difference(z, axis=-1):
    return jax.nn.logsumexp(z, axis) - (_weights(z, axis) * z).sum(axis)


def one_maximum(z, axis=-1):
    shifted = z - z.max()
    powers = jnp.exp(shifted)
    return jnp.log(powers.sum(axis)) - (powers * shifted).sum(axis) / powers.sum(axis)


def first_logit(z, axis=-1):
    shifted = z - jnp.take(z, jnp.array([0]), axis)
    powers = jnp.exp(shifted)
    mean = (powers * jnp.where(powers > 0, shifted, 0.0)).sum(axis) / powers.sum(axis)
    return jnp.log(powers.sum(axis)) - mean


def zero_log_zero(z, axis=-1):
    weights = _weights(z, axis)
    return -(weights * jnp.log(weights)).sum(axis)


def zero_times_infinity(z, axis=-1):
    shifted = z - z.max(axis, keepdims=True)
    powers = jnp.exp(shifted)
    return jnp.log(powers.sum(axis)) - (powers * shifted).sum(axis) / powers.sum(axis)


def epsilon(size):
    def entropy(z, axis=-1):
        weights = _weights(z, axis)
        return -(weights * jnp.log(weights + size)).sum(axis)

    entropy.__name__ = f"epsilon_{size:g}"
    return entropy


def clipped(z, axis=-1):
    weights = _weights(z, axis)
    return -(weights * jnp.log(jnp.maximum(weights, 1e-6))).sum(axis)


def half_answer(z, axis=-1):
    return right(z, axis).astype(z.dtype)


def late_widening(z, axis=-1):
    if z.dtype != jnp.float16:
        return right(z, axis)
    shifted = z - z.max(axis, keepdims=True)
    powers = jnp.exp(shifted)
    return (jnp.log(powers.sum(axis)) - (powers * shifted).sum(axis) / powers.sum(axis)).astype(jnp.float32)


MISTAKES = {
    stub: "not written yet",
    bits: "bits for nats",
    unshifted_mean: "mean of the unshifted logits",
    unshifted_normaliser: "mean of the unshifted logits",
    unweighted_mean: "unweighted mean",
    mean_not_normalised: "mean not normalised",
    negative: "sign",
    perplexity: "perplexity",
    columns: "wrong axis",
    last_axis: "axis ignored",
    without_maximum: "no maximum subtracted",
    large_difference: "two large numbers subtracted",
    one_maximum: "one maximum for all rows",
    first_logit: "shifted by the first logit",
    zero_log_zero: "0 · log 0",
    zero_times_infinity: "0 · (−∞)",
    epsilon(1e-8): "epsilon inside the log",
    epsilon(1e-9): "epsilon inside the log",
    clipped: "epsilon inside the log",
    half_answer: "answered in half precision",
    late_widening: "widened too late",
}


@pytest.mark.parametrize("entropy", [right, right_in_numpy])
def test_right_entropies_pass(entropy):
    report = ch01.ex2(entropy)
    assert report.passed and all(f.outcome == "passed" for f in report.findings)


@pytest.mark.parametrize(("entropy", "name"), MISTAKES.items(), ids=lambda x: getattr(x, "__name__", None))
def test_planted_mistakes_are_named(entropy, name):
    assert ch01.ex2(entropy).mistake == name


@pytest.mark.parametrize("entropy", [right, without_maximum])
def test_the_report_draws_the_error_against_the_offset(entropy):
    shown = ch01.ex2(entropy)._repr_html_()
    assert "<svg" in shown and "error of your entropy" in shown

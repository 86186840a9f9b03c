"""The entropy of a softmax row."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from row_oracle import masks, oracle, rows

from adatemp import entropy
from adatemp._compat import enable_x64

_entropy = jax.jit(entropy, static_argnames="axis")


def test_a_uniform_row_has_log_n_and_a_settled_one_has_nothing():
    assert float(entropy(np.zeros(8, np.float32))) == pytest.approx(np.log(8), rel=1e-7)
    assert float(entropy(np.eye(8, dtype=np.float32)[3] * 200)) == 0


@pytest.mark.result("prop-ch01-shifted-entropy")
@given(rows(), masks())
def test_it_is_the_sum_of_minus_p_log_p(z, mask):
    got = np.asarray(_entropy(z, where=mask))
    np.testing.assert_allclose(got, oracle(z, mask).entropy, atol=2e-6)
    counts = mask.sum(-1)
    assert np.all(got >= 0) and np.all(got <= np.log(np.maximum(counts, 1)) + 1e-6)


@pytest.mark.parametrize(
    ("dtype", "statistics", "tolerance"),
    [
        ("float16", "float32", 1e-6),
        ("bfloat16", "float32", 1e-6),
        ("float32", "float32", 1e-6),
        ("float64",) * 2 + (1e-14,),
    ],
)
def test_every_dtype_is_exact_for_the_logits_it_holds(dtype, statistics, tolerance):
    with enable_x64(dtype == "float64"):
        z = jnp.asarray(np.random.default_rng(0).normal(size=(3, 9)) * 3, dtype)
        got = np.asarray(entropy(z))
        assert got.dtype == statistics
        np.testing.assert_allclose(got, oracle(np.asarray(z, np.float64)).entropy, atol=tolerance)


@pytest.mark.result("prop-ch01-shifted-entropy")
def test_there_is_no_epsilon_to_bias_a_long_row():
    z = np.zeros(131_072, np.float32)
    p = 1 / z.size
    with_epsilon = -np.log(p + 1e-9)  # 1.3e-4 short
    assert float(entropy(z)) == pytest.approx(np.log(z.size), abs=2e-6)
    assert np.log(z.size) - with_epsilon > 1e-4


@pytest.mark.result("prop-ch01-derivatives")
def test_the_gradient_is_minus_p_times_the_centred_logit():
    z = np.random.default_rng(0).normal(size=9)
    with enable_x64(True):
        got = np.asarray(jax.grad(entropy)(z))
    p = oracle(z, beta_of=lambda h: 1.0).weights
    np.testing.assert_allclose(got, -p * (z - (p * z).sum()), atol=1e-15)


def test_axes_that_are_reduced_together_make_one_row():
    z = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    want = oracle(np.moveaxis(z, 1, 0).reshape(4, 15)).entropy
    np.testing.assert_allclose(entropy(z, axis=(0, 2)), want, atol=1e-6)

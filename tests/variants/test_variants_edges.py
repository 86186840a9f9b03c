"""Dead rows, infinities, NaN, and arguments that cannot be meant."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest
from variant_oracle import VARIANTS, every

from adatemp import variants

OWN_KEY = ("sigmoid", "sigmoid with bias", "relu")  # those in which no key minds another


def test_a_row_without_keys_gets_nothing():
    z = np.zeros((3, 9), np.float32)
    z[0], z[2] = -np.inf, np.nan
    for name, weights in every(z, np.array([[True], [False], [False]])):
        np.testing.assert_array_equal(weights, 0, err_msg=name)


def test_nan_in_a_live_key_shows_in_its_row_and_no_other():
    z = np.random.default_rng(0).normal(size=(3, 9)).astype(np.float32)
    mask = np.ones(z.shape, bool)
    mask[1, 4] = False
    clean = dict(every(z, mask))
    z[1, 2] = np.nan
    for name, weights in every(z, mask):
        np.testing.assert_array_equal(weights[[0, 2]], clean[name][[0, 2]], err_msg=name)
        want = np.ones(9, bool)
        if name in OWN_KEY:
            want = np.arange(9) == 2
        elif name == "stick_breaking":
            want = np.arange(9) <= 2  # keys after it have taken their share already
        np.testing.assert_array_equal(np.isnan(weights[1])[mask[1]], want[mask[1]], err_msg=name)


def test_what_an_infinite_logit_does_is_what_is_documented():
    z = np.zeros((3, 9), np.float32)
    z[1, 6] = np.inf
    for name, weights in every(z):
        assert np.all(np.isfinite(weights[[0, 2]])), name
        if name == "stick_breaking":  # the two keys after it go first, and it takes the quarter that is left
            np.testing.assert_array_equal(weights[1], [0] * 6 + [0.25, 0.25, 0.5])
        elif name in ("hard", *OWN_KEY):
            assert weights[1, 6] == (np.inf if name == "relu" else 1), name
            assert not np.isnan(weights).any(), name
        else:
            assert np.isnan(weights[1]).all(), name


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_largest_and_smallest_finite_logits_overflow_nothing(dtype):
    top = float(jnp.finfo(dtype).max)
    rows = [[top, 0.0, -top] * 3, [-top] * 9, [top] * 5 + [-top] * 4]
    for name, weights in every(np.asarray(jnp.array(rows, dtype))):
        if name not in ("log_length", "scalable", "yarn", "llama4"):  # beta times the largest number is infinite
            assert np.all(np.isfinite(weights.astype(np.float32))), name


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_and_masks_are_checked_as_in_every_row_function(name):
    function = VARIANTS[name][0]
    for arguments, error, named in [
        (dict(logits=jnp.arange(3)), TypeError, "logits must have one of the dtypes"),
        (dict(logits=[1.0, 2.0]), TypeError, "logits must be an array, got list"),
        (dict(logits=jnp.ones(3), axis=1), ValueError, "axis 1 does not exist in logits of shape"),
        (dict(logits=jnp.ones((3, 0))), ValueError, "has no keys"),
        (dict(logits=jnp.ones((2, 3)), where=jnp.ones((2, 3))), TypeError, "where must be boolean"),
        (dict(logits=jnp.ones((2, 3)), where=jnp.ones(2, bool)), ValueError, "where of shape .* does not broadcast"),
    ]:
        with pytest.raises(error, match=named):
            function(**arguments)


Z = jnp.ones((4, 2, 6))


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        (lambda: variants.top_k(Z, 0), ValueError, "k must be at least 1, got 0"),
        (lambda: variants.top_k(Z, 2.0), TypeError, "k counts keys and chooses code.*Python integer, got 2.0"),
        (lambda: variants.top_k(Z, True), TypeError, "k counts keys"),
        (lambda: variants.softpick(Z, epsilon=0.0), ValueError, "epsilon must be above 0, got 0.0"),
        (lambda: variants.softpick(Z, epsilon=math.nan), ValueError, "epsilon must be finite"),
        (lambda: variants.softpick(Z, epsilon=[1.0]), TypeError, "epsilon chooses code"),
        (lambda: variants.sink_softmax(Z, "0"), TypeError, "sink must be a number or an array of numbers, got '0'"),
        (lambda: variants.sink_softmax(Z, True), TypeError, "sink must be real, got dtype bool"),
        (
            lambda: variants.sink_softmax(Z, jnp.ones(4)),
            ValueError,
            r"sink of shape \(4,\) does not broadcast to the rows' shape \(4, 2\), .*give a value a head as",
        ),
        (lambda: variants.sigmoid(Z, jnp.ones((4, 2, 6))), ValueError, r"bias of shape \(4, 2, 6\) does not broadcast"),
        (lambda: variants.sigmoid(Z, 1j), TypeError, "bias must be real, got dtype complex64"),
        (lambda: variants.scalable_softmax(Z, -1.0), ValueError, "scale must be at least 0"),
        (lambda: variants.scalable_softmax(Z, jnp.ones(3)), ValueError, "does not broadcast to the rows' shape"),
        (lambda: variants.log_length_softmax(Z, 1.0), ValueError, "reference_count must be above 1"),
        (lambda: variants.yarn_softmax(Z, 0.5), ValueError, "factor must be at least 1"),
        (lambda: variants.llama4_softmax(Z, floor_scale=0), ValueError, "floor_scale must be from 1"),
        (
            lambda: variants.attention_fn(0.5),
            TypeError,
            "weights must be a function such as variants.entmax15, got 0.5",
        ),
    ],
)
def test_parameters_are_refused_by_name_with_what_is_allowed(call, error, named):
    with pytest.raises(error, match=named):
        call()


def test_a_parameter_a_head_broadcasts_against_the_rows():
    sink = jnp.array([[0.0], [3.0]])  # heads of logits [batch, heads, queries, keys]
    z = jnp.zeros((2, 2, 3, 5))
    got = variants.sink_softmax(z, sink)
    for head, s in enumerate((1.0, math.exp(3.0))):
        np.testing.assert_allclose(got[:, head], 1 / (5 + s), rtol=1e-6)
    np.testing.assert_array_equal(variants.sink_softmax(z, 0), variants.sink_softmax(z))

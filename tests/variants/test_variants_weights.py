"""Every variant is its definition, and keeps the properties that its definition promises."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from row_oracle import masks, rows
from variant_oracle import SHIFT_INVARIANT, SYMMETRIC, definition, every

from adatemp import adaptive_temperature_softmax, variants
from adatemp._compat import enable_x64


@given(rows(), masks())
def test_they_are_their_definitions(z, mask):
    for name, weights in every(z, mask):
        # Logits of up to 500 are given to 3e-5, and ReLU / n hands that on; a threshold among logits of that size too.
        np.testing.assert_allclose(weights, definition(name, z, mask), atol=6e-5, rtol=6e-5, err_msg=name)


@given(rows(), masks())
def test_weights_are_positive_at_live_keys_alone_and_keep_their_order(z, mask):
    for name, weights in every(z, mask):
        assert np.all(weights >= 0), name
        assert np.all(weights[~mask] == 0), name
        if name == "stick_breaking":
            continue
        for row, keep, weight in zip(z, mask, weights):
            by_logit = weight[keep][np.argsort(row[keep], kind="stable")]
            if name in ("top_k", "hard"):  # of equal logits the first alone may have weight
                by_logit = np.sort(row[keep])[weight[keep][np.argsort(row[keep], kind="stable")] > 0]
                assert len(by_logit) == 0 or by_logit[-1] == row[keep].max(), name
            else:
                assert np.all(np.diff(by_logit) >= 0), name


@given(rows(), masks())
def test_what_the_weights_sum_to(z, mask):
    for name, weights in every(z, mask):
        total = weights.sum(-1, dtype=np.float64)
        live = mask.any(-1)
        if name in SHIFT_INVARIANT:
            np.testing.assert_allclose(total, live, atol=1e-6, err_msg=name)
        elif name not in ("relu", "sigmoid with bias"):
            limit = np.where(live, 1, 0) * (mask.sum(-1) if name == "sigmoid" else 1)
            assert np.all(total <= limit + 1e-6), name


@given(rows(widest=8.0), st.sampled_from([-64.0, -1.0, 0.25, 32.0, 4096.0]))
def test_a_number_added_to_every_logit_changes_nothing_in_those_that_compare_keys(z, shift):
    z = np.round(z * 64) / 64  # so that the sums are exact
    assume(np.all((z + np.float32(shift)) - np.float32(shift) == z))
    moved = dict(every(z + np.float32(shift)))
    for name, weights in every(z):
        if name in SHIFT_INVARIANT:
            np.testing.assert_array_equal(moved[name], weights, err_msg=name)


@given(rows(), masks(), st.permutations(range(9)))
def test_permuting_the_keys_permutes_the_weights(z, mask, order):
    permuted = dict(every(z[:, order], mask[:, order]))
    for name, weights in every(z, mask):
        if name in SYMMETRIC:
            np.testing.assert_allclose(permuted[name], weights[:, order], rtol=2e-5, atol=2e-6, err_msg=name)


@given(rows(), masks())
def test_a_hidden_key_might_as_well_not_be_there(z, mask):
    """Whatever stands behind the mask, and where -inf stands in its place."""
    nan = np.where(mask, z, np.float32(np.nan))
    hidden, infinite = dict(every(nan, mask)), dict(every(np.where(mask, z, np.float32(-np.inf))))
    for name, weights in every(z, mask):
        np.testing.assert_array_equal(hidden[name], weights, err_msg=name)
        np.testing.assert_array_equal(infinite[name], weights, err_msg=name)


@pytest.mark.parametrize("axes", [(2, 0), None])
def test_rows_along_any_axes_are_rows_along_the_last(axes):
    z = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    mask = np.random.default_rng(1).uniform(size=z.shape) < 0.7
    summed = sorted(a % 3 for a in (range(3) if axes is None else axes))
    order = [a for a in range(3) if a not in summed] + summed
    flat, flat_mask = (np.transpose(x, order).reshape(*np.delete(x.shape, summed), -1) for x in (z, mask))
    names = ("entmax15", "sigmoid", "softpick", "stick_breaking", "top_k", "scalable")
    for name, weights in every(z, mask, axis=axes, names=names):
        want = definition(name, flat, flat_mask)
        got = np.transpose(weights, order).reshape(want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=name)


def test_half_precision_is_float32_rounded_once_and_float64_is_kept():
    z = 2 * np.random.default_rng(2).normal(size=(3, 9))
    for dtype in (jnp.float16, jnp.bfloat16):
        low = np.asarray(jnp.asarray(z, dtype))
        single = dict(every(low.astype(np.float32)))
        ulp = float(jnp.finfo(dtype).eps)
        for name, weights in every(low):
            assert weights.dtype == dtype
            # Half a unit, and the float32 of two programs may differ by one of its own.
            np.testing.assert_allclose(
                weights.astype(np.float32), single[name], rtol=0.501 * ulp, atol=6e-8, err_msg=name
            )
    with enable_x64(True):
        for name, weights in every(z):
            assert weights.dtype == np.float64
            np.testing.assert_allclose(weights, definition(name, z), rtol=1e-12, atol=1e-14, err_msg=name)


def test_long_rows_and_large_logits_keep_their_digits():
    rng = np.random.default_rng(3)
    families = {
        "flat": np.zeros(20_000),
        "crowded": rng.uniform(0, 0.02, 20_000),
        "needle": np.append(rng.normal(size=19_999), 12.0),
        "below zero": rng.uniform(-400, -200, 20_000),
        "far": 3e4 + rng.integers(-8, 9, 20_000),
    }
    z = np.stack(list(families.values())).astype(np.float32)
    names = ("null slot", "sink", "sparsemax", "entmax15", "softpick", "stick_breaking", "sigmoid")
    for name, weights in every(z, names=names):
        assert np.all(np.isfinite(weights)), name
        for family, got, row in zip(families, weights, z):
            if name == "softpick" and family == "far":
                continue  # exp(30,000) is beyond the oracle
            want = definition(name, row)
            atol = max(1e-6 * want.max(), 1e-37)  # below, float32 has nothing
            np.testing.assert_allclose(got, want, rtol=3e-4, atol=atol, err_msg=f"{name}, {family}")


def test_a_sink_is_a_gate_on_softmax():
    z = 3 * jax.random.normal(jax.random.key(0), (5, 40))
    sink = jnp.array([-30.0, -1.0, 0.0, 2.0, 200.0])
    _, stats = adaptive_temperature_softmax(z, temperature=None, return_stats=True)
    gate = jax.nn.sigmoid(stats.lse - sink)
    np.testing.assert_allclose(variants.sink_softmax(z, sink), gate[:, None] * jax.nn.softmax(z), rtol=3e-6, atol=1e-30)
    np.testing.assert_array_equal(variants.sink_softmax(z, -jnp.inf), variants.sink_softmax(z, -1e30))


def test_the_null_slot_keeps_its_meaning_under_large_and_small_logits():
    # 1 in the unshifted normaliser: after subtracting a maximum of 50 it is exp(-50), of -50 it is nearly everything.
    np.testing.assert_allclose(variants.sink_softmax(jnp.array([50.0, 50.0])), [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(variants.sink_softmax(jnp.array([-50.0])), [np.exp(-50.0)], rtol=1e-5)


def test_sigmoid_of_noise_sums_to_the_same_at_any_length():
    for n in (16, 1024, 65_536):
        assert float(variants.sigmoid(jnp.zeros(n)).sum()) == pytest.approx(n / (n + 1), rel=1e-5)
        assert float(variants.sigmoid(jnp.zeros(n), bias=-3.0).sum()) == pytest.approx(n / (1 + np.exp(3)), rel=1e-5)


def test_softpick_spends_the_weight_of_an_idle_row_on_nothing():
    assert float(variants.softpick(jnp.full(100, -5.0)).sum()) == 0
    one = variants.softpick(jnp.full(100, -50.0).at[3].set(np.log(2.0)))
    np.testing.assert_allclose(one.sum(), 1 / (1 + 99), rtol=1e-5)


def test_stick_breaking_leaves_a_key_alone_however_many_come_before():
    z = jax.random.normal(jax.random.key(1), (200,))
    all_keys, newest = variants.stick_breaking(z), variants.stick_breaking(z[-5:])
    np.testing.assert_allclose(all_keys[-5:], newest, rtol=1e-6)


def test_top_k_keeps_exactly_k_and_of_equal_logits_the_first():
    tied = jnp.array([1.0, 2.0, 1.0, 1.0, 2.0, 0.0])
    weights = variants.top_k(tied, 4)
    np.testing.assert_array_equal(weights > 0, [True, True, True, False, True, False])
    np.testing.assert_array_equal(variants.top_k(jnp.zeros((2, 7)), 3) > 0, [[True] * 3 + [False] * 4] * 2)
    where = jnp.array([False, True, True, True, True, True])
    np.testing.assert_array_equal(variants.top_k(tied, 3, where=where) > 0, [False, True, True, False, True, False])


def test_top_k_of_a_row_of_at_most_k_keys_is_softmax_to_the_bit():
    z = jax.random.normal(jax.random.key(2), (3, 8))
    for k in (8, 9, 1000):
        np.testing.assert_array_equal(variants.top_k(z, k), jax.nn.softmax(z))
    where = jnp.arange(8) < 5
    plain = adaptive_temperature_softmax(z, where=where, temperature=None)
    np.testing.assert_array_equal(variants.top_k(z, 5, where=where), plain)


def test_the_identity_setting_of_a_length_rule_is_softmax():
    """To the bit where beta is 1 by construction; where it comes out as 1, XLA may round a row's sum another way."""
    z = 4 * jax.random.normal(jax.random.key(3), (3, 50))
    np.testing.assert_array_equal(variants.yarn_softmax(z, 1.0), jax.nn.softmax(z))
    for weights in (variants.llama4_softmax(z), variants.scalable_softmax(z, 0.0, 1.0)):
        np.testing.assert_array_max_ulp(np.asarray(weights), np.asarray(jax.nn.softmax(z)), 4)
    np.testing.assert_allclose(variants.log_length_softmax(z, 50), jax.nn.softmax(z), rtol=1e-6)

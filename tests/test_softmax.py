"""Values of adaptive_temperature_softmax: published points, dtypes, masks, dead rows, NaN, statistics."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from row_oracle import oracle

from adatemp import PAPER, PAPER_HELD, adaptive_temperature_softmax, constant, exp_offset, log_ratio, target_entropy
from adatemp._compat import enable_x64

RULES = {
    "plain": None,
    "paper": PAPER,
    "held": PAPER_HELD,
    "constant": constant(2.0),
    "log ratio": log_ratio(4),
    "exp offset": exp_offset(1.0, beta_max=8.0),
    "target entropy": target_entropy(0.9),
}
every_rule = pytest.mark.parametrize("name", RULES)


@jax.jit
def _every_rule(z, where):
    return {
        name: adaptive_temperature_softmax(z, where=where, temperature=rule, return_stats=True)
        for name, rule in RULES.items()
    }


def under(name, z, where=None):
    """Weights and statistics under one rule. All rules are compiled at once and for one shape, to save minutes."""
    mask = np.broadcast_to(True if where is None else where, z.shape)
    return jax.device_get(_every_rule(z, mask)[name])


def run(z, axis=-1, where=None, **keywords):
    return jax.device_get(adaptive_temperature_softmax(z, axis, where, return_stats=True, **keywords))


def logits(*shape, seed=0, scale=2.0, dtype=np.float32):
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(dtype)


def test_weights_and_statistics_are_those_of_the_definition():
    z = np.concatenate([logits(20, 300, seed=s, scale=scale) for s, scale in enumerate((0.1, 1, 3, 10))])
    weights, stats = run(z)
    want = oracle(z)
    # Entropies near 6 nats carry a few float32 units (5e-7 each); the quartic's slope and its Horner sum, whose terms
    # reach 100, turn that into some 1e-5 of beta, and beta multiplies differences of logits up to 60.
    np.testing.assert_allclose(stats.entropy, want.entropy, atol=4e-6)
    np.testing.assert_allclose(stats.beta, want.beta, atol=6e-5)
    np.testing.assert_allclose(stats.lse, want.lse, rtol=1e-6)
    np.testing.assert_allclose(stats.lse_scaled, want.lse_scaled, rtol=6e-5, atol=6e-5)
    np.testing.assert_allclose(weights, want.weights, atol=6e-5)


def test_in_float64_they_agree_to_float64():
    with enable_x64(True):
        z = logits(50, 40, dtype=np.float64)
        weights, stats = run(z)
        want = oracle(z)
        for got, expected in [
            (weights, want.weights),
            (stats.entropy, want.entropy),
            (stats.beta, want.beta),
            (stats.lse, want.lse),
            (stats.lse_scaled, want.lse_scaled),
        ]:
            assert got.dtype == np.float64
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("axis", [0, (2, 0), None])
def test_any_axis_is_the_last_axis_of_the_rearranged_array(axis):
    z = logits(3, 4, 5)
    mask = logits(3, 1, 5, seed=1) > -1
    axes = sorted(a % 3 for a in (range(3) if axis is None else np.atleast_1d(axis)))
    kept = [a for a in range(3) if a not in axes]

    def flat(x):
        return np.transpose(x, kept + axes).reshape([x.shape[a] for a in kept] + [-1])

    weights, stats = run(z, axis, mask)
    want = oracle(flat(z), flat(np.broadcast_to(mask, z.shape)))
    assert stats.entropy.shape == tuple(z.shape[a] for a in kept)
    np.testing.assert_allclose(stats.entropy, want.entropy, atol=1e-6)
    np.testing.assert_allclose(stats.beta, want.beta, atol=1e-5)
    np.testing.assert_allclose(stats.lse, want.lse, rtol=1e-6)
    np.testing.assert_allclose(flat(weights), want.weights, rtol=1e-4, atol=1e-7)


def test_a_rule_that_reads_the_row_gets_it_whole_whatever_the_axes():
    z = logits(3, 4, 5)
    weights, stats = run(z, (2, 0), temperature=target_entropy(0.9))
    rows = np.transpose(weights, (1, 0, 2)).reshape(4, 15).astype(np.float64)
    assert np.all(stats.entropy > 0.9)
    np.testing.assert_allclose(-(rows * np.log(rows)).sum(-1), 0.9, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_dtypes_get_the_float32_weights_rounded_once(dtype):
    z = jnp.asarray(logits(4, 12), dtype)
    weights, stats = run(z)
    wide, wide_stats = under("paper", np.asarray(z, np.float32))
    assert weights.dtype == z.dtype
    np.testing.assert_array_equal(weights, wide.astype(dtype))
    for got, want in zip(jax.tree.leaves(stats), jax.tree.leaves(wide_stats)):
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("dtype", "axis", "masked"),
    [
        ("float16", (0, 2), True),
        ("bfloat16", 0, False),
        ("float32", None, False),
        ("float32", -1, True),
        ("float64", -1, False),
    ],
)
def test_none_and_constant_one_are_jax_nn_softmax_to_the_bit(dtype, axis, masked):
    with enable_x64(dtype == "float64"):
        z = jnp.asarray(logits(2, 4, 129, scale=5.0), dtype)
        mask = logits(2, 4, 129, seed=9) > -1 if masked else None
        want = np.asarray(jax.nn.softmax(z, axis, where=mask))
        for rule in (None, constant(1.0), constant(np.ones((), np.float32))):
            got = np.asarray(adaptive_temperature_softmax(z, axis, mask, temperature=rule))
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_they_are_under_jit_too(dtype):
    z = jnp.asarray(logits(2, 4, 129, scale=5.0), dtype)
    want = jax.jit(jax.nn.softmax)(z)
    got = jax.jit(partial(adaptive_temperature_softmax, temperature=constant(1.0)))(z)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_a_beta_of_one_that_is_known_only_when_it_runs_is_within_four_units_in_the_last_place():
    z = logits(3, 1000, scale=5.0)
    got = jax.jit(lambda z, rule: adaptive_temperature_softmax(z, temperature=rule))(z, constant(1.0))
    np.testing.assert_array_max_ulp(np.asarray(got), np.asarray(jax.nn.softmax(z, -1)), maxulp=4)


def test_rows_that_a_rule_leaves_alone_are_within_four_units_in_the_last_place_of_plain_softmax():
    z = np.concatenate([logits(40, 600, scale=0.3), logits(40, 600, scale=40.0)])  # diffuse past the range, and sharp
    weights, stats = run(z)
    untouched = stats.beta == 1
    assert untouched.sum() >= 60
    np.testing.assert_array_max_ulp(weights[untouched], np.asarray(jax.nn.softmax(z, -1))[untouched], maxulp=4)


@every_rule
def test_two_runs_are_equal_to_the_bit(name):
    z = logits(4, 12)
    for first, second in zip(jax.tree.leaves(under(name, z)), jax.tree.leaves(under(name, z))):
        np.testing.assert_array_equal(first, second)


@every_rule
def test_a_mask_and_a_logit_of_minus_infinity_say_the_same(name):
    z, keep = logits(4, 12), np.arange(12) % 3 != 1
    masked, infinite = under(name, z, keep), under(name, np.where(keep, z, np.float32(-np.inf)))
    assert np.all(masked[0][:, ~keep] == 0)
    np.testing.assert_allclose(masked[0].sum(-1), 1, atol=1e-6)
    for a, b in zip(jax.tree.leaves(masked), jax.tree.leaves(infinite)):
        np.testing.assert_array_equal(a, b)


def test_masked_keys_count_for_nothing():
    z, keep = logits(4, 12), logits(4, 12, seed=1) > 0
    weights, stats = under("paper", z, keep)
    want = oracle(z, keep)  # which removes them before it starts
    np.testing.assert_allclose(weights, want.weights, atol=1e-6)
    np.testing.assert_allclose(stats.entropy, want.entropy, atol=1e-6)
    np.testing.assert_allclose(stats.beta, want.beta, atol=1e-5)


@every_rule
def test_a_dead_row_has_no_weight_no_entropy_and_no_temperature(name):
    z, keep = logits(4, 12), np.ones((4, 12), bool)
    z[1], keep[2] = -np.inf, False
    with jax.debug_nans(True):
        weights, stats = under(name, z, keep)
    for dead in (1, 2):
        assert np.all(weights[dead] == 0)
        row = (stats.entropy[dead], stats.beta[dead], stats.lse[dead], stats.lse_scaled[dead])
        assert row == (0, 1, -np.inf, -np.inf)
    np.testing.assert_allclose(weights.sum(-1), [1, 0, 0, 1], atol=1e-6)


@every_rule
def test_a_row_of_one_key_gives_it_everything(name):
    keep = np.arange(12) == 5
    weights, stats = under(name, logits(4, 12), keep)
    np.testing.assert_array_equal(weights, np.broadcast_to(keep, (4, 12)))
    assert stats.entropy.tolist() == [0] * 4
    assert stats.beta.tolist() == [RULES[name].inverse_temperature if name == "constant" else 1] * 4
    np.testing.assert_array_equal(stats.lse, logits(4, 12)[:, 5])


@every_rule
def test_nan_in_a_live_logit_makes_its_row_nan_and_no_other(name):
    z = logits(4, 12)
    clean, clean_stats = under(name, z)
    z[1, 2] = np.nan
    weights, stats = under(name, z)
    assert np.all(np.isnan(weights[1])) and np.isnan(stats.entropy[1]) and np.isnan(stats.lse[1])
    for other in (0, 2, 3):
        np.testing.assert_array_equal(weights[other], clean[other])
        assert stats.entropy[other] == clean_stats.entropy[other]


@every_rule
@pytest.mark.parametrize("behind", [np.nan, np.inf, -np.inf, 3e38])
def test_what_stands_behind_the_mask_changes_nothing(name, behind):
    z, keep = logits(4, 12), np.ones((4, 12), bool)
    keep[1, 2] = False
    got, want = under(name, np.where(keep, z, np.float32(behind)), keep), under(name, z, keep)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        np.testing.assert_array_equal(a, b)


def test_logits_at_the_ends_of_the_dtype_overflow_nothing():
    z = jnp.array([[3e38, -3e38, 0.0, 3e38], [-3e38, -3e38, -3e38, -3e38]])
    weights, stats = run(z, temperature=constant(2.0))
    np.testing.assert_array_equal(weights, [[0.5, 0, 0, 0.5], [0.25] * 4])
    np.testing.assert_allclose(stats.entropy, np.log([2, 4]), rtol=1e-6)


@pytest.mark.parametrize("low", [-1e9, -2.38e38, float(np.finfo(np.float32).min)])
def test_a_finite_mask_value_masks_and_in_a_whole_row_means_uniform(low):
    z = jnp.array([[1.0, 2.0, low, low], [low, low, low, low]])
    weights, stats = run(z, temperature=constant(2.0))
    np.testing.assert_allclose(weights[0, :2], jax.nn.softmax(jnp.array([2.0, 4.0])), rtol=1e-6)
    np.testing.assert_array_equal(weights[1], [0.25] * 4)
    assert stats.entropy[1] == pytest.approx(np.log(4), rel=1e-6)


def test_logits_far_from_zero_keep_their_digits():
    z = np.round(logits(4, 1000, scale=1.0) * 128) / 128  # multiples of 1/128 are exact at the offset too
    near, far = run(z), run(z + np.float32(8192))
    np.testing.assert_array_equal(far[1].entropy, near[1].entropy)
    np.testing.assert_array_equal(far[0], near[0])


def test_entropy_of_131072_keys_is_right_in_float32():
    rng = np.random.default_rng(0)
    spike = np.zeros(131_072, np.float32)
    spike[5] = 12.5
    rows = np.stack([np.zeros_like(spike), spike, rng.normal(size=spike.size), 3 * rng.normal(size=spike.size) + 1e3])
    _, stats = run(rows.astype(np.float32))
    np.testing.assert_allclose(stats.entropy, oracle(rows.astype(np.float32)).entropy, atol=1e-4)


def test_statistics_are_a_pytree_of_four_arrays_of_the_rows_shape():
    _, stats = under("paper", logits(4, 12))
    assert [x.shape for x in jax.tree.leaves(stats)] == [(4,)] * 4
    doubled = jax.tree.map(lambda x: 2 * x, stats)
    assert type(doubled) is type(stats) and doubled.range == stats.range

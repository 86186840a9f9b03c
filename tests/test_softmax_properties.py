"""Properties of adaptive_temperature_softmax on random and adversarial rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from row_oracle import away_from_kinks, masks, oracle, rows

from adatemp import PAPER, PAPER_HELD, adaptive_temperature_softmax, exp_offset, log_ratio, polynomial, target_entropy
from adatemp._compat import enable_x64

# Rows of 9 keys have at most 2.2 nats: rules that sharpen there, none below 1.
SHARPENING = {
    "paper": PAPER,
    "held": PAPER_HELD,
    "log ratio": log_ratio(9 / 2),
    "exp offset": exp_offset(0.5, beta_max=50.0),
    "rising": polynomial((3.0, 0.0), threshold=0.2),
    "target entropy": target_entropy(0.7),
}


@jax.jit
def _every_rule(z, where):
    return {
        name: adaptive_temperature_softmax(z, where=where, temperature=rule, return_stats=True)
        for name, rule in SHARPENING.items()
    }


def every_rule(z, where=None):
    mask = np.broadcast_to(True if where is None else where, z.shape)
    return jax.device_get(_every_rule(z, mask)).items()


@given(rows(), masks())
def test_weights_are_a_distribution_over_the_live_keys(z, mask):
    for name, (weights, _) in every_rule(z, mask):
        assert np.all(weights >= 0), name
        assert np.all(weights[~mask] == 0), name
        # Nine roundings of half a unit.
        np.testing.assert_allclose(weights.sum(-1), mask.any(-1), atol=5e-7, err_msg=name)


@pytest.mark.result("prop-ch01-cooling")
@given(rows(), masks())
def test_entropy_is_never_raised_and_the_order_of_the_keys_is_kept(z, mask):
    for name, (weights, stats) in every_rule(z, mask):
        assert np.all(stats.beta >= (1 if name != "log ratio" else 0)), name
        sharper = oracle(np.log(np.where(mask, np.maximum(weights, 1e-38), 1)), mask).entropy
        raised = sharper > stats.entropy + 3e-6
        assert not np.any(raised & (stats.beta >= 1)), name
        for row, keep, weight in zip(z, mask, weights):
            by_logit = weight[keep][np.argsort(row[keep], kind="stable")]
            assert np.all(np.diff(by_logit) >= 0), name


@given(rows(), masks())
def test_they_are_the_definition(z, mask):
    want = oracle(z, mask)
    weights, stats = dict(every_rule(z, mask))["paper"]
    # Offsets of 500 leave the logits themselves 3e-5 apart from what was drawn, but both sides see the same logits.
    np.testing.assert_allclose(stats.entropy, want.entropy, atol=2e-6)
    np.testing.assert_allclose(stats.beta, want.beta, atol=2e-5)
    np.testing.assert_allclose(weights, want.weights, atol=1e-4)


@pytest.mark.result("prop-ch01-differences")
@given(rows(widest=8.0), st.sampled_from([-64.0, -1.0, 0.25, 32.0, 4096.0]))
def test_adding_a_number_to_every_logit_changes_nothing(z, shift):
    z = np.round(z * 64) / 64  # so that the sums are exact
    assume(np.all((z + np.float32(shift)) - np.float32(shift) == z))
    moved = dict(every_rule(z + np.float32(shift)))
    for name, (weights, stats) in every_rule(z):
        np.testing.assert_array_equal(moved[name][0], weights, err_msg=name)
        np.testing.assert_array_equal(moved[name][1].entropy, stats.entropy, err_msg=name)
        # lse moves with the shift, to the rounding of a number of its size.
        np.testing.assert_allclose(moved[name][1].lse, stats.lse + shift, rtol=3e-7, atol=3e-6, err_msg=name)


@pytest.mark.result("prop-ch01-differences")
@given(rows(), masks(), st.permutations(range(9)))
def test_permuting_the_keys_permutes_the_weights(z, mask, order):
    permuted = dict(every_rule(z[:, order], mask[:, order]))
    for name, (weights, stats) in every_rule(z, mask):
        # Sums run in another order; beta, up to 50, multiplies differences of up to 40.
        np.testing.assert_allclose(permuted[name][1].entropy, stats.entropy, atol=2e-6, err_msg=name)
        settled = np.abs(permuted[name][1].beta - stats.beta) <= 1e-4 * stats.beta
        assert name == "target entropy" or np.all(settled), name
        np.testing.assert_allclose(permuted[name][0][settled], weights[:, order][settled], atol=1e-3, err_msg=name)


@jax.jit
@jax.vmap
def _row_by_row(z, keep):
    return adaptive_temperature_softmax(z, where=keep, return_stats=True)


@given(rows(widest=30.0), masks())
def test_vmap_over_rows_is_the_batch(z, mask):
    weights, stats = jax.device_get(_row_by_row(z, mask))
    want_weights, want_stats = dict(every_rule(z, mask))["paper"]
    np.testing.assert_allclose(weights, want_weights, rtol=2e-5, atol=1e-7)
    for got, want in zip(jax.tree.leaves(stats), jax.tree.leaves(want_stats)):
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


@jax.jit
def _directional(z, direction, coefficient):
    def f(z):
        return jnp.sum(coefficient * adaptive_temperature_softmax(z))

    return jax.jvp(f, (z,), (direction,))[1], jnp.sum(jax.grad(f)(z) * direction)


@given(rows(shape=(1, 9), dtype=np.float64, widest=6.0), st.integers(0, 2**32 - 1))
def test_the_gradient_is_that_of_finite_differences_away_from_the_kinks(z, seed):
    assume(away_from_kinks(oracle(z).entropy, 1e-3))
    direction, coefficient = np.random.default_rng(seed).normal(size=(2, 1, 9))

    def f(z):
        return (coefficient * oracle(z).weights).sum()

    step = 1e-5
    want = (f(z + step * direction) - f(z - step * direction)) / (2 * step)
    with enable_x64(True):
        forward, reverse = jax.device_get(_directional(z, direction, coefficient))
    # Third derivatives reach some thousands where beta is steep: 1e-10 of them, and 1e-16 / step of rounding.
    assert forward == pytest.approx(want, abs=1e-6)
    assert reverse == pytest.approx(forward, abs=1e-11)

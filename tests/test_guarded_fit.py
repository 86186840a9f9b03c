"""fit_guarded: the line it fits, the head it takes for sharp or averaging, and what it refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import adaptive_temperature_softmax, attention_entropy, dot_product_attention, entropy, fit_guarded

RNG = np.random.default_rng(0)
COUNT = RNG.integers(5, 17, size=4_000)
NOISE = 0.02 * RNG.normal(size=4_000)
SHARP, AVERAGING = 0.2 + 0.05 * np.log(COUNT) + NOISE, np.log(COUNT) - 0.3 + NOISE


def test_the_line_is_numpys_and_its_slope_is_taken_to_the_nearer_of_nought_and_one():
    for rows, averages in ((SHARP, False), (AVERAGING, True)):
        fit = fit_guarded(rows, COUNT)
        b, a = np.polyfit(np.log(COUNT), rows, 1)
        assert fit.slope == pytest.approx(b, rel=1e-9)
        assert fit.entropy == pytest.approx(a + b * np.log(16), rel=1e-9)
        assert (fit.averages, fit.rule.slope) == (averages, float(averages))
        assert averages or fit.rule.level == fit.entropy
        assert (fit.longest, fit.rows) == (16, 4_000)


def test_heads_are_fitted_one_by_one_and_rows_in_any_order():
    order = RNG.permutation(4_000)
    both = np.stack([SHARP, AVERAGING], -1)[order].reshape(40, 100, 2)
    fit = fit_guarded(both, COUNT[order].reshape(40, 100), per_head=True)
    for head, rows in enumerate((SHARP, AVERAGING)):
        alone = fit_guarded(rows, COUNT)
        assert fit.slope[head] == pytest.approx(alone.slope, rel=1e-9)
        assert fit.rule.level[head] == pytest.approx(alone.rule.level, rel=1e-9)
    np.testing.assert_array_equal(fit.averages, [False, True])
    assert str(fit).splitlines()[1].endswith("sharp, held") and str(fit).endswith("averages, left alone")


def test_a_head_that_averages_is_left_as_it_is_at_every_length():
    rule = fit_guarded(AVERAGING, COUNT).rule
    for n in (3, 16, 1_000, 131_072):
        z = jnp.stack([jnp.zeros(n), jnp.asarray(0.01 * RNG.normal(size=n), jnp.float32)])
        weights, stats = adaptive_temperature_softmax(z, temperature=rule, return_stats=True)
        np.testing.assert_array_equal(stats.beta, 1)
        np.testing.assert_allclose(weights, jax.nn.softmax(z), rtol=1e-6)


def test_rows_of_one_and_of_no_key_are_left_out():
    more = np.concatenate([SHARP, [0.0, 0.0, 0.0]]), np.concatenate([COUNT, [1, 1, 0]])
    fit, want = fit_guarded(*more), fit_guarded(SHARP, COUNT)
    assert (fit.slope, fit.entropy, fit.rows) == (want.slope, want.entropy, want.rows)


def test_a_causal_layer_is_fitted_from_what_attention_says_of_its_heads():
    # Two heads over the same keys: one looks for key 0, which stands out by 12, the other at all alike.
    T = 32
    key = jnp.zeros((1, T, 2, 4)).at[:, 0, 0, 0].set(12.0)
    query = jnp.ones((1, T, 2, 4))
    rows = attention_entropy(query, key, scale=1.0, is_causal=True)
    fit = fit_guarded(rows, np.arange(1, T + 1), per_head=True, beta_max=50.0)
    np.testing.assert_array_equal(fit.averages, [False, True])
    value = jnp.broadcast_to(jnp.eye(T)[None, :, None], (1, T, 2, T))
    plain, guarded = (
        dot_product_attention(query, key, value, scale=1.0, is_causal=True, temperature=rule)
        for rule in (None, fit.rule)
    )
    np.testing.assert_allclose(guarded[0, :, 1], plain[0, :, 1], atol=1e-6)  # the averaging head: as it was
    assert np.all(guarded[0, :, 0, 0] >= plain[0, :, 0, 0] - 1e-6)
    assert fit.rule.beta_max == 50


def test_entropies_may_come_from_logits_and_a_mask():
    z = jnp.asarray(RNG.normal(size=(500, 16)) * 8, jnp.float32)
    where = jnp.arange(16) < COUNT[:500, None]
    fit = fit_guarded(entropy(z, where=where), where.sum(-1))
    assert 0 < fit.slope < 0.5 and not fit.averages


@pytest.mark.parametrize(
    ("entropies", "count", "keywords", "error", "named"),
    [
        (SHARP, np.full(4_000, 16), {}, ValueError, "at least two different numbers of keys .* all rows have 16"),
        (SHARP[:1], COUNT[:1], {}, ValueError, "at least two different numbers of keys"),
        (np.zeros(5), np.array([0, 1, 1, 1, 1]), {}, ValueError, "no row has two keys"),
        (SHARP, COUNT[:-1], {}, ValueError, r"count must broadcast to the rows' shape \(4000,\), got \(3999,\)"),
        (SHARP, COUNT * 1.0, {}, TypeError, "count must be integers, the numbers of live keys, got float64"),
        (SHARP, COUNT, {"per_head": True}, ValueError, r"must be \[\*rows, heads\] with per_head=True"),
        (AVERAGING / np.log(2), COUNT, {}, ValueError, "entropy must be at most log n.*multiply bits by log 2"),
        (SHARP - 1, COUNT, {}, ValueError, "entropy must be at least 0"),
        (SHARP * np.nan, COUNT, {}, ValueError, "entropy must be finite, got nan"),
        (SHARP, COUNT, {"beta_max": 0.5}, ValueError, "beta_max must be at least 1"),
    ],
)
def test_it_refuses_what_cannot_be_fitted(entropies, count, keywords, error, named):
    with pytest.raises(error, match=named):
        fit_guarded(entropies, count, **keywords)


def test_it_refuses_traced_rows():
    with pytest.raises(TypeError, match="call fit_guarded outside jit"):
        jax.jit(lambda rows: fit_guarded(rows, COUNT).slope)(jnp.asarray(SHARP))

"""Measures of sinks on maps with known answers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import sinks


def uniform(T):
    return np.tril(np.ones((T, T))) / np.arange(1, T + 1)[:, None]


def with_sink(T, key, share):
    """Each query after the key gives it the share, and the rest to itself."""
    maps = np.zeros((T, T))
    for t in range(T):
        maps[t, t] = 1.0
        if t > key:
            maps[t, [key, t]] = share, 1 - share
    return maps


def by_loops(maps, causal=True):
    T = maps.shape[-1]
    return [np.mean([maps[t, i] for t in range(T) if t >= i or not causal]) for i in range(T)]


@pytest.mark.parametrize("T", [1, 2, 7, 64])
def test_equal_weights_give_the_baseline(T):
    np.testing.assert_allclose(sinks.attention_received(uniform(T)), by_loops(uniform(T)), rtol=1e-5)
    np.testing.assert_allclose(sinks.uniform_received(T), by_loops(uniform(T)), rtol=1e-5)
    # For key 0 the harmonic number over T: 0.0741 at the 64 tokens of the usual detector.
    assert float(sinks.uniform_received(T)[0]) == pytest.approx(np.sum(1 / np.arange(1, T + 1)) / T, rel=1e-5)


def test_received_is_the_mean_over_those_who_see_a_key():
    maps = np.random.default_rng(0).random((2, 3, 9, 9)) * np.tril(np.ones((9, 9)))
    maps /= maps.sum(-1, keepdims=True)
    received = sinks.attention_received(maps)
    for layer, head in np.ndindex(2, 3):
        np.testing.assert_allclose(received[layer, head], by_loops(maps[layer, head]), rtol=1e-5)
    full = np.random.default_rng(1).dirichlet(np.ones(5), 5)
    np.testing.assert_allclose(sinks.attention_received(full, causal=False), full.mean(0), rtol=1e-5)


def test_the_last_keys_do_not_look_like_sinks():
    maps = with_sink(12, 0, 0.9)
    received = np.asarray(sinks.attention_received(maps, min_queries=4))
    assert np.isnan(received[-3:]).all() and np.isfinite(received[:-3]).all()
    # The last key is seen by its own query alone, which says nothing of a sink, however much it gives.
    assert sinks.attention_received(with_sink(12, 0, 0.1))[-1] == pytest.approx(0.9)


def test_the_rate_is_the_share_of_heads_over_the_threshold():
    # Key 0 gets (1 + 63 share) / 64 of 64 queries.
    maps = np.stack([[with_sink(64, 0, 0.28), with_sink(64, 0, 0.30)], [uniform(64), with_sink(64, 5, 0.9)]])
    assert float(sinks.sink_rate(maps)) == 0.25
    assert float(sinks.sink_rate(maps, threshold=0.29)) == 0.5
    assert float(sinks.sink_rate(maps, key=5)) == 0.25


def test_delta_logit_leaves_out_self_sink_and_future():
    logits = np.random.default_rng(2).normal(size=(3, 6, 6))
    for key in (0, 2):
        wanted = np.full((3, 6), np.nan)
        for head, t in np.ndindex(3, 6):
            others = [logits[head, t, i] for i in range(t) if i != key]
            if t > key and others:
                wanted[head, t] = logits[head, t, key] - np.mean(others)
        np.testing.assert_allclose(sinks.delta_logit(logits, key=key), wanted, rtol=1e-4)
    masked = np.where(np.tril(np.ones((6, 6))) > 0, logits, -np.inf)
    np.testing.assert_allclose(sinks.delta_logit(masked), sinks.delta_logit(logits))


def test_drain_and_peak_are_relative_to_the_other_tokens():
    norms = np.array([[0.5, 2.0, 4.0, 9.0], [8.0, 2.0, 1.0, 3.0]])
    np.testing.assert_allclose(sinks.value_drain(norms), [0.125, 4.0])
    np.testing.assert_allclose(sinks.residual_peak(norms), [-4.5, 6.0])
    np.testing.assert_allclose(sinks.value_drain(norms, key=3), [4.5, 1.5])


def test_value_norms_are_those_behind_the_output_map():
    values = np.random.default_rng(3).normal(size=(2, 5, 2, 3))
    out = np.random.default_rng(4).normal(size=(4, 3, 7))
    norms = sinks.value_norms(values, out)
    assert norms.shape == (2, 4, 5)
    for text, head, t in np.ndindex(2, 4, 5):
        assert norms[text, head, t] == pytest.approx(np.linalg.norm(values[text, t, head // 2] @ out[head]), rel=1e-4)


def test_a_peak_may_be_gone_in_the_last_layer():
    norms = np.ones((4, 6))
    norms[1:3, 0] = 30.0
    norms[2, 3] = 9.0
    assert sinks.peak_tokens(norms).tolist() == [True, False, False, False, False, False]
    assert sinks.peak_tokens(norms, ratio=8.0).tolist() == [True, False, False, True, False, False]
    assert not sinks.peak_tokens(100 * np.ones((4, 6))).any()  # large everywhere is no peak


def test_planted_sinks_are_found_and_one_without_a_peak_is_reported_apart():
    T = 32
    maps = np.stack([[with_sink(T, 0, 0.8), uniform(T)], [with_sink(T, 9, 0.8), with_sink(T, 0, 0.2)]])
    norms = np.ones((2, T))
    norms[0, 0] = 50.0
    norms[:, T - 1] = 50.0  # a peak at the end, where nobody could look at it
    found = sinks.find_sink_heads(maps, norms)
    assert np.flatnonzero(found.tokens).tolist() == [0, T - 1]
    assert found.heads.tolist() == [[True, False], [False, False]]
    assert np.flatnonzero(found.without_peak).tolist() == [9]
    assert np.isnan(found.received[..., -7:]).all()


@pytest.mark.parametrize(
    "maps, match",
    [
        (with_sink(8, 0, 0.5).T, r"the axes are \[keys, queries\]"),
        (np.full((4, 4), 0.25), "say causal=False"),
        (np.tril(np.ones((4, 4))), "adds up to 4"),
        (0.5 * uniform(4), "adds up to 0.5.*normalised=False"),
        (np.diag([1.0, 1.0, 0.0]), "adds up to 0;"),
        (np.tril(np.random.default_rng(0).normal(size=(4, 4))) * 5, "weights from 0 to 1"),
        (np.tril(np.full((3, 3), np.nan)), "weights from 0 to 1|finite"),
        (np.ones((3, 4)) / 4, "as many of both"),
        (np.ones(3), "as many of both"),
    ],
)
def test_maps_that_cannot_be_are_refused(maps, match):
    with pytest.raises(ValueError, match=match):
        sinks.attention_received(maps)


def test_rows_that_do_not_add_up_are_taken_when_it_is_said():
    maps = 0.5 * uniform(6)
    maps[2] = 0
    np.testing.assert_allclose(sinks.attention_received(maps, normalised=False), by_loops(maps), rtol=1e-5)


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: sinks.attention_received(uniform(4), min_queries=5), "min_queries must be from 1"),
        (lambda: sinks.sink_rate(uniform(4)), "maps must be .layers, heads"),
        (lambda: sinks.sink_rate(uniform(4)[None, None], threshold=30), "threshold must be between 0 and 1"),
        (lambda: sinks.sink_rate(uniform(4)[None, None], key=4), "key must be a position from 0 to 3"),
        (lambda: sinks.value_drain([1.0]), "at least two tokens"),
        (lambda: sinks.peak_tokens([1.0, 2.0]), "norms must be .layers"),
        (lambda: sinks.peak_tokens(np.ones((2, 3)), ratio=0.5), "ratio must be above 1"),
        (lambda: sinks.find_sink_heads(np.ones((1, 1, 4, 4)), np.ones((2, 4))), "of the same model and text"),
        (lambda: sinks.value_norms(np.ones((4, 2, 3)), np.ones((3, 3, 5))), "out must be"),
    ],
)
def test_arguments_that_cannot_be_are_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_measures_work_inside_jit_and_in_half_precision():
    maps = jnp.asarray(with_sink(16, 0, 0.5), jnp.bfloat16)[None, None]
    assert float(jax.jit(sinks.sink_rate)(maps)) == 1
    np.testing.assert_allclose(sinks.attention_received(maps)[0, 0, 0], (1 + 15 * 0.5) / 16, rtol=1e-2)

"""Spans of queries leave out only keys that no query of theirs sees."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import dot_product_attention
from adatemp.attention import _spans
from adatemp.attention._problem import Problem
from adatemp.attention.chunked import ChunkedConfig

MASKS = [
    (23, 23, {"is_causal": True}),
    (60, 20, {"is_causal": True}),
    (20, 60, {"is_causal": True}),
    (60, 20, {"window": (3, 2)}),
    (31, 31, {"window": (0, 0)}),
    (33, 33, {"window": (4, 100), "is_causal": True}),
]


@pytest.fixture
def eager(monkeypatch):
    """Spans wherever there is a mask, however small the problem."""
    monkeypatch.setattr(_spans, "_FROM_BYTES", 0)
    monkeypatch.setattr(_spans, "_WORTH", 0.0)
    jax.clear_caches()
    yield
    jax.clear_caches()


def problem(T, S, is_causal=False, window=None, heads=1):
    query, key = jnp.zeros((1, T, heads, 1)), jnp.zeros((1, S, heads, 1))
    return Problem(query, key, key, is_causal=is_causal, window=window)


@pytest.mark.parametrize(("T", "S", "mask"), MASKS)
@pytest.mark.parametrize("block_q", [1, 4, 50])
def test_every_key_that_a_query_sees_is_in_its_span(eager, T, S, mask, block_q):
    spans = _spans.spans_of(problem(T, S, **mask), None, block_q)
    t, s = np.arange(T)[:, None], np.arange(S)
    seen = np.ones((T, S), bool)
    if mask.get("is_causal"):
        seen &= s <= t
    if "window" in mask:
        seen &= (s >= t - mask["window"][0]) & (s <= t + mask["window"][1])
    assert [span.first for span in spans] == [0, *(span.last for span in spans[:-1])] and spans[-1].last == T
    for span in spans:
        assert 0 <= span.start < span.stop <= S
        assert not np.delete(seen[span.first : span.last], np.s_[span.start : span.stop], axis=1).any()
        assert span.last == T or (span.last - span.first) % block_q == 0


def test_spans_are_for_large_problems_whose_positions_are_known():
    large = problem(8192, 8192, is_causal=True)
    assert len(_spans.spans_of(large, None, 32)) == 4
    work = sum((span.last - span.first) * (span.stop - span.start) for span in _spans.spans_of(large, None, 32))
    assert work == 5 / 8 * 8192**2
    assert len(_spans.spans_of(large.replace(query_offset=jnp.zeros(1, jnp.int32)), None, 32)) == 1
    assert len(_spans.spans_of(large.replace(is_causal=False), None, 32)) == 1
    assert len(_spans.spans_of(large.replace(window=(9000, 0)), None, 32)) > 1
    assert len(_spans.spans_of(problem(8192, 8192, window=(9000, 9000)), None, 32)) == 1
    assert len(_spans.spans_of(problem(256, 256, is_causal=True), None, 32)) == 1


@pytest.mark.parametrize(("T", "S", "mask"), [(23, 23, {"is_causal": True}), (60, 20, {"local_window_size": (3, 2)})])
def test_spans_change_no_value_and_no_gradient(eager, T, S, mask):
    rng = np.random.default_rng(0)

    def array(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    arguments = (array(2, T, 4, 8), array(2, S, 2, 8), array(2, S, 2, 8), array(1, 4, T, S))
    cotangent, seen = array(2, T, 4, 8), jnp.asarray(rng.random((2, 1, 1, S)) > 0.2)

    def measure(implementation, config=None):
        @jax.jit
        def run(*arguments):
            def attend(*arguments):
                output, stats = dot_product_attention(
                    *arguments, seen, return_stats=True, implementation=implementation, config=config, **mask
                )
                return jnp.sum(output * cotangent) + jnp.sum(stats.entropy), (output, stats.entropy, stats.beta)

            return jax.value_and_grad(attend, argnums=(0, 1, 2, 3), has_aux=True)(*arguments)

        return jax.tree.leaves(run(*arguments))

    for one, other in zip(measure("chunked", ChunkedConfig(block_q=4)), measure("dense")):
        # Sums of a few dozen float32 in another order.
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)

"""Exercise 10.3: right states pass in JAX and as the library's, and every planted mistake is named."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from adatemp import RowState, adaptive_temperature_softmax
from adatemp.checks import ch10

LOWEST = -1e15


def unwritten(*_):
    raise NotImplementedError


def state(block):
    live = block > -jnp.inf
    m = jnp.maximum(block.max(-1), LOWEST)
    t = jnp.where(live, block - m[..., None], 0.0)
    e = jnp.where(live, jnp.exp(t), 0.0)
    return m, e.sum(-1), (e * t).sum(-1), (e * t * t).sum(-1)


def merging(first=lambda l, s, d: s + d * l, second=lambda l, s, q, d: q + 2 * d * s + d * d * l, both=True):
    def merge(one, other):
        m = jnp.maximum(one[0], other[0])
        sums = jnp.zeros((3, *m.shape))
        for k, (m_k, l, s, q) in enumerate((one, other)):
            d = (m_k - m) if both or k == 0 else jnp.zeros_like(m)
            sums = sums + jnp.exp(d) * jnp.stack([l, first(l, s, d), second(l, s, q, d)])
        return m, *sums

    return merge


merge = merging()


def unclipped(state):
    m, l, s, q = state
    safe = jnp.where(l > 0, l, 1.0)
    return q / safe - (s / safe) ** 2


def variance(state):
    return jnp.maximum(unclipped(state), 0.0)


def test_the_right_answer_passes():
    assert ch10.ex3(state, merge, variance).require()


def test_the_library_passes():
    assert ch10.ex3(
        lambda block: RowState.from_block(block, second_moment=True),
        RowState.merge,
        lambda state: state.finalise().variance,
    ).require()


def tempered(block):
    _, stats = adaptive_temperature_softmax(block, return_stats=True)
    return state(stats.beta[..., None] * block)


def equally(block):
    """The sums of the unweighted moments, in place of the weighted ones."""
    t = block - block.max(-1, keepdims=True)
    return block.max(-1), jnp.ones(block.shape[:-1]), t.mean(-1), (t * t).mean(-1)


def of_weights(block):
    weights = jnp.exp(block - block.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return block.max(-1), jnp.ones(block.shape[:-1]), weights.mean(-1), (weights**2).mean(-1)


def unshifted(block):
    m = block.max(-1)
    e = jnp.exp(block - m[..., None])
    live = jnp.where(block > -jnp.inf, block, 0.0)
    return m, e.sum(-1), (e * live).sum(-1), (e * live * live).sum(-1)


def careful_unshifted(block):
    kept = jnp.maximum(block, LOWEST)
    m = kept.max(-1)
    e = jnp.where(block > -jnp.inf, jnp.exp(kept - m[..., None]), 0.0)
    live = jnp.where(block > -jnp.inf, block, 0.0)
    return m, e.sum(-1), (e * live).sum(-1), (e * live * live).sum(-1)


def factor_only(one, other):
    return merging(first=lambda l, s, d: s, second=lambda l, s, q, d: q)(one, other)


def far_below(block):
    """A stand-in for the maximum of nothing whose square is not finite in float32."""
    m, *sums = state(block)
    return jnp.where(m == LOWEST, -1e30, m), *sums


def bare(block):
    m = block.max(-1)
    t = block - m[..., None]
    return m, jnp.exp(t).sum(-1), (jnp.exp(t) * t).sum(-1), (jnp.exp(t) * t * t).sum(-1)


def blocks_variances_mixed(one, other):
    """Keeps masses and variances, and forgets the variance between the blocks."""
    m = jnp.maximum(one[0], other[0])
    masses = [jnp.exp(k[0] - m) * k[1] for k in (one, other)]
    total = sum(masses)
    inside = sum(mass * unclipped(k) for mass, k in zip(masses, (one, other)))
    return m, total, 0.0 * total, inside


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, merge, variance), "not written yet"),
        ((state, unwritten, variance), "not written yet"),
        ((state, merge, lambda _: None), "not written yet"),
        ((state, merge, lambda state: variance(state).T), "wrong shape"),
        ((state, merge, lambda state: variance(state) * jnp.nan), "NaN"),
        ((state, merge, lambda state: state[3] / state[1]), "a moment about the maximum"),
        ((state, merge, lambda state: state[3] - state[2] ** 2), "a moment not normalised"),
        ((state, merge, lambda state: (state[3] - state[2] ** 2) / state[1]), "a moment not normalised"),
        ((equally, merge, variance), "equal weights"),
        ((of_weights, merge, variance), "the variance of the weights"),
        ((state, merge, lambda state: jnp.sqrt(variance(state))), "a standard deviation"),
        ((tempered, merge, variance), "the variance of the tempered row"),
        ((state, merge, lambda state: variance(state) / jnp.log(2.0) ** 2), "bits for nats"),
        ((state, merging(second=lambda l, s, q, d: q + d * d * l), variance), "the cross term is missing"),
        ((state, merging(second=lambda l, s, q, d: q + d * s + d * d * l), variance), "half a cross term"),
        ((state, merging(second=lambda l, s, q, d: q + 2 * d * s + d * l), variance), "the shift is not squared"),
        ((state, merging(second=lambda l, s, q, d: q), variance), "the square is not moved"),
        (
            (state, merging(second=lambda l, s, q, d: q - 2 * d * s + d * d * l), variance),
            "a shift with the wrong sign",
        ),
        (
            (state, merging(second=lambda l, s, q, d: q + 2 * d * jnp.exp(d) * (s + d * l) + d * d * l), variance),
            "s updated before q",
        ),
        ((state, merging(first=lambda l, s, d: s), variance), "the first moment is not moved"),
        ((state, blocks_variances_mixed, variance), "variances added up"),
        ((state, merging(both=False), variance), "only one side is moved"),
        ((bare, merge, variance), "0 · (−∞)² or 0/0"),
        ((far_below, merge, variance), "0 · (−∞)² or 0/0"),
        ((careful_unshifted, factor_only, variance), "the moments are not shifted"),
        ((state, merge, unclipped), "a negative variance"),
    ],
)
def test_mistakes_are_named(answer, mistake):
    assert ch10.ex3(*answer).mistake == mistake

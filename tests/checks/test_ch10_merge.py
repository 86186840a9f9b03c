"""Exercise 10.1: right monoids pass in JAX and in NumPy, and every planted mistake is named."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import RowState
from adatemp.checks import ch10

LOWEST = -1e30


def unwritten(*_):
    raise NotImplementedError


def nothing(*_):
    return None


def init(shape):
    return jnp.full(shape, LOWEST), jnp.zeros(shape), jnp.zeros(shape)


def from_block(block):
    live = block > -jnp.inf
    m = jnp.maximum(block.max(-1), LOWEST)
    t = jnp.where(live, block - m[..., None], 0.0)
    e = jnp.where(live, jnp.exp(t), 0.0)
    return m, e.sum(-1), (e * t).sum(-1)


def merging(scale=jnp.exp, first=lambda l, s, d: s + d * l, rescaled=(True, True), top=jnp.maximum):
    """A merge of which one part may be replaced by a mistake."""

    def merge(state, other):
        m = top(state[0], other[0])
        l = s = 0.0
        for (m_k, l_k, s_k), on in zip((state, other), rescaled):
            d = m_k - m
            a = scale(d) if on else 1.0
            l, s = l + a * l_k, s + a * first(l_k, s_k, d)
        return m, l, s

    return merge


merge = merging()


def updating(merge):
    return lambda state, block: merge(state, from_block(block))


update = updating(merge)


def finalise(state):
    m, l, s = state
    some = l > 0
    kept = jnp.where(some, l, 1.0)
    return jnp.where(some, m + jnp.log(kept), -jnp.inf), jnp.where(some, jnp.log(kept) - s / kept, 0.0)


def test_the_right_answer_passes():
    assert ch10.ex1(init, update, merge, finalise).require()


def test_an_update_with_formulas_of_its_own_passes():
    def direct(state, block):
        m, l, s = state
        top = jnp.maximum(m, block.max(-1))
        d, t = m - top, jnp.maximum(block - top[..., None], -1e15)
        e = jnp.where(block > -jnp.inf, jnp.exp(t), 0.0)
        a = jnp.exp(d)
        return top, a * l + e.sum(-1), a * (s + d * l) + (e * t).sum(-1)

    assert ch10.ex1(init, direct, merge, finalise).require()


def test_a_right_answer_in_numpy_with_minus_infinity_and_guards_passes():
    def np_init(shape):
        return np.full(shape, -np.inf), np.zeros(shape), np.zeros(shape)

    def np_merge(a, b):
        m = np.maximum(a[0], b[0])
        parts = [(np.where(k[1] > 0, k[0], -9e9) - np.where(m > -np.inf, m, 0), k) for k in (a, b)]
        l = sum(np.exp(d) * k[1] for d, k in parts)
        s = sum(np.exp(d) * (k[2] + d * k[1]) for d, k in parts)
        return m, l, s

    def np_update(state, block):
        block = np.asarray(block)
        m = block.max(-1)
        t = np.where(block > -np.inf, block - np.where(m > -np.inf, m, 0)[..., None], -9e9)
        return np_merge(state, (m, np.exp(t).sum(-1), (np.exp(t) * t).sum(-1)))

    def np_finalise(state):
        m, l, s = state
        safe = np.where(l > 0, l, 1)
        return np.where(l > 0, m + np.log(safe), -np.inf), np.log(safe) - s / safe

    assert ch10.ex1(np_init, np_update, np_merge, np_finalise).require()


def test_the_library_passes():
    def summary(state):
        return state.finalise()[:2]

    assert ch10.ex1(
        RowState.empty, lambda state, block: state.merge(RowState.from_block(block)), RowState.merge, summary
    ).require()


# Mistakes in the end of the computation.


def in_bits(state):
    lse, entropy = finalise(state)
    return lse, entropy / jnp.log(2.0)


def all_in_bits(state):
    return tuple(part / jnp.log(2.0) for part in finalise(state))


def without_maximum(state):
    lse, entropy = finalise(state)
    return jnp.where(state[1] > 0, lse - state[0], -jnp.inf), entropy


def exchanged(state):
    return finalise(state)[::-1] if float(state[1].sum()) else finalise(state)


def plus_s(state):
    return finalise((state[0], state[1], -state[2]))


def not_divided(state):
    return finalise((state[0], state[1], state[2] * state[1]))


def unguarded(state):
    m, l, s = state
    return m + jnp.log(l), jnp.log(l) - s / l


def guarded_only_for_nothing(state):
    return unguarded(state) if float(state[1].sum()) else finalise(state)


# Mistakes in the state.


def infinite_init(shape):
    return jnp.full(shape, -jnp.inf), jnp.zeros(shape), jnp.zeros(shape)


def zero_init(shape):
    return jnp.zeros(shape), jnp.ones(shape), jnp.zeros(shape)


def guess_one(state):
    """Says what is expected of nothing; the empty state counts as one key."""
    lse, entropy = finalise(state)
    return jnp.where(state[0] == 0, -jnp.inf, lse), entropy


def lenient(merge):
    """An update with the first block taken as it is, so that only later blocks meet the mistake."""

    def update(state, block):
        return merge(state, from_block(block)) if float(state[1].sum()) else from_block(block)

    return update


def first_kept(state, block):
    m, l, s = state
    if not float(l.sum()):
        return from_block(block)
    t = block - m[..., None]
    return m, l + jnp.exp(t).sum(-1), s + (jnp.exp(t) * t).sum(-1)


def naive_infinities(state, block):
    """Finite stand-in at the start, and no care for logits of −∞ afterwards."""
    m = block.max(-1)
    t = block - m[..., None]
    return merge(state, (m, jnp.exp(t).sum(-1), (jnp.exp(t) * t).sum(-1)))


def careless_product(state, block):
    m = jnp.maximum(block.max(-1), LOWEST)
    t = block - m[..., None]
    return merge(state, (m, jnp.exp(t).sum(-1), (jnp.exp(t) * t).sum(-1) if jnp.isfinite(block).any() else 0.0 * m))


def sentinel(state, block):
    """−∞ replaced by the stand-in: a dead row's keys stand at the maximum."""
    kept = jnp.maximum(block, LOWEST)
    m = kept.max(-1)
    t = kept - m[..., None]
    return merge(state, (m, jnp.exp(t).sum(-1), (jnp.exp(t) * t).sum(-1)))


def unshifted_update(state, block):
    m, l, u = state
    top = jnp.maximum(m, block.max(-1))
    live = block > -jnp.inf
    e = jnp.where(live, jnp.exp(jnp.maximum(block - top[..., None], -1e15)), 0.0)
    a = jnp.exp(m - top)
    return top, a * l + e.sum(-1), a * u + (e * jnp.where(live, block, 0.0)).sum(-1)


def unshifted_finalise(state):
    m, l, u = state
    some = l > 0
    kept = jnp.where(some, l, 1.0)
    lse = jnp.where(some, m + jnp.log(kept), -jnp.inf)
    return lse, jnp.where(some, lse - u / kept, 0.0)


def empty_unguarded(state, other):
    """−∞ for the maximum of nothing, and no guard in the merge."""
    bare = [(jnp.where(k[1] > 0, k[0], -jnp.inf), k[1], k[2]) for k in (state, other)]
    return merge(*bare)


def five_keys(state, block):
    """Sums over five keys, whatever the block's length."""
    m, l, s = from_block(block)
    return merge(state, (m, l * (5 / block.shape[-1]), s))


NO_CROSS = {"first": lambda l, s, d: s}
MISTAKES = {
    "cross term": (NO_CROSS, "the cross term is missing"),
    "cross sign": ({"first": lambda l, s, d: s - d * l}, "the cross term has the wrong sign"),
    "cross bare": ({"first": lambda l, s, d: s + d}, "the cross term lacks its sum"),
    "exponent": ({"scale": lambda d: jnp.exp(-d)}, "the exponent's sign"),
    "not rescaled": ({"rescaled": (False, False)}, "the old sums are not rescaled"),
    "old not rescaled": ({"rescaled": (False, True)}, "the old sums are not rescaled"),
    "one side": ({"rescaled": (True, False)}, "only one side is rescaled"),
    "one maximum": ({"top": lambda a, b: b}, "the maximum of one side is kept"),
}


@pytest.mark.parametrize("name", [name for name in MISTAKES if name != "one maximum"])
def test_a_mistake_in_update_is_named(name):
    wrong, mistake = MISTAKES[name]
    assert ch10.ex1(init, lenient(merging(**wrong)), merge, finalise).mistake == mistake


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_in_merge_is_named(name):
    wrong, mistake = MISTAKES[name]
    assert ch10.ex1(init, update, merging(**wrong), finalise).mistake == mistake


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, update, merge, finalise), "not written yet"),
        ((init, unwritten, merge, finalise), "not written yet"),
        ((init, update, nothing, finalise), "not written yet"),
        ((init, update, merge, nothing), "not written yet"),
        ((init, update, merge, lambda state: (None, None)), "not written yet"),
        ((init, update, merge, unguarded), "an empty row without its guard"),
        ((init, update, merge, in_bits), "bits for nats"),
        ((init, update, merge, all_in_bits), "bits for nats"),
        ((init, update, merge, without_maximum), "log-sum-exp without its maximum"),
        ((init, update, merge, exchanged), "the results exchanged"),
        ((init, update, merge, plus_s), "sign of s"),
        ((init, update, merge, not_divided), "s not divided by l"),
        ((zero_init, update, merge, guess_one), "the empty state counts as a key"),
        ((infinite_init, update, merge, finalise), "−∞ − (−∞)"),
        ((init, first_kept, merge, finalise), "the first maximum is kept"),
        ((init, naive_infinities, merge, finalise), "−∞ − (−∞)"),
        ((init, careless_product, merge, finalise), "0 · (−∞)"),
        ((init, update, merge, guarded_only_for_nothing), "a dead row without its guard"),
        ((init, sentinel, merge, finalise), "hidden keys counted as e⁰"),
        ((init, unshifted_update, merge, unshifted_finalise), "the sum is not shifted"),
        ((init, update, empty_unguarded, finalise), "−∞ − (−∞)"),
        ((init, five_keys, merge, finalise), "blocks of one length only"),
        ((init, update, merge, lambda state: finalise(state)[1]), "wrong shape"),
    ],
)
def test_mistakes_are_named(answer, mistake):
    assert ch10.ex1(*answer).mistake == mistake

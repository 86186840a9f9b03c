"""RowState is a commutative monoid from which the row's statistics follow, however the row is cut."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_oracle import masks, oracle, rows

from adatemp import RowState
from adatemp._compat import enable_x64


@jax.jit
def states(z, where):
    """The states of thirds of each row, and of the whole."""
    block = partial(RowState.from_block, second_moment=True)
    thirds = [block(z[:, i : i + 3], where=where[:, i : i + 3]) for i in (0, 3, 6)]
    return thirds, block(z, where=where)


merge = jax.jit(RowState.merge)
finalise = jax.jit(RowState.finalise)


def assert_same(a, b, tolerance):
    for name, x, y in zip(RowState._fields, a, b):
        scale = np.maximum(1, np.abs(y))
        np.testing.assert_array_less(np.abs(x - y) / scale, tolerance, err_msg=name)


@pytest.mark.result("prop-ch10-monoid")
@given(rows(), masks())
def test_merge_is_commutative(z, mask):
    (a, b, _), _ = states(z, mask)
    one, other = jax.device_get((merge(a, b), merge(b, a)))
    # A compiler that contracts a x + b y into one multiply-add rounds one of the products and not the other.
    assert_same(one, other, 3e-7)
    np.testing.assert_array_equal(one.m, other.m)
    np.testing.assert_array_equal(one.count, other.count)


@pytest.mark.result("prop-ch10-monoid")
@given(rows(), masks())
def test_empty_is_the_identity_to_the_bit(z, mask):
    _, whole = states(z, mask)
    empty = RowState.empty((3,), second_moment=True)
    for merged in (merge(whole, empty), merge(empty, whole)):
        for x, y in zip(merged, whole):
            np.testing.assert_array_equal(x, y)


@pytest.mark.result("prop-ch10-monoid")
@given(rows(), masks())
def test_merge_is_associative_and_the_parts_make_the_whole(z, mask):
    (a, b, c), whole = jax.device_get(states(z, mask))
    left, right = jax.device_get((merge(merge(a, b), c), merge(a, merge(b, c))))
    # A few float32 units; sums of e t^2 reach some tens.
    assert_same(left, right, 4e-6)
    assert_same(left, whole, 4e-6)


@given(rows(), masks())
def test_the_end_is_the_definition(z, mask):
    _, whole = states(z, mask)
    summary = jax.device_get(finalise(whole))
    want = oracle(z, mask)
    np.testing.assert_allclose(summary.lse, want.lse, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(summary.entropy, want.entropy, atol=2e-6)
    # q / l - (s / l)^2 with terms up to 40^2.
    np.testing.assert_allclose(summary.variance, want.variance, rtol=1e-5, atol=4e-4)
    np.testing.assert_array_equal(whole.count, mask.sum(-1))


@pytest.mark.result("prop-ch10-merge")
@given(st.permutations(range(8)))
def test_a_row_can_be_read_in_any_order_of_uneven_pieces(order):
    z = np.random.default_rng(0).normal(size=(1, 640)) * 5
    cuts = [0, 3, 10, 11, 100, 300, 301, 500, 640]
    with enable_x64(True):
        pieces = _pieces(z)
        state = RowState.empty((1,), np.float64, second_moment=True)
        for i in order:
            state = merge(state, pieces[i])
        summary = jax.device_get(finalise(state))
    assert len(pieces) == len(cuts) - 1 == len(order)
    want = oracle(z)
    np.testing.assert_allclose(summary.lse, want.lse, rtol=1e-14)
    np.testing.assert_allclose(summary.entropy, want.entropy, atol=1e-13)
    np.testing.assert_allclose(summary.variance, want.variance, rtol=1e-12)


@jax.jit
def _pieces(z):
    cuts = [0, 3, 10, 11, 100, 300, 301, 500, 640]
    return [RowState.from_block(z[:, a:b], second_moment=True) for a, b in zip(cuts, cuts[1:])]


def test_states_at_the_ends_of_the_dtype_merge_without_nan():
    highest = RowState.from_block(np.array([3e38], np.float32), second_moment=True)
    lowest = RowState.from_block(np.array([-3e38], np.float32), second_moment=True)
    dead = RowState.from_block(np.array([-np.inf], np.float32), second_moment=True)
    for state in (merge(highest, lowest), merge(lowest, highest), merge(dead, highest)):
        summary = finalise(state)
        assert [float(x) for x in summary] == pytest.approx([3e38, 0, 0])
    assert [float(x) for x in finalise(merge(dead, dead))] == [-np.inf, 0, 0]


def test_nan_spreads_through_merge_in_its_row_only():
    clean = RowState.from_block(np.ones((2, 3), np.float32))
    spoiled = RowState.from_block(np.array([[1.0, np.nan], [1.0, 2.0]], np.float32))
    entropy = np.asarray(finalise(merge(clean, spoiled)).entropy)
    assert np.isnan(entropy).tolist() == [True, False]


def test_the_gradient_through_pieces_is_that_of_the_whole():
    z = np.random.default_rng(0).normal(size=(1, 9))

    def in_pieces(z):
        parts = [RowState.from_block(z[:, i : i + 3], second_moment=True) for i in (0, 3, 6)]
        summary = parts[0].merge(parts[1]).merge(parts[2]).finalise()
        return jnp.sum(summary.lse + 2 * summary.entropy + 3 * summary.variance)

    with enable_x64(True):
        got = np.asarray(jax.jit(jax.grad(in_pieces))(z))
    p = oracle(z, beta_of=lambda h: 1.0).weights
    c = z - (p * z).sum()
    want = p * (1 - 2 * c + 3 * (c**2 - (p * c**2).sum() + 2 * c))
    np.testing.assert_allclose(got, want, atol=1e-14)


def test_states_with_and_without_the_second_moment_do_not_merge():
    with pytest.raises(ValueError, match="same second_moment="):
        RowState.empty((2,)).merge(RowState.empty((2,), second_moment=True))


def test_an_associative_scan_gives_the_statistics_of_every_prefix():
    z = np.random.default_rng(0).normal(size=12).astype(np.float32)

    @jax.jit
    def prefixes(z):
        keys = RowState.from_block(z[:, None])  # a state a key
        return jax.lax.associative_scan(RowState.merge, keys).finalise().entropy

    want = [oracle(z[: i + 1]).entropy for i in range(12)]
    np.testing.assert_allclose(prefixes(z), want, atol=1e-6)

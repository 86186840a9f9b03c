"""Exercise 01.5: the suspects do what their tables say, right tests pass, and every planted mistake is named."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp.checks import ch01
from adatemp.checks.ch01 import _leaks

BATCH = np.arange(2)


def _table(jacobian, above=0.0):
    return np.asarray((jnp.abs(jacobian) > above).any((2, 3, 6, 7)))[BATCH, :, BATCH, :]


def right(attention, query, key, value, where):
    jacobians = jax.jacobian(attention, argnums=(1, 2))(query, key, value, where)
    return _table(jacobians[0]) | _table(jacobians[1])


@functools.cache
def _jacobians(attention, padded=True):
    """Jacobians in query, key and value at the example: the planted mistakes share them."""
    *arrays, where = ch01.example()
    return jax.jit(jax.jacobian(attention, argnums=(0, 1, 2)))(*arrays, where if padded else jnp.ones_like(where))


def _partly(attention, arguments=(1, 2), above=0.0, padded=True):
    return np.any([_table(_jacobians(attention, padded)[i], above) for i in arguments], axis=0)


def right_by_planting(attention, query, key, value, where):
    """No derivative: one position of key and value is changed at a time, by a lot."""
    before = np.asarray(attention(query, key, value, where))
    table = np.zeros((2, 6, 6), bool)
    for b in range(2):
        for s in range(6):
            for scale in (0.5, 2.0):
                changed = [np.array(x) for x in (key, value)]
                for array, shift in zip(changed, (scale, 1.7 * scale)):
                    array[b, s] += shift * np.arange(1, 4)
                for k, v in ((changed[0], value), (key, changed[1])):
                    moved = (np.asarray(attention(query, k, v, where)) != before).any((2, 3))
                    table[b, :, s] |= moved[b]
    return table


def stub(attention, query, key, value, where): ...


def magnitudes(attention, query, key, value, where):
    _, keys, values = _jacobians(attention)
    return np.asarray(jnp.abs(keys).sum((2, 3, 6, 7)) + jnp.abs(values).sum((2, 3, 6, 7)))[BATCH, :, BATCH, :]


def transposed(attention, *inputs):
    return _partly(attention).swapaxes(1, 2)


def leaks_only(attention, query, key, value, where):
    return _partly(attention) & ~promise(attention, query, key, value, where)


def no_padding(attention, *inputs):
    return _partly(attention, padded=False)


def with_query(attention, *inputs):
    return _partly(attention, (0, 1, 2))


def values_only(attention, *inputs):
    return _partly(attention, (2,))


def keys_only(attention, *inputs):
    return _partly(attention, (1,))


def promise(attention, query, key, value, where):
    return np.tril(np.ones((6, 6), bool)) & np.asarray(where)[:, None, :]


def summed(attention, query, key, value, where):
    def total(*inputs):
        return attention(*inputs).sum((2, 3), keepdims=True)

    return right(total, query, key, value, where)


def tolerant(attention, *inputs):
    return _partly(attention, above=1e-3)


def first_sequence(attention, *inputs):
    return np.broadcast_to(_partly(attention)[:1], (2, 6, 6))


def without_batch(attention, *inputs):
    return _partly(attention).any(0)


MISTAKES = {
    stub: "not written yet",
    magnitudes: "magnitudes in place of yes or no",
    transposed: "transposed",
    leaks_only: "only leaks reported",
    no_padding: "padding never switched on",
    with_query: "query counted, so a strict mask goes unseen",
    values_only: "looked at weights only",
    keys_only: "looked at keys only",
    promise: "expected mask returned",
    summed: "summed before differentiating",
    tolerant: "small derivatives taken for 0",
    first_sequence: "one sequence for all",
    without_batch: "wrong shape",
}


@pytest.mark.parametrize("depends_on", [right, right_by_planting])
def test_right_tests_pass(depends_on):
    ch01.ex5(depends_on).require()


@pytest.mark.parametrize(("depends_on", "name"), MISTAKES.items(), ids=lambda x: getattr(x, "__name__", None))
def test_planted_mistakes_are_named(depends_on, name):
    assert ch01.ex5(depends_on).mistake == name


def test_a_test_of_weights_misses_exactly_the_two_leaks_of_masked_keys():
    """Both suspects give masked keys weight 0; for the other three the weights tell everything."""
    inputs, truth = ch01.example(), _leaks.tables()
    missed = [name for name, f in ch01.suspects().items() if (values_only(f, *inputs) != truth[name]).any()]
    assert missed == ["A", "C"]


@pytest.mark.parametrize("name", "ABCDE")
def test_outputs_of_the_suspects_are_finite_and_the_honest_one_agrees_with_jax(name):
    query, key, value, where = ch01.example()
    out = ch01.suspects()[name](query, key, value, where)
    assert out.shape == query.shape and bool(jnp.isfinite(out).all())
    wanted = jax.nn.dot_product_attention(query, key, value, mask=where[:, None, None, :], is_causal=True)
    # float32 sums of six terms of order ten; row 0 of the first sequence sees nothing, where jax.nn averages
    assert np.allclose(out.at[0, 0].set(0), wanted.at[0, 0].set(0), atol=1e-5) == (name == "B")


def test_the_example_holds_what_its_docstring_says():
    query, key, value, where = (np.asarray(x) for x in ch01.example())
    assert query.shape == key.shape == value.shape == (2, 6, 2, 3) and where.shape == (2, 6)
    assert where.tolist() == [[False] + [True] * 5, [True] * 4 + [False] * 2]
    assert not value[0].sum(-1).any() and (value[0] == np.round(value[0])).all() and value[1].sum(-1).all()
    logits = np.einsum("tnh,snh->nts", query[0], key[0]) / np.sqrt(3.0)
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert 1e-6 < weights[..., 1].max() < 1e-3


def test_the_report_draws_the_five_tables():
    shown = ch01.ex5(values_only)._repr_html_()
    assert "<svg" in shown and "Entries beyond the promise" in shown

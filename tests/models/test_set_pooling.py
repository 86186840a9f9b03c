"""The set-pooling head equals the model written out map by map, in values and gradients, under any weights."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from adatemp._compat import enable_x64
from adatemp.models.set_pooling import SetPooling, load_head, save_head
from adatemp.tasks.max_retrieval import sample
from adatemp.temperature import PAPER, constant

CLASSES, WIDTH = 4, 8


@functools.cache  # nothing here changes a head
def head_and_sets(dtype=jnp.float32, scale=3.0):
    """A head with biases that are not 0 and logits far from uniform, so that no term can hide."""
    head = SetPooling(classes=CLASSES, width=WIDTH, rngs=nnx.Rngs(1))
    state = nnx.state(head)
    rng = np.random.default_rng(2)
    noisy = jax.tree.map(lambda x: jnp.asarray(scale * (np.asarray(x) + 0.2 * rng.normal(size=x.shape)), dtype), state)
    nnx.update(head, noisy)
    return head, sample(jax.random.key(3), 5, 9, classes=CLASSES, min_items=4)


def direct(head, items, query, where, beta=1.0):
    """The model map by map, every item through every layer, in float64 numpy: logits and class logits."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), nnx.to_pure_dict(nnx.state(head)))

    def layer(name, x):
        return x @ p[name]["kernel"] + p[name].get("bias", 0.0)

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    items, query = np.asarray(items, np.float64), np.asarray(query, np.float64)
    item = layer("item_out", gelu(layer("item_in", items)))
    asked = layer("query", layer("query_out", gelu(layer("query_in", query))))
    logits = np.einsum("bnw,bw->bn", layer("key", item), asked) / np.sqrt(WIDTH)
    exp = np.where(where, np.exp(beta * (logits - logits.max(-1, keepdims=True, where=where, initial=-np.inf))), 0)
    weights = exp / exp.sum(-1, keepdims=True)
    pooled = np.einsum("bn,bnw->bw", weights, layer("value", item))
    return logits, weights, layer("read_out", gelu(layer("read_in", pooled)))


def test_moved_linear_maps_change_rounding_alone():
    """float32 through nine layers: 2e-5 relative is some 200 units in the last place."""
    head, sets = head_and_sets()
    logits, weights, classes = direct(head, sets.items, sets.query, np.asarray(sets.where))
    tolerance = dict(rtol=2e-5, atol=2e-5 * np.abs(logits).max())
    np.testing.assert_allclose(head.logits(sets.items, sets.query), logits, **tolerance)
    got = head.pool_and_classify(sets.items, jnp.asarray(weights, jnp.float32))
    np.testing.assert_allclose(got, classes, rtol=2e-5, atol=2e-5 * np.abs(classes).max())
    got = head(sets.items, sets.query, sets.where)
    # Errors of the logits, about 1e-5, enter the weights as relative errors.
    np.testing.assert_allclose(got, classes, rtol=2e-4, atol=2e-4 * np.abs(classes).max())


def test_the_gradient_is_that_of_the_model_map_by_map():
    """Central differences of the float64 oracle along random directions; with step 1e-5 they err by about 1e-9."""
    head, sets = head_and_sets(scale=1.0)
    where = np.asarray(sets.where)
    mix = np.asarray(jax.random.normal(jax.random.key(9), (5, CLASSES)), np.float64)
    graph, state = nnx.split(head)

    def objective(state):
        return jnp.sum(nnx.merge(graph, state)(sets.items, sets.query, sets.where) * mix)

    gradient = jax.tree.leaves(nnx.to_pure_dict(jax.grad(objective)(state)))
    leaves, structure = jax.tree.flatten(nnx.to_pure_dict(state))
    rng = np.random.default_rng(0)
    for _ in range(5):
        direction = [rng.normal(size=leaf.shape) for leaf in leaves]

        def along(step, direction=direction):
            moved = structure.unflatten([np.asarray(a, np.float64) + step * d for a, d in zip(leaves, direction)])
            return (direct(Planted(moved), sets.items, sets.query, where)[2] * mix).sum()

        expected = (along(1e-5) - along(-1e-5)) / 2e-5
        got = sum((np.asarray(g, np.float64) * d).sum() for g, d in zip(gradient, direction))
        scale = np.sqrt(sum((np.asarray(g, np.float64) ** 2).sum() for g in gradient))
        assert abs(got - expected) < 1e-4 * scale


class Planted(nnx.Module):
    """A tree of float64 parameters where `direct` expects a head."""

    def __init__(self, parameters):
        for name, layer in parameters.items():
            setattr(self, name, nnx.data({key: nnx.Param(value) for key, value in layer.items()}))


def test_items_that_do_not_exist_take_no_part():
    head, sets = head_and_sets()
    spoiled = jnp.where(sets.where[..., None], sets.items, 1e3)
    np.testing.assert_array_equal(head(sets.items, sets.query, sets.where), head(spoiled, sets.query, sets.where))
    alone = [head(sets.items[b : b + 1, :size], sets.query[b : b + 1]) for b, size in enumerate(sets.where.sum(-1))]
    np.testing.assert_allclose(head(sets.items, sets.query, sets.where), jnp.concatenate(alone), rtol=1e-4, atol=1e-4)


def test_the_order_of_the_items_does_not_matter():
    head, sets = head_and_sets()
    order = jax.random.permutation(jax.random.key(0), 9)
    np.testing.assert_allclose(
        head(sets.items[:, order], sets.query, sets.where[:, order]),
        head(sets.items, sets.query, sets.where),
        rtol=1e-4,
        atol=1e-4,
    )


def test_a_rule_sharpens_and_reports():
    head, sets = head_and_sets()
    *_, expected = direct(head, sets.items, sets.query, np.asarray(sets.where), beta=2.0)
    got, stats = head(sets.items, sets.query, sets.where, temperature=constant(beta=2.0), return_stats=True)
    np.testing.assert_allclose(got, expected, rtol=3e-4, atol=3e-4 * np.abs(expected).max())
    assert (stats.beta == 2).all()
    _, stats = head(sets.items, sets.query, sets.where, temperature=PAPER, return_stats=True)
    assert stats.entropy.shape == (5,) and (stats.beta >= 1).all()


def test_several_rows_of_weights_are_read_as_one_by_one():
    head, sets = head_and_sets()
    weights = jax.nn.softmax(jax.random.normal(jax.random.key(4), (3, 5, 9)))
    together = head.pool_and_classify(sets.items, weights)
    for row, expected in zip(weights, together):
        np.testing.assert_allclose(head.pool_and_classify(sets.items, row), expected, rtol=1e-4, atol=1e-4)


def test_one_hot_weights_read_a_single_item():
    head, sets = head_and_sets()
    one_hot = jax.nn.one_hot(jnp.full(5, 2), 9)
    np.testing.assert_allclose(
        head.pool_and_classify(sets.items, one_hot),
        head.pool_and_classify(sets.items[:, 2:3], jnp.ones((5, 1))),
        rtol=1e-4,
        atol=1e-4,
    )


def test_x64_is_respected():
    with enable_x64(True):
        head, sets = head_and_sets(jnp.float64)
        logits, *_ = direct(head, sets.items, sets.query, np.asarray(sets.where))
        got = head.logits(jnp.asarray(sets.items, jnp.float64), jnp.asarray(sets.query, jnp.float64))
        np.testing.assert_allclose(got, logits, rtol=1e-11, atol=1e-11 * np.abs(logits).max())


def test_a_saved_head_comes_back_with_its_sizes(tmp_path):
    head, sets = head_and_sets()
    save_head(tmp_path / "head.npz", head, seed=3)
    loaded = load_head(tmp_path / "head.npz")
    np.testing.assert_array_equal(loaded(sets.items, sets.query), head(sets.items, sets.query))
    with pytest.raises(FileNotFoundError):
        load_head(tmp_path / "none.npz")

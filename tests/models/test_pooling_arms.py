"""Relatives of the set-pooling head: logits as their formulas say, norms that bound, keys that see no class."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from adatemp import dispersion
from adatemp.models.pooling_arms import NormedPooling, PriorityPooling, rms_norm, vectors
from adatemp.models.set_pooling import SetPooling
from adatemp.tasks.max_retrieval import sample

KINDS = (SetPooling, NormedPooling, PriorityPooling)
WIDTH = 16


def head_of(kind, scale=1.0):
    head, draw = kind(width=WIDTH, rngs=nnx.Rngs(3)), np.random.default_rng(0)
    for layer in (head.item_out, head.query_out, *((head.key_out,) if kind is PriorityPooling else ())):
        layer.bias[...] = jnp.asarray(draw.normal(size=WIDTH), jnp.float32)  # at 0 no forgotten term would show
    if kind is NormedPooling:
        head.query_gain[...] = jnp.asarray(scale * draw.normal(size=WIDTH), jnp.float32)
        head.key_gain[...] = jnp.asarray(draw.normal(size=WIDTH), jnp.float32)
    return head


@pytest.fixture(scope="module")
def sets():
    return sample(jax.random.key(0), 3, 7)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_products_of_the_vectors(kind, sets):
    """The folded order of the module against the products written out, in float64 from the vectors on."""
    head = head_of(kind)
    found = vectors(head, sets.items, sets.query)
    query, keys = np.asarray(found.query, np.float64), np.asarray(found.keys, np.float64)
    expected = np.einsum("bnw,bw->bn", keys, query) / np.sqrt(WIDTH)
    # A few float32 products of width 16 in another order.
    np.testing.assert_allclose(head.logits(sets.items, sets.query), expected, rtol=1e-4, atol=1e-5)
    if kind is not NormedPooling:
        for inputs, out, layer in (
            (found.query_input, found.query, head.query),
            (found.item_inputs, found.keys, head.key),
        ):
            np.testing.assert_allclose(inputs @ layer.kernel[...], out, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_and_in_parts_are_the_same(kind, sets):
    head = head_of(kind)
    weights = jax.nn.softmax(head.logits(sets.items, sets.query))
    np.testing.assert_allclose(
        head(sets.items, sets.query), head.pool_and_classify(sets.items, weights), rtol=1e-5, atol=1e-6
    )


def test_kernels_cannot_lift_a_normed_head_above_its_ceiling(sets):
    head = head_of(NormedPooling, scale=0.5)
    ceiling = dispersion.qk_norm_ceiling(head.query_gain[...], head.key_gain[...])
    for factor in (1.0, 100.0):
        head.query.kernel[...] *= factor
        head.key.kernel[...] *= factor
        assert jnp.ptp(head.logits(sets.items, sets.query), axis=-1).max() <= ceiling
    assert jnp.linalg.norm(rms_norm(jnp.arange(5.0))) <= np.sqrt(5)


def test_keys_of_the_priority_head_see_no_class_and_its_values_do(sets):
    head = head_of(PriorityPooling)
    other = jnp.concatenate([sets.items[..., :1], jnp.roll(sets.items[..., 1:], 1, axis=-1)], axis=-1)
    np.testing.assert_array_equal(head.logits(sets.items, sets.query), head.logits(other, sets.query))
    assert not np.allclose(head(sets.items, sets.query), head(other, sets.query))

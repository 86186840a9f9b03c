"""What is left of a model when heads are taken out."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from adatemp.models import Transformer, presets
from adatemp.models.ablation import without_heads

TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 11, (2, 8)))


@pytest.fixture(scope="module")
def model():
    return Transformer(presets.toy(vocabulary=11, layers=2, width=12, heads=3, bias=True), rngs=nnx.Rngs(0))


def test_a_model_without_any_head_is_one_whose_attention_gives_nothing(model):
    """The oracle is another attention function, which returns zeros whatever it is asked."""
    every = [(layer, head) for layer in range(2) for head in range(3)]
    nothing = model(TOKENS, attention=lambda query, key, value, *rest, **options: jnp.zeros_like(query))
    np.testing.assert_allclose(without_heads(model, every)(TOKENS), nothing, atol=1e-6)


def test_one_head_is_taken_out_and_the_others_stay(model):
    def attention(query, key, value, *rest, **options):
        from adatemp import dot_product_attention

        out = dot_product_attention(query, key, value, *rest, **options)
        attention.calls += 1
        return out.at[:, :, 2].set(0) if attention.calls == 2 else out  # the second layer's last head

    attention.calls = 0
    wanted = model(TOKENS, attention=attention)
    np.testing.assert_allclose(without_heads(model, [(1, 2)])(TOKENS), wanted, atol=1e-6)


def test_the_model_itself_stays(model):
    before = model(TOKENS)
    changed = without_heads(model, [(0, 1)])(TOKENS)
    np.testing.assert_array_equal(model(TOKENS), before)
    assert jnp.abs(changed - before).max() > 1e-3


@pytest.mark.parametrize("head", [(2, 0), (0, 3), (-1, 0), (0, -1)])
def test_a_head_that_is_not_there_is_refused(model, head):
    with pytest.raises(ValueError, match="heads: there is no head"):
        without_heads(model, [head])

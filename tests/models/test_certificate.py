"""Certified radii and spreads of whole models: neither tokens in any number nor an attack get past them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from adatemp import dot_product_attention
from adatemp.models import Transformer, presets
from adatemp.models.certificate import certify

SMALL = dict(vocabulary=13, layers=2, width=12, heads=4, head_width=6, key_heads=2, mlp_width=10)
CONFIGS = {
    "gpt": presets.gpt(**SMALL, context=300),
    "bert": presets.bert(**SMALL, context=300),
    "gemma 2": presets.gemma(2, **SMALL, attention_soft_cap=2.0),
    "gemma 3": presets.gemma(3, **SMALL),
    "parallel, gated with biases": presets.toy(
        **SMALL, positions="sinusoidal", parallel=True, mlp="gated", activation="tanh", bias=True
    ),
    "no norm": presets.toy(**SMALL, positions="none", norm="none", activation="relu"),
    "no residual, no epsilon": presets.toy(
        **SMALL, positions="none", residual=False, norm_epsilon=0.0, qk_norm="layer", norm_place="both"
    ),
}


@functools.cache
def model_of(name):
    model = Transformer(CONFIGS[name], rngs=nnx.Rngs(0))
    draw = np.random.default_rng(1)
    nnx.update(model, jax.tree.map(lambda x: x + 0.3 * draw.normal(size=x.shape).astype("f4"), nnx.state(model)))
    return model, certify(model)


@pytest.mark.result("thm-ch04-radii")
@pytest.mark.parametrize("name", CONFIGS)
def test_measured_radii_and_spreads_stay_below_the_certificate_for_any_number_of_tokens(name):
    model, certificate = model_of(name)
    capture = jax.jit(lambda tokens: model(tokens, capture=True)[1])
    for n in (3, 300):
        captured = capture(np.random.default_rng(n).integers(0, 13, (2, n)))
        for got, bound in [(captured.hidden, certificate.hidden), (captured.inputs, certificate.inputs)]:
            assert (jnp.linalg.norm(got, axis=-1).max((1, 2)) <= bound * (1 + 1e-5)).all()
        assert (captured.spread.max((1, 2)) <= certificate.spread * (1 + 1e-5)).all()


@pytest.mark.result("thm-ch04-radii")
@pytest.mark.parametrize("name", ["gpt", "gemma 2", "no norm", "no residual, no epsilon"])
def test_no_ascent_on_the_embeddings_gets_past_the_certificate(name):
    """Any vectors in the ball of the embeddings, moved to make each layer's norms and spreads larger."""
    model, certificate = model_of(name)
    radius = certificate.hidden[0]
    attend = dot_product_attention

    def shares(x):
        x = x * radius / jnp.maximum(radius, jnp.linalg.norm(x, axis=-1, keepdims=True))
        captured = model.run(x, attend=functools.partial(attend, temperature=None), capture=True)[2]
        hidden = jnp.linalg.norm(captured.hidden, axis=-1).max((1, 2)) / certificate.hidden
        return hidden, captured.spread.max((1, 2)) / certificate.spread

    @jax.jit
    def climb(x):
        gradient = jax.grad(lambda x: sum(jnp.sum(jnp.log(share + 1e-9)) for share in shares(x)))(x)
        return x + 0.1 * radius * gradient / (1e-9 + jnp.linalg.norm(gradient, axis=-1, keepdims=True)), shares(x)

    x = jnp.asarray(np.random.default_rng(0).normal(size=(8, 5, 12)), jnp.float32)
    best = 0.0
    for _ in range(40):
        x, (hidden, spread) = climb(x)
        assert hidden.max() <= 1 + 1e-5 and spread.max() <= 1 + 1e-5
        best = max(best, float(spread.max()))
    assert best > 0.2  # a bound on the worst case of every map at once, and yet not empty


def test_alibi_has_no_certificate_for_its_spread():
    model = Transformer(presets.toy(**SMALL, positions="alibi"), rngs=nnx.Rngs(0))
    assert np.isinf(certify(model).spread).all() and np.isfinite(certify(model).hidden).all()

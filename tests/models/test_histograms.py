"""A model on histograms is the model on tokens, and needs no tokens."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from adatemp import dispersion
from adatemp.models import Transformer, histograms, presets
from adatemp.models.certificate import certify

SMALL = dict(vocabulary=7, layers=2, width=12, heads=4, head_width=6, mlp_width=10, context=None, causal=False)


def model_of(**changes):
    model = Transformer(presets.toy(**SMALL | dict(positions="none") | changes), rngs=nnx.Rngs(0))
    draw = np.random.default_rng(1)
    nnx.update(model, jax.tree.map(lambda x: x + 0.3 * draw.normal(size=x.shape).astype("f4"), nnx.state(model)))
    return model


def run(model, counts):
    return jax.jit(lambda counts: histograms.run(model, counts))(jnp.asarray(counts))


@pytest.mark.result("prop-ch04-histogram")
@pytest.mark.parametrize(
    "changes", [dict(key_heads=2, norm="rms", mlp="gated", attention_soft_cap=3.0, scale=0.7, norm_epsilon=0.0)]
)
def test_histograms_give_what_the_tokens_give(changes):
    """Symbol 4 does not occur; every other symbol's row is compared at one of its tokens."""
    model = model_of(**changes)
    tokens = np.random.default_rng(0).choice([0, 1, 2, 3, 5, 6], size=(3, 40))
    counts = np.stack([np.bincount(row, minlength=7) for row in tokens])
    rows = run(model, counts)
    logits, captured = jax.device_get(jax.jit(lambda tokens: model(tokens, capture=True))(jnp.asarray(tokens)))
    for batch, row in enumerate(tokens):
        for symbol in set(row):
            at = int(np.flatnonzero(row == symbol)[0])
            np.testing.assert_allclose(rows.logits[batch, symbol], logits[batch, at], atol=2e-5)
            np.testing.assert_allclose(rows.hidden[:, batch, symbol], captured.hidden[:, batch, at], atol=2e-5)
            np.testing.assert_allclose(rows.spread[:, batch, symbol], captured.spread[:, batch, at], rtol=1e-4)
            np.testing.assert_allclose(rows.entropy[:, batch, symbol], captured.stats.entropy[:, batch, at], rtol=1e-4)


@pytest.mark.result("prop-ch04-histogram")
def test_the_weights_of_all_tokens_sum_to_one_and_a_multiple_divides_them():
    model = model_of()
    counts = jnp.asarray(np.random.default_rng(0).integers(0, 9, (4, 7)).astype("f4")).at[:, 0].set(1)
    once, often = run(model, counts), run(model, counts * 2.0**30)
    np.testing.assert_allclose((once.weight * counts[:, None, None]).sum(-1), 1, rtol=1e-5)
    assert (jnp.where(counts[:, None, None] == 0, once.weight, 0) == 0).all()
    np.testing.assert_allclose(often.weight * 2.0**30, once.weight, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(often.hidden, once.hidden, atol=1e-4)
    np.testing.assert_allclose(often.spread, once.spread, rtol=1e-4)
    np.testing.assert_allclose(often.entropy - once.entropy, 30 * np.log(2), rtol=1e-4)


@pytest.mark.result("cor-ch04-size")
def test_at_any_number_of_tokens_rows_keep_to_the_certificate_and_its_tight_bound():
    model = model_of()
    certificate = certify(model)
    for n in (10.0, 1e4, 1e12):
        shares = np.random.default_rng(int(np.log10(n))).dirichlet(0.3 * np.ones(7), 64)
        counts = 1 + np.floor(shares * n)
        rows = run(model, counts)
        assert (rows.spread.max((1, 2)) <= certificate.spread * (1 + 1e-5)).all()
        assert (jnp.linalg.norm(rows.hidden, axis=-1).max((1, 2)) <= certificate.hidden * (1 + 1e-5)).all()
        total = np.asarray(counts, np.float64).sum(-1)[:, None, None]
        bound = dispersion.weight_bounds(total, np.asarray(rows.spread, np.float64))[1]
        assert (rows.weight.max(-1) <= bound * (1 + 1e-4)).all()


@pytest.mark.parametrize("changes", [dict(positions="rotary"), dict(causal=True), dict(windows=(4,))])
def test_a_model_that_tells_tokens_of_one_symbol_apart_is_refused(changes):
    with pytest.raises(ValueError, match="tokens of one symbol must be alike"):
        histograms.run(model_of(**changes), jnp.ones((1, 7)))

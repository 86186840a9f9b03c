"""The rows of the last token are those that the model attends by."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from adatemp import PAPER, constant
from adatemp.models import Transformer, presets
from adatemp.models.rows import last_rows, row_measures

TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 13, (2, 9)))


def model(**changes):
    fields = dict(vocabulary=13, layers=3, width=24, heads=6, context=16) | changes
    return Transformer(presets.toy(**fields), rngs=nnx.Rngs(1))


@pytest.mark.parametrize("changes", [{}, {"key_heads": 2, "positions": "rotary"}, {"scale": 0.7, "qk_norm": "rms"}])
@pytest.mark.parametrize("rule", [None, PAPER, constant(3.0)], ids=["plain", "paper", "constant"])
def test_the_rows_have_the_entropy_and_spread_that_the_layers_report(changes, rule):
    """Entropy and spread as `capture` gives them come from streamed rows, not from these."""
    made = model(**changes)
    rows = last_rows(made, TOKENS, temperature=rule)
    _, captured = made(TOKENS, temperature=rule, capture=True)
    assert rows.shape == (3, 2, 6, 9)
    measured = row_measures(rows)
    np.testing.assert_allclose(measured["spread"], captured.spread[:, :, -1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.nn.logsumexp(rows, -1), captured.stats.lse[:, :, -1], rtol=1e-4, atol=1e-5)
    if rule is None:
        # Without a rule the layers report no entropy of their own: that of the weights is the oracle.
        weights = np.asarray(jax.nn.softmax(rows, -1), np.float64)
        np.testing.assert_allclose(measured["entropy"], -(weights * np.log(weights)).sum(-1), atol=1e-5)
    else:
        np.testing.assert_allclose(measured["entropy"], captured.stats.entropy[:, :, -1], atol=1e-5)


def test_measures_of_a_row_that_is_known():
    measured = row_measures(jnp.log(jnp.array([0.5, 0.25, 0.25])) + 100)
    wanted = {"entropy": 1.5 * np.log(2), "spread": np.log(2), "top_weight": 0.5, "first_weight": 0.5}
    for name, value in wanted.items():
        np.testing.assert_allclose(measured[name], value, rtol=1e-5)


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"causal": False}, "causal"),
        ({"windows": (None, 4)}, "windows"),
        ({"attention_soft_cap": 5.0}, "attention_soft_cap"),
        ({"positions": "alibi"}, "positions"),
    ],
)
def test_a_model_whose_rows_would_be_others_is_refused(changes, name):
    with pytest.raises(ValueError, match=f"model: .*{name} adds to it"):
        last_rows(model(**changes), TOKENS)


def test_rows_leave_a_compiled_function():
    made = model()
    graph, state = nnx.split(made)
    compiled = jax.jit(lambda state: last_rows(nnx.merge(graph, state), TOKENS))
    np.testing.assert_allclose(compiled(state), last_rows(made, TOKENS), atol=1e-5)

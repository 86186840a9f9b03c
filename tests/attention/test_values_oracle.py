"""The entropy by another road: H = lse - scale <q, attention(q, k, v := k)>, from plain attention alone.

The mean of the logits z_s = scale <q, k_s> under the weights is scale <q, sum_s p_s k_s>, and that sum is what
attention returns when the values are the keys. No definition of entropy is used, nor anything the size of the logits,
so the check serves at any length and on any device.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from calls import draw
from implementations import IMPLEMENTATIONS, compiled

from adatemp import dot_product_attention

OPTIONS = {
    "all keys": {},
    "causal": {"is_causal": True},
    "window and lengths": {
        "local_window_size": (9, 3),
        "key_value_seq_lengths": np.array([40, 29]),
        "query_seq_lengths": np.array([24, 0]),
    },
    "segments": {"segment_ids": (np.arange(24)[None].repeat(2, 0) // 9, np.arange(40)[None].repeat(2, 0) // 17)},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_entropy_is_what_attention_over_the_keys_themselves_says(implementation, options):
    arrays, where = draw(24, 40, N=4, K=2, B=2), IMPLEMENTATIONS[implementation] | OPTIONS[options]
    scale = 0.4

    def two_roads(query, key, value):
        mean_key, stats = dot_product_attention(
            query, key, key, scale=scale, temperature=None, return_stats=True, **where
        )
        _, of_paper = dot_product_attention(query, key, value, scale=scale, return_stats=True, **where)
        return mean_key, stats, of_paper

    mean_key, stats, of_paper = compiled(two_roads, *arrays.values())(*arrays.values())
    live = ~np.isneginf(stats.lse)
    expected = np.where(live, stats.lse, 0) - scale * np.sum(np.float64(arrays["query"]) * np.float64(mean_key), -1)
    # lse and the mean are each as large as the logits, about 10, and have float32's units of that.
    np.testing.assert_allclose(of_paper.entropy[live], expected[live], atol=1e-5)
    assert np.all(of_paper.entropy[~live] == 0)
    assert np.mean(live) > 0.4 and np.max(of_paper.entropy) > 1


def test_the_other_road_is_the_definition():
    """On one row by hand: weights 1/2, 1/4, 1/4 have entropy 1.5 log 2."""
    key = jnp.log(jnp.array([2.0, 1.0, 1.0]))[None, :, None, None]
    query = jnp.ones((1, 1, 1, 1))
    mean_key, stats = dot_product_attention(query, key, key, scale=1.0, temperature=None, return_stats=True)
    assert float(stats.lse[0, 0, 0] - mean_key[0, 0, 0, 0]) == pytest.approx(1.5 * np.log(2), abs=1e-6)

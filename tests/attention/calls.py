"""Small calls of attention: arrays in a dict, results as `oracle.Rows`, gradients beside them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import plain
from implementations import IMPLEMENTATIONS
from rules import published

from adatemp import dot_product_attention


def attend(implementation: str, **options):
    """Attention as a function of a dict of arrays that returns `oracle.Rows`."""
    options = IMPLEMENTATIONS[implementation] | options

    def function(arrays):
        names = [name for name in arrays if name not in ("query", "key", "value")]
        output, stats = dot_product_attention(
            arrays["query"],
            arrays["key"],
            arrays["value"],
            **{name: arrays[name] for name in names},
            return_stats=True,
            **options,
        )
        return oracle.Rows(output, stats.entropy, stats.beta, stats.lse, stats.lse_scaled)

    return function


def with_gradients(function):
    return lambda arrays, cotangents: plain.values_and_gradients(function, arrays, cotangents)


def draw(T, S, N=2, K=1, H=8, V=8, B=1, seed=0, spread=2.0, dtype="float32"):
    rng = np.random.default_rng(seed)
    shapes = {"query": (B, T, N, H), "key": (B, S, K, H), "value": (B, S, K, V)}
    arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    arrays["query"] *= spread
    return {name: jnp.asarray(array, dtype) for name, array in arrays.items()}


def cotangents_of(arrays, seed=1):
    query, value = arrays["query"], arrays["value"]
    rng = np.random.default_rng(seed)
    output = jnp.asarray(rng.normal(size=(*query.shape[:3], value.shape[3])), query.dtype)
    return oracle.Rows(output, *(jnp.asarray(rng.normal(size=query.shape[:3]), jnp.float32) for _ in range(4)))


def assert_equal_bits(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def published_rows(rows, parameters):
    """The published map for `plain.attention`."""
    return published(rows, parameters, jnp)

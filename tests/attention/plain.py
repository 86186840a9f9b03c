"""Plain dense attention for gradients: the definitions once more as one differentiable function, for `jax.grad`.

In float64 it is the reference of every gradient, and `test_oracle.py` holds it against `oracle.py` and against central
differences. In float16 and bfloat16 it is the naive form, whose error is the yardstick in those dtypes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from oracle import Rows, visible


class RowArrays(NamedTuple):
    """What a rule may read, [B, T, N], and the logits [B, T, N, S] with the mask of those that are seen."""

    logits: jax.Array
    seen: np.ndarray
    count: np.ndarray
    entropy: jax.Array
    variance: jax.Array
    position: np.ndarray


def attention(arrays: dict, options: dict, beta_of=None) -> Rows:
    """Output and statistics, in whatever dtype the arrays have. Dead rows: 0, 0, 1, -inf, -inf.

    Args:
        arrays: query, key, value and, where there are any, bias, sink, and parameters of the rule under "rule".
        options: Everything else, as in `adatemp.dot_product_attention`.
        beta_of: Function of `RowArrays` and the parameters; None for plain attention.
    """
    query, key, value = arrays["query"], arrays["key"], arrays["value"]
    (B, T, N, H), (S, K) = query.shape, key.shape[1:3]
    bias = arrays.get("bias")
    seen = visible(
        B, N, T, S, bias=None if bias is None else np.asarray(options["bias"], np.float64), **_but_bias(options)
    )
    seen = np.moveaxis(seen, 1, 2)  # [B, T, N, S]
    live = seen.any(-1)
    key, value = (jnp.repeat(x, N // K, axis=2) for x in (key, value))
    z = jnp.einsum("btnh,bsnh->btns", query, key) * (H**-0.5 if options.get("scale") is None else options["scale"])
    cap = options.get("logits_soft_cap")
    if cap is not None:
        z = cap * jnp.tanh(z / cap)
    if bias is not None:
        z = z + jnp.moveaxis(jnp.broadcast_to(jnp.where(bias == -jnp.inf, 0, bias), (B, N, T, S)), 1, 2).astype(z.dtype)
    highest = jax.lax.stop_gradient(jnp.max(jnp.where(seen, z, -1e30 if z.dtype == jnp.float64 else -6e4), -1))
    shifted = jnp.where(seen, z - highest[..., None], 0)
    total = jnp.where(live, jnp.sum(jnp.where(seen, jnp.exp(shifted), 0), -1), 1)
    p = jnp.where(seen, jnp.exp(shifted), 0) / total[..., None]
    mean = jnp.sum(p * shifted, -1)
    entropy = jnp.log(total) - mean
    variance = jnp.sum(p * (shifted - mean[..., None]) ** 2, -1)
    offsets = np.broadcast_to(options.get("query_offset", 0), B)
    position = options.get("query_positions")
    position = offsets[:, None] + np.arange(T) if position is None else np.asarray(position)
    position = np.broadcast_to(position[..., None], (B, T, N))
    rows = RowArrays(shifted, seen, seen.sum(-1), entropy, variance, position)
    beta = jnp.ones_like(entropy) if beta_of is None else jnp.where(live, beta_of(rows, arrays.get("rule")), 1)
    tempered = jnp.where(seen, jnp.exp(beta[..., None] * shifted), 0)
    tempered_total = jnp.where(live, jnp.sum(tempered, -1), 1)
    if arrays.get("sink") is not None:
        # Shifted by beta times the row's maximum like everything else: float64 has room for it.
        tempered_total += jnp.where(live, jnp.exp(jnp.where(live, arrays["sink"] - beta * highest, 0)), 0)
    weights = tempered / tempered_total[..., None]
    lse, lse_scaled = highest + jnp.log(total), beta * highest + jnp.log(tempered_total)
    return Rows(
        jnp.einsum("btns,bsnv->btnv", weights.astype(value.dtype), value),
        jnp.where(live, entropy, 0),
        beta,
        jnp.where(live, lse, -jnp.inf),
        jnp.where(live, lse_scaled, -jnp.inf),
    )


def _but_bias(options):
    return {name: option for name, option in options.items() if name != "bias"}


def values_and_gradients(function, arrays: dict, cotangents: Rows):
    """(Rows, gradients shaped like arrays) for a function of arrays that returns Rows."""
    rows, pull_back = jax.vjp(function, arrays)
    return rows, pull_back(cotangents)[0]

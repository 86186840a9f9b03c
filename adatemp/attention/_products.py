"""The two products of attention, in stated precision, with what is not finite kept from those who do not see it.

A product sums over all keys, the hidden ones with weight 0, and 0 * NaN is NaN: a NaN in the padding would reach every
row. A hidden logit is replaced, so the scores may be taken of the arrays as they are; but their derivative sums over
queries and keys, and so does the output. There, vectors that are not finite are set to 0.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from adatemp.attention._problem import Problem


def scores(problem: Problem, query: Float[Array, "B T N H"], key: Float[Array, "B K S H"]):
    """<q, k>, [B, K, G, T, S], in the dtype of the statistics."""
    return _scores(problem.precision, problem.stats_dtype, query, key)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _scores(precision, dtype, query, key):
    return _product("btnh,bksh->bkgts", query, key, precision, dtype)


@_scores.defjvp
def _scores_jvp(precision, dtype, primals, tangents):
    query, key = primals
    d_query, d_key = tangents
    product = partial(_product, "btnh,bksh->bkgts", precision=precision, dtype=dtype)
    return _scores(precision, dtype, query, key), product(d_query, finite(key)) + product(finite(query), d_key)


def weighted_values(problem: Problem, weights: Float[Array, "B K G T S"], z: Float[Array, "B K G T S"], value):
    """sum_s weight_s v_s, [B, T, K, G, V], in the dtype of the statistics; NaN where a value seen is not finite.

    The weights are rounded to the dtype of the values. A key is seen where its logit z is not -inf. Nearly always all
    values are finite, and the search for who sees one that is not is skipped.
    """
    bad = jnp.any(~jnp.isfinite(value), -1)  # [B, K, S]
    output = _product(
        "bkgts,bksv->btkgv", weights.astype(value.dtype), finite(value), problem.precision, problem.stats_dtype
    )

    def spoilt(z, bad):
        return jnp.where(jnp.any((z != -jnp.inf) & bad[:, :, None, None, :], -1), jnp.nan, 0).astype(output.dtype)

    def sound(z, bad):
        return jnp.zeros(z.shape[:-1], output.dtype)

    rows = jax.lax.cond(jnp.any(bad), spoilt, sound, jax.lax.stop_gradient(z), bad)
    return output + jnp.moveaxis(rows, -1, 1)[..., None]


def weighted_values_as_they_are(problem: Problem, weights: Float[Array, "B K G T S"], value):
    """`weighted_values` for values that are all finite, without a copy of them; else NaN may be where it should not."""
    return _weighted_values(problem.precision, problem.stats_dtype, weights.astype(value.dtype), value)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _weighted_values(precision, dtype, weights, value):
    return _product("bkgts,bksv->btkgv", weights, value, precision, dtype)


@_weighted_values.defjvp
def _weighted_values_jvp(precision, dtype, primals, tangents):
    weights, value = primals
    d_weights, d_value = tangents
    product = partial(_product, "bkgts,bksv->btkgv", precision=precision, dtype=dtype)
    return _weighted_values(precision, dtype, weights, value), product(d_weights, finite(value)) + product(
        weights, d_value
    )


def finite(array):
    """The array with vectors that are not finite set to 0."""
    return jnp.where(jnp.all(jnp.isfinite(array), -1, keepdims=True), array, 0)


def _product(subscripts: str, left, right, precision, dtype):
    """Never in tensor-float or half precision unless asked for.

    Written out, for `einsum` may swap its operands: the logits then come out with the keys first, and to turn them
    costs more than the product.
    """
    precision = jax.lax.Precision.HIGHEST if precision is None else precision
    to_logits = subscripts == "btnh,bksh->bkgts"
    if to_logits:
        left = jnp.moveaxis(left.reshape(*left.shape[:2], right.shape[1], -1, left.shape[3]), 1, 3)
    B, K, G, T, _ = left.shape
    result = jax.lax.dot_general(
        left.reshape(B, K, G * T, -1),
        right,
        (((3,), (3 if to_logits else 2,)), ((0, 1), (0, 1))),
        precision=precision,
        preferred_element_type=dtype,
    ).reshape(B, K, G, T, -1)
    return result if to_logits else jnp.moveaxis(result, 3, 1)

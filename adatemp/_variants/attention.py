"""Attention with any function from a row of logits to a row of weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._rule import check_rule
from adatemp.attention._arguments import build_problem, check_flag
from adatemp.attention._logits import live_logits, split
from adatemp.attention._products import weighted_values
from adatemp.attention._rows import from_public, to_public_output
from adatemp.attention.api import attend as softmax_attend

if TYPE_CHECKING:
    from jaxtyping import Array, Float


def attention_fn(weights: Callable[..., Float[Array, "B N T S"]]) -> Callable[..., Float[Array, "B T N V"]]:
    """A function with the signature of `adatemp.dot_product_attention` that normalises its logits with `weights`.

    It is what `models.Transformer` takes as `attention=`. The logits, masks and layout are those of
    `dot_product_attention`, grouped heads included; the output is the sum of the values under the weights, whatever
    the weights sum to. A query without keys gets 0. A temperature rule multiplies the logits by its beta, read from
    their plain softmax, before `weights` sees them; the default here is none.

    Dense: all B N T S logits exist at once, O(n^2) memory. What `variants.VARIANTS` says streams is better run by
    `dot_product_attention` itself, through its temperature or its sink.

    Args:
        weights: A function of logits [B, N, T, S], `axis` and `where`, the last two by keyword, such as
            `variants.entmax15`, or `partial(variants.top_k, k=8)`. A parameter a head has shape [N, 1] there. It must
            give 0 where `where` is False.

    Returns:
        A function of query [B, T, N, H], key [B, S, K, H], value [B, S, K, V] and of the keywords of
        `dot_product_attention`. With `return_stats` the statistics are those of the softmax of the same logits, which
        are no statistics of the variant's weights. The function refuses a `sink`, an `implementation` that is not
        dense, and a `config`.

    Raises:
        TypeError: weights is not a function.

    Example:
        >>> import jax
        >>> from adatemp import variants
        >>> attend = variants.attention_fn(variants.entmax15)
        >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 1, 5, 2, 4))
        >>> attend(query, key, value, is_causal=True).shape
        (1, 5, 2, 4)
    """
    if not callable(weights):
        raise TypeError(f"weights must be a function such as variants.entmax15, got {weights!r}")

    def attend(
        query: Float[Array, "B T N H"],
        key: Float[Array, "B S K H"],
        value: Float[Array, "B S K V"],
        bias=None,
        mask=None,
        *,
        sink=None,
        temperature=None,
        return_stats: bool = False,
        implementation=None,
        config=None,
        **options,
    ):
        """Dense attention under a variant's weights; made by `adatemp.variants.attention_fn`."""
        _refuse_what_belongs_to_softmax(sink, implementation, config)
        if value is None:
            raise TypeError("value must be an array, got None; for the entropy alone call adatemp.attention_entropy")
        return_stats = check_flag("return_stats", return_stats)
        if temperature is not None:
            check_rule(temperature)
        problem, batched = build_problem(query, key, value, bias, mask, **options)
        B, T, S, N, K = problem.sizes
        queries, keys = split(problem)
        z = live_logits(problem, queries, keys)

        stats = None
        if temperature is not None or return_stats:
            _, stats = softmax_attend(
                problem.replace(value=None), temperature, implementation="dense", with_output=False, with_stats=True
            )
        live = z != -jnp.inf
        tempered = z
        if temperature is not None:
            # Not beta times -inf, whose derivative in beta is NaN.
            tempered = jnp.where(live, from_public(stats.beta, K)[..., None] * jnp.where(live, z, 0), -jnp.inf)

        rows = (B, N, T, S)
        given = weights(tempered.reshape(rows), axis=-1, where=live.reshape(rows))
        if getattr(given, "shape", None) != rows:
            raise ValueError(
                f"weights must return an array of the logits' shape {rows}, got {getattr(given, 'shape', given)!r}"
            )
        output = weighted_values(problem, given.reshape(z.shape), z, keys.value)
        output = to_public_output(output, keys.value.dtype)
        if not batched:
            output, stats = jax.tree.map(lambda x: x[0], (output, stats))
        return (output, stats) if return_stats else output

    return attend


def _refuse_what_belongs_to_softmax(sink, implementation, config) -> None:
    if sink is not None:
        raise TypeError(
            "sink joins the normaliser of softmax; give attention_fn(partial(variants.sink_softmax, sink=...)), "
            "or call dot_product_attention(..., sink=...)"
        )
    asked = (implementation,) if implementation is None or isinstance(implementation, str) else tuple(implementation)
    if not {None, "dense", "xla"} & set(asked):
        raise NotImplementedError(
            f"implementation {implementation!r}: a variant's weights are dense here; leave it out, or see "
            "variants.VARIANTS for what dot_product_attention can stream"
        )
    if config is not None:
        raise ValueError("config belongs to an implementation with blocks, and a variant's weights are dense")

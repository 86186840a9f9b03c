"""`flax.nnx.MultiHeadAttention` with a temperature: its `attention_fn` from ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import nnx

from adatemp._polynomial import PAPER
from adatemp._rule import broadcasts, check_rule
from adatemp.attention.api import dot_product_attention

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from adatemp.attention.chunked import ChunkedConfig
    from adatemp.attention.configs import PallasConfig
    from adatemp.temperature import TemperatureRule


def attention_fn(
    *,
    temperature: TemperatureRule | None = PAPER,
    implementation: str | Sequence[str] | None = None,
    config: ChunkedConfig | PallasConfig | None = None,
    scale: float | None = None,
    logits_soft_cap: float | None = None,
) -> Callable[..., Float[Array, "*batch T N V"]]:
    """An `attention_fn` for `flax.nnx.MultiHeadAttention` that runs `adatemp.dot_product_attention`.

    It takes what every supported Flax passes: any number of batch axes, masks of 0 and 1 as Flax makes them, bias,
    dtype, precision, dropout, `is_causal`, the decoding cache. Three things differ from Flax's own:

    - a query whose mask hides every key gets 0, where Flax averages all values;
    - with one query and a mask, `is_causal` is ignored, since Flax up to 0.12.8 passes it while decoding, when the mask
      already says which part of the cache is filled and the causal one would leave key 0 alone;
    - `sow_weights=True` sows `attention_stats`, the rows' entropy and beta among them, beside `attention_weights`.

    Weights and dropout need all weights at once: a call with either runs the dense implementation. `input_positions`,
    which newer Flax passes on, is what a rule that reads the position is told; nothing is rotated by it.

    Args:
        temperature: A rule from `adatemp.temperature`; None for plain attention.
        implementation: As in `adatemp.dot_product_attention`; it is overridden where weights or dropout are asked for.
        config: Likewise.
        scale: Multiplies the products; 1/sqrt(width) by default.
        logits_soft_cap: Caps the scaled products smoothly.

    Returns:
        A function of query [*batch, T, N, H], key [*batch, S, K, H] and value [*batch, S, K, V], and of the keywords of
        `flax.nnx.dot_product_attention`.

    Raises:
        TypeError: The temperature is not a rule.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> from adatemp import PAPER, models
        >>> attend = models.attention_fn(temperature=PAPER)
        >>> layer = nnx.MultiHeadAttention(
        ...     num_heads=2, in_features=8, attention_fn=attend, decode=False, rngs=nnx.Rngs(0)
        ... )
        >>> layer(jnp.ones((3, 5, 8))).shape
        (3, 5, 8)
    """
    if temperature is not None:
        check_rule(temperature)

    def attend(
        query: Float[Array, "*batch T N H"],
        key: Float[Array, "*batch S K H"],
        value: Float[Array, "*batch S K V"],
        bias: Float[Array, "..."] | None = None,
        mask: Array | None = None,
        broadcast_dropout: bool = True,
        dropout_rng: Array | None = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        dtype=None,
        precision=None,
        module: nnx.Module | None = None,
        promote_dtype: Callable | None = None,
        is_causal: bool = False,
        input_positions: Array | None = None,
    ) -> Float[Array, "*batch T N V"]:
        """Attention as `flax.nnx.MultiHeadAttention` calls it; made by `adatemp.models.attention_fn`."""
        query, key, value = (promote_dtype or _promote)((query, key, value), dtype=dtype)
        batch, (T, N), S = query.shape[:-3], query.shape[-3:-1], key.shape[-3]
        if temperature is not None and "position" in temperature.needs and input_positions is None and T != S:
            raise ValueError(
                f"input_positions must be given where {T} queries meet {S} keys, because the rule "
                f"{type(temperature).__name__} reads the position and Flax does not say where the queries stand"
            )
        weighs = module is not None or (dropout_rate > 0 and not deterministic)

        def run(values, **options):
            return dot_product_attention(
                _one_batch_axis(query, 3),
                _one_batch_axis(key, 3),
                _one_batch_axis(values, 3),
                _per_logit("bias", bias, (*batch, N, T, S)),
                _per_logit("mask", None if mask is None else mask.astype(bool), (*batch, N, T, S)),
                scale=scale,
                is_causal=bool(is_causal) and not (T == 1 and mask is not None),
                query_positions=None if input_positions is None else _positions(input_positions, (*batch, T)),
                logits_soft_cap=logits_soft_cap,
                temperature=temperature,
                precision=precision,
                **options,
            )

        if not weighs:
            return run(value, implementation=implementation, config=config).reshape(*query.shape[:-1], value.shape[-1])

        # Attention to the rows of the unit matrix is the weights themselves, with every option in them.
        unit = jnp.broadcast_to(jnp.eye(S, dtype=value.dtype)[:, None], (*key.shape[:-1], S))
        weights, stats = run(unit, implementation="dense", return_stats=True)
        weights = jnp.swapaxes(weights.reshape(*query.shape[:-1], S), -3, -2)  # [*batch, N, T, S], as Flax keeps them
        if module is not None:
            module.sow(nnx.Intermediate, "attention_weights", weights)
            module.sow(nnx.Intermediate, "attention_stats", jax.tree.map(lambda x: x.reshape(*batch, T, N), stats))
        if dropout_rate > 0 and not deterministic:
            weights = _drop(weights, dropout_rate, dropout_rng, broadcast_dropout)
        grouped = weights.reshape(*batch, key.shape[-2], -1, T, S)
        output = jnp.einsum("...kgts,...skv->...tkgv", grouped, value, precision=precision or jax.lax.Precision.HIGHEST)
        return output.reshape(*query.shape[:-1], value.shape[-1])

    return attend


def _promote(arrays, *, dtype):
    dtype = jnp.result_type(*arrays) if dtype is None else dtype
    return tuple(jnp.asarray(array, dtype) for array in arrays)


def _one_batch_axis(array, kept: int):
    """[*batch, ...] with the batch axes, if there are any, made one; the last `kept` axes stay."""
    batch = array.shape[:-kept]
    return array if not batch else array.reshape(math.prod(batch), *array.shape[-kept:])


def _per_logit(name: str, array, shape: tuple[int, ...]):
    """A bias or a mask that broadcasts to [*batch, N, T, S], with one batch axis."""
    if array is None:
        return None
    if not broadcasts(array.shape, shape):
        raise ValueError(
            f"{name} of shape {array.shape} does not broadcast to the logits [*batch, heads, queries, keys] = {shape}; "
            "give each of its axes that length or 1"
        )
    batch, rest = shape[:-3], (1,) * (len(shape) - array.ndim) + array.shape
    array = array.reshape(rest)
    if set(rest[:-3]) <= {1}:
        return array.reshape((1,) * bool(batch) + array.shape[-3:])
    return _one_batch_axis(jnp.broadcast_to(array, batch + array.shape[-3:]), 3)


def _positions(positions, shape: tuple[int, ...]):
    if not broadcasts(positions.shape, shape):
        raise ValueError(f"input_positions must broadcast to [*batch, queries] = {shape}, got {positions.shape}")
    return _one_batch_axis(jnp.broadcast_to(positions, shape), 1)


def _drop(weights, rate: float, rng, broadcast: bool):
    """Dropout of weights as Flax draws it: one pattern for all batch items and heads, or each its own."""
    if rng is None:
        raise ValueError(
            "dropout_rng must be given where dropout_rate > 0 and deterministic=False; "
            "call the layer with rngs=nnx.Rngs(0)"
        )
    shape = (1,) * (weights.ndim - 2) + weights.shape[-2:] if broadcast else weights.shape
    keep = jax.random.bernoulli(rng, 1 - rate, shape)
    return weights * (keep.astype(weights.dtype) / jnp.asarray(1 - rate, weights.dtype))

"""Measures of attention sinks, value drains and residual peaks, on arrays from any model.

Attention maps are [..., T, T]: the second last axis is the query, the last the key, and a row is what one query gives
to all keys. In a causal map query t sees keys 0 to t. Positions are counted from 0. All
functions take leading axes as they come, layers and heads and texts alike, and keep them in front.

Three habits of published code are avoided here. Keys at the end of a text are seen by few queries, and the last one by
itself alone: they count as sinks only with `min_queries` queries to say so. A map whose axes are in the wrong order is
refused where causality shows it. Rows that add up to less than 1, as those of sigmoid, ReLU or null-slot attention do,
are refused until the caller says `normalised=False`, since a share of the mass then means something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Array, ArrayLike, Bool, Float

__all__ = [
    "SinkHeads",
    "attention_received",
    "delta_logit",
    "find_sink_heads",
    "peak_tokens",
    "residual_peak",
    "sink_rate",
    "uniform_received",
    "value_drain",
    "value_norms",
]


def attention_received(
    maps: Float[ArrayLike, "*batch T T"], *, causal: bool = True, min_queries: int = 1, normalised: bool = True
) -> Float[Array, "*batch T"]:
    """Mean attention that each key gets from the queries that can see it.

    For causal maps key i of T is seen by the T − i queries i, …, T − 1, itself among them, and the mean is over those.

    Args:
        maps: attention maps.
        causal: whether query t sees keys 0 to t alone; otherwise every query sees every key.
        min_queries: keys that fewer queries see get NaN.
        normalised: whether rows must add up to 1.

    Returns:
        A number for each key. Under equal weights key 0 of a causal map gets (1/T)(1 + 1/2 + … + 1/T), far more than
        1/T: `uniform_received` of the same T is the baseline.

    Raises:
        ValueError: maps that are not square, have entries outside [0, 1] by more than rounding or not finite, have
            weight above the diagonal although causal, or rows that do not add up to 1.
    """
    maps = _check_maps(maps, causal, normalised)
    T = maps.shape[-1]
    seen = jnp.arange(T, 0, -1) if causal else jnp.full(T, T)
    if not 1 <= min_queries <= T:
        raise ValueError(f"min_queries must be from 1 to the number of queries, {T}, got {min_queries}")
    return jnp.where(seen >= min_queries, jnp.sum(maps, axis=-2) / seen, jnp.nan)


def uniform_received(length: int) -> Float[Array, " T"]:
    """`attention_received` of causal attention with equal weights: what a key gets without being a sink."""
    row = 1 / jnp.arange(1, length + 1)
    return jnp.cumsum(row[::-1])[::-1] / jnp.arange(length, 0, -1)


def sink_rate(
    maps: Float[ArrayLike, "*batch L N T T"], *, threshold: float = 0.3, key: int = 0, normalised: bool = True
) -> Float[Array, "*batch"]:
    """Share of heads whose key 0, or another, gets more than a threshold of the attention on average.

    Args:
        maps: causal maps of all layers and heads.
        threshold: the share of attention; 0.3 and texts of 64 tokens are those of Gu et al., 2025.
        key: position of the key.
        normalised: as in `attention_received`.

    References:
        Gu et al.: When attention sink emerges in language models, ICLR 2025. https://arxiv.org/abs/2410.10781
    """
    received = attention_received(maps, normalised=normalised)
    if received.ndim < 3:
        raise ValueError(f"maps must be [layers, heads, queries, keys] at least, got {jnp.shape(maps)}")
    if not 0 < threshold < 1:
        raise ValueError(f"threshold must be between 0 and 1, got {threshold}")
    return jnp.mean(received[..., _position("key", key, received.shape[-1])] > threshold, axis=(-2, -1))


def delta_logit(logits: Float[ArrayLike, "*batch T T"], *, key: int = 0) -> Float[Array, "*batch T"]:
    """How far a query's logit on the sink lies above its mean logit on the other keys before it.

    For query t that mean is over keys 0, …, t − 1 but for the sink: the query's own key is left out, and so are later
    ones. Queries without such a key get NaN.

    Args:
        logits: attention logits, after the scale; what stands above the diagonal is never read, −inf or not.
        key: position of the sink.
    """
    logits = jnp.asarray(logits)
    T = _square("logits", logits)
    key = _position("key", key, T)
    query, other = jnp.arange(T)[:, None], jnp.arange(T)[None, :]
    counted = (other < query) & (other != key)
    count = jnp.sum(counted, axis=-1)
    mean = jnp.sum(jnp.where(counted, logits, 0), axis=-1) / jnp.maximum(count, 1)
    return jnp.where((count > 0) & (jnp.arange(T) > key), logits[..., key] - mean, jnp.nan)


def value_drain(norms: Float[ArrayLike, "*batch T"], *, key: int = 0) -> Float[Array, "*batch"]:
    """Norm of the sink's value over the median of the others': far below 1 where the value is drained.

    Args:
        norms: of what each token adds when it is attended to: its value behind the output map of its own layer and
            head, as `value_norms` gives. The raw value says little, since the output map can shrink or stretch it.
        key: position of the sink.
    """
    norms = _check_norms(norms)
    others = jnp.delete(norms, _position("key", key, norms.shape[-1]), axis=-1)
    return norms[..., key] / jnp.median(others, axis=-1)


def value_norms(values: Float[ArrayLike, "*batch T K H"], out: Float[ArrayLike, "N H D"]) -> Float[Array, "*batch N T"]:
    """Norms of the tokens' values behind the output map of their layer, for each head.

    Args:
        values: of one layer, K heads.
        out: that layer's own output map by head; N is K or a multiple of it, heads in groups.
    """
    values, out = jnp.asarray(values), jnp.asarray(out)
    if out.ndim != 3 or out.shape[1] != values.shape[-1] or out.shape[0] % values.shape[-2]:
        raise ValueError(f"out must be [heads, {values.shape[-1]}, width], heads as values {values.shape} or groups")
    # |v O|² = v (O Oᵀ) vᵀ needs no array as wide as the model.
    square = jnp.einsum("nhd,ngd->nhg", out, out, precision="highest")
    grouped = jnp.repeat(values, out.shape[0] // values.shape[-2], axis=-2)
    norms = jnp.einsum("...tnh,nhg,...tng->...nt", grouped, square, grouped, precision="highest")
    return jnp.sqrt(jnp.maximum(norms, 0))


def residual_peak(norms: Float[ArrayLike, "*batch T"], *, key: int = 0) -> Float[Array, "*batch"]:
    """Norm of the sink's hidden state less the mean of the others': positive where it peaks.

    Args:
        norms: of hidden states, layers among the leading axes.
        key: position of the sink.
    """
    norms = _check_norms(norms)
    others = jnp.delete(norms, _position("key", key, norms.shape[-1]), axis=-1)
    return norms[..., key] - jnp.mean(others, axis=-1)


def peak_tokens(norms: Float[ArrayLike, "L *batch T"], *, ratio: float = 10.0) -> Bool[Array, "*batch T"]:
    """Tokens whose hidden state is, in some layer, many times longer than is usual there.

    The last layer is often rid of the peak, so all are looked at. What is usual is the median over the tokens of the
    same layer: an absolute norm says nothing, as it grows with depth and training.

    Args:
        norms: of hidden states after each layer.
        ratio: how many times; 10 is the authors' "more than ten".
    """
    norms = _check_norms(norms)
    if norms.ndim < 2:
        raise ValueError(f"norms must be [layers, ..., tokens], got {norms.shape}")
    if not ratio > 1:
        raise ValueError(f"ratio must be above 1, got {ratio}")
    return jnp.any(norms > ratio * jnp.median(norms, axis=-1, keepdims=True), axis=0)


class SinkHeads(NamedTuple):
    """What `find_sink_heads` found.

    Attributes:
        tokens: positions with a peak, [T] bool.
        received: mean attention on each, [L, N, T]; NaN for keys that too few queries see.
        heads: whether a head gives one of those positions more than the threshold, [L, N] bool.
        without_peak: positions that some head gives more than the threshold although they have no peak, [T] bool.
    """

    tokens: Bool[Array, " T"]
    received: Float[Array, "L N T"]
    heads: Bool[Array, "L N"]
    without_peak: Bool[Array, " T"]


def find_sink_heads(
    maps: Float[ArrayLike, "L N T T"],
    norms: Float[ArrayLike, "L T"],
    *,
    ratio: float = 10.0,
    threshold: float = 0.3,
    min_queries: int = 8,
    normalised: bool = True,
) -> SinkHeads:
    """Sink tokens by their residual norms, then the heads that attend to them: the authors' procedure, made precise.

    They look for tokens whose residual norm is more than ten times that of others, then for heads with large mean
    attention on these. A sink need not have a peak, as in a model of one layer: such tokens are reported apart.

    Args:
        maps: causal maps of one text.
        norms: of the hidden states after each layer.
        ratio: as in `peak_tokens`.
        threshold: what mean attention is large.
        min_queries: keys seen by fewer queries are not judged.
        normalised: as in `attention_received`.

    References:
        Guo et al.: Active-Dormant Attention Heads, 2024, and the authors' replies to its reviewers.
        https://arxiv.org/abs/2410.13835
    """
    maps, norms = jnp.asarray(maps), jnp.asarray(norms)
    if maps.ndim != 4 or norms.shape != (maps.shape[0], maps.shape[-1]):
        raise ValueError(
            f"maps must be [layers, heads, T, T] and norms [layers, T] of the same model and text, got {maps.shape} "
            f"and {norms.shape}"
        )
    received = attention_received(maps, min_queries=min(min_queries, maps.shape[-1]), normalised=normalised)
    tokens = peak_tokens(norms, ratio=ratio)
    large = received > threshold  # False where NaN
    return SinkHeads(
        tokens=tokens,
        received=received,
        heads=jnp.any(large & tokens, axis=-1),
        without_peak=jnp.any(large, axis=(0, 1)) & ~tokens,
    )


def _check_maps(maps, causal: bool, normalised: bool):
    maps = jnp.asarray(maps)
    T = _square("maps", maps)
    if isinstance(maps, jax.core.Tracer):
        return maps
    known = np.asarray(maps, np.float64)
    # Sums of T rounded weights: bfloat16 maps are off by up to a hundredth.
    slack = 1e-3 if maps.dtype in (jnp.float32, jnp.float64) else 2e-2
    if not np.all((known >= -slack) & (known <= 1 + slack)) and normalised:
        raise ValueError("maps must hold weights from 0 to 1: were logits given, or a row without a live key?")
    if not np.all(np.isfinite(known)):
        raise ValueError("maps must be finite; rows without a live key must be 0")
    if causal and T > 1:
        above = np.abs(np.triu(known, 1)).max()
        if above > slack:
            below = np.abs(np.tril(known, -1)).max()
            guess = "the axes are [keys, queries]: swap the last two" if below <= slack else "say causal=False"
            raise ValueError(f"maps: queries give weight up to {above:.3g} to later keys; perhaps {guess}")
    sums = known.sum(-1)
    if normalised and np.abs(sums - 1).max() > slack:
        worst = sums.flat[np.abs(sums - 1).argmax()]
        raise ValueError(
            f"maps: a row adds up to {worst:.4g}; if the weights are not meant to add up to 1, or some rows have no "
            "live key, say normalised=False, and read the result as weight and not as share"
        )
    return maps


def _check_norms(norms):
    norms = jnp.asarray(norms)
    if norms.ndim < 1 or norms.shape[-1] < 2:
        raise ValueError(f"norms must have at least two tokens on the last axis, got shape {norms.shape}")
    return norms


def _square(name: str, array) -> int:
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        raise ValueError(f"{name} must be [..., T queries, T keys] with as many of both, got {array.shape}")
    return array.shape[-1]


def _position(name: str, position: int, length: int) -> int:
    if not 0 <= position < length:
        raise ValueError(f"{name} must be a position from 0 to {length - 1}, got {position}")
    return position

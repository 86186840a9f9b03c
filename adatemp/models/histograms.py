"""A Transformer without positions or causal mask on counts of its tokens in place of the tokens, for any number.

Such a model cannot tell two tokens of one symbol apart, so a sequence is to it a histogram. A symbol that occurs c
times enters a softmax as one key with log c added to its logit; the weight of each of its tokens is the c-th part of
what the key gets. The cost is that of one token a symbol, whether there are ten tokens or 10¹².
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from adatemp.models.transformer import Transformer


class Rows(NamedTuple):
    """What the layers did with a histogram. V symbols; a row belongs to a query of one symbol.

    Attributes:
        logits: [B, V], the read-out at a token of each symbol.
        hidden: [L + 1, B, V, D], hidden states of a token of each symbol.
        weight: [L, B, V, N, V], by query's symbol, head and key's symbol: the weight of *one* token.
        entropy: [L, B, V, N], of the weights of all tokens, in nats.
        spread: [L, B, V, N], δ over the symbols that occur.
    """

    logits: Float[Array, "B V symbols"]
    hidden: Float[Array, "L+1 B V D"]
    weight: Float[Array, "L B V N V"]
    entropy: Float[Array, "L B V N"]
    spread: Float[Array, "L B V N"]


def run(model: Transformer, counts: Float[Array, "B V"]) -> Rows:
    """Runs a model on histograms.

    Args:
        model: with `positions="none"`, `causal=False` and no window.
        counts: how often each symbol of the vocabulary occurs; need not be whole, and a multiple of a histogram gives
            the same hidden states. Symbols of count 0 are seen by nobody; their own rows say what such a token would
            see, and mean nothing more.

    Raises:
        ValueError: the model tells tokens of one symbol apart.

    Example:
        >>> from flax import nnx
        >>> from adatemp.models import Transformer, presets
        >>> config = presets.toy(vocabulary=5, context=None, positions="none", causal=False)
        >>> rows = run(Transformer(config, rngs=nnx.Rngs(0)), jnp.array([[1e12, 3.0, 0.0, 7.0, 1.0]]))
        >>> print(rows.weight.shape, float(rows.weight[0, 0, 0, :, 0].max()) < 1e-11)
        (2, 1, 5, 4, 5) True
    """
    config = model.config
    if config.positions != "none" or config.causal or any(window is not None for window in config.windows):
        raise ValueError(
            "model: tokens of one symbol must be alike, so give positions='none', causal=False and no windows; got "
            f"positions={config.positions!r}, causal={config.causal}, windows={config.windows}"
        )
    counts = jnp.asarray(counts, jnp.promote_types(counts.dtype, jnp.float32))
    symbols = jnp.broadcast_to(jnp.arange(config.vocabulary), counts.shape)
    x, _, captured = model.run(model.embed(symbols), counts > 0, attend=partial(_attend, jnp.log(counts)), capture=True)
    weight, entropy = captured.stats
    return Rows(model.read_out(x), captured.hidden, weight, entropy, captured.spread)


def _attend(log_counts, query, key, value, bias, mask, *, scale, logits_soft_cap, return_stats, is_causal):
    """Attention of every symbol to every symbol, counts in the logits; (output, (weight, entropy))."""
    group = query.shape[2] // key.shape[2]
    key, value = (jnp.repeat(array, group, axis=2) for array in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    logits = scale * jnp.einsum("btnh,bsnh->btns", query, key, precision="highest")
    if logits_soft_cap is not None:
        logits = logits_soft_cap * jnp.tanh(logits / logits_soft_cap)
    of_symbols = logits + log_counts[:, None, None, :]  # −∞ where a symbol does not occur
    normaliser = jax.nn.logsumexp(of_symbols, axis=-1, keepdims=True)
    shares, log_weight = jnp.exp(of_symbols - normaliser), logits - normaliser
    weight = jnp.where(jnp.isfinite(of_symbols), jnp.exp(jnp.minimum(log_weight, 0)), 0)
    entropy = -jnp.sum(jnp.where(shares > 0, shares * log_weight, 0), axis=-1)
    output = jnp.einsum("btns,bsnh->btnh", shares, value, precision="highest")
    return output, (weight, entropy)

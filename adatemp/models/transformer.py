"""A Transformer to be read in one sitting; every choice that the book compares is a field of `TransformerConfig`.

Axes: B batch, T tokens, S keys, D width, N heads, K key heads, H head width, L layers. There is no dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from adatemp._dispersion.measured import attention_spread
from adatemp.attention.api import dot_product_attention
from adatemp.models import positions
from adatemp.models.cache import Cache
from adatemp.models.config import ACTIVATIONS, TransformerConfig
from adatemp.models.norms import Norm

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int

    from adatemp._attention_stats import AttentionStats
    from adatemp.temperature import TemperatureRule


class Captured(NamedTuple):
    """What the layers did; the values of the forward pass are the same with and without it.

    Attributes:
        hidden: [L + 1, B, T, D], the embeddings and the hidden states after each layer.
        inputs: [L, B, T, D], what each layer's queries, keys and values are projected from.
        stats: rows' entropy, beta, lse of each head, [L, B, T, N] each.
        spread: [L, B, T, N], δ of each row of attention logits, before the temperature.
    """

    hidden: Float[Array, "L+1 B T D"]
    inputs: Float[Array, "L B T D"]
    stats: AttentionStats
    spread: Float[Array, "L B T N"]


class Attention(nnx.Module):
    """Multi-head attention of one layer."""

    def __init__(self, config: TransformerConfig, layer: int, *, rngs: nnx.Rngs):
        D, N, K, H = config.width, config.heads, config.key_heads, config.head_width
        linear = partial(nnx.LinearGeneral, use_bias=config.bias, precision=config.precision, rngs=rngs)
        self.query, self.key, self.value = linear(D, (N, H)), linear(D, (K, H)), linear(D, (K, H))
        self.out = linear((N, H), D, axis=(-2, -1))
        norm = partial(Norm, H, config.qk_norm, epsilon=config.norm_epsilon, from_one=config.norm_from_one)
        self.query_norm, self.key_norm = norm(use_bias=False), norm(use_bias=False)
        self.config, self.layer = config, layer

    def __call__(self, x: Float[Array, "B T D"], where, at: Int[Array, "*#B T"], cache: Cache | None, attend, capture):
        """(output [B, T, D], cache, (statistics, spread) or None)."""
        config, window = self.config, self.config.window(self.layer)
        query, key, value = self.query_norm(self.query(x)), self.key_norm(self.key(x)), self.value(x)
        if config.positions == "rotary":
            local = window is not None and config.local_rotary_base is not None
            base = config.local_rotary_base if local else config.rotary_base
            query, key = positions.rotary(query, at, base), positions.rotary(key, at, base)
        options = dict(scale=config.scale, is_causal=config.causal, logits_soft_cap=config.attention_soft_cap)
        if window is not None:
            options["local_window_size"] = (window - 1, 0 if config.causal else window - 1)
        key_at = at
        if cache is not None:
            options["query_offset"] = cache.length
            cache, key, value = cache.write(self.layer, key, value)
            key_at = jnp.arange(key.shape[1])
        bias = None
        if config.positions == "alibi":
            bias = positions.alibi_bias(config.heads, at, key_at)
        mask = None if where is None else where[:, None, None, :]
        captured = None
        if capture:
            output, stats = attend(query, key, value, bias, mask, **options, return_stats=True)
            captured = stats, attention_spread(query, key, bias, mask, **options)
        else:
            output = attend(query, key, value, bias, mask, **options)
        return self.out(output), cache, captured


class MLP(nnx.Module):
    """Two linear maps with an activation between them, gated by a third or not."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        linear = partial(nnx.Linear, use_bias=config.bias, precision=config.precision, rngs=rngs)
        self.gate = linear(config.width, config.mlp_width) if config.mlp == "gated" else None
        self.up, self.down = linear(config.width, config.mlp_width), linear(config.mlp_width, config.width)
        self.activation = config.activation

    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        activation = ACTIVATIONS[self.activation]
        hidden = activation(self.up(x)) if self.gate is None else activation(self.gate(x)) * self.up(x)
        return self.down(hidden)


class Block(nnx.Module):
    """Attention and MLP, with their norms, added to the stream one after the other or at once."""

    def __init__(self, config: TransformerConfig, layer: int, *, rngs: nnx.Rngs):
        def norm(wanted):
            kind = config.norm if wanted else "none"
            return Norm(config.width, kind, epsilon=config.norm_epsilon, from_one=config.norm_from_one)

        has_mlp, both = config.mlp != "none", config.norm_place == "both"
        self.attention = Attention(config, layer, rngs=rngs)
        self.mlp = MLP(config, rngs=rngs) if has_mlp else None
        self.attention_norm, self.mlp_norm = norm(True), norm(has_mlp and not config.parallel)
        self.attention_after, self.mlp_after = norm(both), norm(both and has_mlp)
        self.config = config

    def __call__(self, x: Float[Array, "B T D"], where, at, cache, attend, capture):
        """(hidden states [B, T, D], cache, (inputs, statistics, spread) or None)."""
        pre, post = self.config.norm_place != "post", self.config.norm_place == "post"

        def join(x, branch, norm):
            x = x + branch if self.config.residual else branch
            return norm(x) if post else x

        inputs = self.attention_norm(x) if pre else x
        branch, cache, captured = self.attention(inputs, where, at, cache, attend, capture)
        branch = self.attention_after(branch)
        if self.mlp is not None and self.config.parallel:
            branch = branch + self.mlp_after(self.mlp(inputs))
        x = join(x, branch, self.attention_norm)
        if self.mlp is not None and not self.config.parallel:
            branch = self.mlp(self.mlp_norm(x) if pre else x)
            x = join(x, self.mlp_after(branch), self.mlp_norm)
        return x, cache, None if captured is None else (inputs, *captured)


class Transformer(nnx.Module):
    """Embedding, blocks, read-out.

    Args:
        config: what it is made of.
        rngs: where the initial parameters come from.

    Example:
        >>> from adatemp import PAPER
        >>> from adatemp.models import presets
        >>> model = Transformer(presets.toy(vocabulary=11, context=16), rngs=nnx.Rngs(0))
        >>> tokens = jnp.arange(10)[None] % 11
        >>> model(tokens).shape, model(tokens, temperature=PAPER).shape
        ((1, 10, 11), (1, 10, 11))
        >>> logits, captured = model(tokens, capture=True)
        >>> captured.hidden.shape, captured.spread.shape
        ((3, 1, 10, 64), (2, 1, 10, 4))
    """

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        norm = partial(Norm, config.width, epsilon=config.norm_epsilon, from_one=config.norm_from_one)

        def table(rows):
            return nnx.Param(jax.random.normal(rngs.params(), (rows, config.width)) / config.width**0.5)

        self.embedding = table(config.vocabulary)
        self.position_embedding = table(config.context) if config.positions == "learned" else None
        self.embedding_norm = norm(config.norm if config.embedding_norm else "none")
        self.blocks = nnx.data([Block(config, layer, rngs=rngs) for layer in range(config.layers)])
        self.final_norm = norm(config.norm if config.final_norm else "none")
        read_out = partial(nnx.Linear, use_bias=False, precision=config.precision, rngs=rngs)
        self.free_read_out = None if config.tied else read_out(config.width, config.vocabulary)
        self.config = config

    def embed(self, tokens: Int[Array, "B T"], at: Int[Array, "*#B T"] | None = None) -> Float[Array, "B T D"]:
        """Hidden states before the first block."""
        config = self.config
        at = jnp.arange(tokens.shape[1]) if at is None else at
        x = jnp.take(self.embedding[...], tokens, axis=0)  # NaN for a number beyond the vocabulary
        if config.scale_embedding:
            x = x * jnp.asarray(config.width**0.5, x.dtype)
        if config.positions == "learned":
            x = x + jnp.take(self.position_embedding[...], at, axis=0)
        elif config.positions == "sinusoidal":
            x = x + positions.sinusoidal(at, config.width).astype(x.dtype)
        return self.embedding_norm(x)

    def run(
        self, x: Float[Array, "B T D"], where=None, at=None, cache=None, *, attend: Callable, capture: bool = False
    ) -> tuple[Float[Array, "B T D"], Cache | None, Captured | None]:
        """The blocks alone, on hidden states of any origin."""
        at = jnp.arange(x.shape[1]) if at is None else at
        hidden, captured = [x], []
        for block in self.blocks:
            x, cache, of_block = block(x, where, at, cache, attend, capture)
            hidden.append(x)
            captured.append(of_block)
        cache = None if cache is None else cache.advance(x.shape[1])
        if not capture:
            return x, cache, None
        inputs, stats, spread = jax.tree.map(lambda *layers: jnp.stack(layers), *captured)
        return x, cache, Captured(jnp.stack(hidden), inputs, stats, spread)

    def read_out(self, x: Float[Array, "B T D"]) -> Float[Array, "B T vocabulary"]:
        """Logits over the vocabulary from the last hidden states."""
        x = self.final_norm(x)
        if self.free_read_out is not None:
            logits = self.free_read_out(x)
        else:
            logits = jnp.dot(x, self.embedding[...].T, precision=self.config.precision)
        cap = self.config.logits_soft_cap
        return logits if cap is None else cap * jnp.tanh(logits / cap)

    def __call__(
        self,
        tokens: Int[Array, "B T"],
        where: Bool[Array, "B T"] | None = None,
        *,
        at: Int[Array, "*#B T"] | None = None,
        cache: Cache | None = None,
        temperature: TemperatureRule | None = None,
        attention: Callable = dot_product_attention,
        capture: bool = False,
    ):
        """Logits over the vocabulary.

        Args:
            tokens: numbers below the vocabulary's size.
            where: which tokens exist: the others are no keys. Not with a cache.
            at: the tokens' positions, for the encodings alone: masks go by the order in the array. Those after the
                cache's tokens by default.
            cache: from `Cache.empty` or from the call before; the tokens follow those in it.
            temperature: the rule of every head; None is plain softmax.
            attention: what attends: any function with the signature of `adatemp.dot_product_attention`.
            capture: whether to return what the layers did.

        Returns:
            Logits [B, T, vocabulary]; with a cache also the cache after these tokens; with `capture` also `Captured`.

        Raises:
            ValueError: more tokens than the cache has room for or than there are learned positions, a cache without
                causal attention or with `where`.
        """
        if tokens.ndim != 2 or not jnp.issubdtype(tokens.dtype, jnp.integer):
            raise ValueError(f"tokens must be integers [batch, tokens], got {tokens.dtype.name} {tokens.shape}")
        config, T = self.config, tokens.shape[1]
        if cache is not None:
            cache.check(config, T, where)
        if config.positions == "learned" and at is None and T > config.context:
            raise ValueError(f"tokens: {T} in a sequence, and the model has learned {config.context} positions")
        at = jnp.arange(T) + (0 if cache is None else cache.length) if at is None else at
        attend = partial(attention, temperature=temperature)
        x, cache, captured = self.run(self.embed(tokens, at), where, at, cache, attend=attend, capture=capture)
        result = (self.read_out(x), cache, captured)
        kept = tuple(part for part in result if part is not None)
        return kept if len(kept) > 1 else kept[0]

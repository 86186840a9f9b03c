"""Two small models whose weights can be made in any way: a head over a set, and two layers over a row of tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import nnx

from adatemp.models.config import TransformerConfig
from adatemp.models.norms import Norm
from adatemp.models.transformer import Transformer

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float

    from adatemp.tasks._labelled_sets import LabelledSets
    from adatemp.tasks._token_rows import TokenRows

    # (logits [B, N, T, S], mask that broadcasts to them) to weights of the logits' shape.
    Weigh = Callable[[Float[Array, "B N T S"], Bool[Array, "B #N #T S"]], Float[Array, "B N T S"]]

PRECISION = jax.lax.Precision.HIGHEST


class SetHead(nnx.Module):
    """One head over a set: keys from the features alone, values from the labels alone, a network on what is pooled.

    Queries and keys are normalised, so the logits of a row lie within ± max |g_q g_k| √width of zero, with g the gains
    of the two norms: a bound that training can move and items cannot.

    Args:
        features: numbers in an item's features.
        query: numbers in a query.
        classes: number of labels C.
        width: of every hidden layer and of the head.
        learned: initial values of the parameters of the weights, by name.
        rngs: where the initial parameters come from.
    """

    def __init__(
        self, features: int, query: int, classes: int, width: int, learned: Mapping[str, float], *, rngs: nnx.Rngs
    ):
        self.query, self.key = _Projection(query, width, rngs=rngs), _Projection(features, width, rngs=rngs)
        self.value = nnx.Param(jax.random.normal(rngs.params(), (classes, width)) / math.sqrt(width))
        self.read_in = nnx.Linear(width, width, precision=PRECISION, rngs=rngs)
        self.read_out = nnx.Linear(width, classes, precision=PRECISION, rngs=rngs)
        self.learned = _parameters(learned, 1)

    def __call__(self, batch: LabelledSets, weigh: Weigh) -> Float[Array, "B 1 C"]:
        """Logits of the labels, one question a set."""
        query, key = self.query(batch.query), self.key(batch.features)
        logits = jnp.einsum("bw,bnw->bn", query, key, precision=PRECISION) / math.sqrt(query.shape[-1])
        weights = weigh(logits[:, None, None], batch.where[:, None, None])[:, 0, 0]
        # Values depend on the label alone: the mass of each label is all that they need of the items.
        one_hot = jax.nn.one_hot(batch.label, self.value.shape[0])
        mass = jnp.einsum("bn,bnc->bc", weights, one_hot, precision=PRECISION)
        pooled = jnp.dot(mass, self.value[...], precision=PRECISION)
        return self.read_out(jax.nn.gelu(self.read_in(pooled)))[:, None]


class _Projection(nnx.Module):
    """A linear map beside one with a hidden layer, normalised."""

    def __init__(self, inputs: int, width: int, *, rngs: nnx.Rngs):
        self.straight = nnx.Linear(inputs, width, precision=PRECISION, rngs=rngs)
        self.inner = nnx.Linear(inputs, width, precision=PRECISION, rngs=rngs)
        self.outer = nnx.Linear(width, width, use_bias=False, precision=PRECISION, rngs=rngs)
        self.norm = Norm(width, "rms")

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch width"]:
        flat = x.reshape(-1, x.shape[-1])  # XLA's CPU gradient of a product is slower in 3-d
        flat = self.norm(self.straight(flat) + self.outer(jax.nn.gelu(self.inner(flat))))
        return flat.reshape(*x.shape[:-1], -1)


class TokenModel(nnx.Module):
    """Two layers of attention without MLP: the first sees a token and the one before it, the second all.

    The first layer's window is the only notion of order, so nothing about positions must be extrapolated when rows
    grow, and its rows never do: its weights are those of softmax. How the second layer's are made is for the caller.
    Queries and keys are normalised, as in `SetHead`, and the scale of their products is 1: of 1/√width, 1/2 and 1 it
    is the one whose loss at training lengths was lowest in recall. With the first, heads are dispersed at training
    lengths already, and a rule that sees no more than those takes them for heads that average.

    Args:
        vocabulary: number of tokens.
        answers: number of tokens that can be answers, the first of the vocabulary.
        width: of the hidden states.
        heads: of each layer.
        learned: initial values of the parameters of the weights, by name.
        rngs: where the initial parameters come from.
    """

    def __init__(
        self, vocabulary: int, answers: int, width: int, heads: int, learned: Mapping[str, float], *, rngs: nnx.Rngs
    ):
        config = TransformerConfig(
            vocabulary=vocabulary,
            layers=2,
            width=width,
            heads=heads,
            positions="none",
            norm="rms",
            qk_norm="rms",
            scale=1.0,
            mlp="none",
            windows=(2, None),
            tied=True,
            scale_embedding=True,
        )
        self.transformer = Transformer(config, rngs=rngs)
        self.learned = _parameters(learned, heads)
        self.answers = answers

    def __call__(self, batch: TokenRows, weigh: Weigh) -> Float[Array, "B A answers"]:
        """Logits of what should follow the last A tokens.

        Only what these need is computed: products with two keys in the first layer, the last A queries of the second,
        and the tokens that can be answers. What is computed is what the whole would give.
        """
        asking = batch.target.shape[1]
        attend = attention(weigh, asking)
        hidden = self.transformer.embed(batch.tokens)
        hidden, _, _ = self.transformer.run(hidden, batch.where, attend=attend)
        read = self.transformer.final_norm(hidden[:, -asking:])
        return jnp.dot(read, self.transformer.embedding[...][: self.answers].T, precision=PRECISION)


def attention(weigh: Weigh, asking: int) -> Callable[..., Float[Array, "B T N H"]]:
    """An `attend` for `Transformer.run` that is causal and weighs the keys of unlimited layers as it is told.

    With a window of two, every query is given its two keys and softmax. Without one, the queries before the last
    `asking` are left out, and get 0.

    Args:
        weigh: (logits, mask) to weights.
        asking: queries that count.
    """

    def attend(query, key, value, bias, mask, *, scale, is_causal, logits_soft_cap, local_window_size=None):
        if not is_causal or bias is not None or logits_soft_cap is not None:
            raise ValueError("attention: made for a causal model without bias and cap")
        if local_window_size not in (None, (1, 0)):
            raise ValueError(f"local_window_size={local_window_size}: made for windows of two tokens, (1, 0), or none")
        B, T = query.shape[:2]
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        exists = jnp.ones((B, T), bool) if mask is None else mask[:, 0, 0]
        if local_window_size is not None:
            key, value, exists = (jnp.stack([_before(x), x], axis=2) for x in (key, value, exists))  # [B, T, 2, ...]
            logits = scale * jnp.sum(query[:, :, None] * key, axis=-1)  # [B, T, 2, N]
            # The query's own place counts even where no token is, so that no row is empty: nothing sees it.
            exists = exists.at[:, :, 1].set(True)[..., None]
            weights = jax.nn.softmax(jnp.where(exists, logits, -jnp.inf), axis=2)
            return jnp.sum(weights[..., None] * value, axis=2)
        logits = scale * jnp.einsum("btnh,bsnh->bnts", query[:, -asking:], key, precision=PRECISION)
        seen = exists[:, None, None] & (jnp.arange(T) <= jnp.arange(T - asking, T)[:, None])
        output = jnp.einsum("bnts,bsnh->btnh", weigh(logits, seen), value, precision=PRECISION)
        return jnp.pad(output, ((0, 0), (T - asking, 0), (0, 0), (0, 0)))

    return attend


def _before(x):
    """What stood one place before, along axis 1; zeros, or False, before the first."""
    return jnp.pad(x[:, :-1], ((0, 0), (1, 0)) + ((0, 0),) * (x.ndim - 2))


def _parameters(learned: Mapping[str, float], heads: int):
    return nnx.data({name: nnx.Param(jnp.full((heads, 1), value)) for name, value in learned.items()})

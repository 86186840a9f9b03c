"""Max retrieval over a finite vocabulary, for a Transformer: one symbol stands above all others, and which is it?

A sequence is n items and a query. Each item is one of `SYMBOLS` symbols, which are ordered; the largest occurs once,
and all others are drawn evenly from those below it. The answer at the query is the largest symbol. However many items
there are, there is one right item to attend to, and the distance to its nearest rival does not shrink.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from adatemp.models import presets
from adatemp.models.transformer import Transformer
from adatemp.training import History, train

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Int, Key

SYMBOLS = 32
QUERY = SYMBOLS  # the token of the query, one more symbol of the vocabulary

#: The two Transformers of chapter 04, each of two layers of four heads and width 32.
KINDS = {
    "set": dict(causal=False, positions="none"),
    "causal": dict(causal=True, positions="rotary"),
}
STEPS, BATCH, RATE = 400, 128, 2e-3
LEAST, MOST = 5, 16  # items in training


class TokenMaximumBatch(NamedTuple):
    """Sequences that end in the query.

    Attributes:
        tokens: [B, n + 1].
        where: [B, n + 1], which tokens exist; those that do not stand in front.
        target: [B], the largest symbol of each.
    """

    tokens: Int[Array, "B n+1"]
    where: Bool[Array, "B n+1"]
    target: Int[Array, " B"]


def sample(key: Key[Array, ""], batch: int, n: int, *, least: int | None = None) -> TokenMaximumBatch:
    """Draws sequences of n items, or of `least` to n.

    Args:
        key: decides everything.
        batch: B.
        n: items, at least 1; the target is drawn evenly from 1 to SYMBOLS − 1.
        least: the fewest items; by default n.
    """
    least = n if least is None else least
    if not 1 <= least <= n:
        raise ValueError(f"least must be from 1 to n={n} items, got {least}")
    of_count, of_target, of_items, of_place = jax.random.split(key, 4)
    count = jax.random.randint(of_count, (batch, 1), least, n + 1)
    target = jax.random.randint(of_target, (batch, 1), 1, SYMBOLS)
    items = jax.random.randint(of_items, (batch, n), 0, target)
    place = n - 1 - jax.random.randint(of_place, (batch, 1), 0, count)
    items = jnp.where(jnp.arange(n) == place, target, items)
    tokens = jnp.concatenate([items, jnp.full((batch, 1), QUERY)], axis=1)
    return TokenMaximumBatch(tokens, jnp.arange(n + 1) >= n - count, target[:, 0])


def histogram(tokens: Int[Array, "B T"]) -> Int[Array, "B V"]:
    """How often each symbol of the vocabulary occurs, the query included."""
    return jax.vmap(partial(jnp.bincount, length=SYMBOLS + 1))(tokens)


def make(kind: str, seed: int, **changes) -> Transformer:
    """An untrained Transformer of one of `KINDS`; `changes` are fields of its config."""
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: choose one of {list(KINDS)}.")
    fields = dict(vocabulary=SYMBOLS + 1, width=32, heads=4, mlp_width=64, context=None) | KINDS[kind] | changes
    return Transformer(presets.toy(**fields), rngs=nnx.Rngs(seed))


def train_toy(kind: str, seed: int, *, steps: int = STEPS) -> tuple[Transformer, History]:
    """Trains one of `KINDS` by Adam at a constant rate on sequences of 5 to 16 items.

    Args:
        kind: "set" or "causal".
        seed: decides the initial parameters and the training data.
        steps: optimiser steps.

    Returns:
        The model and its training history ("loss", "accuracy").
    """
    model = make(kind, seed)
    history = train(model, _loss, optimizer=_ADAM, steps=steps, seed=seed + 1, chunk=100, progress=False)
    return model, history


_ADAM = optax.adam(RATE)  # one object, so that the seeds of a kind compile one program


def _loss(model: Transformer, key: Key[Array, ""]):
    batch = sample(key, BATCH, MOST, least=LEAST)
    # Positions count from the first token that exists.
    at = jnp.cumsum(batch.where, axis=1) - 1
    answer = model(batch.tokens, batch.where, at=at)[:, -1, :SYMBOLS]
    loss = optax.softmax_cross_entropy_with_integer_labels(answer, batch.target).mean()
    return loss, {"accuracy": jnp.mean(answer.argmax(-1) == batch.target)}

"""Two hops: each item names another one; which item does the asked item's neighbour name? Needs two layers.

A set of n items is a ring in random order: item i carries a name, drawn anew for every set, and the name of its
successor. A question carries a name and asks for the successor (one hop) or the successor's successor (two hops). A
layer of attention can follow one link, so two hops need two layers, and each must be sharp: an average of names is no
name. There are no positions; questions see the items and no question sees another, so n is the number of keys.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from adatemp._checkpoint import load, read_about, save
from adatemp._stored_results import results_file
from adatemp.attention.api import dot_product_attention
from adatemp.models.config import TransformerConfig
from adatemp.models.transformer import Transformer
from adatemp.temperature import constant
from adatemp.training import History, train

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int, Key

NAME_WIDTH = 16
#: One object, so that runs that differ in their seed alone share a compiled step.
OPTIMIZER = optax.adam(1e-3)
#: What a layer can be made to do for the questions, by the β it is given: read as trained, read the top logit, average.
READINGS = {"soft": 1.0, "hard": 1e4, "flat": 1e-9}


class Links(NamedTuple):
    """A batch of rings and what is asked about them."""

    names: Float[Array, "B n W"]
    successors: Float[Array, "B n W"]  # the names of the successors
    where: Bool[Array, "B n"]  # which items exist
    start: Int[Array, "B Q"]  # the item that a question names
    hops: Int[Array, "B Q"]  # 1 or 2
    path: Int[Array, "B Q 2"]  # the items after one hop and after two

    @property
    def target(self) -> Int[Array, "B Q"]:
        """The item asked for."""
        return jnp.take_along_axis(self.path, self.hops[..., None] - 1, -1)[..., 0]


def sample(
    key: Key[Array, ""],
    batch: int,
    n: int,
    *,
    questions: int = 16,
    hops: Literal[1, 2] | None = None,
    min_items: int | None = None,
) -> Links:
    """Draw rings with names that are normal vectors of length √W.

    Args:
        key: a JAX random key.
        batch: number of sets.
        n: items in a set, or room for items when `min_items` is given.
        questions: Q, questions to a set, about items drawn with replacement.
        hops: 1 or 2 for all questions; None draws either.
        min_items: when given, each set has its own size, uniform on min_items, ..., n; items past it are masked.

    Raises:
        ValueError: fewer than three items: two hops would lead back to the start.
    """
    smallest = n if min_items is None else min_items
    if not 3 <= smallest <= n:
        raise ValueError(f"{smallest} items at the least in a set of n={n}: a ring needs 3, and n of them must fit")
    for_names, for_start, for_hops, for_size = jax.random.split(key, 4)
    names = jax.random.normal(for_names, (batch, n, NAME_WIDTH))
    names = names * (NAME_WIDTH**0.5 / jnp.linalg.norm(names, axis=-1, keepdims=True))
    size = jax.random.randint(for_size, (batch, 1), smallest, n + 1)
    after = (jnp.arange(n) + 1) % size  # names are random, so any ring is a ring in random order
    start = jax.random.randint(for_start, (batch, questions), 0, size)
    drawn = jax.random.randint(for_hops, (batch, questions), 1, 3)
    return Links(
        names=names,
        successors=jnp.take_along_axis(names, after[..., None], 1),
        where=jnp.arange(n) < size,
        start=start,
        hops=drawn if hops is None else jnp.full_like(drawn, hops),
        path=jnp.stack([(start + 1) % size, (start + 2) % size], -1),
    )


class Follower(nnx.Module):
    """A pre-norm Transformer without positions, one head a layer, that answers with a name.

    Args:
        layers: number of layers.
        width: D, of the residual stream and the head.
        rngs: where the initial parameters come from.
    """

    def __init__(self, *, layers: int = 2, width: int = 64, rngs: nnx.Rngs):
        linear = partial(nnx.Linear, precision="highest", rngs=rngs)
        self.item, self.question = linear(2 * NAME_WIDTH, width), linear(NAME_WIDTH + 1, width)
        config = TransformerConfig(
            vocabulary=1,
            layers=layers,
            width=width,
            heads=1,
            mlp_width=2 * width,
            causal=False,
            positions="none",
            norm="rms",
        )
        self.transformer = Transformer(config, rngs=rngs)
        self.answer = linear(width, NAME_WIDTH)

    def embed(self, links: Links) -> Float[Array, "B n+Q D"]:
        """Hidden states before the first layer: items, then questions."""
        asked = jnp.take_along_axis(links.names, links.start[..., None], 1)
        hops = 2.0 * links.hops[..., None] - 3.0  # −1 or 1
        items = self.item(jnp.concatenate([links.names, links.successors], -1))
        return jnp.concatenate([items, self.question(jnp.concatenate([asked, hops], -1))], 1)

    def __call__(self, links: Links) -> Float[Array, "B Q n"]:
        """Logits over the items of a set, −∞ for absent ones."""
        return self.layers(links)[0]

    def layers(
        self, links: Links, beta: Float[Array, " L"] | None = None
    ) -> tuple[Float[Array, "B Q n"], Float[Array, "L B Q n"]]:
        """Logits over the items, and the attention logits of the questions in each layer, before β.

        Args:
            links: the sets.
            beta: β of each layer's softmax, for the questions alone; the items attend as trained. None is 1.
        """
        n, questions = links.names.shape[1], links.start.shape[1]
        x, scores = self.embed(links), []
        where = jnp.concatenate([links.where, jnp.zeros(links.start.shape, bool)], 1)
        asks = jnp.arange(n + questions)[None, :, None] >= n
        for layer, block in enumerate(self.transformer.blocks):
            rule = None if beta is None else constant(jnp.where(asks, beta[layer], 1.0))
            attend = partial(dot_product_attention, temperature=rule, implementation="dense")
            scores.append(self._scores(block, x, n))
            x = block(x, where, jnp.arange(n + questions), None, attend, False)[0]
        names = self.answer(self.transformer.final_norm(x[:, n:]))
        logits = jnp.einsum("bqw,bnw->bqn", names, links.names, precision="highest")
        absent = ~links.where[:, None]
        return jnp.where(absent, -jnp.inf, logits), jnp.where(absent, -jnp.inf, jnp.stack(scores))

    @staticmethod
    def _scores(block, x, n: int) -> Float[Array, "B Q n"]:
        inputs, attention = block.attention_norm(x), block.attention
        query, key = attention.query(inputs[:, n:])[:, :, 0], attention.key(inputs[:, :n])[:, :, 0]
        return jnp.einsum("bqh,bnh->bqn", query, key, precision="highest") / query.shape[-1] ** 0.5


def loss(model: Follower, key: Key[Array, ""], *, batch: int = 32, n: int = 16, min_items: int = 4):
    """Cross-entropy of the item asked for, and the accuracy by hops."""
    links = sample(key, batch, n, min_items=min_items)
    logits = model(links)
    right = jnp.argmax(logits, -1) == links.target

    def share(hops):
        return jnp.sum(right & (links.hops == hops)) / jnp.maximum(jnp.sum(links.hops == hops), 1)

    entropy = optax.softmax_cross_entropy_with_integer_labels(logits, links.target)
    return entropy.mean(), {"one_hop": share(1), "two_hops": share(2)}


def train_follower(seed: int, *, layers: int = 2, steps: int = 1500, **options) -> tuple[Follower, History]:
    """Train on sets of 4 to 16 items by Adam at a rate of 10⁻³; other options go to `training.train`."""
    model = Follower(layers=layers, rngs=nnx.Rngs(seed))
    return model, train(model, loss, optimizer=OPTIMIZER, steps=steps, seed=seed, **options)


def measure(model: Follower, links: Links, readings: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """What the layers do with the questions: means over sets and questions.

    Args:
        model: a trained model of L layers.
        links: two-hop questions.
        readings: for each layer a name of `READINGS`, for the questions' rows; None reads all as trained.

    Returns:
        "accuracy"; one number a layer for "spread" of the questions' rows, "entropy" and "top_weight" of their plain
        softmax; "on_path" [L, 2], the shares of rows whose top logit is on the item asked about and on the next.

    Raises:
        ValueError: readings that are unknown or not one for each layer.
    """
    layers = len(model.transformer.blocks)
    readings = ("soft",) * layers if readings is None else tuple(readings)
    if len(readings) != layers or not set(readings) <= set(READINGS):
        raise ValueError(f"readings must be {layers} of {', '.join(READINGS)}, one for each layer, got {readings}")
    return jax.device_get(_measure(model, links, jnp.array([READINGS[name] for name in readings])))


@nnx.jit
def _measure(model: Follower, links: Links, beta: Float[Array, " L"]) -> dict[str, Array]:
    logits, scores = model.layers(links, beta)
    weights, seen = jax.nn.softmax(scores, -1), jnp.isfinite(scores)
    log_weights = jnp.where(seen, jax.nn.log_softmax(scores, -1), 0.0)
    low = jnp.min(jnp.where(seen, scores, jnp.inf), -1)
    top, over = jnp.argmax(scores, -1), (-2, -1)
    return {
        "accuracy": jnp.mean(jnp.argmax(logits, -1) == links.target),
        "spread": jnp.mean(jnp.max(scores, -1) - low, over),
        "entropy": -jnp.mean(jnp.sum(weights * log_weights, -1), over),
        "top_weight": jnp.mean(jnp.max(weights, -1), over),
        "on_path": jnp.stack([jnp.mean(top == item, over) for item in (links.start, links.path[..., 0])], -1),
    }


def load_follower(path: str | os.PathLike | None = None) -> Follower:
    """The trained model that chapter 07 looks at, read from book/results/two_hops.npz, or from another file."""
    path = results_file("two_hops.npz") if path is None else path
    model = Follower(**read_about(path)["made"], rngs=nnx.Rngs(0))
    state = nnx.state(model)
    nnx.replace_by_pure_dict(state, load(path, nnx.to_pure_dict(state)))  # the same paths in every version of flax
    nnx.update(model, state)
    return model


def save_follower(path: str | os.PathLike, model: Follower, **about) -> None:
    """Write a model to an npz file, with what is to be said about it."""
    config = model.transformer.config
    made = {"layers": config.layers, "width": config.width}
    save(path, nnx.to_pure_dict(nnx.state(model)), about={**about, "made": made})

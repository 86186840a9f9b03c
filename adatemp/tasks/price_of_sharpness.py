"""What a head's spread is made of while it is trained: three arms, two tasks of which one has no use for sharpness."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from adatemp.dispersion import qk_norm_ceiling, score_norm
from adatemp.models.pooling_arms import NormedPooling, PriorityPooling, vectors
from adatemp.models.set_pooling import SetPooling
from adatemp.tasks._retrieval_sets import MaxRetrievalBatch, sample
from adatemp.training import History, train

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Key


def most_frequent(
    key: Key[Array, ""], batch: int, n: int, *, classes: int = 10, min_items: int | None = None
) -> MaxRetrievalBatch:
    """The sets of max retrieval with another answer: the class that occurs most often, the first of several.

    Every item counts alike, so the best weights are equal ones: a head has no use for sharpness here.

    Args:
        key, batch, n, classes, min_items: as in `max_retrieval.sample`.
    """
    sets = sample(key, batch, n, classes=classes, min_items=min_items)
    counts = jnp.sum(sets.items[..., 1:] * sets.where[..., None], axis=-2)
    return sets._replace(target=jnp.argmax(counts, axis=-1))


class Arm(NamedTuple):
    """How a head is made and trained."""

    says: str
    model: type[SetPooling]
    draw: Callable[..., MaxRetrievalBatch]
    l2: float


#: The penalty adds 10⁻³/2 times the sum of the squared parameters to the loss, as "adam, L2 term" in `max_retrieval`.
ARMS = {
    "free": Arm("max retrieval, nothing bounds the weights", SetPooling, sample, 0.0),
    "weight decay": Arm("max retrieval, L2 penalty", SetPooling, sample, 1e-3),
    "QK-norm": Arm("max retrieval, normalised queries and keys", NormedPooling, sample, 0.0),
    "control": Arm("most frequent class, nothing bounds the weights", SetPooling, most_frequent, 0.0),
    "priority, free": Arm("max retrieval, keys see the priority alone", PriorityPooling, sample, 0.0),
    "priority, decay": Arm("max retrieval, keys see the priority alone, L2 penalty", PriorityPooling, sample, 1e-3),
}


def train_arm(
    arm: str,
    seed: int,
    *,
    steps: int,
    chunk: int = 500,
    look: Callable[[int, SetPooling], None] | None = None,
) -> tuple[SetPooling, History]:
    """Train one head of width 128 by Adam at a constant rate of 10⁻³ on batches of 128 sets of 5 to 16 items.

    Args:
        arm: one of `ARMS`.
        seed: decides the initial parameters and the training sets.
        steps: optimiser steps.
        chunk: steps between two looks.
        look: called with the step reached and the head, before training and after each chunk.

    Returns:
        The head and its training history ("loss", "accuracy").
    """
    if arm not in ARMS:
        raise ValueError(f"arm={arm!r}: choose one of {list(ARMS)}.")
    key_parameters, key_sets = jax.random.split(jax.random.key(seed))
    head = ARMS[arm].model(rngs=nnx.Rngs(key_parameters))
    if look is not None:
        look(0, head)
    progress = (lambda step, _: look(step, head)) if look is not None else False
    optimizer, loss_fn = _recipe(arm)
    history = train(head, loss_fn, optimizer=optimizer, steps=steps, seed=key_sets, chunk=chunk, progress=progress)
    return head, history


@cache  # one object for all seeds of an arm, so that they compile one program
def _recipe(arm: str) -> tuple[optax.GradientTransformation, Callable]:
    return optax.adam(1e-3), partial(_loss, draw=ARMS[arm].draw, l2=ARMS[arm].l2)


def _loss(
    model: SetPooling, key: Key[Array, ""], *, draw: Callable[..., MaxRetrievalBatch], l2: float
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    sets = draw(key, 128, 16, min_items=5)
    class_logits = model(sets.items, sets.query, sets.where)
    total = optax.softmax_cross_entropy_with_integer_labels(class_logits, sets.target).mean()
    if l2:
        total += l2 / 2 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
    return total, {"accuracy": jnp.mean(class_logits.argmax(-1) == sets.target)}


def measure(head: SetPooling, sets: MaxRetrievalBatch) -> dict[str, float]:
    """Spread, bounds and what the bounds are made of, on sets without masked items.

    Args:
        head: an arm's head, or that of chapter 02.
        sets: a batch in which all items take part.

    Returns:
        Means over the sets, in nats where they are spreads: "spread"; "norms", the norm form of Proposition 3.1;
        "tight", the tight form; "keys", the form for keys as the product sees them; for a head with QK-norm norms is
        the ceiling of its gains and tight is the same as keys. "worst_norms" and "worst_tight", the largest ratio of
        spread to bound over the sets. "query_sigma", "key_sigma", "score_sigma", the largest singular values of W_Q,
        W_K, W_Q W_Kᵀ; "query_norm", "item_norm" (largest of a set), "diameter" (of the items, as they enter W_K);
        "gain", the largest product of gains, or 1; "top_weight", "accuracy".
    """
    found = jax.device_get(_measure(*nnx.split(head), sets))
    return {name: float(value) for name, value in found.items()}


@partial(jax.jit, static_argnums=0)
def _measure(graph, state, sets):
    head = nnx.merge(graph, state)
    y, x, q, k = vectors(head, sets.items, sets.query)
    c = 1 / np.sqrt(q.shape[-1])
    logits = head.logits(sets.items, sets.query)
    spread = logits.max(-1) - logits.min(-1)
    sigma_q, sigma_k = (jnp.linalg.norm(layer.kernel[...], 2) for layer in (head.query, head.key))
    sigma = score_norm(head.query.kernel[...], head.key.kernel[...])
    y_norm, x_norm = jnp.linalg.norm(y, axis=-1), jnp.linalg.norm(x, axis=-1).max(-1)
    reach, reach_keys = _diameters(x), _diameters(k)
    of_keys = c * jnp.linalg.norm(q, axis=-1) * reach_keys
    gain = jnp.ones(())
    if isinstance(head, NormedPooling):
        gains = head.query_gain[...], head.key_gain[...]
        gain = jnp.max(jnp.abs(gains[0] * gains[1]))
        norms, tight = jnp.full_like(spread, qk_norm_ceiling(*gains)), of_keys
    else:
        norms, tight = 2 * c * sigma_q * sigma_k * y_norm * x_norm, c * sigma * y_norm * reach
    means = {"spread": spread, "norms": norms, "tight": tight, "keys": of_keys}
    means |= {"query_norm": y_norm, "item_norm": x_norm, "diameter": reach}
    means |= {"top_weight": jax.nn.softmax(logits).max(-1)}
    right = head.classify_from_hidden(head.hidden(sets.items), jax.nn.softmax(logits)).argmax(-1) == sets.target
    return {name: value.mean() for name, value in means.items()} | {
        "worst_norms": jnp.max(spread / norms),
        "worst_tight": jnp.max(spread / tight),
        "query_sigma": sigma_q,
        "key_sigma": sigma_k,
        "score_sigma": sigma,
        "gain": gain,
        "accuracy": right.mean(),
    }


def _diameters(points):
    """The largest distance within each set. By differences: a product would lose the digits that nearness needs."""

    def of_set(points):
        squares = jax.lax.map(lambda point: jnp.max(jnp.sum((points - point) ** 2, -1)), points, batch_size=32)
        return jnp.sqrt(jnp.max(squares))

    return jax.lax.map(of_set, points)

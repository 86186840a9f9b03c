"""One head, several ways to read it: accuracy against set size, and what kind of error is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from adatemp._polynomial import PAPER
from adatemp._softmax import adaptive_temperature_softmax
from adatemp.tasks._retrieval_sets import MaxRetrievalBatch, sample

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Key

    from adatemp.models.set_pooling import SetPooling
    from adatemp.temperature import TemperatureRule

# Items held at once: 32,768 of width 128 are 16 MiB, which a processor's cache nearly holds and a GPU does not notice.
BLOCK_ITEMS = 32_768

READ_OUTS = {"plain": None, "adaptive": PAPER}


def evaluate(
    model: SetPooling,
    key: Key[Array, ""],
    n: int,
    sets: int,
    *,
    rules: Mapping[str, TemperatureRule | None] = READ_OUTS,
    classes: int = 10,
    draw: Callable[..., MaxRetrievalBatch] = sample,
) -> dict[str, float | int | dict[str, dict[str, float]]]:
    """Measure a head on random sets of n items, every read-out on the same sets.

    Besides the given rules two read-outs are always measured. "argmax" gives weight 1 to the item of highest logit:
    what any rule tends to as its temperature falls, since no temperature changes which item is first. "mass" takes the
    class with most plain attention mass, without the read-out network.

    The errors of a read-out, as shares of all sets, add up exactly:

        1 − accuracy = ranking + dispersion − lucky

    with ranking the sets where the highest logit is not on the target item, dispersion those where it is and the class
    is wrong nevertheless, lucky those where it is not and the class is right nevertheless (one wrong item in C has the
    right class). No temperature changes the ranking part.

    Args:
        model: a head.
        key: a JAX random key; equal keys give equal sets.
        n: items in every set.
        sets: number of sets.
        rules: read-outs by name, each a temperature rule or None for the plain softmax; must contain "plain".
        classes: number of classes C.
        draw: (key, batch, n, classes=...) to a batch; where the sets come from.

    Returns:
        n, sets, and means over sets: "ranking_accuracy" (highest logit on the target item), "entropy" of the plain
        weights in nats, "spread" (highest minus lowest logit), "target_weight" (plain weight of the target item); and
        under "read_outs" for each name "accuracy", its "standard_error" over sets, "ranking", "dispersion", "lucky";
        "gained" and "lost" (sets right where plain is wrong, and the reverse); and for rules also "beta", "unchanged"
        (share of sets with beta exactly 1), "top_weight" (largest weight).
    """
    return _means(n, sets, _dispatch(model, key, n, sets, rules, classes, draw))


def evaluate_sizes(
    model: SetPooling,
    key: Key[Array, ""],
    sets: Mapping[int, int],
    *,
    rules: Mapping[str, TemperatureRule | None] = READ_OUTS,
    classes: int = 10,
    draw: Callable[..., MaxRetrievalBatch] = sample,
) -> dict[str, list[float] | dict[str, dict[str, list[float]]]]:
    """Measure a head at several sizes, compiling the next size while the last is measured.

    Args:
        model: a head.
        key: a JAX random key; size n gets fold_in(key, n).
        sets: number of sets for each size.
        rules: as in `evaluate`.
        classes: as in `evaluate`.
        draw: as in `evaluate`.

    Returns:
        What `evaluate` returns, with a list over the sizes in the place of every number.
    """
    sums = {
        n: _dispatch(model, jax.random.fold_in(key, n), n, count, rules, classes, draw) for n, count in sets.items()
    }
    return jax.tree.map(lambda *values: list(values), *[_means(n, sets[n], sums[n]) for n in sets])


def _dispatch(model, key, n, sets, rules, classes, draw):
    """Start the measurement and return its sums at once; they are waited for when they are read."""
    if sets < 1:
        raise ValueError(f"sets={sets}: give a positive number of sets to average over.")
    if "plain" not in rules or not {"argmax", "mass"}.isdisjoint(rules):
        raise ValueError(
            f"rules={sorted(rules)}: must contain 'plain', and neither 'argmax' nor 'mass', which are built in."
        )
    graph, state = nnx.split(model)
    block = max(1, BLOCK_ITEMS // n)
    blocks = jnp.arange(-(-sets // block))
    return _sum_blocks(graph, draw, n, block, classes, state, key, dict(rules), blocks, sets)


def _means(n, sets, sums):
    means = jax.tree.map(lambda per_block: float(np.sum(per_block, dtype=np.float64)) / sets, jax.device_get(sums))
    for read_out in means["read_outs"].values():
        read_out["standard_error"] = float(np.sqrt(read_out["accuracy"] * (1 - read_out["accuracy"]) / sets))
    return {"n": n, "sets": sets, **means}


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _sum_blocks(graph, draw, n, block, classes, state, key, rules, blocks, sets):
    """Sums over the sets of each block, so that memory is that of one block whatever the number of sets."""
    model = nnx.merge(graph, state)

    def one_block(_, index):
        batch = draw(jax.random.fold_in(key, index), block, n, classes=classes)
        wanted = index * block + jnp.arange(block) < sets  # the last block may be too large
        leaves, structure = jax.tree.flatten(read(model, batch, rules))
        # One sum over all that was measured: thirty small ones take longer to compile than the model.
        sums = jnp.sum(jnp.where(wanted, jnp.stack(leaves).astype(jnp.float32), 0), axis=-1)
        return None, structure.unflatten(list(sums))

    return jax.lax.scan(one_block, None, blocks)[1]


def read(
    model: SetPooling, batch: MaxRetrievalBatch, rules: Mapping[str, TemperatureRule | None]
) -> dict[str, Float[Array, " B"] | dict[str, dict[str, Float[Array, " B"]]]]:
    """What `evaluate` averages, for each set of a batch; can be called inside jit."""
    hidden = model.hidden(batch.items)
    logits = model.logits_from_hidden(hidden, batch.query)
    where = batch.where
    first = jnp.argmax(jnp.where(where, logits, -jnp.inf), axis=-1)
    ranked = first == batch.top_item

    weights, of_rule = {}, {}
    for name, rule in rules.items():
        weights[name], stats = adaptive_temperature_softmax(logits, where=where, temperature=rule, return_stats=True)
        of_rule[name] = {"beta": stats.beta, "unchanged": stats.beta == 1, "top_weight": weights[name].max(-1)}
        if name == "plain":
            entropy = stats.entropy
    weights["argmax"] = jax.nn.one_hot(first, logits.shape[-1])
    class_logits = model.classify_from_hidden(hidden, jnp.stack(list(weights.values())))  # [read-outs, B, C]
    decided = dict(zip(weights, jnp.argmax(class_logits, axis=-1)))
    decided["mass"] = jnp.argmax(jnp.einsum("bn,bnc->bc", weights["plain"], batch.items[..., 1:]), axis=-1)

    return {
        "ranking_accuracy": ranked,
        "entropy": entropy,
        "spread": jnp.max(logits, -1, where=where, initial=-jnp.inf)
        - jnp.min(logits, -1, where=where, initial=jnp.inf),
        "target_weight": jnp.take_along_axis(weights["plain"], batch.top_item[:, None], axis=-1)[:, 0],
        "read_outs": {
            name: _split(decided[name] == batch.target, ranked, decided["plain"] == batch.target)
            | of_rule.get(name, {})
            for name in decided
        },
    }


def _split(right, ranked, plain_right):
    return {
        "accuracy": right,
        "ranking": ~ranked,
        "dispersion": ranked & ~right,
        "lucky": ~ranked & right,
        "gained": right & ~plain_right,
        "lost": plain_right & ~right,
    }

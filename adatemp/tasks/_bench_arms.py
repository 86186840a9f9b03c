"""The tasks of the bench of normalisers, and the ways of making weights that its models are trained with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp

from adatemp._softmax import adaptive_temperature_softmax
from adatemp._variants.elementwise import relu, sigmoid
from adatemp._variants.entmax import entmax15, sparsemax
from adatemp._variants.length import log_length_softmax, scalable_softmax
from adatemp._variants.sink import sink_softmax
from adatemp._variants.softpick import softpick
from adatemp._variants.stick_breaking import stick_breaking
from adatemp.tasks import copying, majority, needle, recall
from adatemp.tasks._bench_models import SetHead, TokenModel
from adatemp.tasks._labelled_sets import LabelledSets
from adatemp.tasks._retrieval_sets import sample as retrieval_sets

if TYPE_CHECKING:
    from flax import nnx
    from jaxtyping import Array, Float, Key

    from adatemp.tasks._token_rows import TokenRows

    Batch = LabelledSets | TokenRows


class Task(NamedTuple):
    """What is learned, and at which length."""

    says: str
    theory: str
    draw: Callable[..., Batch]
    model: Callable[..., nnx.Module]
    longest: int  # training length: items, pairs, or tokens to copy
    shortest: int
    keys: int  # what the last answer sees at the longest training length
    counted: Mapping[int, int]  # sets or rows of each test length, by the multiple they are padded to


class Variant(NamedTuple):
    """A way of making weights that a model can be trained with."""

    says: str
    weights: Callable[..., Float[Array, "B N T S"]]  # (logits, where, longest number of keys in training, learned)
    learned: Mapping[str, float]  # initial values, one for each head


def maximum(key: Key[Array, ""], batch: int, n: int, *, min_items: int | None = None) -> LabelledSets:
    """Max retrieval with keys that see the priority alone: what goes wrong as sets grow is dispersion."""
    sets = retrieval_sets(key, batch, n, min_items=min_items)
    label = jnp.argmax(sets.items[..., 1:], axis=-1)
    return LabelledSets(sets.items[..., :1], label, sets.query, sets.where, sets.target, sets.top_item)


def _recall(key, batch, n, *, min_items=None):
    return recall.sample(key, batch, n, min_pairs=min_items)


def _copying(key, batch, n, *, min_items=None):
    return copying.sample(key, batch, n, answers=8, min_items=min_items)


SETS, ROWS = {16: 256, 128: 128}, {16: 64, 128: 32}  # a row has eight answers

TASKS = {
    "maximum": Task(
        "label of the item of highest priority, priorities uniform",
        "gaps shrink like 1/n: a factor that grows like n is needed, and log n falls behind",
        maximum,
        partial(SetHead, 1, 1, 10, 32),
        16,
        5,
        16,
        SETS,
    ),
    "needle": Task(
        "label of the one item whose key is the query; every other product is behind by 0.25 or more",
        "the gap is constant: a factor that grows like log n is enough",
        partial(needle.sample, gap=0.25),
        partial(SetHead, 8, 8, 10, 32),
        16,
        5,
        16,
        SETS,
    ),
    "recall": Task(
        "value of a key among pairs of key and value, two layers",
        "the gap is between learned codes and constant: log n is enough",
        _recall,
        partial(TokenModel, 1040, 16, 48, 4),
        8,
        2,
        24,
        ROWS,
    ),
    "copying": Task(
        "the token that followed, in a row of distinct tokens, two layers",
        "as recall",
        _copying,
        partial(TokenModel, 1025, 1025, 48, 4),
        8,
        2,
        17,
        ROWS,
    ),
    "majority": Task(
        "most frequent label among half of the items: the control that must not be sharpened",
        "half of the items count, and alike: sharpening can only lose, and none is needed",
        partial(majority.sample, share=0.1),
        partial(SetHead, 1, 1, 10, 32),
        16,
        5,
        16,
        SETS,
    ),
}


def _plainly(weights):
    return lambda logits, where, longest, learned: weights(logits, where=where, **learned)


VARIANTS = {
    "softmax": Variant("softmax", _plainly(partial(adaptive_temperature_softmax, temperature=None)), {}),
    "log length": Variant(
        "softmax of log n / log n0 times the logits, n0 the longest in training",
        lambda logits, where, longest, learned: log_length_softmax(logits, longest, where=where),
        {},
    ),
    "scalable": Variant(
        "softmax of (s log n + b) times the logits, s and b learned",
        _plainly(scalable_softmax),
        {"scale": 0.4, "offset": 0.0},
    ),
    "published map": Variant(
        "softmax under the published temperature map, in training too", _plainly(adaptive_temperature_softmax), {}
    ),
    "1.5-entmax": Variant("1.5-entmax", _plainly(entmax15), {}),
    "sparsemax": Variant("sparsemax", _plainly(sparsemax), {}),
    "null slot": Variant("softmax beside a logit 0 without value", _plainly(partial(sink_softmax, sink=0.0)), {}),
    "learned sink": Variant("softmax beside a learned logit without value", _plainly(sink_softmax), {"sink": 0.0}),
    "softpick": Variant("softpick", _plainly(softpick), {}),
    "sigmoid": Variant("sigmoid of the logits less log n", _plainly(sigmoid), {}),
    "relu": Variant("ReLU of the logits over n", _plainly(relu), {}),
    "stick-breaking": Variant("stick-breaking, the last key first", _plainly(stick_breaking), {}),
}

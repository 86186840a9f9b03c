"""Questions of the dispersion-only comparison: targets by numpy, and heads that are what they say."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from adatemp.models.pooling_arms import PriorityPooling
from adatemp.tasks import dispersion_only, max_retrieval

DRAWN = 200


def drawn(question):
    draw = dispersion_only.QUESTIONS[question].draw
    return jax.tree.map(np.asarray, draw(jax.random.key(0), DRAWN, 12, min_items=5))


def answer(question, priority, label, order):
    """Class asked for, by numpy, of one set in which `order` is the items from the largest priority down."""
    if question in ("largest", "second largest"):
        return label[order[int(question != "largest")]]
    weights = priority if question == "heaviest" else np.ones_like(priority)
    return np.bincount(label, weights, minlength=10).argmax()


@pytest.mark.parametrize("question", list(dispersion_only.QUESTIONS))
def test_targets_are_those_of_numpy_over_the_same_sets(question):
    sets = drawn(question)
    plain = jax.tree.map(np.asarray, max_retrieval.sample(jax.random.key(0), DRAWN, 12, min_items=5))
    np.testing.assert_array_equal(sets.items, plain.items)
    for items, where, target, top in zip(sets.items, sets.where, sets.target, sets.top_item):
        priority, label = items[where, 0], items[where, 1:].argmax(-1)
        order = np.argsort(-priority)
        assert target == answer(question, priority, label, order)
        if question == "second largest":
            assert items[top, 0] == np.sort(priority)[-2]


def test_the_second_largest_needs_two_items():
    for keywords in ({"n": 1}, {"n": 5, "min_items": 1}):
        n = keywords.pop("n")
        with pytest.raises(ValueError, match="a second item needs sets of at least 2"):
            dispersion_only.second_largest(jax.random.key(0), 4, n, **keywords)


def test_a_head_is_decided_by_its_seed_and_keys_of_the_priority_cannot_misorder():
    one, two, other = (dispersion_only.train_question("largest", seed, steps=60) for seed in (0, 0, 1))
    assert isinstance(one[0], PriorityPooling)
    np.testing.assert_array_equal(one[1].metrics["loss"], two[1].metrics["loss"])
    assert (one[1].metrics["loss"] != other[1].metrics["loss"]).any()
    sets = max_retrieval.sample(jax.random.key(5), 50, 64)
    relabelled = sets.items.at[..., 1:].set(np.roll(sets.items[..., 1:], 1, -1))
    logits = one[0].logits(sets.items, sets.query)
    np.testing.assert_array_equal(logits, one[0].logits(relabelled, sets.query))


def test_an_unknown_question_is_named():
    with pytest.raises(ValueError, match=r"question='max': choose one of \['largest'"):
        dispersion_only.train_question("max", 0)

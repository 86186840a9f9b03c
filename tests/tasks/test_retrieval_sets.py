"""Sets for max retrieval: the answer is the maximum's class, sizes grow in live items, draws are what they say."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from adatemp.tasks.max_retrieval import sample


def draw(batch=2000, n=12, **options):
    return jax.tree.map(np.asarray, sample(jax.random.key(0), batch, n, **options))


@pytest.mark.parametrize("min_items", [None, 1, 5, 12])
def test_target_is_the_class_of_the_highest_live_priority(min_items):
    sets = draw(min_items=min_items)
    for priority, one_hot, where, target, top_item in zip(
        sets.items[..., 0], sets.items[..., 1:], sets.where, sets.target, sets.top_item
    ):
        live = [i for i in range(12) if where[i]]
        best = max(live, key=lambda i: priority[i])
        assert top_item == best and list(one_hot[best]) == [float(c == target) for c in range(10)]


def test_every_size_is_equally_likely_and_masks_a_tail():
    sets = draw(batch=8000, min_items=5)
    sizes = sets.where.sum(-1)
    assert (sets.where == (np.arange(12) < sizes[:, None])).all()
    counts = np.bincount(sizes, minlength=13)
    assert counts[:5].sum() == 0
    # Eight sizes of 1,000 each; the standard deviation of a count is 30, five of them hold all eight surely.
    assert np.abs(counts[5:] - 1000).max() < 5 * 30


def test_without_min_items_all_items_take_part():
    sets = draw(n=300, batch=4)
    assert sets.where.all() and sets.items.shape == (4, 300, 11)


def test_priorities_and_queries_are_uniform_and_classes_even():
    sets = draw()
    # Mean 1/2 and variance 1/12 of a uniform variable; five standard errors.
    for values in (sets.items[..., 0].ravel(), sets.query.ravel()):
        assert values.min() >= 0 and values.max() < 1
        assert abs(values.mean() - 0.5) < 5 * np.sqrt(1 / 12 / values.size)
    share = sets.items[..., 1:].mean((0, 1))
    assert np.abs(share - 0.1).max() < 5 * np.sqrt(0.09 / (2000 * 12))


def test_a_key_decides_everything_and_jit_changes_nothing():
    once, again = draw(batch=50), jax.tree.map(np.asarray, jax.jit(lambda k: sample(k, 50, 12))(jax.random.key(0)))
    jax.tree.map(np.testing.assert_array_equal, once, again)
    other = jax.tree.map(np.asarray, sample(jax.random.key(1), 50, 12))
    assert not np.array_equal(once.items, other.items) and not np.array_equal(once.query, other.query)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"batch": 0}, "batch=0"),
        ({"n": -1}, "n=-1"),
        ({"classes": 0}, "classes=0"),
        ({"min_items": 13}, "min_items=13.*n=12"),
        ({"min_items": 0}, "min_items=0"),
    ],
)
def test_sizes_that_leave_nothing_are_refused(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        sample(jax.random.key(0), **{"batch": 2, "n": 12, **arguments})

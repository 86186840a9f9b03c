"""The averaging control: the answer is the majority of the items that count, and no single one of them has it."""

from __future__ import annotations

from collections import Counter

import jax
import numpy as np
import pytest

from adatemp.tasks import majority


def draw(batch=200, n=12, **options):
    return jax.tree.map(np.asarray, majority.sample(jax.random.key(0), batch, n, **options))


def test_the_target_is_the_most_frequent_label_of_live_items_that_count_the_lowest_of_several():
    sets = draw(min_items=3)
    for label, where, target in zip(sets.label, sets.where & (sets.features[..., 0] > 0.5), sets.target):
        counts = Counter(label[where].tolist())  # never empty
        assert target == min(c for c in counts if counts[c] == max(counts.values()))
    assert (sets.item == -1).all() and (sets.visible == sets.where.sum(-1)).all()


def test_the_favoured_label_has_its_share_among_the_items_that_count_and_the_best_of_them_no_more():
    sets = draw(batch=2000, n=400)
    counting = sets.features[..., 0] > 0.5
    right = sets.label == sets.target[:, None]
    # The share beyond the rest makes the majority certain at this size; 0.3 + 0.7/10 of those that count have it.
    for where, rate in ((counting, 0.37), (~counting, 0.1)):
        assert abs(right[where].mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / where.sum())
    for few in (sets.features[..., 0].argmax(-1), np.zeros(2000, int)):  # the first one always counts
        assert abs(right[np.arange(2000), few].mean() - 0.37) < 5 * np.sqrt(0.37 * 0.63 / 2000)
    assert counting[:, 0].all() and abs(counting[:, 1:].mean() - 0.5) < 5 * 0.5 / np.sqrt(2000 * 399)
    assert np.abs(np.bincount(sets.target, minlength=10) - 200).max() < 5 * np.sqrt(2000 * 0.09)


def test_the_majority_is_clearer_the_more_items_there_are():
    margins = []
    for n in (16, 64, 256):
        sets = draw(n=n)
        labels = np.where(sets.features[..., 0] > 0.5, sets.label, 10)
        counts = np.sort([np.bincount(row, minlength=11)[:10] for row in labels], axis=-1)
        margins.append(((counts[:, -1] - counts[:, -2]) / np.sqrt(n)).mean())
    assert margins[0] < margins[1] / 1.5 < margins[2] / 1.5**2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"batch": 0}, "batch=0"),
        ({"share": 0}, r"share=0: .*\(0, 1\]"),
        ({"share": 1.1}, "share=1.1"),
        ({"min_items": 13}, "min_items=13.*n=12"),
    ],
)
def test_bad_numbers_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        majority.sample(jax.random.key(0), **{"batch": 2, "n": 12, **options})

"""The averaging control: the answer is the majority, clearer with size, and no single item has it."""

from __future__ import annotations

from collections import Counter

import jax
import numpy as np
import pytest

from adatemp.tasks import majority


def draw(batch=200, n=12, **options):
    return jax.tree.map(np.asarray, majority.sample(jax.random.key(0), batch, n, **options))


def test_the_target_is_the_most_frequent_live_label_the_lowest_of_several():
    sets = draw(min_items=3)
    for label, where, target in zip(sets.label, sets.where, sets.target):
        counts = Counter(label[where].tolist())
        assert target == min(c for c in counts if counts[c] == max(counts.values()))
    assert (sets.item == -1).all() and (sets.visible == sets.where.sum(-1)).all()


def test_the_favoured_label_has_its_share_and_an_item_picked_by_its_feature_no_more():
    sets = draw(batch=2000, n=256)
    # The share beyond the rest makes the majority certain at this size; 0.3 + 0.7/10 of the items have it.
    rate, n = 0.37, sets.label.size
    assert abs((sets.label == sets.target[:, None]).mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / n)
    first = sets.label[np.arange(2000), sets.features[..., 0].argmax(-1)]
    assert abs((first == sets.target).mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / 2000)
    assert np.abs(np.bincount(sets.target, minlength=10) - 200).max() < 5 * np.sqrt(2000 * 0.09)


def test_the_majority_is_clearer_the_more_items_there_are():
    margins = []
    for n in (16, 64, 256):
        counts = np.sort([np.bincount(row, minlength=10) for row in draw(n=n).label], axis=-1)
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

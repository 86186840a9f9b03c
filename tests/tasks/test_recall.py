"""Associative recall: every query has its answer before it, keys are distinct, answers see rows that really grow."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from adatemp.tasks import recall


def draw(batch=100, pairs=6, **options):
    return jax.tree.map(np.asarray, recall.sample(jax.random.key(0), batch, pairs, **options))


@pytest.mark.parametrize("min_pairs", [None, 1, 4])
def test_a_dictionary_answers_every_query(min_pairs):
    rows = draw(keys=20, values=5, queries=4, min_pairs=min_pairs)
    assert rows.tokens.shape == (100, 2 * 6 + 4) and rows.target.shape == (100, 4) and rows.asked.all()
    for tokens, where, target in zip(rows.tokens, rows.where, rows.target):
        live = tokens[where].tolist()
        shown = dict(zip(live[:-4:2], live[1:-4:2]))
        assert len(shown) == len(live[:-4]) // 2 >= (min_pairs or 6)  # distinct keys
        assert [shown[query] for query in live[-4:]] == target.tolist()
        assert min(shown) >= 5 and max(shown) < 25 and max(shown.values()) < 5


def test_rows_end_with_the_queries_and_what_a_query_sees_is_counted():
    rows = draw(queries=3, min_pairs=2)
    pairs = (rows.where.sum(-1) - 3) // 2
    assert set(pairs) == {2, 3, 4, 5, 6}
    np.testing.assert_array_equal(rows.visible, 2 * pairs[:, None] + np.arange(1, 4))
    grown = [draw(batch=2, pairs=pairs).visible.mean() for pairs in (8, 64, 1024)]
    assert grown == [2 * pairs + 4.5 for pairs in (8, 64, 1024)]


def test_queries_ask_for_every_pair_and_all_keys_occur():
    rows = draw(batch=3000, keys=12, values=2, queries=1)
    place = [tokens[:-1].tolist().index(tokens[-1]) // 2 for tokens in rows.tokens]
    assert np.abs(np.bincount(place, minlength=6) - 500).max() < 5 * np.sqrt(3000 * 5 / 36)
    assert np.abs(np.bincount(rows.tokens[:, 0], minlength=14)[2:] - 250).max() < 5 * np.sqrt(3000 * 11 / 144)


def test_rows_of_distinct_numbers_are_permutations_whatever_the_batch():
    for batch, drawn, among in ((7, 3, 8), (3, 8, 8), (1, 1, 5), (5, 4, 7)):
        rows = np.asarray(recall.distinct(jax.random.key(1), batch, drawn, among))
        assert rows.shape == (batch, drawn) and rows.min() >= 0 and rows.max() < among
        assert all(len(set(row)) == drawn for row in rows.tolist())
    pairs = np.asarray(recall.distinct(jax.random.key(2), 6000, 2, 3))
    # Six ordered choices of two among three, 1,000 each.
    assert np.abs(np.bincount(pairs @ [3, 1], minlength=9)[[1, 2, 3, 5, 6, 7]] - 1000).max() < 5 * 29


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"batch": 0}, "batch=0"),
        ({"pairs": 0}, "pairs=0"),
        ({"queries": 0}, "queries=0"),
        ({"values": 0}, "values=0"),
        ({"keys": 5}, "keys=5: the 6 keys of a row are distinct"),
        ({"min_pairs": 7}, "min_pairs=7.*pairs=6"),
    ],
)
def test_bad_numbers_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        recall.sample(jax.random.key(0), **{"batch": 2, "pairs": 6, **options})

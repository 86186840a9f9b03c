"""Copying: each answer is the next token of the source, and one rule finds it: what followed this token before?"""

from __future__ import annotations

import jax
import numpy as np
import pytest

from adatemp.tasks import copying


def draw(batch=100, n=6, **options):
    return jax.tree.map(np.asarray, copying.sample(jax.random.key(0), batch, n, **options))


@pytest.mark.parametrize(("min_items", "answers"), [(None, None), (2, None), (None, 4), (2, 3)])
def test_the_row_and_its_answer_are_the_source_twice(min_items, answers):
    rows = draw(symbols=15, min_items=min_items, answers=answers)
    for tokens, where, target, asked in zip(rows.tokens, rows.where, rows.target, rows.asked):
        live = tokens[where].tolist()
        n = (len(live) - 1) // 2
        source = live[1 : n + 1]
        assert n >= (min_items or 6) and len(set(source)) == n and min(source) > 0 and max(source) <= 15
        assert live == [0, *source, 0, *source[:-1]]
        assert target[asked].tolist() == source[-asked.sum() :] and asked.sum() == min(n, answers or 6)


def test_what_followed_the_last_token_before_is_the_answer():
    rows = draw(min_items=2)
    for tokens, where, target, asked in zip(rows.tokens, rows.where, rows.target, rows.asked):
        live = tokens[where].tolist()
        for back, (answer, counts) in enumerate(zip(target[::-1], asked[::-1])):
            if counts:
                assert live[live.index(live[len(live) - 1 - back]) + 1] == answer


def test_what_an_answer_sees_grows_with_the_row():
    rows = draw(min_items=2, answers=2)
    last = rows.where.sum(-1)
    np.testing.assert_array_equal(rows.visible, np.stack([last - 1, last], -1))
    assert [draw(batch=1, n=n, answers=1).visible.item() for n in (8, 64, 1024)] == [17, 129, 2049]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"batch": 0}, "batch=0"),
        ({"n": 0}, "n=0"),
        ({"symbols": 5}, "symbols=5: the 6 tokens of a row are distinct"),
        ({"answers": 7}, "answers=7: .*n=6"),
        ({"answers": 0}, "answers=0"),
        ({"min_items": 0}, "min_items=0"),
    ],
)
def test_bad_numbers_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        copying.sample(jax.random.key(0), **{"batch": 2, "n": 6, **options})

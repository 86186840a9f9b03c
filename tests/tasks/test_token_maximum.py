"""The task has one right item, and a Transformer learns it."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from adatemp.tasks import token_maximum


@pytest.mark.parametrize(("n", "least"), [(1, None), (9, None), (16, 5)])
def test_the_target_occurs_once_and_all_other_items_are_below_it(n, least):
    batch = jax.device_get(token_maximum.sample(jax.random.key(0), 300, n, least=least))
    assert batch.tokens.shape == batch.where.shape == (300, n + 1)
    assert (batch.tokens[:, -1] == token_maximum.QUERY).all() and batch.where[:, -1].all()
    for tokens, where, target in zip(batch.tokens, batch.where, batch.target, strict=True):
        items = tokens[:-1][where[:-1]]
        assert (items == target).sum() == 1 and items.max() == target
    counts = batch.where[:, :-1].sum(1)
    assert counts.min() == (least or n) and counts.max() == n
    assert (np.diff(batch.where.astype(int), axis=1) >= 0).all()  # what does not exist stands in front
    assert set(batch.target) == set(range(1, token_maximum.SYMBOLS))


def test_the_target_stands_anywhere_among_the_items_that_exist():
    batch = jax.device_get(token_maximum.sample(jax.random.key(1), 4000, 6, least=3))
    place = (batch.tokens[:, :-1] * batch.where[:, :-1]).argmax(1)
    for n in (3, 6):
        of_size = place[batch.where[:, :-1].sum(1) == n] - (6 - n)
        share = np.bincount(of_size, minlength=n) / len(of_size)
        assert np.abs(share - 1 / n).max() < 0.07  # four standard deviations of about 1,000 draws


def test_a_histogram_counts_every_token():
    tokens = token_maximum.sample(jax.random.key(2), 5, 50).tokens
    expected = [np.bincount(row, minlength=token_maximum.SYMBOLS + 1) for row in np.asarray(tokens)]
    np.testing.assert_array_equal(token_maximum.histogram(tokens), expected)


def test_wrong_sizes_and_kinds_are_refused():
    with pytest.raises(ValueError, match="least must be from 1 to n=4 items, got 5"):
        token_maximum.sample(jax.random.key(0), 2, 4, least=5)
    with pytest.raises(ValueError, match="choose one of"):
        token_maximum.make("list", 0)


def test_a_toy_learns_the_task():
    """The set toy; the stored result has the final accuracy of every toy."""
    _, history = token_maximum.train_toy("set", 0, steps=150)
    assert history.metrics["accuracy"][-20:].mean() > 0.9

"""Sets that grow: the answer stays, the kinds are what they say, the core is the same for all."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from adatemp.tasks import added_items

N, BATCH = 76, 200
KEY = jax.random.key(0)


def grown(kind, n=N, key=KEY):
    return jax.tree.map(np.asarray, added_items.grow(key, BATCH, n, kind))


@pytest.mark.parametrize("kind", added_items.KINDS)
def test_the_answer_is_that_of_the_core_and_still_the_maximum(kind):
    core, sets = grown(kind, n=16), grown(kind)
    np.testing.assert_array_equal(sets.items[:, :16], core.items)
    np.testing.assert_array_equal(sets.target, core.target)
    priority = sets.items[..., 0]
    assert (priority.argmax(-1) == sets.top_item).all()
    assert (np.sort(priority)[:, -2] < priority.max(-1)).all()  # strictly: no tie decides the answer
    assert (sets.items[..., 1:].sum(-1) == 1).all() and sets.where.all()


def test_kinds_are_what_they_say():
    core = grown("random", n=16).items
    top = core[..., 0].max(-1, keepdims=True)
    added = {kind: grown(kind).items[:, 16:] for kind in added_items.KINDS}

    second = np.take_along_axis(core, core[..., 0].argsort(-1)[:, -2][:, None, None], 1)
    assert (added["identical"] == second).all()
    share = (added["random"][..., 0] / top).ravel()  # uniform below the top
    assert abs(share.mean() - 0.5) < 5 * np.sqrt(1 / 12 / share.size) and share.min() < 0.01 < 0.99 < share.max() < 1
    near = (added["near-maximal"][..., 0] / top).ravel()
    assert 0.99 - 1e-6 <= near.min() and near.max() < 1 and abs(near.mean() - 0.995) < 1e-4
    copies = (added["mixed"] == second).all(-1).sum(-1)
    close = (added["mixed"][..., 0] >= 0.99 * top).sum(-1)
    assert (copies == 20).all() and (close >= 20).all() and close.mean() < 20 + 20 * 0.01 + 20


def test_keys_draw_other_cores():
    assert not np.array_equal(grown("random").items, grown("random", key=jax.random.key(1)).items)


def test_what_cannot_be_grown_is_refused():
    with pytest.raises(ValueError, match="kind='equal'.*identical"):
        added_items.grow(KEY, 2, 20, "equal")
    with pytest.raises(ValueError, match="kind='equal'"):
        added_items.drawer("equal")
    with pytest.raises(ValueError, match="n=15.*16"):
        added_items.grow(KEY, 2, 15, "random")

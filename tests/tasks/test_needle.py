"""A needle with distractors: the gap is what it says at every size, one item is the query, sizes grow in live items."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from adatemp.tasks import needle


def draw(batch=200, n=12, **options):
    return jax.tree.map(np.asarray, needle.sample(jax.random.key(0), batch, n, **options))


@pytest.mark.parametrize(("n", "gap"), [(5, 0.5), (300, 0.5), (300, 0.25), (40, 1.0)])
def test_the_needle_is_the_query_and_every_other_key_is_behind_by_the_gap(n, gap):
    sets = draw(n=n, gap=gap)
    products = np.einsum("bnw,bw->bn", sets.features, sets.query)
    at = products[np.arange(200), sets.item]
    np.testing.assert_allclose(at, 1, atol=1e-5)
    products[np.arange(200), sets.item] = -1
    assert products.max() <= 1 - gap + 1e-5 and (n < 100 or products.max() > 1 - gap - 0.01)
    np.testing.assert_allclose(np.linalg.norm(sets.features, axis=-1), 1, atol=1e-5)


def test_the_target_is_the_label_of_the_needle_and_the_needle_is_among_the_live():
    sets = draw(batch=3000, min_items=3)
    assert sets.where[np.arange(3000), sets.item].all()
    assert (sets.target == sets.label[np.arange(3000), sets.item]).all()
    assert set(sets.item) == set(range(12)) and set(sets.target) == set(range(10))


def test_sizes_are_uniform_and_what_is_visible_is_what_is_live():
    sets = draw(batch=4000, min_items=3)
    assert (sets.visible == sets.where.sum(-1)).all() and (sets.where == (np.arange(12) < sets.visible[:, None])).all()
    # Ten sizes of 400 each with standard deviation 19.
    assert np.abs(np.bincount(sets.visible, minlength=13)[3:] - 400).max() < 5 * 19
    assert (draw(n=300, batch=3).visible == 300).all()


def test_distractors_point_every_way_at_right_angles_to_the_query():
    sets = draw(batch=4000, n=2, width=3, gap=1.0)  # no part along the query is left
    other = sets.features[np.arange(4000), 1 - sets.item]
    # Isotropic in the plane: the mean outer product of the unit vectors is that of the projector, halved.
    outer = np.einsum("bi,bj->bij", other, other) - (np.eye(3) - np.einsum("bi,bj->bij", sets.query, sets.query)) / 2
    assert np.abs(outer.mean(0)).max() < 5 * 0.5 / np.sqrt(4000)


def test_a_key_decides_everything_and_jit_changes_little():
    # Not to the bit: compiled sums of squares may be added in another order.
    once, again = draw(batch=5), jax.tree.map(np.asarray, jax.jit(lambda k: needle.sample(k, 5, 12))(jax.random.key(0)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), once, again)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"batch": 0}, "batch=0"),
        ({"n": 0}, "n=0"),
        ({"classes": 0}, "classes=0"),
        ({"width": 1}, "width=1: distractors need a direction"),
        ({"gap": 0}, r"gap=0: .*\(0, 1\]"),
        ({"gap": 1.5}, "gap=1.5"),
        ({"min_items": 13}, "min_items=13.*n=12"),
    ],
)
def test_bad_numbers_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        needle.sample(jax.random.key(0), **{"batch": 2, "n": 12, **options})

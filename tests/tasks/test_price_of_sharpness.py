"""Arms of chapter 05: targets, penalty and looks are what they say, and so is everything that is measured."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from flax import nnx

from adatemp import dispersion
from adatemp.models.pooling_arms import NormedPooling, vectors
from adatemp.models.set_pooling import SetPooling
from adatemp.tasks import max_retrieval, price_of_sharpness


def test_the_control_asks_for_the_most_frequent_live_class():
    sets = jax.tree.map(np.asarray, price_of_sharpness.most_frequent(jax.random.key(0), 200, 12, min_items=5))
    plain = max_retrieval.sample(jax.random.key(0), 200, 12, min_items=5)
    np.testing.assert_array_equal(sets.items, plain.items)
    for items, where, target in zip(sets.items, sets.where, sets.target):
        labels = items[where, 1:].argmax(-1)
        counts = [int((labels == c).sum()) for c in range(10)]
        assert target == counts.index(max(counts))
    assert (sets.target != np.asarray(plain.target)).any()


@pytest.fixture(scope="module")
def sets():
    return max_retrieval.sample(jax.random.key(1), 4, 33)


@pytest.mark.parametrize("kind", [SetPooling, NormedPooling])
def test_measured_numbers_are_those_of_numpy(kind, sets):
    head = kind(rngs=nnx.Rngs(0))
    got = price_of_sharpness.measure(head, sets)
    y, x, q, k = (np.asarray(part, np.float64) for part in vectors(head, sets.items, sets.query))
    logits = np.einsum("bnw,bw->bn", k, q) / np.sqrt(128)
    spread = np.ptp(logits, axis=1)
    kernels = [np.asarray(layer.kernel[...], np.float64) for layer in (head.query, head.key)]
    keys = np.array([dispersion.spread_bound_keys(*row) for row in zip(q, k)])
    if kind is NormedPooling:
        norms = np.full(4, dispersion.qk_norm_ceiling(head.query_gain[...], head.key_gain[...]))
        tight = keys
    else:
        lengths = np.linalg.norm(y, axis=1), np.linalg.norm(x, axis=2).max(1)
        norms = dispersion.spread_bound_norms(*kernels, *lengths)
        reach = np.array([dispersion.diameter(items) for items in x])
        tight = dispersion.spread_bound_tight(*kernels, lengths[0], reach)
    expected = {
        "spread": spread.mean(), "norms": norms.mean(), "tight": tight.mean(), "keys": keys.mean(),
        "worst_norms": (spread / norms).max(), "worst_tight": (spread / tight).max(),
        "query_sigma": np.linalg.norm(kernels[0], 2), "score_sigma": np.linalg.norm(kernels[0] @ kernels[1].T, 2),
    }  # fmt: skip
    # float32 against float64; the spread of an untrained head is a small difference of logits.
    assert {name: got[name] for name in expected} == pytest.approx(expected, rel=2e-4)


def test_looks_come_before_training_and_after_every_chunk_and_training_is_what_the_seed_says():
    seen = []
    head, history = price_of_sharpness.train_arm(
        "free", 0, steps=4, chunk=2, look=lambda step, head: seen.append((step, np.asarray(head.query.kernel[...])))
    )
    assert [step for step, _ in seen] == [0, 2, 4] and history.metrics["loss"].shape == (4,)
    np.testing.assert_array_equal(seen[-1][1], head.query.kernel[...])
    assert not np.array_equal(seen[0][1], seen[1][1])
    again, _ = price_of_sharpness.train_arm("free", 0, steps=4, chunk=2)
    np.testing.assert_array_equal(again.query.kernel[...], head.query.kernel[...])
    with pytest.raises(ValueError, match="arm='fre': choose one of"):
        price_of_sharpness.train_arm("fre", 0, steps=1)


def test_the_penalty_is_half_its_factor_times_the_sum_of_squares():
    head, key = SetPooling(rngs=nnx.Rngs(0)), jax.random.key(5)
    options = {"draw": max_retrieval.sample}
    plain, penalised = (price_of_sharpness._loss(head, key, l2=l2, **options)[0] for l2 in (0.0, 1e-3))
    squares = sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(nnx.state(head, nnx.Param)))
    assert float(penalised - plain) == pytest.approx(5e-4 * squares, rel=1e-4)
    same, _ = max_retrieval.loss(head, key, l2=1e-3)
    assert float(penalised) == pytest.approx(float(same), rel=1e-6)

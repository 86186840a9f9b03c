"""Read-outs of a head: counts agree with a plain count, parts add up, every read-out sees the same sets."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from adatemp.tasks import _retrieval_readouts as readouts
from adatemp.tasks.max_retrieval import evaluate, evaluate_sizes, sample
from adatemp.temperature import PAPER, constant

SETS, N = 700, 40


class PlantedHead(nnx.Module):
    """A head of known logits: slope times priority plus a bonus for some classes, read by class mass.

    The bonus makes it misrank; a class with bonus can also win by mass, so all three kinds of error occur.
    """

    def __init__(self, slope, bonus):
        self.slope, self.bonus = nnx.Param(jnp.float32(slope)), nnx.Param(jnp.float32(bonus))

    def hidden(self, items):
        return items

    def logits_from_hidden(self, items, query):
        return self.slope[...] * items[..., 0] + self.bonus[...] * items[..., 1:4].sum(-1)

    def classify_from_hidden(self, items, weights):
        return jnp.einsum("...bn,bnc->...bc", weights, items[..., 1:])


SLOPE, BONUS = 30.0, 1.0
HEAD = PlantedHead(SLOPE, BONUS)
RULES = {"plain": None, "adaptive": PAPER, "double": constant(beta=2.0)}
KEY = jax.random.key(11)


@pytest.fixture(scope="module")
def measured():
    return evaluate(HEAD, KEY, N, SETS, rules=RULES)


@pytest.fixture(scope="module")
def counted():
    """The same sets, drawn anew and counted in float64 numpy, set by set."""
    block = readouts.BLOCK_ITEMS // N
    batch = jax.tree.map(lambda x: np.asarray(x)[:SETS], sample(jax.random.fold_in(KEY, 0), block, N))
    assert block >= SETS
    rows = []
    for items, target, top_item in zip(batch.items.astype(np.float64), batch.target, batch.top_item):
        logits = SLOPE * items[:, 0] + BONUS * items[:, 1:4].sum(-1)
        plain = np.exp(logits - logits.max())
        plain /= plain.sum()
        entropy = -(plain * np.log(plain)).sum()
        polynomial = np.polyval([-0.037, 0.481, -2.3, 4.917, -1.791], entropy)
        row = {"ranked": logits.argmax() == top_item, "entropy": entropy, "spread": np.ptp(logits)}
        row["target_weight"] = plain[top_item]
        row["beta"] = {"plain": 1.0, "adaptive": max(polynomial, 1.0) if entropy > 0.5 else 1.0, "double": 2.0}
        row["right"], row["top_weight"] = {}, {}
        for name, beta in row["beta"].items():
            weights = np.exp(beta * (logits - logits.max()))
            weights /= weights.sum()
            row["right"][name] = (weights @ items[:, 1:]).argmax() == target
            row["top_weight"][name] = weights.max()
        row["right"]["argmax"] = items[logits.argmax(), 1:].argmax() == target
        row["right"]["mass"] = row["right"]["plain"]
        rows.append(row)
    return rows


def test_shares_are_those_of_a_plain_count(measured, counted):
    """Counts of 700 sets; float32 may decide a set or two otherwise where two masses nearly tie."""
    ranked = np.array([row["ranked"] for row in counted])
    plain = np.array([row["right"]["plain"] for row in counted])
    slack = 2.1 / SETS
    assert abs(measured["ranking_accuracy"] - ranked.mean()) < slack
    assert set(measured["read_outs"]) == {"plain", "adaptive", "double", "argmax", "mass"}
    for name, got in measured["read_outs"].items():
        right = np.array([row["right"][name] for row in counted])
        expected = {
            "accuracy": right.mean(),
            "ranking": (~ranked).mean(),
            "dispersion": (ranked & ~right).mean(),
            "lucky": (~ranked & right).mean(),
            "gained": (right & ~plain).mean(),
            "lost": (plain & ~right).mean(),
        }
        for part, share in expected.items():
            assert abs(got[part] - share) < slack, (name, part)
    # The planted head makes every kind of error, or the test would show nothing.
    assert min(measured["read_outs"]["plain"][part] for part in ("ranking", "dispersion", "lucky")) > 0.01


def test_means_are_those_of_float64(measured, counted):
    for name in ("entropy", "spread", "target_weight"):
        np.testing.assert_allclose(measured[name], np.mean([row[name] for row in counted]), rtol=1e-5)
    for rule in RULES:
        got = measured["read_outs"][rule]
        np.testing.assert_allclose(got["beta"], np.mean([row["beta"][rule] for row in counted]), rtol=1e-5)
        np.testing.assert_allclose(got["top_weight"], np.mean([row["top_weight"][rule] for row in counted]), rtol=1e-5)
    unchanged = np.mean([row["beta"]["adaptive"] == 1 for row in counted])
    assert abs(measured["read_outs"]["adaptive"]["unchanged"] - unchanged) < 1.1 / SETS
    assert measured["read_outs"]["plain"]["unchanged"] == 1 and measured["read_outs"]["double"]["unchanged"] == 0


def test_parts_of_the_error_add_up(measured):
    for got in measured["read_outs"].values():
        assert abs(1 - got["accuracy"] - (got["ranking"] + got["dispersion"] - got["lucky"])) < 1e-12
        assert abs(got["standard_error"] - np.sqrt(got["accuracy"] * (1 - got["accuracy"]) / SETS)) < 1e-12


@pytest.mark.result("prop-ch02-split")
def test_no_temperature_changes_the_ranking_part(measured):
    assert len({got["ranking"] for got in measured["read_outs"].values()}) == 1


def test_gains_and_losses_are_paired(measured):
    plain = measured["read_outs"]["plain"]
    assert plain["gained"] == plain["lost"] == 0
    for got in measured["read_outs"].values():
        assert abs(got["accuracy"] - plain["accuracy"] - (got["gained"] - got["lost"])) < 1e-12


def test_argmax_is_the_limit_of_low_temperature():
    cold = evaluate(HEAD, KEY, N, SETS, rules={"plain": None, "cold": constant(beta=1e5)})["read_outs"]
    # A gap below 1e-4 nats would still share its weight; fewer than one set in a thousand has one.
    assert abs(cold["cold"]["accuracy"] - cold["argmax"]["accuracy"]) < 1.1 / SETS
    assert cold["argmax"]["dispersion"] == 0


def test_sets_beyond_one_block_are_all_counted_once(monkeypatch):
    """Three blocks of which the last is cut: the mean is that of the first 700 sets of the three, drawn here anew."""
    monkeypatch.setattr(readouts, "BLOCK_ITEMS", 256 * N)
    readouts._sum_blocks.clear_cache()
    got = evaluate(HEAD, KEY, N, SETS)
    readouts._sum_blocks.clear_cache()
    blocks = [sample(jax.random.fold_in(KEY, index), 256, N) for index in range(3)]
    first = np.concatenate([HEAD.logits_from_hidden(b.items, b.query).argmax(-1) == b.top_item for b in blocks])
    np.testing.assert_allclose(got["ranking_accuracy"], first[:SETS].mean(), rtol=1e-12)


def test_masked_items_are_never_first():
    batch = sample(jax.random.key(1), 300, 12, min_items=2)
    spoiled = batch._replace(items=jnp.where(batch.where[..., None], batch.items, 10.0))
    measured = readouts.read(PlantedHead(60.0, 0.0), spoiled, {"plain": None})
    assert measured["ranking_accuracy"].all()
    assert (measured["spread"] <= 60).all()


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="sets=0"):
        evaluate(HEAD, KEY, N, 0)
    for rules in ({"adaptive": PAPER}, {"plain": None, "mass": PAPER}):
        with pytest.raises(ValueError, match="rules=.*'plain'"):
            evaluate(HEAD, KEY, N, 10, rules=rules)


def test_several_sizes_are_those_measured_one_by_one():
    sets = {8: 50, 20: 30}
    together = evaluate_sizes(HEAD, KEY, sets)
    assert together["n"] == [8, 20] and together["sets"] == [50, 30]
    for at, (n, count) in enumerate(sets.items()):
        alone = evaluate(HEAD, jax.random.fold_in(KEY, n), n, count)
        assert jax.tree.map(lambda values, at=at: values[at], together, is_leaf=lambda x: isinstance(x, list)) == alone

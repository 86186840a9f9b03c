"""The rules compared on one head: each fitted on training sizes, each measured on the same sets."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from flax import nnx

from adatemp import PAPER, entropy
from adatemp.models.set_pooling import SetPooling, load_head
from adatemp.tasks import compared_rules, max_retrieval
from adatemp.tasks._retrieval_readouts import evaluate_sizes
from adatemp.tasks.dispersion_only import heaviest

KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def trained():
    head = load_head()
    return head, *compared_rules.compared_rules(head, KEY)


def test_every_rule_is_fitted_to_the_head_s_entropy_at_its_longest_training_size(trained):
    head, rules, about = trained
    sets = max_retrieval.sample(jax.random.key(9), 4096, 16)
    h = float(np.mean(entropy(head.logits(sets.items, sets.query))))
    assert about["entropy"] == pytest.approx(h, abs=0.02)  # a line's end and a mean, of 4,096 sets each
    assert rules["exp offset"].offset == rules["newton"].target == rules["target entropy"].entropy == about["entropy"]
    assert rules["guarded"].level == about["entropy"] and not about["averages"]
    assert rules["line"].slope == about["slope"]
    assert rules["line"].level + about["slope"] * np.log(16) == pytest.approx(about["entropy"])
    assert rules["adaptive"] is PAPER and rules["plain"] is None
    assert rules["log ratio"].reference_count == 16


def test_the_new_map_rises_and_says_what_it_was_fitted_to(trained):
    _, rules, about = trained
    refit = about["refit"]
    assert rules["refit"].range == tuple(refit["range"]) and len(rules["refit"].coefficients) == refit["degree"] + 1
    x = np.linspace(*refit["range"], 200)
    beta = np.polyval(rules["refit"].coefficients, (x - rules["refit"].centre) / rules["refit"].scale)
    assert np.all(np.diff(np.maximum(beta, 1)) > -1e-6) and refit["misordered"] > 100


def test_a_head_that_averages_gets_no_map_and_is_left_alone():
    head = SetPooling(rngs=nnx.Rngs(0))  # untrained logits are nearly equal
    rules, about = compared_rules.compared_rules(head, KEY, draw=heaviest, refit=False)
    assert about["averages"] and about["slope"] == pytest.approx(1, abs=0.02)
    assert "refit" not in rules and "refit" not in about


def test_where_no_row_is_misordered_there_is_no_map_and_a_reason():
    class Ranked(SetPooling):
        def logits(self, items, query):
            return 100 * items[..., 0]

    rule, about = compared_rules.fit_map(Ranked(rngs=nnx.Rngs(0)), KEY)
    assert rule is None and "sharper is always better" in about["refused"]


def test_compare_is_evaluate_sizes_with_more_read_outs(monkeypatch):
    monkeypatch.setattr(compared_rules, "GRID", (1.5, 2.0, 3.0, 5.0))
    head, sets = load_head(), {64: 256}
    got = compared_rules.compare(head, KEY, sets, refit=False)
    want = evaluate_sizes(head, KEY, sets)
    for name in ("plain", "adaptive", "argmax", "mass"):
        assert got["read_outs"][name]["accuracy"] == want["read_outs"][name]["accuracy"]
    assert got["constants"]["beta"] == [1.5, 2.0, 3.0, 5.0]
    assert got["constants"]["accuracy"][1] == got["read_outs"]["constant 2"]["accuracy"]
    assert "constant 5" not in got["read_outs"] and "constant 3" in got["read_outs"]

"""The stored comparisons of temperature rules: whole, consistent, of this code's rows, and made by scripts that run."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from row_oracle import QUARTIC

from adatemp.models.set_pooling import load_head
from adatemp.tasks import compared_rules
from adatemp.tasks.dispersion_only import QUESTIONS
from tools.make_results import STORED
from tools.stored_results import dispersion_only, long_rows_rules, map_fit, table1, trained_to

MODULES = (table1, dispersion_only, trained_to, map_fit, long_rows_rules)
RULES = {"plain", "adaptive", "held", "constant 1.5", "constant 2", "constant 3", "log ratio", "target entropy"}
RULES |= {"exp offset", "newton", "guarded", "line", "argmax", "mass"}


def stored(module):
    return json.loads((STORED / f"{module.__name__.rsplit('.', 1)[1]}.json").read_text("utf-8"))


@pytest.mark.parametrize("module", MODULES)
def test_every_cell_was_computed(module):
    assert tuple(stored(module)["provenance"]["cells"]) == module.CELLS


@pytest.mark.parametrize("module", [table1, dispersion_only, trained_to])
def test_every_row_has_every_size_and_its_parts_add_up(module):
    data = stored(module)["data"]
    for row in data["rows"]:
        sizes = data["sizes"][row["question"]] if "question" in row else data["sizes"]
        for got in row["read_outs"].values():
            columns = {part: np.array(values) for part, values in got.items()}
            assert {values.shape for values in columns.values()} == {(len(sizes),)}
            error = columns["ranking"] + columns["dispersion"] - columns["lucky"]
            np.testing.assert_allclose(1 - columns["accuracy"], error, atol=2e-5)  # five digits are stored


@pytest.mark.parametrize("module", [table1, dispersion_only])
def test_every_rule_was_measured_and_the_grid_agrees_with_the_constants_among_them(module):
    for row in stored(module)["data"]["rows"]:
        assert set(row["read_outs"]) - {"refit"} == RULES
        assert ("refit" in row["read_outs"]) == ("degree" in row["rules"].get("refit", {}))
        by_beta = dict(zip(row["constants"]["beta"], row["constants"]["accuracy"]))
        assert tuple(by_beta) == compared_rules.GRID
        for beta in (1.5, 2.0, 3.0):
            assert by_beta[beta] == row["read_outs"][f"constant {beta:g}"]["accuracy"]


def test_a_head_that_averages_is_left_exactly_as_it_is():
    rows = stored(dispersion_only)["data"]["rows"]
    assert {row["question"] for row in rows} == set(QUESTIONS)
    for row in rows:
        if row["rules"]["averages"]:
            assert row["read_outs"]["guarded"]["accuracy"] == row["read_outs"]["plain"]["accuracy"]
            assert set(row["read_outs"]["guarded"]["beta"]) == {1.0}


def test_the_first_row_of_the_table_is_the_stored_head_s_under_every_rule():
    """The same 8,192 sets at 64 items: another machine's rounding may flip a few."""
    row, at = stored(table1)["data"]["rows"][0], list(table1.SETS).index(64)
    measured = table1.every_rule(load_head(), table1.test_key(0), {64: table1.SETS[64]})
    for name, got in measured["read_outs"].items():
        assert abs(got["accuracy"][0] - row["read_outs"][name]["accuracy"][at]) < 8 / table1.SETS[64], name
    assert measured["rules"]["entropy"] == pytest.approx(row["rules"]["entropy"], abs=1e-4)


def test_the_comparison_runs_on_a_head_hardly_trained(monkeypatch):
    monkeypatch.setattr(compared_rules, "GRID", (1.5, 2.0, 3.0))
    row = dispersion_only.measure("heaviest", 0, steps=5, sets={16: 32})
    assert set(row["read_outs"]) >= RULES and len(row["entropy"]) == 1
    assert dispersion_only.assemble([row])["sizes"]["largest"] == list(dispersion_only.SETS)


def test_a_head_of_few_steps_is_measured_as_those_of_many():
    row = trained_to.measure(0, 5, "adamw, cosine rate", {16: 32, 64: 32})
    assert set(row["read_outs"]) == {"plain", "adaptive", "held", "constant 3", "guarded", "argmax", "mass"}
    assert len(row["spread"]) == 2 and row["steps"] == 5


def test_the_roots_of_the_published_map_and_their_interval_under_rounding():
    lower, upper, peak, height = map_fit.features(np.array(QUARTIC))
    for entropy, value in ((lower, 1), (upper, 1), (peak, height)):
        assert sum(c * entropy ** (4 - i) for i, c in enumerate(QUARTIC)) == pytest.approx(value, abs=1e-9)
    found = map_fit.rounding((3, 3, 3, 3, 3), 300)
    assert found["lower"][0] < found["quantiles"]["lower"][0] < lower < found["quantiles"]["lower"][2]
    assert found["quantiles"]["upper"][2] < found["upper"][1] and found["upper"][0] < upper < found["upper"][1]
    rng = np.random.default_rng(3)
    corners = [map_fit.roots(np.array(QUARTIC) + 5e-4 * rng.choice([-1, 1], 5)) for _ in range(64)]
    assert min(found["upper"]) - 1e-9 <= min(u for _, u in corners)
    assert max(u for _, u in corners) <= max(found["upper"]) + 1e-9


def test_a_common_beta_is_the_likeliest_and_a_fit_to_points_of_a_quartic_is_that_quartic():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(50, 8)).astype(np.float32) * 2
    second = np.sort(logits, -1)[:, -2]
    grid = np.exp(np.linspace(0, 3, 3001))
    log_z = np.log(np.exp(grid[:, None, None] * (logits - logits.max(-1, keepdims=True))).sum(-1))
    likelihood = (grid[:, None] * (second - logits.max(-1)) - log_z).sum(-1)
    assert map_fit.common_beta(logits, second) == pytest.approx(grid[likelihood.argmax()], rel=2e-3)
    entropy = rng.uniform(0.8, 5.5, 400)
    beta = np.polyval(QUARTIC, entropy)
    bins = map_fit.binned(entropy, beta)
    found = map_fit.polynomials(entropy, beta, bins, [{"entropy": entropy, "common": 2.0}])
    np.testing.assert_allclose(found["beta"], QUARTIC, rtol=1e-6)
    np.testing.assert_allclose(1 / np.polyval(found["temperature"], 3.0), np.polyval(QUARTIC, 3.0), rtol=0.05)
    assert set(found) == {"beta", "temperature", "median"}


@pytest.mark.parametrize("family", long_rows_rules.FAMILIES)
def test_long_rows_are_what_their_logits_say(family):
    n, rows = 300, 4
    row = long_rows_rules.measure(family, (n,), rows)
    draw, key = long_rows_rules.FAMILIES[family], jax.random.key(list(long_rows_rules.FAMILIES).index(family))
    z = np.asarray(draw(jax.random.fold_in(key, n), rows, n), np.float64)
    assert (z.argmax(-1) == 0).all() or family == "noise"
    for name, got in row["rules"].items():
        p = np.exp(z - z.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        if name == "constant 2":
            p = p**2 / (p**2).sum(-1, keepdims=True)
        if name in ("plain", "constant 2"):
            assert got["weight"][0] == pytest.approx(p[:, 0].mean(), rel=1e-5)
            assert got["entropy_after"][0] == pytest.approx(-(p * np.log(p + 1e-300)).sum(-1).mean(), abs=1e-5)
    assert row["averages"] == (family == "noise")


def test_memory_of_the_longest_rows_grows_no_faster_than_their_number_of_keys():
    data = stored(long_rows_rules)["data"]
    for row in data["rows"]:
        assert row["bytes"][-1] / row["bytes"][0] < 1.1 * data["sizes"][-1] / data["sizes"][0]

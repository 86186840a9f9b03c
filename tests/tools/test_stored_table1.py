"""The stored results of chapter 02: whole, consistent, and those of the code that is here."""

from __future__ import annotations

import hashlib
import json

import jax
import numpy as np
import pytest

from adatemp.models.set_pooling import load_head
from adatemp.tasks import max_retrieval
from tools.make_results import STORED
from tools.stored_results import added_items, head, recipes, table1


def stored(name):
    return json.loads((STORED / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("name", ["table1", "recipes", "added_items"])
def test_every_row_has_every_size_and_its_parts_add_up(name):
    data = stored(name)["data"]
    for row in data["rows"]:
        for got in row["read_outs"].values():
            columns = {part: np.array(values) for part, values in got.items()}
            assert {values.shape for values in columns.values()} == {(len(data["sizes"]),)}
            error = columns["ranking"] + columns["dispersion"] - columns["lucky"]
            np.testing.assert_allclose(1 - columns["accuracy"], error, atol=2e-5)  # five digits are stored
        np.testing.assert_allclose(
            row["ranking_accuracy"], 1 - np.array(row["read_outs"]["argmax"]["ranking"]), atol=2e-5
        )


@pytest.mark.parametrize("module", [table1, recipes, head, added_items])
def test_every_cell_was_computed(module):
    result = stored(module.__name__.rsplit(".", 1)[1])
    assert tuple(result["provenance"]["cells"]) == module.CELLS
    if "rows" in result["data"]:
        assert len(result["data"]["rows"]) == len(module.CELLS)


def test_the_stored_head_is_the_file_and_the_first_row_of_the_table():
    """The same 8,192 sets at 64 items: another machine's rounding may flip one or two."""
    assert hashlib.sha256(head.FILE.read_bytes()).hexdigest() == stored("head")["data"]["sha256"]
    row = stored("table1")["data"]["rows"][0]
    assert row["seed"] == stored("head")["data"]["seed"] == 0
    at = list(table1.SETS).index(64)
    key = jax.random.fold_in(table1.test_key(0), 64)
    measured = max_retrieval.evaluate(load_head(head.FILE), key, 64, table1.SETS[64])
    for name, got in measured["read_outs"].items():
        assert abs(got["accuracy"] - row["read_outs"][name]["accuracy"][at]) < 3 / table1.SETS[64]
    assert abs(measured["entropy"] - row["entropy"][at]) < 1e-4


def test_the_main_recipe_is_the_nearest_to_the_published_row():
    rows = {row["recipe"]: row["distance"] for row in stored("recipes")["data"]["rows"]}
    assert min(rows, key=rows.get) == max_retrieval.MAIN_RECIPE

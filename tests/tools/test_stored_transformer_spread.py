"""The stored run of chapter 04: whole, and its yardstick tells a weight above its bound from one below."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tools.make_results import STORED
from tools.stored_results import transformer_spread


@pytest.fixture(scope="module")
def stored():
    return json.loads((STORED / "transformer_spread.json").read_text("utf-8"))


def test_every_cell_was_computed_and_every_size_measured(stored):
    assert tuple(stored["provenance"]["cells"]) == transformer_spread.CELLS
    data = stored["data"]
    assert [row["preset"] for row in data["attacks"]] == list(transformer_spread.PRESETS)
    for row in data["toys"]:
        sizes = transformer_spread.SIZES[row["kind"]]
        assert tuple(row["sizes"]) == sizes
        shapes = {
            name: np.shape(values) for name, values in row.items() if name.endswith("_at") and name != "excess_at"
        }
        assert shapes["radius_at"] == (len(sizes), 3) and shapes["accuracy_at"] == (len(sizes),)
        assert {shape for name, shape in shapes.items() if "spread" in name or "top" in name} == {(len(sizes), 2, 4)}


def test_an_excess_is_zero_for_the_extremal_row_and_positive_above_it():
    leader = math.exp(2.0) / (math.exp(2.0) + 9)
    assert transformer_spread._excess(np.array([leader]), 10, 2.0) == pytest.approx(0, abs=1e-12)
    assert transformer_spread._excess(np.array([0.1, 1.02 * leader]), 10, 2.0) == pytest.approx(math.log(1.02))
    # a row of one key has a weight of 1 and says nothing
    assert transformer_spread._excess(np.array([1.0, 0.9 * leader]), np.array([1, 10]), 2.0) < 0

"""The stored run of the streamed entropy: whole, of this code's rows, and right where it can be computed again."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tools.make_results import STORED
from tools.stored_results import streaming


@pytest.fixture(scope="module")
def stored():
    return json.loads((STORED / "streaming.json").read_text("utf-8"))


def test_every_row_and_every_size_was_computed(stored):
    assert tuple(stored["provenance"]["cells"]) == streaming.CELLS
    assert [row["shape"] for row in stored["data"]["rows"]] == list(streaming.shapes())
    for row in stored["data"]["memory"]:
        assert row["way"] in streaming.WAYS and list(row["bytes"]) == [str(n) for n in streaming.TOKENS]


def test_the_truth_of_a_row_is_that_of_a_closed_form():
    by, n = 12.5, streaming.KEYS
    row = np.zeros(n, np.float32)
    row[0] = by
    # One weight w = e^by / (e^by + n - 1) and n - 1 equal ones.
    w = 1 / (1 + (n - 1) * np.exp(-by))
    want = -w * np.log(w) - (1 - w) * np.log((1 - w) / (n - 1))
    assert streaming.exact(row) == pytest.approx(want, abs=1e-9)


def test_both_ways_give_the_entropies_of_the_definition():
    rng = np.random.default_rng(0)
    query, key = np.float32(rng.normal(size=(2, 256, streaming.WIDTH)))
    logits = np.float64(query) @ np.float64(key).T / 8
    want = [streaming.exact(row) for row in logits]
    for way in streaming.WAYS.values():
        np.testing.assert_allclose(way(query, key), want, atol=1e-5)

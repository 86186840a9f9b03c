"""The stored bench: a tiny run has the layout, the stored one is whole, of growing sets, and consistent."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adatemp.tasks import variants_bench
from adatemp.tasks._bench_arms import TASKS, VARIANTS
from tools.make_results import STORED
from tools.stored_results import variants_bench as script


@pytest.fixture(scope="module")
def stored():
    return json.loads((STORED / "variants_bench.json").read_text("utf-8"))


def test_every_cell_was_computed(stored):
    assert tuple(stored["provenance"]["cells"]) == script.CELLS
    assert [f"{row['task']}, {row['variant']}" for row in stored["data"]["rows"]] == list(script.CELLS)
    assert list(stored["data"]["tasks"]) == list(TASKS) and list(stored["data"]["variants"]) == list(VARIANTS)


def test_what_answers_see_grows_with_every_length(stored):
    data = stored["data"]
    for task in data["tasks"].values():
        visible = np.array(task["visible"])
        assert len(visible) == len(data["multiples"]) and (visible[1:] / visible[:-1] > 1.5).all()
        assert visible[-1] > 64 * task["keys"]


def test_every_row_has_every_seed_and_length_and_its_parts_add_up(stored):
    data = stored["data"]
    for row in data["rows"]:
        shape = (data["seeds"][row["variant"]], len(data["multiples"]))
        read_outs = {name: {part: np.array(x) for part, x in got.items()} for name, got in row["read_outs"].items()}
        for got in read_outs.values():
            assert {values.shape for values in got.values()} == {shape}
            assert all(((values >= 0) & (values <= 1)).all() for values in got.values())
            if "gained" in got:  # five digits are stored
                difference = got["accuracy"] - read_outs["own"]["accuracy"]
                np.testing.assert_allclose(difference, got["gained"] - got["lost"], atol=3e-5)
        assert ("guarded" in read_outs) == (row["variant"] == "softmax")
        assert row["rate"] in data["rates"] and len(row["losses"]) == len(data["rates"])


def test_stored_gains_are_differences_of_the_stored_rows(stored):
    data = stored["data"]
    rows = {(row["task"], row["variant"]): row["read_outs"] for row in data["rows"]}
    for task in data["tasks"]:
        own = np.array(rows[task, "softmax"]["own"]["accuracy"])
        for name, got in data["against_softmax"]["rules"][task].items():
            want = (np.array(rows[task, "softmax"][name]["accuracy"]) - own).mean(0)
            np.testing.assert_allclose(got["gain"], want, atol=3e-5)
        for name, got in data["against_softmax"]["variants"][task].items():
            other = np.array(rows[task, name]["own"]["accuracy"])
            want = (other - own[: len(other)]).mean(0)
            np.testing.assert_allclose(got["gain"], want, atol=3e-5)


def test_an_interval_is_students_and_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    before = rng.uniform(size=(4, 3000))
    found = script.gain(before + 0.1 + rng.normal(0, 0.05, before.shape), before)
    covered = np.abs(np.array(found["gain"]) - 0.1) <= found["half_width"]
    assert abs(covered.mean() - 0.95) < 5 * np.sqrt(0.95 * 0.05 / 3000)
    with pytest.raises(ValueError, match="at least two seeds"):
        script.gain(before[:1], before[:1])
    with pytest.raises(ValueError, match=r"after \(4, 3000\), before \(3, 3000\)"):
        script.gain(before, before[:3])


def test_a_tiny_run_has_the_layout_of_the_stored_one():
    sizes = {"counted": {16: 8, 128: 4}, "multiples": (1, 32)}
    rows = [script.row("needle", variant, 2, 5, **sizes) for variant in ("softmax", "scalable")]
    data = script.assemble(rows)
    json.dumps(data, allow_nan=False)
    assert data["tasks"]["needle"]["visible"] == [16, 512] and list(data["tasks"]) == ["needle"]
    assert set(data["against_softmax"]["rules"]["needle"]) == set(rows[0]["read_outs"]) - {"own"}
    assert set(data["against_softmax"]["variants"]["needle"]) == {"scalable"}
    assert np.shape(rows[1]["learned"]["scale"]) == (2, 1, 1) and "fitted" not in rows[1]
    assert len(rows[0]["constants"]) == len(variants_bench.CONSTANTS)

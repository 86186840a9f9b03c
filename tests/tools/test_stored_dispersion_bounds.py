"""The stored attack on the bounds of chapter 03: whole, of the library's own bounds, and one that can succeed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adatemp import dispersion
from tools.make_results import STORED
from tools.stored_results import dispersion_bounds as attack


@pytest.fixture(scope="module")
def stored():
    return json.loads((STORED / "dispersion_bounds.json").read_text("utf-8"))


def test_every_cell_and_every_bound_was_computed(stored):
    assert tuple(stored["provenance"]["cells"]) == attack.CELLS
    found = [(row["quantity"], row["bound"]) for row in stored["data"]["rows"]]
    assert found == [(cell, bound) for cell in attack.CELLS for bound in attack.bounds(cell)]


def test_no_bound_was_broken_and_the_tight_ones_were_reached(stored):
    for row in stored["data"]["rows"]:
        excess = [row[how] for how in ("random", "ascent", "two_levels")]
        assert max(excess) <= 1e-12  # rounding of sums of up to 257 terms of order one
        if row["bound"] in ("tight", "exact"):
            assert max(excess) > -1e-7
    assert 0.999 < min(stored["data"]["constants"]["upper"]) <= max(stored["data"]["constants"]["upper"]) <= 1


@pytest.mark.parametrize("n", [2, 17, 257])
@pytest.mark.parametrize("s", [0.1, 3.0, 12.0])
def test_the_bounds_attacked_are_the_library_s(n, s):
    def attacked(cell, name):
        return attack.bounds(cell)[name](n, s)

    for name, pair in (("simple", dispersion.simple_bounds(n, s)), ("tight", dispersion.weight_bounds(n, s))):
        assert attacked("smallest weight", name) == pytest.approx(-np.log(pair[0]), abs=1e-12)
        assert attacked("largest weight", name) == pytest.approx(np.log(pair[1]), abs=1e-12)
    floors = {
        "linear": dispersion.entropy_floor_linear,
        "quadratic": dispersion.entropy_floor_quadratic,
        "exact": dispersion.entropy_floor,
    }
    for name, floor in floors.items():
        assert attacked("entropy", name) == pytest.approx(np.log(n) - floor(n, s), abs=1e-12)


def test_a_bound_that_is_too_low_is_broken(monkeypatch):
    monkeypatch.setattr(attack, "SIZES", (17,))
    monkeypatch.setattr(attack, "SCALED", (3.0,))
    monkeypatch.setattr(attack, "bounds", lambda cell: {"false": lambda n, s: s * s / 12})
    (row,) = attack.run("entropy")
    assert row["random"] < 0.25 and row["ascent"] > 0.1 and row["two_levels"] > 0.1

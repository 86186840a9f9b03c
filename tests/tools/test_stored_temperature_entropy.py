"""The stored attack on Proposition 3.2: it looks where a fall would be, and would see one."""

from __future__ import annotations

import numpy as np
import pytest

from tools.stored_results import temperature_entropy as stored


def test_entropies_are_those_of_the_definition():
    z = np.random.default_rng(0).normal(0, 3, (4, 9))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    np.testing.assert_allclose(stored.entropy(z), -(p * np.log(p)).sum(1), rtol=1e-12)


def test_the_ascent_s_slope_is_that_of_differences(monkeypatch):
    import scipy.optimize

    seen = {}

    def look(function, start, **_):
        seen["value_and_slope"], seen["start"] = function, start

        class Found:
            fun = 0.0

        return Found

    monkeypatch.setattr(scipy.optimize, "minimize", look)
    stored._ascend(np.random.default_rng(1).normal(size=7), 1.5)
    f, x = seen["value_and_slope"], seen["start"]
    differences = [(f(x + e)[0] - f(x - e)[0]) / 2e-6 for e in 1e-6 * np.eye(7)]
    np.testing.assert_allclose(f(x)[1], differences, atol=1e-8)


def test_a_small_attack_finds_no_fall_and_arrives_at_none(monkeypatch):
    monkeypatch.setattr(stored, "SIZES", (2, 5))
    monkeypatch.setattr(stored, "FACTORS", (1.5,))
    monkeypatch.setattr(stored, "RANDOM", 50)
    found = stored.assemble([stored.run("attack")])
    worst = max(found["attack"][how] for how in ("random", "ascent", "two_levels"))
    assert worst <= 1e-12
    assert found["attack"]["ascent"] == pytest.approx(0, abs=1e-4)  # it climbs to equal logits, the best there is
    assert found["rate"] < 1e-3 and max(found["limits"].values()) < 1e-6


def test_a_planted_fall_is_seen(monkeypatch):
    right = stored.entropy
    monkeypatch.setattr(stored, "entropy", lambda z: -right(z))
    monkeypatch.setattr(stored, "SIZES", (5,))
    monkeypatch.setattr(stored, "FACTORS", (1.5,))
    monkeypatch.setattr(stored, "RANDOM", 20)
    monkeypatch.setattr(stored, "STARTS", 0)
    rows = stored.random_rows(5, np.random.default_rng(0))
    assert stored._fall(rows, 1.0, 1.5).max() > 0.1

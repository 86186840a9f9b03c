"""The stored bench of chapter 09: the problem grew, the gains follow from the rows, and the text's verdict holds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from adatemp import runtime

READ = ("maximum", "needle", "recall", "copying")


@pytest.fixture(scope="module")
def bench():
    return runtime.results("variants_bench").data


def reading(bench, task, name, variant="softmax"):
    """Accuracies [seed, length]."""
    row = next(row for row in bench["rows"] if (row["task"], row["variant"]) == (task, variant))
    return np.array(row["read_outs"][name]["accuracy"])


def test_answers_see_more_keys_at_every_longer_length(bench):
    for about in bench["tasks"].values():
        visible = np.array(about["visible"])
        assert (visible[1:] > 1.3 * visible[:-1]).all()
        assert visible[-1] > 60 * visible[0]


def test_gains_and_intervals_follow_from_the_accuracies(bench):
    for task, rules in bench["against_softmax"]["rules"].items():
        own = reading(bench, task, "own")
        for name, stored in rules.items():
            test = stats.ttest_rel(reading(bench, task, name), own)
            low, high = (np.asarray(end) for end in test.confidence_interval(0.95))
            finite = np.isfinite(low)  # no interval where all seeds agree to the last set
            np.testing.assert_allclose(
                np.array(stored["gain"]), (reading(bench, task, name) - own).mean(0), atol=2e-5
            )  # stored to five digits
            np.testing.assert_allclose(
                np.array(stored["half_width"])[finite], ((high - low) / 2)[finite], atol=2e-5
            )  # stored to five digits


def test_no_temperature_reading_beats_the_oracle_constant_by_more_than_chance(bench):
    for task in ("maximum", "needle"):
        best = reading(bench, task, "best constant").mean(0)
        for name in ("log ratio", "exp offset", "newton", "guarded", "constant", "published map", "held"):
            assert (reading(bench, task, name).mean(0) <= best + 0.02).all()


def test_the_verdict_of_the_page_holds(bench):
    end = {
        task: {name: reading(bench, task, name)[:, -1].mean() for name in ("own", "hard", "guarded")} for task in READ
    }
    assert reading(bench, "needle", "log ratio")[:, -1].mean() > 0.97 * end["needle"]["hard"]
    assert reading(bench, "maximum", "log ratio")[:, -1].mean() < end["maximum"]["hard"] - 0.2
    assert end["maximum"]["guarded"] > 0.95
    for task in ("recall", "copying"):
        assert end[task]["hard"] < 0.95  # ranking fails
        assert end[task]["own"] < end[task]["hard"] - 0.2  # and softmax loses more than that
        assert end[task]["guarded"] > end[task]["hard"] - 0.05


def test_maps_trained_in_its_place_do_on_the_needle_what_the_theorems_say(bench):
    for name in ("log length", "scalable", "1.5-entmax", "sparsemax"):
        assert reading(bench, "needle", "own", name)[:, -1].mean() > 0.97
        assert reading(bench, "maximum", "own", name)[:, -1].mean() < 0.85  # uniform priorities: none holds
    for name in ("sigmoid", "stick-breaking", "published map"):
        accuracy = reading(bench, "needle", "own", name).mean(0)
        assert accuracy[0] > 0.97 and accuracy[-1] < 0.6


def test_a_sink_cannot_be_told_from_softmax_at_the_longest_length(bench):
    for gains in bench["against_softmax"]["variants"].values():
        for name in ("null slot", "learned sink"):
            assert abs(gains[name]["gain"][-1]) < gains[name]["half_width"][-1]

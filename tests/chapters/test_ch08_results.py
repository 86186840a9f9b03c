"""What chapter 08 says in words about its stored runs, on the numbers that are stored."""

from __future__ import annotations

import numpy as np
import pytest

from adatemp import runtime
from adatemp.tasks import max_retrieval


def percent(rows, name, part="accuracy"):
    return 100 * np.array([row["read_outs"][name][part] for row in rows])


@pytest.fixture(scope="module")
def table1():
    data = runtime.results("table1").data
    return data["rows"], {n: i for i, n in enumerate(data["sizes"])}


@pytest.fixture(scope="module")
def gains(table1):
    rows, at = table1
    return percent(rows, "adaptive") - percent(rows, "plain"), at


def published_gain(n):
    plain, adaptive = max_retrieval.PUBLISHED[n]
    return adaptive - plain


def test_the_mean_gain_is_two_to_four_times_the_published_one_in_the_middle_and_no_more_at_the_ends(gains):
    found, at = gains
    for n in (256, 512, 1_024):
        assert 2 <= found[:, at[n]].mean() / published_gain(n) <= 4.5
    for n in (16, 16_384):
        assert found[:, at[n]].mean() <= published_gain(n) + 0.1


def test_the_published_gain_lies_among_the_heads_at_most_sizes_and_one_head_or_more_gains_no_more(gains):
    found, at = gains
    inside = [found[:, at[n]].min() - 0.05 <= published_gain(n) <= found[:, at[n]].max() + 0.05 for n in at_known(at)]
    assert sum(inside) >= len(inside) - 1
    assert (found[:, at[1_024]] <= published_gain(1_024)).sum() >= 1
    # The scatter between heads is larger than the difference of the means.
    assert np.ptp(found[:, at[1_024]]) > abs(found[:, at[1_024]].mean() - published_gain(1_024))


def at_known(at):
    return [n for n in at if n in max_retrieval.PUBLISHED]


def test_the_gain_is_the_dispersion_error(table1, gains):
    rows, at = table1
    lost = percent(rows, "plain", "dispersion")[:, at[1_024]]
    assert np.corrcoef(lost, gains[0][:, at[1_024]])[0, 1] > 0.95


def test_the_map_takes_away_more_than_half_of_the_dispersion_error_in_the_middle_and_luck_with_it(table1):
    rows, at = table1
    for n in (256, 1_024):
        before, after = (percent(rows, name, "dispersion")[:, at[n]].mean() for name in ("plain", "adaptive"))
        assert after < before / 2
        before, after = (percent(rows, name, "lucky")[:, at[n]].mean() for name in ("plain", "adaptive"))
        assert after < before
    np.testing.assert_allclose(percent(rows, "plain", "ranking"), percent(rows, "adaptive", "ranking"))
    assert percent(rows, "plain", "ranking")[:, at[16_384]].mean() > 80


@pytest.fixture(scope="module")
def alone():
    data = runtime.results("dispersion_only").data

    def asked(question):
        rows = [row for row in data["rows"] if row["question"] == question]
        return rows, {n: i for i, n in enumerate(data["sizes"][question])}

    return asked


def test_where_dispersion_is_alone_the_hard_reading_is_right_and_the_plain_one_ends_near_chance(alone):
    rows, at = alone("largest")
    assert percent(rows, "argmax").min() > 99
    assert percent(rows, "plain")[:, at[16_384]].mean() < 20


def test_the_guarded_rule_holds_every_head_above_95_and_spares_every_averaging_control(alone):
    rows, _ = alone("largest")
    assert percent(rows, "guarded").min() > 95
    for question in ("heaviest", "most frequent"):
        rows, _ = alone(question)
        assert all(row["rules"]["averages"] for row in rows)
        difference = (percent(rows, "guarded") - percent(rows, "plain")).mean(0)
        assert difference.min() >= -1
        assert (percent(rows, "argmax") - percent(rows, "plain")).mean(0).min() < -50


def test_the_guard_leaves_the_second_largest_alone_and_forgoes_what_the_offset_rule_keeps(alone):
    rows, at = alone("second largest")
    assert all(row["rules"]["averages"] and 0.5 < row["rules"]["slope"] < 0.9 for row in rows)
    end = at[16_384]
    assert percent(rows, "argmax")[:, end].mean() < 13
    for name in ("exp offset", "target entropy"):
        assert percent(rows, name)[:, end].mean() > percent(rows, "guarded")[:, end].mean() + 40
        assert percent(rows, name)[:, end].mean() > percent(rows, name)[:, at[16]].mean() - 10
    for name in ("adaptive", "constant 2", "log ratio"):
        assert percent(rows, name)[:, end].mean() < 15


def test_recall_is_won_by_the_guarded_rule_and_by_the_others_of_the_table_alike():
    rules = runtime.results("variants_bench").data["against_softmax"]["rules"]["recall"]
    gain, half = (np.array(rules["guarded"][key]) for key in ("gain", "half_width"))
    assert gain[-1] - half[-1] > 0 and (gain + half > 0)[1:].all()
    for name in ("published map", "log ratio", "exp offset", "constant"):
        assert rules[name]["gain"][-1] - rules[name]["half_width"][-1] > 0
        assert abs(rules[name]["gain"][-1] - gain[-1]) < half[-1] + rules[name]["half_width"][-1]


@pytest.fixture(scope="module")
def long_rows():
    data = runtime.results("long_rows_rules").data
    return data["sizes"].index(131_072), {row["family"]: row["rules"] for row in data["rows"]}


def test_at_131_072_keys_the_published_map_returns_the_plain_weight_and_held_at_its_peak_it_finds_the_needle(long_rows):
    end, families = long_rows
    for family in ("needle +8", "needle +12"):
        rules = families[family]
        if rules["plain"]["weight"][end] < 0.5:
            assert rules["adaptive"]["weight"][end] == pytest.approx(rules["plain"]["weight"][end], abs=0.02)
    assert families["needle +12"]["held"]["weight"][end] > 0.95
    assert families["noise"]["guarded"]["beta"][end] == pytest.approx(1.0, abs=0.01)


def test_heads_that_rank_better_gain_more():
    rows = runtime.results("trained_to").data["rows"]
    column = runtime.results("trained_to").data["sizes"].index(1_024)
    arms = {}
    for row in rows:
        arms.setdefault(row["arm"], []).append(row)
    hard = {arm: percent(found, "argmax")[:, column].mean() for arm, found in arms.items()}
    gain = {
        arm: (percent(found, "adaptive") - percent(found, "plain"))[:, column].mean() for arm, found in arms.items()
    }
    order = sorted(arms, key=hard.get)
    assert gain[order[-1]] == max(gain.values()) and gain[order[0]] == min(gain.values())


def test_two_ways_to_fit_come_near_the_published_map_and_least_squares_of_beta_does_not():
    curves = [c for c in runtime.results("map_fit").data["curves"] if c["distance"] is not None and c["points"] >= 16]
    distance = {way: np.median([c["distance"] for c in curves if c["way"] == way]) for way in ("beta", "temperature")}
    medians = [c["distance"] for c in curves if c["way"] == "median"]
    assert max(distance["temperature"], np.median(medians)) < 0.4 < 0.8 < distance["beta"]
    assert min(curves, key=lambda c: c["distance"])["way"] in ("temperature", "median")
    highest = max(curves, key=lambda c: max(b for b in c["beta"] if b is not None))
    assert highest["way"] == "beta"


def test_the_heads_come_close_to_the_end_of_the_window_and_do_not_pass_it(table1):
    rows, at = table1
    entropy = np.mean([row["entropy"][at[16_384]] for row in rows])
    assert 5.0 < entropy < 5.9445
    assert percent(rows, "adaptive", "unchanged")[:, at[16_384]].mean() < 5
    assert abs((percent(rows, "held") - percent(rows, "adaptive")).mean(0)).max() < 0.5

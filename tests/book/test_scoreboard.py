"""The scoreboard's verdicts follow from the runs by the stated rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scoreboard

RUNS = [48.0, 49.0, 50.0, 51.0, 52.0]  # mean 50, standard deviation √2.5


def test_accuracies_are_those_of_the_size_and_read_out_asked_for():
    def row(plain, argmax):
        return {"read_outs": {"plain": {"accuracy": plain}, "argmax": {"accuracy": argmax}}}

    data = {"sizes": [16, 64], "rows": [row([0.99, 0.9], [1.0, 0.95]), row([0.97, 0.8], [1.0, 0.85])]}
    assert scoreboard.accuracies(data, "plain", 64) == pytest.approx([90.0, 80.0])
    assert scoreboard.accuracies(data, "argmax", 64) == pytest.approx([95.0, 85.0])
    with pytest.raises(ValueError, match="32"):
        scoreboard.accuracies(data, "plain", 32)


def test_prediction_interval_is_the_closed_form():
    # t of 4 degrees of freedom at 0.975 is 2.776445 (tables); √2.5 · √1.2 = √3.
    low, high = scoreboard.prediction_interval(RUNS)
    assert low == pytest.approx(50 - 2.776445 * math.sqrt(3), abs=1e-5)
    assert high == pytest.approx(50 + 2.776445 * math.sqrt(3), abs=1e-5)


def test_prediction_interval_holds_the_next_run_as_often_as_it_says():
    generator = np.random.default_rng(0)
    runs = generator.normal(50, 7, size=(4000, 11))
    hits = 0
    for row in runs:
        low, high = scoreboard.prediction_interval(row[:10])
        hits += low <= row[10] <= high
    # Three standard errors of a binomial share at 4,000 trials: 0.0103.
    assert abs(hits / len(runs) - 0.95) < 0.0104


@pytest.mark.parametrize(
    ("published", "runs", "word"),
    [
        (50.0, RUNS, scoreboard.REPRODUCED),
        (54.7, RUNS, scoreboard.REPRODUCED),  # inside 50 ± 4.81
        (54.9, RUNS, scoreboard.PARTLY),  # just outside the interval, within 10 points
        (59.9, RUNS, scoreboard.PARTLY),
        (60.1, RUNS, scoreboard.NOT),
        (58.0, [30.0, 40.0, 50.0, 60.0, 70.0], scoreboard.PARTLY),  # inside a wide interval is not enough
        (90.0, [30.0, 40.0, 50.0, 60.0, 70.0], scoreboard.PARTLY),  # 50 ± 48: inside, but 40 points away
        (99.0, [30.0, 40.0, 50.0, 60.0, 70.0], scoreboard.NOT),
        (50.0, RUNS[:4], scoreboard.NOT_TRIED),
    ],
)
def test_verdict_follows_the_rule(published, runs, word):
    assert scoreboard.judge(published, runs).word == word


def test_row_of_the_page_shows_the_verdict_s_numbers_or_none():
    assert scoreboard.table1_row(54.7, 1024, RUNS) == [
        "1,024", "54.7", "50.0", "45.2 to 54.8", "5", scoreboard.REPRODUCED
    ]  # fmt: skip
    assert scoreboard.table1_row(54.7, 1024, RUNS[:2]) == ["1,024", "54.7", "", "", "2", scoreboard.NOT_TRIED]


def test_failed_run_is_an_error_and_no_verdict():
    with pytest.raises(ValueError, match="not finite"):
        scoreboard.judge(50.0, [*RUNS, math.nan])


ATTACK = {
    "quantity": "entropy",
    "bound": "exact",
    "rows": 60_000,
    "ascents": 300,
    "random": -0.5,
    "ascent": -3.25e-7,
    "two_levels": 2e-16,
    "furthest": -0.0123,
}


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({}, scoreboard.REPRODUCED),
        ({"ascent": 2e-12}, scoreboard.NOT),
        ({"random": 0.1}, scoreboard.NOT),
        ({"two_levels": math.nan, "random": math.nan, "ascent": math.nan}, scoreboard.NOT),
        ({"rows": 999}, scoreboard.NOT_TRIED),
        ({"ascents": 99}, scoreboard.NOT_TRIED),
    ],
)
def test_verdict_on_a_bound_follows_from_the_worst_row_of_the_attack(changed, word):
    assert scoreboard.judge_bound(ATTACK | changed) == word


def test_row_of_a_bound_says_how_near_a_row_came():
    said, where, *numbers, word = scoreboard.bound_row(ATTACK)
    assert said.startswith("H ≥ log n") and where == "ours" and word == scoreboard.REPRODUCED
    assert numbers == ["0", "0.012"]
    assert scoreboard.bound_row(ATTACK | {"two_levels": -0.5, "ascent": -3.2e-7})[2:4] == ["3.2 × 10⁻⁷", "0.012"]
    assert scoreboard.bound_row(ATTACK | {"furthest": -11.3})[3] == "11"


READ_OUTS = {"random": 1000, "ascents": 100, "worst_random": -0.3, "worst_ascent": -0.001}


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({}, scoreboard.REPRODUCED),
        ({"worst_ascent": 1e-9}, scoreboard.REPRODUCED),
        ({"worst_ascent": 0.01}, scoreboard.NOT),
        ({"worst_random": math.nan, "worst_ascent": math.nan}, scoreboard.NOT),
        ({"random": 999}, scoreboard.NOT_TRIED),
        ({"ascents": 99}, scoreboard.NOT_TRIED),
    ],
)
def test_verdict_on_the_margin_follows_from_the_worst_read_out(changed, word):
    assert scoreboard.judge_margin(READ_OUTS | changed) == word


COLLISIONS = 5 * [{"predicted": [10.0, 1e9], "measured": [10.5, 1.2e9]}]


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        (COLLISIONS, scoreboard.REPRODUCED),
        (5 * [{"predicted": 20.0, "measured": 20.1}], scoreboard.REPRODUCED),
        ([*COLLISIONS[1:], {"predicted": [10.0, 1e9], "measured": [10.0, 2.1e9]}], scoreboard.PARTLY),
        ([*COLLISIONS[1:], {"predicted": [10.0, 1e9], "measured": [10.0, None]}], scoreboard.PARTLY),
        (5 * [{"predicted": 20.0, "measured": 9.0}], scoreboard.NOT),
        (COLLISIONS[1:], scoreboard.NOT_TRIED),
    ],
)
def test_verdict_on_collisions_needs_every_format_within_a_factor_of_two(rows, word):
    assert scoreboard.judge_collisions(rows) == word


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        ((100, 100, 100), scoreboard.REPRODUCED),
        ((100, 100, 99), scoreboard.PARTLY),
        ((100, 60, 60), scoreboard.PARTLY),
        ((100, 40, 40), scoreboard.NOT),
        ((99, 99, 99), scoreboard.NOT_TRIED),
    ],
)
def test_verdict_on_the_pairs_of_a_head_needs_all_of_them_in_time(counts, word):
    assert scoreboard.judge_pairs([dict(zip(("pairs", "failed", "certified"), counts))]) == word


STREAM = {
    "keys": 131_072,
    "rows": [{"error": 1e-4 * (-1) ** i} for i in range(10)],
    "tokens": [2_048, 131_072],
    "memory": [
        {"way": "all logits", "bytes": {"2048": 30_000_000, "131072": 140_000_000_000}},
        {"way": "one stream", "bytes": {"2048": 200_000, "131072": 12_800_000}},
    ],
}


def with_memory(at_131072):
    ways = [{"way": "one stream", "bytes": {"2048": 200_000, "131072": at_131072}}, STREAM["memory"][0]]
    return STREAM | {"memory": ways}


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (STREAM, scoreboard.REPRODUCED),
        (STREAM | {"rows": [*STREAM["rows"], {"error": -2e-3}]}, scoreboard.PARTLY),
        (STREAM | {"rows": [*STREAM["rows"], {"error": math.nan}]}, scoreboard.PARTLY),
        (with_memory(13_000_000), scoreboard.PARTLY),  # faster than the tokens: 64 times as many
        (with_memory(13_000_000) | {"rows": 10 * [{"error": 1.0}]}, scoreboard.NOT),
        (STREAM | {"rows": STREAM["rows"][1:]}, scoreboard.NOT_TRIED),
        (STREAM | {"keys": 4_096}, scoreboard.NOT_TRIED),
    ],
)
def test_verdict_on_the_stream_needs_the_entropy_and_the_memory(run, word):
    assert scoreboard.judge_stream(run) == word


SPECTRAL = {"form": "norms", "rotated": False, "rows": 2000, "ascents": 120, "random": -0.5, "ascent": -1e-9}
SPECTRAL |= {"built": 0.0, "furthest": 0.0}


def test_row_of_a_form_shows_a_broken_bound_as_such():
    said, where, *numbers, word = scoreboard.spectral_row(SPECTRAL)
    assert where == "Proposition 3.1" and numbers == ["0", "0"] and word == scoreboard.REPRODUCED
    broken = {"form": "tight", "rotated": True, "random": 0.2, "ascent": 0.99, "furthest": 0.98}
    assert scoreboard.spectral_row(SPECTRAL | broken)[2:] == ["−0.99", "−0.98", scoreboard.NOT]
    assert scoreboard.spectral_row(SPECTRAL | {"rows": 10})[-1] == scoreboard.NOT_TRIED


TRAINED = 5 * [{"step": list(range(10)), "worst_norms": 10 * [0.5]}]


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        (TRAINED, scoreboard.REPRODUCED),
        ([*TRAINED, {"step": list(range(10)), "worst_norms": [*9 * [0.5], 1.01]}], scoreboard.NOT),
        ([*TRAINED, {"step": list(range(10)), "worst_norms": [*9 * [0.5], math.nan]}], scoreboard.NOT),
        (TRAINED[1:], scoreboard.NOT_TRIED),
        ([*TRAINED, {"step": [0], "worst_norms": [0.5]}], scoreboard.NOT_TRIED),
    ],
)
def test_verdict_on_the_bound_in_training_needs_every_look(rows, word):
    assert scoreboard.judge_training(rows) == word


def transformers(presets=5, toys=3, rows=2_000, attack=(), toy=()):
    """Data of the stored result transformer_spread with nothing above its certificate, but for what is changed."""
    attacked = {"rows": rows, "ascents": 128, "random": -0.4, "ascent": -0.1, "own": 1e-7, "certified": -1e-3}
    trained = {
        "certified_spread": [[10.0, 20.0]],
        "certified_radius": [1.0, 5.0],
        "spread_at": [[[4.0, 5.0]], [[3.0, 9.0]]],
        "radius_at": [[1.0, 2.0], [1.0, 3.0]],
        "worst": [[9.0, 11.0]],
        "excess_at": [{"own": 1e-6, "certified": -5.0}] * 2,
    }
    causal = {key: value for key, value in trained.items() if key not in ("worst", "excess_at")}
    return {
        "attacks": [attacked | dict(attack)] + [attacked] * (presets - 1),
        "toys": [trained | dict(toy)] + [trained] * (toys - 1) + [causal],
    }


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({}, scoreboard.REPRODUCED),
        ({"attack": {"ascent": 0.01}}, scoreboard.NOT),
        ({"attack": {"own": math.nan}}, scoreboard.NOT),
        ({"toy": {"spread_at": [[[4.0, 5.0]], [[3.0, 20.1]]]}}, scoreboard.NOT),
        ({"toy": {"radius_at": [[1.0, 5.1], [1.0, 3.0]]}}, scoreboard.NOT),
        ({"toy": {"worst": [[10.1, 1.0]]}}, scoreboard.NOT),
        ({"toy": {"excess_at": [{"own": 0.01, "certified": -5.0}]}}, scoreboard.NOT),
        ({"presets": 4}, scoreboard.NOT_TRIED),
        ({"toys": 2}, scoreboard.NOT_TRIED),
        ({"rows": 999}, scoreboard.NOT_TRIED),
    ],
)
def test_the_theorem_stands_while_nothing_exceeds_its_certificate(changed, word):
    assert scoreboard.judge_transformers(transformers(**changed)) == word


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ([scoreboard.REPRODUCED] * 3, scoreboard.REPRODUCED),
        ([scoreboard.REPRODUCED, scoreboard.NOT], scoreboard.PARTLY),
        ([scoreboard.REPRODUCED, scoreboard.NOT_TRIED], scoreboard.PARTLY),
        ([scoreboard.NOT, scoreboard.NOT_TRIED], scoreboard.NOT),
        ([scoreboard.NOT_TRIED] * 2, scoreboard.NOT_TRIED),
        ([], scoreboard.NOT_TRIED),
    ],
)
def test_claim_of_several_parts(words, word):
    assert scoreboard.overall(words) == word


def test_table_escapes_what_it_is_given_and_sets_numbers_to_the_right():
    rows = [["<i>", "12.3", "4, 14", "1 to 2"], ["16", "1,024", "3", ""]]
    table = scoreboard.html_table("a < b", ["x", "n", "chapters", "range"], rows)
    assert "a &lt; b" in table
    assert '<th scope="row">&lt;i&gt;</th><td class="number">12.3</td><td>4, 14</td>' in table
    assert '<th scope="col" class="number">n</th><th scope="col">chapters</th>' in table
    assert '<td class="number">1 to 2</td>' in table


def attack_on_temperature(**changed):
    attack = {"rows": 2000, "ascents": 200, "random": 0.0, "ascent": -1e-5, "two_levels": 0.0}
    found = {"attack": attack, "rate": 1e-7, "limits": {"lowest": 0.0, "highest": 1e-13}}
    for name, value in changed.items():
        (attack if name in attack else found)[name] = value
    return found


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({}, scoreboard.REPRODUCED),
        ({"ascent": 1e-6}, scoreboard.NOT),
        ({"rate": 1e-2}, scoreboard.PARTLY),
        ({"limits": {"lowest": 0.1, "highest": 0.0}}, scoreboard.PARTLY),
        ({"rate": math.nan}, scoreboard.PARTLY),
        ({"rows": 10}, scoreboard.NOT_TRIED),
    ],
)
def test_verdict_on_temperature_and_entropy_needs_the_attack_the_rate_and_the_limits(changed, word):
    assert scoreboard.judge_temperature(attack_on_temperature(**changed)) == word


def heads_with_tops(plain, adaptive, heads=6):
    rng = np.random.default_rng(0)
    return {
        "sizes": [16, 64, 1024],
        "rows": [
            {
                "read_outs": {
                    name: {"top_weight": list(np.add(tops, rng.normal(0, 1e-3, 3)))}
                    for name, tops in (("plain", plain), ("adaptive", adaptive))
                }
            }
            for _ in range(heads)
        ],
    }


@pytest.mark.parametrize(
    ("plain", "adaptive", "heads", "word"),
    [
        ([0.9, 0.7, 0.2], [0.8, 0.8, 0.4], 6, scoreboard.REPRODUCED),  # the size of training does not count
        ([0.9, 0.7, 0.2], [0.9, 0.7, 0.4], 6, scoreboard.PARTLY),
        ([0.9, 0.7, 0.2], [0.9, 0.6, 0.1], 6, scoreboard.NOT),
        ([0.9, 0.7, 0.2], [0.9, 0.8, 0.4], 4, scoreboard.NOT_TRIED),
    ],
)
def test_verdict_on_sharper_attention_needs_every_size_beyond_training(plain, adaptive, heads, word):
    assert scoreboard.judge_sharper(heads_with_tops(plain, adaptive, heads)) == word


def curve(head, way, distance, points=20):
    return {"head": head, "sets": "16", "way": way, "distance": distance, "points": points}


@pytest.mark.parametrize(
    ("curves", "word"),
    [
        ([curve(head, "beta", 0.2) for head in "abc"], scoreboard.REPRODUCED),
        ([curve("a", "beta", 0.2), curve("b", "median", 0.2), curve("c", "beta", 0.2)], scoreboard.PARTLY),
        ([curve("a", "beta", 0.2), curve("b", "beta", 0.4), curve("c", "beta", 3.0)], scoreboard.PARTLY),
        ([curve(head, "beta", 0.3) for head in "abc"], scoreboard.NOT),
        ([curve(head, "beta", 0.1, points=5) for head in "abc"], scoreboard.NOT),  # near over half a nat says nothing
        ([curve(head, "beta", None) for head in "abc"], scoreboard.NOT),
        ([curve("a", "beta", 0.1)], scoreboard.NOT_TRIED),
    ],
)
def test_verdict_on_the_fitted_map_needs_one_procedure_for_all_heads(curves, word):
    assert scoreboard.judge_fit(curves) == word


@pytest.mark.parametrize(
    ("spreads", "models", "word"),
    [
        ([0.0, 0.0, 3e-6], 5, scoreboard.REPRODUCED),
        ([0.0, 0.0, 0.2], 5, scoreboard.NOT),
        ([0.0, math.nan, 0.0], 5, scoreboard.NOT),
        ([5.0, 0.0, 0.0], 5, scoreboard.REPRODUCED),  # the first layer is the one made uniform
        ([0.0, 0.0, 0.0], 4, scoreboard.NOT_TRIED),
    ],
)
def test_verdict_on_the_cascade_follows_from_the_later_layers(spreads, models, word):
    assert scoreboard.judge_cascade([{"uniform": spreads}] * models) == word


@pytest.mark.parametrize(
    ("pairs", "word"),
    [
        ([(0.4, 0.6)] * 5, scoreboard.REPRODUCED),
        ([(0.4, 0.6)] * 4 + [(0.6, 0.6)], scoreboard.PARTLY),
        ([(0.6, 0.605)] * 5, scoreboard.NOT),
        ([(0.4, 0.6)] * 4, scoreboard.NOT_TRIED),
    ],
)
def test_verdict_on_hastening_follows_from_the_top_weights(pairs, word):
    assert scoreboard.judge_hastening(pairs) == word


@pytest.mark.parametrize(
    "growing, sizes, wanted",
    [(10, 5, "REPRODUCED"), (9, 5, "REPRODUCED"), (8, 5, "PARTLY"), (5, 5, "NOT"), (0, 5, "NOT"), (10, 4, "NOT_TRIED")],
)
def test_figure_3_is_judged_by_the_share_of_heads_whose_entropy_grows(growing, sizes, wanted):
    def row(entropies):
        return {"entropy": [entropies[:5], entropies[5:]]}

    first, last = [2.0] * 10, [2.5] * growing + [1.5] * (10 - growing)
    found = {"rows": [row(first), *[row(last)] * (sizes - 1)]}
    assert scoreboard.growing_heads(found) == (growing, 10)
    assert scoreboard.judge_growth(found) == getattr(scoreboard, wanted)

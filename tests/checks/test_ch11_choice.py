"""Exercise 11.5: the right answer passes, planted mistakes are named, and every limit is needed."""

from __future__ import annotations

import pytest

from adatemp.checks import ch11
from adatemp.checks.ch11 import _choice


def unwritten(*_):
    raise NotImplementedError


def per_warp(report, limits):
    return -(-32 * report["registers"] // limits.register_unit) * limits.register_unit


def bounds(report, limits):
    resident = limits.partitions * (limits.registers // per_warp(report, limits))
    shared = limits.shared // (report["shared_bytes"] + limits.reserved)
    return {
        "registers": resident // report["num_warps"],
        "shared": shared if report["shared_bytes"] <= limits.shared_per_block else 0,
        "warps": limits.warps // report["num_warps"],
        "blocks": limits.blocks,
    }


def occupancy_with(**changed):
    """The occupancy with some of its bounds replaced; None leaves one out."""

    def occupancy(report, limits):
        found = bounds(report, limits)
        for bound, change in changed.items():
            if change is None:
                del found[bound]
            else:
                found[bound] = change(report, limits)
        return min(found.values()) * report["num_warps"] / limits.warps

    return occupancy


occupancy = occupancy_with()


def choose_with(
    occupancy=occupancy,
    *,
    spills=False,
    limits_of=lambda limits, arch: limits[arch],
    score=lambda filled, area: (filled, area),
):
    def choose(reports, limits):
        chosen = {}
        for report in reports:
            own = limits_of(limits, report["arch"])
            if (report["spill_bytes"] and not spills) or report["shared_bytes"] > own.shared_per_block:
                continue
            rank = score(occupancy(report, own), report["block_q"] * report["block_k"])
            if report["arch"] not in chosen or rank > chosen[report["arch"]][0]:
                chosen[report["arch"]] = rank, report
        return {arch: report for arch, (_, report) in chosen.items()}

    return choose


choose = choose_with()


def test_the_right_answer_passes():
    assert ch11.ex5(occupancy, choose).require()


def test_the_right_answer_passes_on_a_table_of_ones_own():
    table = _choice._planted_reports()[::2]
    assert ch11.ex5(occupancy, choose, table).require()
    report = ch11.ex5(occupancy, lambda r, l: choose(r, l) if len(r) > 10 else {}, table)
    assert not report and report.findings[-1].stage == "the choice from your own table"


@pytest.mark.parametrize(
    ("registers", "warps", "shared", "expected"),
    [
        (255, 8, 65_536, 8 / 64),  # 256 · 32 registers a warp: two in each partition, eight in all
        (128, 4, 33_280, 16 / 64),  # 4,096 a warp: four in each partition; four blocks of 34,304 bytes fit
        (32, 4, 1_000, 64 / 64),
    ],
)
def test_the_occupancy_of_an_a100_is_that_of_a_count_by_hand(registers, warps, shared, expected):
    report = {"registers": registers, "num_warps": warps, "shared_bytes": shared}
    assert _choice.predicted(report, ch11.LIMITS["sm_80"]) == expected


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda *_: None, "not written yet"),
        (lambda report, limits: float("nan"), "NaN"),
        (lambda report, limits: min(bounds(report, limits).values()), "blocks for warps"),
        (lambda report, limits: 100 * occupancy(report, limits), "percent for shares"),
        (
            occupancy_with(registers=lambda r, m: m.partitions * m.registers // r["registers"] // r["num_warps"]),
            "the registers never bound it",
        ),
        (occupancy_with(registers=None), "the registers never bound it"),
        (occupancy_with(shared=None), "the shared memory is forgotten"),
        (occupancy_with(blocks=None), "the count of blocks, or of warps, is forgotten"),
        (
            occupancy_with(registers=lambda r, m: m.partitions * m.registers // per_warp(r, m) // r["num_warps"]),
            "the partitions are pooled",
        ),
        (
            occupancy_with(
                registers=lambda r, m: m.partitions * (m.registers // (32 * r["registers"])) // r["num_warps"]
            ),
            "registers are not rounded up",
        ),
        (occupancy_with(shared=lambda r, m: m.shared // r["shared_bytes"]), "the reserved bytes are forgotten"),
        (
            occupancy_with(
                registers=lambda r, m: m.partitions * m.registers / per_warp(r, m) / r["num_warps"],
                shared=lambda r, m: m.shared / (r["shared_bytes"] + m.reserved),
            ),
            "parts of a block",
        ),
    ],
)
def test_mistakes_in_the_occupancy_are_named(answer, mistake):
    assert ch11.ex5(answer, choose).mistake == mistake


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda *_: None, "not written yet"),
        (lambda reports, limits: choose(reports, limits)["sm_80"], "not a choice for each GPU"),
        (
            lambda reports, limits: dict.fromkeys(limits, choose(reports, limits)["sm_80"]),
            "not a choice for each GPU",
        ),
        (choose_with(score=lambda filled, area: area), "the largest tile always"),
        (choose_with(spills=True, score=lambda filled, area: area), "the largest tile always"),
        (choose_with(score=lambda filled, area: -area), "the smallest tile always"),
        (choose_with(spills=True), "spills are overlooked"),
        (choose_with(limits_of=lambda limits, arch: limits["sm_80"]), "the limits of one GPU used for all"),
        (choose_with(limits_of=lambda limits, arch: limits["sm_89"]), "the limits of one GPU used for all"),
        (choose_with(limits_of=lambda limits, arch: limits["sm_90"]), "the limits of one GPU used for all"),
        (choose_with(occupancy_with(shared=None)), "registers alone decide"),
        (choose_with(occupancy_with(registers=None)), "shared memory alone decides"),
        (choose_with(score=lambda filled, area: (filled, -area)), "of several the smaller tile"),
    ],
)
def test_mistakes_in_the_choice_are_named(answer, mistake):
    assert ch11.ex5(occupancy, answer).mistake == mistake

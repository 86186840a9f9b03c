"""Exercise 11.5, choose a tile: occupancy from a compiled report, and the report to take for each GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written
from adatemp.checks.ch11._occupancy import LIMITS, CompiledReport, Limits, occupancy_stage, planted_report, predicted

_TITLE = "11.5 Choose a tile"


def ex5(
    occupancy: Callable[..., Any], choose: Callable[..., Any], reports: Sequence[CompiledReport] | None = None
) -> Report:
    """Checks a prediction of occupancy and a choice of tiles that rests on it.

    Args:
        occupancy: `occupancy(report, limits) -> number` in [0, 1]: resident warps over `limits.warps`, whole blocks
            only, `limits` being one entry of `checks.ch11.LIMITS`. `report` has "arch", "block_q", "block_k",
            "num_warps" (of a block), "num_stages", "registers" (of a thread), "spill_bytes" and "shared_bytes" (of a
            block).
        choose: `choose(reports, limits) -> {arch: report}`: for each GPU that occurs, among its reports without spills
            and within its shared memory, that of the highest occupancy, and of several such the one with the largest
            tile, `block_q · block_k`. `limits` is `checks.ch11.LIMITS`.
        reports: a table of your own, on which the choice is checked as well.

    Returns:
        The report. Mistakes it names: a bound that is forgotten; registers of a thread for those of a warp; partitions
        pooled; nothing rounded up; parts of a block; the largest tile, or the smallest, always; spills overlooked; one
        bound that decides alone; the limits of one GPU used for all.
    """
    examinations = [
        lambda: examine(occupancy, _TITLE, "occupancy(report, limits)", (occupancy_stage(written(occupancy)),)),
        lambda: examine(choose, _TITLE, "choose(reports, limits)", (_planted_choice(written(choose)),)),
    ]
    if reports is not None:
        table = [dict(report) for report in reports]
        examinations.append(
            lambda: examine(choose, _TITLE, "choose(reports, limits)", (_own_choice(written(choose), table),))
        )
    return in_turn(
        examinations,
        remark="Occupancy is a prediction of how well waiting can be hidden. Which tile is fastest, a clock decides.",
    )


def _planted_reports() -> list[dict]:
    """Candidates for three GPUs; no short cut picks the right one of each."""
    return [
        planted_report("sm_80", (128, 128), 8, 255, 98_304, spills=156),
        planted_report("sm_80", (128, 64), 8, 246, 65_536),
        planted_report("sm_80", (64, 64), 4, 160, 40_960),
        planted_report("sm_80", (64, 32), 4, 168, 28_672),
        planted_report("sm_80", (32, 64), 4, 224, 20_480),
        planted_report("sm_80", (32, 32), 4, 128, 61_440),
        planted_report("sm_80", (16, 16), 4, 72, 8_192, spills=8),
        planted_report("sm_89", (128, 128), 8, 200, 132_096),
        planted_report("sm_89", (128, 64), 8, 128, 49_152),
        planted_report("sm_89", (64, 64), 4, 72, 45_056),
        planted_report("sm_89", (64, 32), 4, 168, 30_720),
        planted_report("sm_89", (32, 32), 4, 128, 24_064),
        planted_report("sm_89", (32, 16), 4, 126, 20_480),
        planted_report("sm_90", (128, 128), 8, 227, 163_840),
        planted_report("sm_90", (128, 64), 8, 128, 110_592),
        planted_report("sm_90", (64, 64), 4, 96, 90_112),
        planted_report("sm_90", (64, 32), 4, 128, 73_728),
        planted_report("sm_90", (32, 32), 4, 168, 40_960),
    ]


def _best(
    reports: Sequence[CompiledReport],
    score: Callable[[CompiledReport], Any],
    allowed: Callable[[CompiledReport], bool] = lambda report: True,
) -> dict[str, CompiledReport]:
    """For each GPU the allowed report with the highest score, the first of several such."""
    found = {}
    for arch, group in itertools.groupby(sorted(reports, key=lambda r: r["arch"]), lambda r: r["arch"]):
        candidates = [report for report in group if allowed(report)]
        if candidates:
            found[arch] = max(candidates, key=score)
    return found


def _area(report: CompiledReport) -> int:
    return report["block_q"] * report["block_k"]


def _fits(report: CompiledReport, limits: Limits) -> bool:
    return report["spill_bytes"] == 0 and report["shared_bytes"] <= limits.shared_per_block


def best(reports: Sequence[CompiledReport], limits: Mapping[str, Limits] = LIMITS) -> dict[str, CompiledReport]:
    """The choice that the exercise asks for."""
    return _best(
        reports,
        lambda report: (round(predicted(report, limits[report["arch"]]), 9), _area(report)),
        lambda report: _fits(report, limits[report["arch"]]),
    )


def _same(got: Any, wanted: Mapping[str, CompiledReport]) -> bool:
    return set(got) == set(wanted) and all(dict(got[arch]) == dict(wanted[arch]) for arch in wanted)


def _planted_choice(choose: Callable[..., Any]) -> Stage:
    reports = _planted_reports()

    def own(report: CompiledReport) -> Limits:
        return LIMITS[report["arch"]]

    def occupied(report: CompiledReport, *without: str) -> float:
        return round(predicted(report, own(report), *without), 9)

    def allowed(report: CompiledReport) -> bool:
        return _fits(report, own(report))

    def is_(score: Callable[[CompiledReport], Any], allowed: Any = allowed) -> Callable[[Any], bool]:
        return lambda got: _same(got, _best(reports, score, allowed))

    return Stage(
        "the choice for three GPUs",
        lambda _: choose(reports, LIMITS),
        given=f"{len(reports)} reports, of which some spill and some do not fit",
        accept=lambda got: _same(got, best(reports)),
        look="Print, for one GPU, every report with its occupancy, and cross out what spills or does not fit.",
        mistakes=(
            Mistake(
                "not a choice for each GPU",
                "The answer is not a dict from each GPU's name to one of its reports.",
                "One configuration for all is simpler.",
                "The keys are the names that occur under `arch`.",
                seen=lambda got: (
                    not isinstance(got, Mapping)
                    or set(got) != set(LIMITS)
                    or any(got[arch] not in reports or got[arch]["arch"] != arch for arch in got)
                ),
            ),
            Mistake(
                "the largest tile always",
                "The largest tile was chosen for each GPU.",
                "A large tile reads the keys less often.",
                "What does it leave for a second block, and what does it spill?",
                seen=lambda got: any(
                    is_(_area, which)(got)
                    for which in (
                        allowed,
                        lambda r: True,
                        lambda r: r["spill_bytes"] == 0,
                        lambda r: r["shared_bytes"] <= own(r).shared_per_block,
                    )
                ),
            ),
            Mistake(
                "the smallest tile always",
                "The smallest tile was chosen for each GPU.",
                "It takes least, so it must leave most.",
                "Compare the occupancies. Registers do not follow the tile so strictly.",
                seen=lambda got: any(is_(lambda r: -_area(r), which)(got) for which in (allowed, lambda r: True)),
            ),
            Mistake(
                "spills are overlooked",
                "A report with spills was chosen.",
                "The occupancy of a kernel that spills may be high: spilling is how it got its few registers.",
                "Where do spilled registers go, and how far is that?",
                seen=lambda got: any(report["spill_bytes"] for report in got.values()),
            ),
            Mistake(
                "the limits of one GPU used for all",
                "The choice is right for one GPU and was made by its limits for the others too.",
                "The numbers of an A100 are the ones that everybody knows.",
                "Which of the limits differ between the three?",
                seen=lambda got: any(
                    _same(got, best(reports, dict.fromkeys(LIMITS, limits))) for limits in LIMITS.values()
                ),
            ),
            Mistake(
                "registers alone decide",
                "The choice rests on the registers and not on the shared memory.",
                "Registers are the tighter bound for most kernels.",
                "How many blocks of 61,440 bytes have room?",
                seen=is_(lambda r: (occupied(r, "shared"), _area(r))),
            ),
            Mistake(
                "shared memory alone decides",
                "The choice rests on the shared memory and not on the registers.",
                "Shared memory is what the tile asks for by name.",
                "How many warps have room at 168 registers a thread?",
                seen=is_(lambda r: (occupied(r, "registers"), _area(r))),
            ),
            Mistake(
                "of several the smaller tile",
                "Occupancies are right, and of equal ones not the largest tile was taken.",
                "`max` takes the first of several.",
                "What does a larger tile save if as many warps are resident?",
                seen=lambda got: all(occupied(got[arch]) == occupied(wanted) for arch, wanted in best(reports).items()),
            ),
        ),
    )


def _own_choice(choose: Callable[..., Any], reports: list[dict]) -> Stage:
    return Stage(
        "the choice from your own table",
        lambda _: choose(reports, LIMITS),
        given=f"your table of {len(reports)} reports",
        accept=lambda got: _same(got, best(reports)),
        look="Print every report with its occupancy, and cross out what spills or does not fit.",
    )

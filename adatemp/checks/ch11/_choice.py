"""Exercise 11.5, choose a tile: occupancy from a compiled report, and the report to take for each GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written

_TITLE = "11.5 Choose a tile"


class Limits(NamedTuple):
    """What one multiprocessor of a GPU has, and how it gives it away.

    Attributes:
        warps: Most warps at a time.
        blocks: Most blocks at a time.
        registers: 32-bit registers of each of its four partitions. A warp lives in one partition.
        register_unit: A warp's registers are rounded up to a multiple of this.
        shared: Bytes of shared memory.
        shared_per_block: Most bytes of it for one block.
        reserved: Bytes that every block takes besides its own.
        partitions: Partitions of a multiprocessor.
    """

    warps: int
    blocks: int
    registers: int
    register_unit: int
    shared: int
    shared_per_block: int
    reserved: int
    partitions: int = 4


# Warps, blocks and shared memory are those of NVIDIA's architecture traits (CCCL, cuda/__device/arch_traits.h);
# partitions and the unit of registers those of its occupancy calculator (cuda_occupancy.h).
LIMITS = {
    "sm_80": Limits(64, 32, 16_384, 256, 164 * 1024, 163 * 1024, 1024),
    "sm_89": Limits(48, 24, 16_384, 256, 100 * 1024, 99 * 1024, 1024),
    "sm_90": Limits(64, 32, 16_384, 256, 228 * 1024, 227 * 1024, 1024),
}

CompiledReport = Mapping[str, Any]


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
        The report. Mistakes it names: registers of a thread for those of a warp; partitions pooled; nothing rounded up;
        parts of a block; one bound out of several; the largest tile, or the smallest, always; spills overlooked; the
        limits of one GPU used for all.
    """
    examinations = [
        lambda: examine(occupancy, _TITLE, "occupancy(report, limits)", (_occupancies(written(occupancy)),)),
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


def _blocks(report: CompiledReport, limits: Limits) -> dict[str, int]:
    """How many blocks each of the four bounds allows."""
    warps = report["num_warps"]
    per_warp = -(-32 * report["registers"] // limits.register_unit) * limits.register_unit
    resident = limits.partitions * (limits.registers // per_warp)
    fits = report["shared_bytes"] <= limits.shared_per_block
    return {
        "registers": resident // warps,
        "shared": limits.shared // (report["shared_bytes"] + limits.reserved) if fits else 0,
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
    }


def predicted(report: CompiledReport, limits: Limits, *without: str) -> float:
    """Resident warps over the most there can be, with some bounds left out."""
    bounds = [count for bound, count in _blocks(report, limits).items() if bound not in without]
    return min(bounds) * report["num_warps"] / limits.warps


def _report(arch: str, tile: tuple[int, int], warps: int, registers: int, shared: int, spills: int = 0) -> dict:
    return {
        "arch": arch,
        "block_q": tile[0],
        "block_k": tile[1],
        "num_warps": warps,
        "num_stages": 2,
        "registers": registers,
        "spill_bytes": spills,
        "shared_bytes": shared,
    }


# Every bound decides somewhere, and every slip shows somewhere.
_OCCUPANCIES = (
    _report("sm_80", (64, 64), 4, 168, 24_576),
    _report("sm_80", (128, 64), 8, 128, 65_536),
    _report("sm_80", (64, 32), 4, 170, 20_480),  # rounded up, a third warp does not fit into a partition
    _report("sm_89", (64, 64), 4, 96, 33_280),  # the reserved bytes cost a block
    _report("sm_89", (16, 16), 4, 40, 4_096),  # as many warps as there can be
    _report("sm_89", (16, 16), 1, 16, 1_024),  # as many blocks as there can be
    _report("sm_90", (64, 32), 2, 200, 16_384),  # what is left over in four partitions is no room for a warp
    _report("sm_90", (128, 128), 8, 227, 163_840),
)


def _occupancies(occupancy: Callable[..., Any]) -> Stage:
    given = [(report, LIMITS[report["arch"]]) for report in _OCCUPANCIES]
    right = np.array([predicted(*case) for case in given])

    def of(rule: Callable[[CompiledReport, Limits], float]) -> np.ndarray:
        return np.array([rule(*case) for case in given])

    def by_registers(resident: Callable[[CompiledReport, Limits], float]) -> np.ndarray:
        """Occupancies with another count of the warps whose registers fit."""

        def rule(report: CompiledReport, limits: Limits) -> float:
            bounds = _blocks(report, limits) | {"registers": int(resident(report, limits) // report["num_warps"])}
            return min(bounds.values()) * report["num_warps"] / limits.warps

        return of(rule)

    def whole(report: CompiledReport, limits: Limits) -> float:
        return -(-32 * report["registers"] // limits.register_unit) * limits.register_unit

    def fractional(report: CompiledReport, limits: Limits) -> float:
        parts = (
            limits.partitions * limits.registers / whole(report, limits) / report["num_warps"],
            limits.shared / (report["shared_bytes"] + limits.reserved),
            limits.warps / report["num_warps"],
            limits.blocks,
        )
        return min(parts) * report["num_warps"] / limits.warps

    return Stage(
        "the occupancy of compiled kernels",
        lambda _: np.array([float(occupancy(*case)) for case in given]),
        given="eight reports for three GPUs",
        expected=right,
        rtol=1e-3,
        look="For each bound by itself: how many whole blocks does it allow? The least of them decides.",
        mistakes=(
            Mistake(
                "blocks for warps",
                "The answer is a number of blocks.",
                "Blocks are what is counted first.",
                "Occupancy is a share of the warps.",
                seen=of(lambda report, limits: min(_blocks(report, limits).values())),
            ),
            Mistake(
                "percent for shares",
                "The answer is a hundred times too large.",
                "Occupancies are quoted in percent.",
                "Return a number between 0 and 1.",
                seen=100 * right,
            ),
            Mistake(
                "the registers never bound it",
                "The answer is that of shared memory and of the counts of warps and blocks.",
                "The compiler reports the registers of a thread. Taken for those of a warp they are never in the way.",
                "How many threads are in a warp, and how many warps at 255 registers a thread fill a partition?",
                seen=of(lambda report, limits: predicted(report, limits, "registers")),
            ),
            Mistake(
                "the shared memory is forgotten",
                "Only registers and the counts of warps and blocks bound the answer.",
                "Registers are the tighter bound in most of the reports.",
                "Which of the reports asks for a third of the shared memory?",
                seen=of(lambda report, limits: predicted(report, limits, "shared")),
            ),
            Mistake(
                "the count of blocks, or of warps, is forgotten",
                "A kernel that takes next to nothing was given more blocks or warps than there can be.",
                "For kernels with large tiles these bounds never show.",
                "Look at the fields of `Limits` that you have not used.",
                seen=lambda got: any(
                    np.allclose(got, of(lambda report, limits, w=bounds: predicted(report, limits, *w)), rtol=1e-3)
                    for bounds in (("blocks",), ("warps",), ("blocks", "warps"))
                ),
            ),
            Mistake(
                "the partitions are pooled",
                "The registers of the four partitions were added up before they were divided.",
                "The register file is quoted as one number, 65,536.",
                "Two partitions have half of a warp's registers left each. Is there room for one more?",
                seen=by_registers(lambda r, m: m.partitions * m.registers // whole(r, m)),
            ),
            Mistake(
                "registers are not rounded up",
                "A warp was given exactly the registers of its threads.",
                "Rounding up to 256 changes most reports not at all.",
                "How many registers does a warp of 170 a thread take?",
                seen=by_registers(lambda r, m: m.partitions * (m.registers // (32 * r["registers"]))),
            ),
            Mistake(
                "the reserved bytes are forgotten",
                "The blocks were given exactly the shared memory that they ask for.",
                "A kilobyte is little beside a tile.",
                "How much shared memory is gone for three blocks of 33,280 bytes?",
                seen=of(
                    lambda report, limits: (
                        min((_blocks(report, limits) | {"shared": limits.shared // report["shared_bytes"]}).values())
                        * report["num_warps"]
                        / limits.warps
                    )
                ),
            ),
            Mistake(
                "parts of a block",
                "A block that does not fit was counted in part.",
                "A division gives a number, whole or not.",
                "What happens to a block of which two thirds would fit?",
                seen=of(fractional),
            ),
        ),
    )


def _planted_reports() -> list[dict]:
    """Candidates for three GPUs; no short cut picks the right one of each."""
    return [
        _report("sm_80", (128, 128), 8, 255, 98_304, spills=156),
        _report("sm_80", (128, 64), 8, 246, 65_536),
        _report("sm_80", (64, 64), 4, 160, 40_960),
        _report("sm_80", (64, 32), 4, 168, 28_672),
        _report("sm_80", (32, 64), 4, 224, 20_480),
        _report("sm_80", (32, 32), 4, 128, 61_440),
        _report("sm_80", (16, 16), 4, 72, 8_192, spills=8),
        _report("sm_89", (128, 128), 8, 200, 132_096),
        _report("sm_89", (128, 64), 8, 128, 49_152),
        _report("sm_89", (64, 64), 4, 72, 45_056),
        _report("sm_89", (64, 32), 4, 168, 30_720),
        _report("sm_89", (32, 32), 4, 128, 24_064),
        _report("sm_89", (32, 16), 4, 126, 20_480),
        _report("sm_90", (128, 128), 8, 227, 163_840),
        _report("sm_90", (128, 64), 8, 128, 110_592),
        _report("sm_90", (64, 64), 4, 96, 90_112),
        _report("sm_90", (64, 32), 4, 128, 73_728),
        _report("sm_90", (32, 32), 4, 168, 40_960),
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

"""Occupancy: what a multiprocessor of three GPUs has, and how much of it a compiled kernel fills (exercise 11.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from adatemp.checks._stages import Mistake, Stage

CompiledReport = Mapping[str, Any]


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


def planted_report(arch: str, tile: tuple[int, int], warps: int, registers: int, shared: int, spills: int = 0) -> dict:
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
    planted_report("sm_80", (64, 64), 4, 168, 24_576),
    planted_report("sm_80", (128, 64), 8, 128, 65_536),
    planted_report("sm_80", (64, 32), 4, 170, 20_480),  # rounded up, a third warp does not fit into a partition
    planted_report("sm_89", (64, 64), 4, 96, 33_280),  # the reserved bytes cost a block
    planted_report("sm_89", (16, 16), 4, 40, 4_096),  # as many warps as there can be
    planted_report("sm_89", (16, 16), 1, 16, 1_024),  # as many blocks as there can be
    planted_report("sm_90", (64, 32), 2, 200, 16_384),  # what is left over in four partitions is no room for a warp
    planted_report("sm_90", (128, 128), 8, 227, 163_840),
)


def occupancy_stage(occupancy: Callable[..., Any]) -> Stage:
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

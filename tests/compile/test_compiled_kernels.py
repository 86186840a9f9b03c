"""The kernels as machine code for three GPUs, compiled without any of them by tools/compile_kernels.py."""

from __future__ import annotations

import json

import pytest

from tools import compile_kernels
from tools.gpu_targets import GPUS
from tools.kernel_cases import HEADS, KEYS, Case, cases

pytestmark = pytest.mark.compile


@pytest.fixture(scope="module")
def programs():
    reason = compile_kernels.unavailable()
    if reason is not None:
        pytest.skip(reason)
    if not compile_kernels.WRITTEN.exists():
        pytest.fail(f"{compile_kernels.WRITTEN} is missing; run `make compile`, which makes it and then runs this")
    reports = json.loads(compile_kernels.WRITTEN.read_text("utf-8"))["reports"]
    return [report for architecture in compile_kernels.ARCHITECTURES for report in reports[architecture]]


@pytest.fixture(scope="module")
def kernels(programs):
    return [(program, kernel) for program in programs for kernel in program["kernels"]]


def test_every_program_was_compiled_for_every_gpu(programs):
    wanted = [case for architecture in compile_kernels.ARCHITECTURES for case in cases(architecture)]
    assert [tuple(program[field] for field in Case._fields) for program in programs] == [tuple(c) for c in wanted]
    assert not [compile_kernels.describe(program) for program in programs if "error" in program]


def test_a_gradient_is_three_kernels_and_everything_else_is_one(programs):
    for program in programs:
        names = [kernel["kernel"] for kernel in program["kernels"]]
        assert names == (["dkv", "dq", "forward"] if program["program"].endswith("gradient") else ["forward"])


def test_nothing_spills_from_the_registers(programs):
    # At the highest precision products are ordinary arithmetic, for which the assembler would rather spill two numbers
    # a thread than take more than 96 registers: that form is slow in any case, and is held to as much.
    allowed = {None: 0, "highest": 16}
    assert not [
        compile_kernels.describe(program)
        for program in programs
        if any(kernel["spill_bytes"] > allowed[program["precision"]] for kernel in program["kernels"])
    ]


def test_shared_memory_fits_and_was_estimated(kernels):
    for program, kernel in kernels:
        limit = GPUS[program["architecture"]].shared_memory_block
        # The estimate errs to the side of more, so that the compiler never has to refuse, and not by much.
        assert kernel["shared_bytes"] <= kernel["estimated_shared_bytes"] + 256 <= limit
        if program["program"] != "entropy":  # the estimate counts the values, which the entropy does without
            assert kernel["estimated_shared_bytes"] <= 1.8 * kernel["shared_bytes"]


def test_memory_beside_the_arguments_is_a_few_numbers_a_row(programs):
    for program in programs:
        # The row's state, its cotangents and what one kernel hands to the next, each float32: 12 are 13 MB, where
        # logits of all pairs would be 137 GB. The outputs alone need nothing.
        numbers = 12 if program["program"] in ("adaptive gradient", "plain gradient", "entropy") else 0
        assert program["temp_bytes"] <= 4 * numbers * HEADS * KEYS


def test_products_run_on_tensor_cores_and_add_up_in_float32(kernels):
    for program, kernel in kernels:
        if program["precision"] == "highest":
            continue
        assert kernel["products"]
        for instruction in kernel["products"]:
            parts = instruction.split(".")
            inputs = {"bfloat16": "bf16", "float32": "tf32"}[program["dtype"]]
            if parts[0] == "mma":  # mma.sync.aligned.m16n8k16.row.col.d.a.b.c: results, two inputs, sums
                assert parts[-4:] == ["f32", inputs, inputs, "f32"]
            else:  # wgmma.mma_async.sync.aligned.m64n64k16.d.a.b
                assert parts[-3:] == ["f32", inputs, inputs]


def test_float32_at_the_highest_precision_holds_no_tensor_float(kernels):
    found = [kernel for program, kernel in kernels if program["precision"] == "highest"]
    assert found and all(kernel["products"] == [] for kernel in found)


def test_hopper_multiplies_from_shared_memory(kernels):
    for program, kernel in kernels:
        if (program["architecture"], program["dtype"], kernel["kernel"]) == ("sm_90", "bfloat16", "forward"):
            assert any(instruction.startswith("wgmma") for instruction in kernel["products"])


def test_a_t4_is_refused_by_the_compiler_and_a_tile_too_large_before_it(programs):
    [refused] = compile_kernels.reports([Case("sm_75", "adaptive", "bfloat16", 64)])
    assert "Triton support is only enabled for Ampere" in refused["error"]
    tile = {"block_q": 128, "block_k": 128}
    [refused] = compile_kernels.reports([Case("sm_89", "adaptive", "bfloat16", 256)], tile)
    assert refused["error"].startswith("ValueError: config: the forward kernel with block_q=128, block_k=128")

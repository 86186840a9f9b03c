"""What the attention kernels need on GPUs that the book may never see: compiled to machine code, not run.

keys, heads, key_heads   length of the sequence and heads of every program; causal
programs                 each program in words
gpus                     for each architecture: name, shared_memory_block (bytes a block may have), registers (of a
                         multiprocessor), threads (on one at most)
rows                     one for each kernel of each program: architecture, program, dtype, width, precision, kernel
                         (forward, dq, dkv), block_q, block_k, num_warps, num_stages, registers (of a thread),
                         spill_bytes, shared_bytes, estimated_shared_bytes, products (tensor-core instructions)
memory                   architecture, program, dtype, width, precision, temp_bytes: device memory beside arguments and
                         results
"""

from __future__ import annotations

from tools import compile_kernels, kernel_cases
from tools.gpu_targets import GPUS

CELLS = compile_kernels.ARCHITECTURES
SECONDS = 60
DATA = (compile_kernels.PINS, compile_kernels.REPORT)


def run(cell: str) -> list[dict]:
    """Compile everything for one architecture."""
    reason = compile_kernels.unavailable()
    if reason is not None:
        raise SystemExit(f"compiled: {reason}")
    return compile_kernels.of_architecture(cell)


def assemble(parts: list[list[dict]]) -> dict:
    """The data of the result."""
    entries = [entry for part in parts for entry in part]
    titles = [{field: entry[field] for field in kernel_cases.Case._fields} for entry in entries]
    return {
        "keys": kernel_cases.KEYS,
        "heads": kernel_cases.HEADS,
        "key_heads": kernel_cases.KEY_HEADS,
        "programs": dict(kernel_cases.PROGRAMS),
        "gpus": {
            name: {
                "name": GPUS[name].name,
                "shared_memory_block": GPUS[name].shared_memory_block,
                "shared_memory": GPUS[name].shared_memory,
                "registers": 65536,
                "threads": GPUS[name].threads,
            }
            for name in CELLS
        },
        "rows": [title | kernel for title, entry in zip(titles, entries) for kernel in entry["kernels"]],
        "memory": [title | {"temp_bytes": entry["temp_bytes"]} for title, entry in zip(titles, entries)],
    }

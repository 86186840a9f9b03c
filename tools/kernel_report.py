"""Compiles cases for GPUs that are not there and prints what the kernels need: runs in .venv-cuda, called by
`tools.compile_kernels`. One line of JSON a case:

    architecture, program, dtype, width, precision, temp_bytes (device memory of the whole program beside its arguments
    and results), seconds, and kernels, one for each of ours: kernel, block_q, block_k, num_warps, num_stages, registers
    (of a thread), spill_bytes (written and read again), shared_bytes, estimated_shared_bytes, products (the tensor-core
    instructions, none where the products are ordinary arithmetic)

A case that the compiler refuses has `error` instead. Arguments: cases as JSON, then optionally a config as JSON.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DUMP = tempfile.mkdtemp(prefix="adatemp-kernels-")
atexit.register(shutil.rmtree, DUMP, ignore_errors=True)
os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # there is no driver whose version could be compared
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # From JAX 0.12 on, machine code is dumped only where it is asked for.
    "XLA_FLAGS": f"--xla_dump_to={DUMP} --xla_dump_emitter_re=ptx --xla_gpu_force_compilation_parallelism=1",
}

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec  # noqa: E402

from adatemp.attention import configs  # noqa: E402
from tools.gpu_targets import GPUS, Gpu  # noqa: E402
from tools.kernel_cases import Case, program  # noqa: E402

PRODUCT = re.compile(r"(?:mma\.sync|wgmma\.mma_async)\.[\w.:]*")


def compile_for(gpu: Gpu, function, shapes):
    """The compiled program, for a GPU that need not be there."""
    topology = topologies.get_topology_desc(platform="cuda", target_config=gpu.description, topology="1x1x1")
    mesh = Mesh(np.array(topology.devices), ("device",), axis_types=(AxisType.Auto,))
    replicated = NamedSharding(mesh, PartitionSpec())
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=replicated) for x in shapes]
    with _abstract_device(gpu):
        lowered = jax.jit(function).lower(*shapes)
    return lowered.compile()


def _abstract_device(gpu: Gpu):
    """From JAX 0.11 on, lowering asks which GPU it is for; before, it does not."""
    try:
        device = jax.sharding.AbstractDevice(gpu.name, None, "gpu")
        mesh = jax.sharding.AbstractMesh((1,), ("device",), (AxisType.Auto,), abstract_device=device)
    except (AttributeError, TypeError):
        return contextlib.nullcontext()
    return jax.sharding.use_abstract_mesh(mesh)


def report(case: Case, config: configs.PallasConfig | None) -> dict:
    """What the kernels of a case need."""
    gpu = GPUS[case.architecture]
    capability = float("{}.{}".format(*gpu.capability))
    configs.compute_capabilities = lambda: (capability,)  # the GPU that is pretended to be here
    jax.clear_caches()
    before = set(os.listdir(DUMP))
    start = time.perf_counter()
    try:
        compiled = compile_for(gpu, *program(case, config))
    except Exception as error:
        return case._asdict() | {"error": f"{type(error).__name__}: {error}"}
    seconds = time.perf_counter() - start
    files = [Path(DUMP, name) for name in sorted(set(os.listdir(DUMP)) - before)]
    kernels = configs.tiles(config or configs.PallasConfig(), case.dtype, case.width, case.width, capability)
    estimates = configs.shared_memory(kernels, case.dtype, case.width, case.width, capability)
    return case._asdict() | {
        "temp_bytes": compiled.memory_analysis().temp_size_in_bytes,
        "seconds": round(seconds, 1),
        "kernels": [
            {"kernel": name} | getattr(kernels, name)._asdict() | needs | {"estimated_shared_bytes": estimates[name]}
            for name, needs in sorted(_kernels(files).items())
        ],
    }


def _kernels(files: list[Path]) -> dict[str, dict]:
    """Of each of our kernels by name, what the assembler and the compiler say."""
    texts = [path.read_text("utf-8", "replace") for path in files if path.suffix == ".txt"]
    found = {}
    for path in files:
        if path.suffix != ".ptx":
            continue
        code = path.read_text("utf-8")
        for name in re.findall(r"\.entry adatemp_(\w+)\(", code):
            architecture = re.search(r"\.target (\w+)", code)[1]
            command = [assembler(), "-v", f"-arch={architecture}", str(path), "-o", os.devnull]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
            spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
            shared = re.search(rf"adatemp_{name}\b.*shared_memory: (\d+) bytes", "\n".join(texts))
            found[name] = {
                "registers": int(re.search(r"Used (\d+) registers", said)[1]),
                "spill_bytes": int(spilled[1]) + int(spilled[2]),
                "shared_bytes": int(shared[1]) if shared else None,
                "products": sorted(set(PRODUCT.findall(code))),
            }
    return found


def assembler() -> str:
    """ptxas of this environment."""
    import nvidia

    return next(str(path) for folder in nvidia.__path__ for path in Path(folder).glob("*/bin/ptxas"))


def main() -> None:
    config = configs.PallasConfig(**json.loads(sys.argv[2])) if len(sys.argv) > 2 else None
    for case in json.loads(sys.argv[1]):
        print(json.dumps(report(Case(**case), config)), flush=True)


if __name__ == "__main__":
    main()

"""Compiles the attention kernels to machine code for GPUs that are not here, and checks what they need.

`python -m tools.compile_kernels` makes .venv-cuda (the lock's JAX, with XLA's CUDA compiler and NVIDIA's assembler, on
the interpreter of .venv), compiles the default tiles for sm_80 (A100), sm_89 (L4) and sm_90 (H100, H200), writes
_build/compiled.json and runs tests/compile on it. No driver and no GPU is needed; where these wheels do not exist, it
says so and is done. `make results` stores the same reports for the book, as book/results/compiled.json.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from tools.code_hash import code_hash
from tools.kernel_cases import Case, cases
from tools.make_environment import ROOT, create, pip_install

FOLDER = ROOT / ".venv-cuda"
PINS = ROOT / "constraints" / "cuda.txt"
REPORT = ROOT / "tools" / "kernel_report.py"
LOCK = ROOT / "requirements.lock"
NEEDED = ("jax", "jaxlib", "numpy", "ml-dtypes", "opt-einsum", "scipy")
WRITTEN = ROOT / "_build" / "compiled.json"
ARCHITECTURES = ("sm_80", "sm_89", "sm_90")
WORKERS = 2


def unavailable() -> str | None:
    """Why kernels cannot be compiled on this machine, or None."""
    system, machine = platform.system(), platform.machine().lower()
    if system != "Linux" or machine not in ("x86_64", "amd64", "aarch64", "arm64"):
        return f"XLA's CUDA compiler has wheels for Linux on x86-64 and 64-bit Arm, and this is {system} on {machine}"
    return None


def ready() -> None:
    """Makes the environment, unless it is the right one already."""
    pins = PINS.read_text("utf-8") + _locked()
    wanted = hashlib.sha256(f"{sys.version}\n{pins}".encode()).hexdigest()
    stamp = FOLDER / "complete"
    if stamp.exists() and stamp.read_text().strip() == wanted:
        return
    create(FOLDER, sys.executable)
    requirements = FOLDER / "requirements.txt"
    requirements.write_text(pins, "utf-8")
    pip_install(FOLDER, ["-r", str(requirements)])
    stamp.write_text(wanted + "\n")


def _locked() -> str:
    """The lock's lines of what is needed, without their hashes."""
    lines = re.findall(r"^([\w.-]+)(==[^\\\n]+)", LOCK.read_text("utf-8"), flags=re.MULTILINE)
    return "".join(f"{name}{pin.rstrip()}\n" for name, pin in lines if re.sub(r"[-_.]+", "-", name).lower() in NEEDED)


def reports(wanted: list[Case], config: dict | None = None) -> list[dict]:
    """What the kernels of each case need; the layout is in tools/kernel_report.py. Several are compiled at a time."""
    shares = [wanted[i::WORKERS] for i in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as pool:
        done = [entry for share in pool.map(lambda share: _run(share, config), shares) for entry in share]
    order = {tuple(case): i for i, case in enumerate(wanted)}
    return sorted(done, key=lambda entry: order[tuple(entry[field] for field in Case._fields)])


def _run(share: list[Case], config: dict | None) -> list[dict]:
    if not share:
        return []
    command = [str(FOLDER / "bin" / "python"), "-m", "tools.kernel_report", json.dumps([c._asdict() for c in share])]
    command += [json.dumps(config)] if config else []
    environment = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "VIRTUAL_ENV")}
    done = []
    with (
        tempfile.TemporaryFile("w+") as errors,  # and not a pipe, which blocks the process once it is full
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        for line in process.stdout:
            done.append(json.loads(line))
            print(f"  {describe(done[-1])}", flush=True)
        process.wait()
        errors.seek(0)
        words = errors.read()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[:3])} failed:\n{words}")
    return done


def describe(entry: dict) -> str:
    """One line about a report."""
    title = f"{entry['architecture']} {entry['program']}, {entry['dtype']}, width {entry['width']}"
    title += f", {entry['precision']}" if entry["precision"] else ""
    if "error" in entry:
        return f"{title}: {entry['error']}"
    kernels = (
        f"{k['kernel']} {k['block_q']}x{k['block_k']} {k['registers']} registers, {k['spill_bytes']} spilled, "
        f"{k['shared_bytes']:,} shared"
        for k in entry["kernels"]
    )
    return f"{title} ({entry['seconds']} s): {'; '.join(kernels)}"


def of_architecture(architecture: str) -> list[dict]:
    """Reports of all cases of an architecture; those in _build/compiled.json are used while the code is the same."""
    code = code_hash(REPORT, PINS)
    kept = json.loads(WRITTEN.read_text("utf-8")) if WRITTEN.exists() else {}
    if kept.get("code_hash") != code:
        kept = {"code_hash": code, "reports": {}}
    if architecture not in kept["reports"]:
        ready()
        kept["reports"][architecture] = reports(cases(architecture))
        WRITTEN.parent.mkdir(exist_ok=True)
        WRITTEN.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    return kept["reports"][architecture]


def main() -> None:
    start = time.monotonic()
    reason = unavailable()
    if reason is not None:
        print(f"== not compiled for GPUs: {reason}")
        return
    for architecture in ARCHITECTURES:
        of_architecture(architecture)
    print(f"== compiled after {time.monotonic() - start:.0f} s: {WRITTEN.relative_to(ROOT)}", flush=True)
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "compile", "tests/compile"]
    sys.exit(subprocess.run(tests, cwd=ROOT).returncode)


if __name__ == "__main__":
    main()

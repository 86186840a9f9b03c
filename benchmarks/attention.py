"""Adaptive attention on a GPU against plain attention: right first, then fast, in one run of under eight minutes.

    python benchmarks/attention.py [--minutes 8] [--out book/results/attention_gpu.json]
    python benchmarks/attention.py --dry-run        # tiny sizes in the interpreter, on any machine

Every problem is timed for our kernel with the temperature, for the same kernel and tiles without it ("plain"), and for
`jax.nn` and tokamax where they run. TFLOP/s count what plain attention needs, 4 n^2 d a head forward and 14 n^2 d with
the gradient (half when causal), whatever a program does besides: adaptive attention multiplies three times forward
where plain attention does twice, so on this basis it cannot be much faster than two thirds of plain.

The file written is a stored result of the book. Its data:

    device, capability, memory_gigabytes, clocks     what nvidia-smi says, or null
    matmul_tflops       of a square product in bfloat16 in the same run
    checks              name: {what: [error, allowed]}
    rows                one for each program and problem: program ("plain", "adaptive", "entropy only", "jax.nn cudnn",
                        "jax.nn xla", "tokamax"), pass ("forward" or "forward and gradient"), B, n, N, d, causal, dtype,
                        tiles (null for the defaults), ms (median), lowest_ms, calls, compile_seconds, temp_megabytes
                        (of the compiled loop), peak_megabytes (of the process up to then, or null), tflops,
                        share_of_matmul, speed_against_plain (null where plain was not timed)
    bars                one for each problem: pass ("forward" or "backward", the difference of the two passes), n, d,
                        causal, speed_against_plain, bar, met
    left_out            problems for which there was no time or no memory, and programs that refused, in words
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a file, from any folder
    sys.path.insert(0, str(ROOT))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from adatemp import PAPER, attention_entropy, dot_product_attention, runtime  # noqa: E402
from benchmarks import _attention_checks as checks  # noqa: E402
from benchmarks._attention_timing import Sizes, inputs, matmul_rate, measure, useful_operations  # noqa: E402
from tools.make_results import write  # noqa: E402

FORWARD, BOTH = "forward", "forward and gradient"
# Batch and heads of width 128 for each length; twice the heads at width 64.
BATCH_AND_HEADS = {2048: (8, 16), 8192: (2, 16), 32_768: (1, 8), 131_072: (1, 1)}
# Most important first: what does not fit the time is left out from the end.
PROBLEMS = [
    (FORWARD, 8192, 128, False),
    (BOTH, 8192, 128, False),
    (FORWARD, 8192, 64, False),
    (BOTH, 8192, 64, False),
    ("tiles", 8192, 128, False),
    (FORWARD, 131_072, 128, True),
    (BOTH, 131_072, 128, True),
    (FORWARD, 8192, 128, True),
    (BOTH, 8192, 128, True),
    (FORWARD, 32_768, 128, True),
    (FORWARD, 2048, 128, False),
    (FORWARD, 131_072, 64, True),
    (BOTH, 32_768, 128, True),
    (BOTH, 2048, 128, False),
    (FORWARD, 32_768, 64, True),
    (FORWARD, 2048, 64, False),
    (BOTH, 32_768, 64, True),
    (BOTH, 2048, 64, False),
    (BOTH, 131_072, 64, True),
]
# Least speed against plain attention, by width.
BARS = {"forward": {128: 0.60, 64: 0.50}, "backward": {128: 0.80, 64: 0.80}}
TILES = [(64, 64, 4, 2), (128, 64, 4, 2), (128, 64, 8, 3), (64, 64, 4, 3), (128, 32, 4, 2), (128, 128, 8, 2)]
TINY = [(FORWARD, 32, 16, False), (BOTH, 32, 16, True), ("tiles", 32, 16, False)]
LONGEST_LOOP = 0.05  # seconds


class Run:
    """The clock, the rows and what was left out."""

    def __init__(self, minutes: float, tiny: bool):
        self.start, self.budget, self.tiny = time.perf_counter(), 60 * minutes, tiny
        self.rows, self.left_out, self.rate = [], [], 0.0
        self.longest = {}  # seconds that a problem of each kind took at most

    def left(self) -> float:
        """Seconds left."""
        return self.budget - (time.perf_counter() - self.start)

    def time(self, program: str, attend, which: str, sizes: Sizes, arrays, tiles=None) -> float | None:
        """Time one program, print and keep its row; milliseconds, or None where it refused."""
        operations = useful_operations(sizes, which)
        calls = 2 if self.tiny else int(min(64, max(2, LONGEST_LOOP * 0.3 * self.rate / operations)))
        try:
            found = measure(attend, which, arrays, calls)
        except Exception as error:  # a comparator that cannot serve must not end the run
            reason = (str(error).splitlines() or [type(error).__name__])[0][:160]
            self.leave_out(f"{program}, {which}, n = {sizes.n:,}, width {sizes.d}: {type(error).__name__}: {reason}")
            return None
        plain = [
            row["ms"]
            for row in self.rows
            if row["program"] == "plain"
            and (row["pass"], row["tiles"]) == (which, tiles)
            and tuple(row[name] for name in Sizes._fields) == sizes
        ]
        against = 1.0 if program == "plain" else plain[0] / found["ms"] if plain else None
        tflops = operations / found["ms"] / 1e9
        stats = jax.devices()[0].memory_stats() or {}
        peak = stats.get("peak_bytes_in_use")
        row = {"program": program, "pass": which, **sizes._asdict(), "dtype": "bfloat16", "tiles": tiles, **found}
        row |= {"peak_megabytes": None if peak is None else peak / 1e6, "tflops": tflops}
        row |= {"share_of_matmul": 1e12 * tflops / self.rate, "speed_against_plain": against}
        self.rows.append(row)
        ratio = "     " if against is None else f"{against:5.2f}"
        print(
            f"{program:14} {which:21} {sizes.B:2} x {sizes.N:2} x {sizes.n:7,} x {sizes.d:3} "
            f"{'causal' if sizes.causal else '      '} {found['ms']:9.3f} ms {tflops:7.1f} TFLOP/s "
            f"{100 * row['share_of_matmul']:5.1f}% of matmul, {ratio} of plain, "
            f"{found['temp_megabytes'] or 0:8.1f} MB, compiled in {found['compile_seconds']:.1f} s"
            + (f", tiles {tiles}" if tiles else ""),
            flush=True,
        )
        return found["ms"]

    def leave_out(self, what: str) -> None:
        """Keep and print what was not measured and why."""
        self.left_out.append(what)
        print(f"left out: {what}", flush=True)


def ours(rule, sizes: Sizes, tiny: bool, **tiles):
    """Our kernel as a function of query, key, value."""
    return partial(
        dot_product_attention,
        temperature=rule,
        is_causal=sizes.causal,
        implementation="pallas",
        config=checks.config(tiny, **tiles),
    )


def entropy_only(sizes: Sizes, tiny: bool):
    """The first sweep alone; broadcast so that it can stand in the loop, at the cost of writing a number a value."""

    def attend(query, key, value):
        entropy = attention_entropy(
            query, key, is_causal=sizes.causal, implementation="pallas", config=checks.config(tiny)
        )
        return jnp.broadcast_to(entropy[..., None], query.shape).astype(query.dtype)

    return attend


def of_others(sizes: Sizes, memory: float) -> dict:
    """Programs that are not ours, by name; those whose logits would not fit are absent."""
    found = {}
    if jax.default_backend() == "gpu":
        found["jax.nn cudnn"] = partial(jax.nn.dot_product_attention, is_causal=sizes.causal, implementation="cudnn")
        try:
            import tokamax

            found["tokamax"] = partial(tokamax.dot_product_attention, is_causal=sizes.causal)
        except ImportError:
            pass
    if 4 * sizes.bytes_of_logits < 0.5 * memory:
        found["jax.nn xla"] = partial(jax.nn.dot_product_attention, is_causal=sizes.causal, implementation="xla")
    return found


def run_problem(run: Run, which: str, sizes: Sizes, memory: float) -> None:
    """Time every program on one problem."""
    arrays = inputs(sizes)
    if which == "tiles":
        for tiles in TILES[: 1 if run.tiny else None]:
            if run.left() < 25:
                run.leave_out(f"tiles {tiles}: no time")
                continue
            names = ("block_q", "block_k", "num_warps", "num_stages")
            given = dict(zip(names, (16, 16, 4, 2) if run.tiny else tiles))
            for program, rule in (("plain", None), ("adaptive", PAPER)):
                run.time(program, ours(rule, sizes, run.tiny, **given), FORWARD, sizes, arrays, list(given.values()))
        return
    run.time("plain", ours(None, sizes, run.tiny), which, sizes, arrays)
    run.time("adaptive", ours(PAPER, sizes, run.tiny), which, sizes, arrays)
    if which == FORWARD:
        run.time("entropy only", entropy_only(sizes, run.tiny), which, sizes, arrays)
    for name, attend in of_others(sizes, memory).items():
        run.time(name, attend, which, sizes, arrays)


def check(run: Run) -> dict:
    """The checks and their errors; the run ends here when one fails."""
    found = {}
    names = list(checks.BEFORE_TIMING)
    for name in names[-1:] if run.tiny else names:
        errors = checks.BEFORE_TIMING[name](tiny=run.tiny)
        wrong = checks.failures(errors)
        worst = max(errors.values(), key=lambda pair: pair[0] / pair[1] if pair[1] else pair[0])
        print(f"{name:40} {'WRONG' if wrong else 'right'}, worst {worst[0]:.1e} of {worst[1]:.1e}", flush=True)
        if wrong:
            sys.exit(f"{name}: " + "; ".join(wrong) + ". Nothing is timed. Run: python -m pytest tests/gpu")
        found[name] = {what: list(pair) for what, pair in errors.items()}
    return found


def bars(rows: list[dict]) -> list[dict]:
    """Speeds against plain at the default tiles, beside what they should be."""
    ms = {
        (row["program"], row["pass"], row["n"], row["d"], row["causal"]): row["ms"]
        for row in rows
        if row["tiles"] is None
    }
    found = []
    for program, which, *problem in list(ms):
        if program != "adaptive":
            continue
        times = [ms.get((name, which, *problem)) for name in ("plain", "adaptive")]
        if which == BOTH:
            forward = [ms.get((name, FORWARD, *problem)) for name in ("plain", "adaptive")]
            times = [a - b if a and b else None for a, b in zip(times, forward)]
        if None in times or min(times) <= 0:
            continue
        name, speed = "backward" if which == BOTH else "forward", times[0] / times[1]
        bar = BARS[name].get(problem[1])
        found.append(
            {"pass": name, **dict(zip(("n", "d", "causal"), problem)), "speed_against_plain": speed, "bar": bar}
            | {"met": None if bar is None else speed >= bar}
        )
    return found


def clocks() -> str | None:
    """What nvidia-smi says of clocks, power and driver, or None where it is not installed."""
    query = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu"
    try:
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def commit() -> str:
    """The commit checked out, marked when code differs from it."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "adatemp", "benchmarks")
        return git("rev-parse", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main(arguments: list[str] | None = None) -> int:
    """Check, measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=8.0, help="time for everything")
    parser.add_argument("--out", type=Path, help="default: book/results/attention_gpu.json; none in a dry run")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes in the interpreter, on any machine")
    options = parser.parse_args(arguments)
    device = jax.devices()[0]
    capability = getattr(device, "compute_capability", None)
    if not options.dry_run and (device.platform != "gpu" or float(capability or 0) < 8.0):
        print(f"not run: {runtime.device()} is no NVIDIA GPU from Ampere on. With --dry-run the script is tried out.")
        return 0
    out = options.out or (None if options.dry_run else ROOT / "book" / "results" / "attention_gpu.json")

    run = Run(options.minutes, options.dry_run)
    memory = (device.memory_stats() or {}).get("bytes_limit", 2**30)
    versions = runtime.versions()
    print(f"{runtime.device()}, compute capability {capability}, {memory / 1e9:.0f} GB for JAX")
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    print(f"clocks: {clocks() or 'unknown'}", flush=True)
    run.rate = matmul_rate(*((128, 2) if run.tiny else (8192, 20)))
    print(f"a product of bfloat16 matrices: {run.rate / 1e12:.1f} TFLOP/s", flush=True)
    checked = check(run)
    print(f"{run.left():.0f} s left", flush=True)

    for which, n, d, causal in TINY if run.tiny else PROBLEMS:
        B, N = (1, 1) if run.tiny else BATCH_AND_HEADS[n]
        sizes = Sizes(B, n, N if run.tiny or d == 128 else 2 * N, d, causal)
        expected = run.longest.get(which, 45.0)
        if run.left() < expected + 10:
            run.leave_out(f"{which}, n = {n:,}, width {d}{', causal' if causal else ''}: no time")
            continue
        before = run.left()
        run_problem(run, which, sizes, memory)
        run.longest[which] = max(run.longest.get(which, 0.0), before - run.left())

    judged = bars(run.rows)
    for row in judged:
        verdict = {True: "met", False: "MISSED", None: "no bar"}[row["met"]]
        print(
            f"{row['pass']:9} n = {row['n']:7,}, width {row['d']:3}{', causal' if row['causal'] else '':8} "
            f"{row['speed_against_plain']:5.2f} of plain, bar {row['bar']}: {verdict}"
        )
    print(f"clocks: {clocks() or 'unknown'}; {time.perf_counter() - run.start:.0f} s in all")
    if out is not None:
        provenance = {
            "command": " ".join(["python benchmarks/attention.py", *(arguments or sys.argv[1:])]),
            "commit": commit(),
            "device": runtime.device(),
            "date": datetime.now(UTC).date().isoformat(),
            "versions": versions,
            "seconds": time.perf_counter() - run.start,
        }
        data = {
            "device": device.device_kind,
            "capability": None if capability is None else float(capability),
            "memory_gigabytes": memory / 1e9,
            "clocks": clocks(),
            "matmul_tflops": run.rate / 1e12,
            "checks": checked,
            "rows": run.rows,
            "bars": judged,
            "left_out": run.left_out,
        }
        write(out, {"provenance": provenance, "data": data})
        print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

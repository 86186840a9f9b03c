"""Time of one row of Table 1: train a head for 10,000 steps, measure it at eleven sizes up to 16,384 items.

    python -m benchmarks.table1 [--seed 0]

The bar is 60 seconds on two idle cores, compilation included.
"""

from __future__ import annotations

import argparse
import os
import time

from adatemp import runtime
from adatemp.tasks import max_retrieval
from tools.stored_results import table1

BAR = 60.0  # seconds


def main() -> None:
    """Run the parts of one row and print the time of each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table1", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    print(f"{runtime.device()}, load before the start {load} (an idle machine: below 0.5)")

    wall, busy = time.perf_counter(), time.process_time()

    def lap(what: str) -> None:
        nonlocal wall, busy
        now, now_busy = time.perf_counter(), time.process_time()
        print(f"{what:38} {now - wall:6.1f} s, {now_busy - busy:6.1f} s of processor", flush=True)
        wall, busy = now, now_busy

    start, start_busy = wall, busy
    head, history = max_retrieval.train_head(seed, progress=False)
    lap(f"train, accuracy {100 * history.metrics['accuracy'][-500:].mean():.1f}%")
    measured = max_retrieval.evaluate_sizes(head, table1.test_key(seed), table1.SETS)
    lap(f"measure at {len(table1.SETS)} sizes, compiled one by one")
    total, total_busy = time.perf_counter() - start, time.process_time() - start_busy
    for n, accuracy in zip(measured["n"], measured["read_outs"]["plain"]["accuracy"]):
        print(f"    {n:6,} items, {table1.SETS[n]:5,} sets: accuracy {100 * accuracy:5.1f}%")
    verdict = "met" if total <= BAR else "missed"
    print(f"{'total':38} {total:6.1f} s, {total_busy:6.1f} s of processor; bar {BAR:.0f} s: {verdict}")


if __name__ == "__main__":
    main()

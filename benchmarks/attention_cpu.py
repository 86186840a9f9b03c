"""Chunked attention on a processor against the published listing and `jax.nn`: speed as ratios, memory as compiled.

    python benchmarks/attention_cpu.py            # the bars, some other problems, and one head of 131,072 tokens
    python benchmarks/attention_cpu.py --quick    # the bars alone

The candidates take turns and each one's fastest turn counts, in seconds and in seconds of processor time: on a machine
that others use the second is the steadier one. Memory is what the compiled program allocates beyond its arguments and
results.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp

from adatemp import PAPER, dot_product_attention

QUARTIC = (-0.037, 0.481, -2.3, 4.917, -1.791)
# With gradient or not, against whom: least speed, most memory, as shares of theirs.
BARS = {
    False: {"listing": (1.5, 1 / 30), "jax.nn": (0.6, 1 / 20)},
    True: {"listing": (2.0, 1 / 30), "jax.nn": (0.6, 1 / 20)},
}
LONG, LONG_MEGABYTES = 131_072, 1000


def listing(query, key, value):
    """The published function as it is described, in attention: its entropy with 1e-9 in the logarithm."""
    logits = jnp.einsum("btnh,bsnh->bnts", query, key) / jnp.sqrt(query.shape[-1]).astype(query.dtype)
    p = jax.nn.softmax(logits, -1)
    entropy = jnp.sum(-p * jnp.log(p + 1e-9), -1, keepdims=True)
    beta = jnp.where(entropy > 0.5, jnp.maximum(jnp.polyval(jnp.array(QUARTIC, query.dtype), entropy), 1), 1)
    return jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(logits * beta, -1), value)


def ours(implementation="chunked", rule=PAPER, **options):
    """Our attention as a function of query, key, value."""
    return partial(dot_product_attention, temperature=rule, implementation=implementation, **options)


def problem(B: int, T: int, S: int, N: int, K: int, d: int = 64, dtype=jnp.float32):
    """Query, key, value and a cotangent, normal."""
    shapes = ((B, T, N, d), (B, S, K, d), (B, S, K, d), (B, T, N, d))
    return tuple(
        jax.random.normal(key, shape).astype(dtype)
        for key, shape in zip(jax.random.split(jax.random.key(0), 4), shapes)
    )


def with_gradient(attend):
    """All gradients against a fixed cotangent, as in training."""
    return lambda query, key, value, cotangent: jax.vjp(attend, query, key, value)[1](cotangent)


def race(title: str, candidates: dict, arrays, gradient: bool, turns: int) -> dict:
    """Print and return (seconds, processor seconds, megabytes) of each candidate; ratios are to the first."""
    compiled, found = {}, {}
    for name, attend in candidates.items():
        function = with_gradient(attend) if gradient else lambda q, k, v, _, attend=attend: attend(q, k, v)
        compiled[name] = jax.jit(function).lower(*arrays).compile()
    taken = {name: [] for name in compiled}
    for _ in range(turns):
        for name, function in compiled.items():
            wall, busy = time.perf_counter(), time.process_time()
            jax.block_until_ready(function(*arrays))
            taken[name].append((time.perf_counter() - wall, time.process_time() - busy))
    print(f"\n{title}, {'forward and gradient' if gradient else 'forward'}")
    first = next(iter(compiled))
    for name, function in compiled.items():
        megabytes = function.memory_analysis().temp_size_in_bytes / 1e6
        found[name] = (*(min(seconds) for seconds in zip(*taken[name])), megabytes)
        wall, busy = (found[first][i] / found[name][i] for i in (0, 1))
        print(
            f"  {name:16} {1e3 * found[name][0]:9.1f} ms   speed {wall:6.2f} (processor time {busy:6.2f})   "
            f"{megabytes:8.1f} MB",
            flush=True,
        )
    return found


def bars(turns: int) -> bool:
    """The bars: 4 heads of 4,096 tokens, width 64, float32."""
    arrays, met = problem(1, 4096, 4096, 4, 4), True
    candidates = {"listing": listing, "jax.nn": jax.nn.dot_product_attention, "chunked": ours()}
    for gradient in (False, True):
        found = race("4 heads of 4,096 tokens, float32", candidates, arrays, gradient, turns)
        for base, (speed, memory) in BARS[gradient].items():
            ratio, size = found[base][0] / found["chunked"][0], found["chunked"][2] / found[base][2]
            good = ratio >= speed and size <= memory
            met &= good
            print(
                f"  against {base}: {ratio:.2f} of its speed (bar {speed}), 1/{1 / size:.0f} of its memory "
                f"(bar 1/{1 / memory:.0f}): {'met' if good else 'MISSED'}"
            )
    return met


def others(turns: int) -> None:
    """Problems of other kinds; no bars."""
    plain = {"jax.nn": jax.nn.dot_product_attention, "chunked": ours(), "dense": ours("dense")}
    causal = {
        "jax.nn": partial(jax.nn.dot_product_attention, is_causal=True),
        "chunked": ours(is_causal=True),
        "window of 512": ours(is_causal=True, local_window_size=(512, 0)),
    }
    half = {"plain chunked": ours(rule=None), "chunked": ours(), "dense": ours("dense")}
    for gradient in (False, True):
        race("causal, 4 heads of 4,096 tokens", causal, problem(1, 4096, 4096, 4, 4), gradient, turns)
        race("64 x 8 heads of 128 tokens", plain, problem(64, 128, 128, 8, 8), gradient, turns)
        for dtype in (jnp.bfloat16, jnp.float16):
            arrays = problem(1, 2048, 2048, 4, 4, dtype=dtype)
            race(f"4 heads of 2,048 tokens, {jnp.dtype(dtype).name}", half, arrays, gradient, turns)
    race("one query, 8 heads, 32,768 keys", plain, problem(1, 1, 32_768, 8, 8), False, 5 * turns)


def long() -> None:
    """One head of 131,072 tokens, forward and gradient, in this process alone."""
    arrays = problem(1, LONG, LONG, 1, 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    compiled = jax.jit(with_gradient(ours())).lower(*arrays).compile()
    start, busy = time.perf_counter(), time.process_time()
    gradients = jax.block_until_ready(compiled(*arrays))
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    assert all(bool(jnp.isfinite(x).all()) for x in gradients)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"\none head of {LONG:,} tokens, forward and gradient: {seconds:.0f} s, {busy:.0f} s of processor; the program "
        f"allocates {compiled.memory_analysis().temp_size_in_bytes / 1e6:.0f} MB; the process had {before:.0f} MB "
        f"before and {peak:.0f} MB at its peak (bar {LONG_MEGABYTES}): "
        f"{'met' if peak < LONG_MEGABYTES else 'MISSED'}",
        flush=True,
    )


def main() -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the bars alone")
    parser.add_argument("--long", action="store_true", help="only the 131,072 tokens")
    options = parser.parse_args()
    if options.long:
        long()
        return
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}, load before the start {load} (idle: below 0.5)")
    met = bars(options.turns)
    if not options.quick:
        others(options.turns)
        subprocess.run([sys.executable, __file__, "--long"], check=True)  # its peak of memory, not that of the listing
    print("\nevery bar met" if met else "\nA BAR WAS MISSED")


if __name__ == "__main__":
    main()

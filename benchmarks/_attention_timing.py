"""Timing on a device: loops of calls each of which needs the last one's result, and what a call amounts to."""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp

REPEATS = 3


class Sizes(NamedTuple):
    """One problem: B batch items of n tokens, N heads of width d."""

    B: int
    n: int
    N: int
    d: int
    causal: bool

    @property
    def bytes_of_logits(self) -> int:
        """Of all logits in float32."""
        return 4 * self.B * self.N * self.n**2


def useful_operations(sizes: Sizes, which: str) -> float:
    """Operations that plain attention needs, whatever is done besides: 4 n^2 d a head forward, 14 with the gradient.

    A product of n x n x d is 2 n^2 d operations. Forward has two of them, and a gradient that does not keep the logits
    has five more; half of each under a causal mask. The same basis for every program: times can be compared by it.
    """
    products = {"forward": 2, "forward and gradient": 7}[which]
    return products * 2 * sizes.B * sizes.N * sizes.n**2 * sizes.d * (0.5 if sizes.causal else 1)


def inputs(sizes: Sizes, dtype=jnp.bfloat16):
    """Query, key, value and a cotangent, normal: zeros would draw less power and run at higher clocks."""
    shape = (sizes.B, sizes.n, sizes.N, sizes.d)

    @jax.jit
    def draw():
        return tuple(jax.random.normal(key, shape, dtype) for key in jax.random.split(jax.random.key(0), 4))

    return draw()


def loop(attend, which: str, calls: int):
    """A compiled loop of so many calls: each query is the last one plus epsilon times the last result.

    Epsilon is 0, which the compiler is not told. The loop is on the device, so that no call waits for the host.
    """

    def forward(arrays, cotangent, epsilon):
        def step(_, query):
            return query + epsilon * attend(query, *arrays[1:])

        return jax.lax.fori_loop(0, calls, step, arrays[0])

    def with_gradient(arrays, cotangent, epsilon):
        def step(_, arrays):
            output, pull_back = jax.vjp(attend, *arrays)
            changes = pull_back(cotangent + epsilon * output)
            return tuple(x + epsilon * dx for x, dx in zip(arrays, changes))

        return jax.lax.fori_loop(0, calls, step, arrays)

    return jax.jit(forward if which == "forward" else with_gradient)


def measure(attend, which: str, arrays, calls: int) -> dict:
    """Milliseconds a call (median, and lowest, of REPEATS loops), seconds of compiling, bytes the program needs."""
    *arrays, cotangent = arrays
    arguments = (tuple(arrays), cotangent, jnp.zeros((), cotangent.dtype))
    start = time.perf_counter()
    compiled = loop(attend, which, calls).lower(*arguments).compile()
    compiling = time.perf_counter() - start
    jax.block_until_ready(compiled(*arguments))
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        seconds.append((time.perf_counter() - start) / calls)
    memory = compiled.memory_analysis()
    return {
        "ms": 1e3 * statistics.median(seconds),
        "lowest_ms": 1e3 * min(seconds),
        "calls": calls,
        "compile_seconds": compiling,
        "temp_megabytes": None if memory is None else memory.temp_size_in_bytes / 1e6,
    }


def matmul_rate(size: int, calls: int) -> float:
    """Operations a second of a square product in bfloat16, the yardstick of the run."""
    a, b = jax.jit(
        lambda: tuple(
            jax.random.normal(key, (size, size), jnp.bfloat16) for key in jax.random.split(jax.random.key(1), 2)
        )
    )()

    @jax.jit
    def run(a, b):
        def step(_, a):
            return (a @ b * jnp.bfloat16(size**-0.5)).astype(jnp.bfloat16)

        return jax.lax.fori_loop(0, calls, step, a)

    jax.block_until_ready(run(a, b))
    fastest = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(run(a, b))
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * size**3 * calls / fastest

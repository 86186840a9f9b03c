"""Speed of the adaptive softmax, as ratios to `jax.nn.softmax` and to the published listing, all in one run.

Absolute times on a shared machine mean little, so the candidates take turns and each ratio is of times that lie a
moment apart. Run: python benchmarks/softmax.py
"""

from __future__ import annotations

import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from adatemp import PAPER, adaptive_temperature_softmax, constant, exp_offset

ROUNDS = 9
SHAPES = [(4096, 512), (128, 16_384), (16, 131_072)]  # rows, keys: 8 MB of float32 each
QUARTIC = (-0.037, 0.481, -2.3, 4.917, -1.791)


def listing(logits):
    """The published function as it is described: entropy of the plain softmax, a quartic of it, a second softmax."""
    p = jax.nn.softmax(logits, -1)
    entropy = jnp.sum(-p * jnp.log(p + 1e-9), -1, keepdims=True)
    beta = jnp.where(entropy > 0.5, jnp.maximum(jnp.polyval(jnp.array(QUARTIC), entropy), 1), 1)
    return jax.nn.softmax(logits * beta, -1)


def ours(rule):
    return lambda logits: adaptive_temperature_softmax(logits, temperature=rule)


CANDIDATES = {
    "jax.nn.softmax": jax.nn.softmax,
    "published listing": listing,
    "temperature=PAPER": ours(PAPER),
    "exp_offset(1.0)": ours(exp_offset(1.0)),
    "constant(2.0)": ours(constant(2.0)),
    "temperature=None": ours(None),
}


def with_gradient(function):
    """The weights' gradient against a fixed cotangent, as in training."""
    return lambda logits, cotangent: jax.vjp(function, logits)[1](cotangent)[0]


def times(functions: dict, *arguments) -> dict[str, list[float]]:
    """Seconds of each function in each round; the functions take turns."""
    compiled = {name: jax.jit(function) for name, function in functions.items()}
    for function in compiled.values():
        function(*arguments).block_until_ready()
    taken = {name: [] for name in compiled}
    for _ in range(ROUNDS):
        for name, function in compiled.items():
            start = time.perf_counter()
            function(*arguments).block_until_ready()
            taken[name].append(time.perf_counter() - start)
    return taken


def show(title: str, taken: dict[str, list[float]]) -> None:
    def median_ratio(name: str, base: str) -> float:
        return statistics.median(b / a for a, b in zip(taken[name], taken[base]))

    print(f"\n{title}\n{'':22}{'ms':>8}{'speed against jax.nn':>24}{'against the listing':>24}")
    for name in taken:
        ms = 1e3 * statistics.median(taken[name])
        print(
            f"{name:22}{ms:8.2f}{median_ratio(name, 'jax.nn.softmax'):24.2f}"
            f"{median_ratio(name, 'published listing'):24.2f}"
        )


def main() -> None:
    device = jax.devices()[0]
    print(f"jax {jax.__version__} on {device.device_kind}, float32, median of {ROUNDS} turns")
    rng = np.random.default_rng(0)
    for rows, keys in SHAPES:
        logits = jnp.asarray(rng.normal(size=(rows, keys)) * 2, jnp.float32)
        cotangent = jnp.asarray(rng.normal(size=(rows, keys)), jnp.float32)
        show(f"{rows:,} rows of {keys:,} keys, forward", times(CANDIDATES, logits))
        gradients = {name: with_gradient(function) for name, function in CANDIDATES.items()}
        show(f"{rows:,} rows of {keys:,} keys, forward and gradient", times(gradients, logits, cotangent))


if __name__ == "__main__":
    main()

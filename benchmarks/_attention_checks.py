"""What attention must get right on the device before its speed means anything; `tests/gpu` runs the same checks.

Each check returns `{what: (error, most that is allowed)}`. `tiny` is for the interpreter on a processor, where the
numbers of a GPU cannot go wrong but this file can.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from adatemp import dot_product_attention
from adatemp._compat import enable_x64
from adatemp.attention.configs import PallasConfig

# Of the output absolute (values of size 1 to 3), of gradients relative to their largest entry. Float32 at HIGHEST is
# float32 arithmetic; by default it is three passes of TensorFloat-32, which lose about two more bits. The half
# precisions round the weights and the output, whose 2^-9 and 2^-12 are most of this.
OUTPUT = {"float32 highest": 5e-6, "float32": 3e-5, "float16": 2e-3, "bfloat16": 1.5e-2}
GRADIENT = {"float32 highest": 1e-5, "float32": 5e-5, "float16": 5e-3, "bfloat16": 3e-2}
# Statistics are exact functions of the inputs: products of half precision are exact in float32.
ENTROPY, LSE, BETA = 2e-5, 1e-5, 5e-5
LOOSE = {"float32": 3.0}  # the logits of three passes of TensorFloat-32

NAMES = ("entropy", "lse", "beta")


def config(tiny: bool, **changes) -> PallasConfig:
    """The defaults on a GPU; small tiles in the interpreter."""
    if not tiny:
        return PallasConfig(**changes)
    blocks = {name: 16 for name in ("block_q", "block_k", "block_q_backward", "block_k_backward")}
    return PallasConfig(**(blocks | changes), interpret=True)


def draw(dtype: str, T: int, S: int, N: int, K: int, H: int, V: int | None = None, B: int = 1, seed: int = 0):
    """Query, key, value: normal, queries from flat to sharp along T."""
    keys = jax.random.split(jax.random.key(seed), 3)
    query, key, value = (
        jax.random.normal(k, shape)
        for k, shape in zip(keys, ((B, T, N, H), (B, S, K, H), (B, S, K, H if V is None else V)))
    )
    query = query * jnp.geomspace(0.2, 4, T)[:, None, None]
    return tuple(x.astype(dtype) for x in (query, key, value))


def agrees_with_float64(
    dtype: str, H: int, *, tiny: bool = False, implementation: str = "pallas", precision=None, T=250, S=381, **options
) -> dict:
    """Values, statistics and all gradients against the dense form in float64, of the same rounded inputs."""
    T, S = (20, 37) if tiny else (T, S)
    arrays = draw(dtype, T, S, 4, 2, H, B=2)
    keys = jax.random.split(jax.random.key(9), 4)
    cotangent = jax.random.normal(keys[0], arrays[0].shape).astype(dtype)
    of_rows = [jax.random.normal(key, arrays[0].shape[:3]) for key in keys[1:]]

    def measured(arrays, cotangent, of_rows, **how):
        def attend(*arrays):
            output, stats = dot_product_attention(*arrays, return_stats=True, **options, **how)
            return output, *(getattr(stats, name) for name in NAMES)

        @jax.jit
        def run(arrays, cotangents):
            values, pull_back = jax.vjp(attend, *arrays)
            return values, pull_back(cotangents)

        values, gradients = jax.device_get(run(arrays, (cotangent, *of_rows)))
        return [np.asarray(x, np.float64) for x in (*values, *gradients)]

    with enable_x64(True):
        exact = [jnp.asarray(np.asarray(x, np.float64)) for x in (*arrays, cotangent, *of_rows)]
        want = measured(tuple(exact[:3]), exact[3], exact[4:], implementation="dense")
    its_config = config(tiny) if implementation == "pallas" else None
    got = measured(arrays, cotangent, of_rows, implementation=implementation, config=its_config, precision=precision)
    kind = "float32 highest" if dtype == "float32" and (precision == "highest" or implementation != "pallas") else dtype
    loose = LOOSE.get(kind, 1)
    found = {"output": (_largest(got[0] - want[0]), OUTPUT[kind])}
    for name, a, b, gate in zip(NAMES, got[1:4], want[1:4], (ENTROPY, LSE, BETA)):
        live = np.isfinite(b)
        found[name] = (_largest((a[live] - b[live]) / ((1 + np.abs(b[live])) if name == "lse" else 1)), loose * gate)
        if not np.array_equal(a[~live], b[~live]):
            found[name] = (np.inf, gate)
    for name, a, b in zip(("d query", "d key", "d value"), got[4:], want[4:]):
        found[name] = (_largest(a - b) / max(_largest(b), 1e-3), GRADIENT[kind])
    return found


def long_rows(dtype: str, n: int, H: int, *, tiny: bool = False) -> dict:
    """One head of n tokens: some rows in float64, and each row by the identity H = lse - scale <q, attention(v = k)>.

    The identity needs the output in float32, so it is taken of the same numbers in float32.
    """
    n = 64 if tiny else n
    query, key, value = draw(dtype, n, n, 1, 1, H)
    run = jax.jit(
        functools.partial(
            dot_product_attention, is_causal=True, return_stats=True, implementation="pallas", config=config(tiny)
        )
    )
    output, stats = run(query, key, value)
    rows = np.unique(np.concatenate([np.arange(0, n, max(1, n // 29)), [n - 1, n // 2, 1]]))
    found = {}
    k, v = (np.asarray(x[0, :, 0], np.float64) for x in (key, value))
    q = np.asarray(query[0, rows, 0], np.float64)
    error = dict.fromkeys(("output", *NAMES), 0.0)
    for i, row in enumerate(rows):
        z = k[: row + 1] @ q[i] / np.sqrt(H)
        lse = z.max() + np.log(np.sum(np.exp(z - z.max())))
        entropy = lse - np.exp(z - lse) @ z
        beta = _published(entropy)
        weights = np.exp(beta * (z - z.max()))
        exact = {"output": weights @ v[: row + 1] / weights.sum(), "entropy": entropy, "lse": lse, "beta": beta}
        got = {"output": output[0, row, 0]} | {name: getattr(stats, name)[0, row, 0] for name in NAMES}
        for name, value_ in exact.items():
            scale = 1 + abs(lse) if name == "lse" else 1
            error[name] = max(error[name], _largest(np.asarray(got[name], np.float64) - value_) / scale)
    loose = LOOSE.get(dtype, 1)
    # Beta changes by up to 2.6 for each nat of entropy.
    gates = {"output": OUTPUT[dtype], "entropy": loose * ENTROPY, "lse": loose * LSE, "beta": 2 * loose * BETA}
    found |= {f"{name} of {len(rows)} rows": (error[name], gates[name]) for name in error}
    single = [x.astype("float32") for x in (query, key)]
    mean, plain = jax.jit(
        functools.partial(
            dot_product_attention,
            is_causal=True,
            return_stats=True,
            temperature=None,
            implementation="pallas",
            config=config(tiny),
        )
    )(*single, single[1])
    identity = plain.lse - jnp.sum(single[0] * mean, -1) / np.sqrt(H)
    # lse of size 10 and <q, k> of size 40, both float32.
    found["identity, every row"] = (float(jnp.max(jnp.abs(identity - stats.entropy))), 2e-4)
    return found


def early_spike(dtype: str = "float32", n: int = 131_072, *, compensated: bool = True, tiny: bool = False) -> dict:
    """A large first logit and a flat rest: a thousand tiny sums are added to 1, and only compensation keeps them."""
    n = 64 if tiny else n
    query = jnp.ones((1, 64, 1, 16), dtype).at[..., 1:].set(0)
    key = jnp.zeros((1, n, 1, 16), dtype).at[0, 0, 0, 0].set(12.5)
    rest = (n - 1) * np.exp(-12.5)
    entropy = np.log(1 + rest) + 12.5 * rest / (1 + rest)
    _, stats = dot_product_attention(
        query,
        key,
        key,
        scale=1.0,
        return_stats=True,
        implementation="pallas",
        config=config(tiny, compensated=compensated),
    )
    return {"entropy": (_largest(np.asarray(stats.entropy, np.float64) - entropy), ENTROPY)}


def hidden_is_never_read(dtype: str = "bfloat16", H: int = 128, *, tiny: bool = False) -> dict:
    """NaN and infinity in padding, and items without any key: same bits as with zeros there, and dead rows are 0."""
    n = 40 if tiny else 300
    arrays = draw(dtype, n, n, 2, 1, H, B=3)
    lengths = jnp.array([n // 3, 0, n])
    hidden = jnp.arange(n)[None, :, None, None] >= lengths[:, None, None, None]

    @jax.jit
    def run(query, key, value):
        def attend(*arrays):
            return dot_product_attention(
                *arrays,
                key_value_seq_lengths=lengths,
                query_seq_lengths=lengths,
                implementation="pallas",
                config=config(tiny),
            )

        output, pull_back = jax.vjp(attend, query, key, value)
        return output, *pull_back(jnp.ones_like(output))

    clean = run(*(jnp.where(hidden, 0, x).astype(dtype) for x in arrays))
    dirty = run(*(jnp.where(hidden, bad, x).astype(dtype) for x, bad in zip(arrays, (jnp.nan, jnp.inf, jnp.nan))))
    equal = all(bool(jnp.array_equal(a, b)) for a, b in zip(clean, dirty))
    dead = float(jnp.max(jnp.abs(jnp.where(hidden, dirty[0], 0))))
    return {"bits that differ": (0.0 if equal else np.inf, 0), "output of dead rows": (dead, 0)}


def repeats(times: int, dtype: str = "bfloat16", H: int = 64, *, tiny: bool = False) -> dict:
    """The same call again and again, gradients included: the same bits."""
    arrays = draw(dtype, *((40, 40) if tiny else (1000, 1000)), 4, 2, H, B=2)

    @jax.jit
    def run(*arrays):
        def attend(*arrays):
            return dot_product_attention(*arrays, is_causal=True, implementation="pallas", config=config(tiny))

        output, pull_back = jax.vjp(attend, *arrays)
        return output, *pull_back(output)

    first = run(*arrays)
    different = sum(not all(bool(jnp.array_equal(a, b)) for a, b in zip(first, run(*arrays))) for _ in range(times - 1))
    return {f"of {times} runs that differ": (float(different), 0)}


# Names of the checks that a benchmark begins with, the shortest set that has met every kind of trouble.
BEFORE_TIMING = {
    "bfloat16, width 128, causal": functools.partial(agrees_with_float64, "bfloat16", 128, is_causal=True),
    "float16, width 64": functools.partial(agrees_with_float64, "float16", 64),
    "float32 at full precision, width 64": functools.partial(agrees_with_float64, "float32", 64, precision="highest"),
    "bfloat16, one head of 131,072 tokens": functools.partial(long_rows, "bfloat16", 131_072, 128),
    "early spike, 131,072 keys": early_spike,
    "hidden keys": hidden_is_never_read,
    "run to run": functools.partial(repeats, 5),
}


def failures(found: dict) -> list[str]:
    """What a check found beyond what is allowed, in words; a NaN is beyond everything."""
    return [f"{what}: {error:.2g}, allowed {gate:.2g}" for what, (error, gate) in found.items() if not error <= gate]


def _largest(x) -> float:
    return float(np.max(np.abs(x), initial=0))


def _published(entropy: float) -> float:
    return max(float(np.polyval(PAPER_COEFFICIENTS, entropy)), 1.0) if entropy > 0.5 else 1.0


# Highest power first, https://arxiv.org/abs/2410.01104, figure 5.
PAPER_COEFFICIENTS = (-0.037, 0.481, -2.3, 4.917, -1.791)

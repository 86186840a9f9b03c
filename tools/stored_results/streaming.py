"""The entropy of long rows from one stream over the keys, and the memory it takes: the claim that chapter 10 tries.

keys, block     length of a row, logits read at a time
rows            one for each shape of row: shape, entropy (nats, in float64), error (nats) of the stream in float32
tokens          numbers of tokens for which memory was planned
memory          one for each way, "all logits" and "one stream": way, and bytes of temporary memory by number of tokens,
                for the entropies of all rows of a head of width 64 in float32, as the compiler plans it
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from adatemp._entropy import entropy
from adatemp._row_state import RowState

CELLS = ("rows", "memory")
SECONDS = 5
DATA = ()

KEYS, BLOCK = 131_072, 128
TOKENS = (2_048, 16_384, 131_072)
WIDTH = 64


def shapes() -> dict[str, np.ndarray]:
    """Rows [KEYS] in float32, by name."""
    noise = np.random.default_rng(0).normal(size=KEYS)

    def ahead(by: float, where: int) -> np.ndarray:
        row = np.zeros(KEYS)
        row[where] = by
        return row

    rows = {
        "constant": np.zeros(KEYS),
        "N(0, 1)": noise,
        "N(0, 3²)": 3 * noise,
        "N(0, 8²)": 8 * noise,
        "flat, one ahead by 30": ahead(30.0, KEYS // 2),
        "flat, the first ahead by 8": ahead(8.0, 0),
        "flat, the first ahead by 12.5": ahead(12.5, 0),
        "ramp from 0 to 40": np.linspace(0, 40, KEYS),
        "N(0, 1) + 1,000": noise + 1_000,
        "N(0, 3²) − 10,000": 3 * noise - 10_000,
    }
    return {name: np.float32(row) for name, row in rows.items()}


@jax.jit
def streamed(rows):
    """Entropy of rows [R, KEYS], read block after block."""
    blocks = jnp.moveaxis(rows.reshape(len(rows), -1, BLOCK), 1, 0)
    read = lambda state, block: (state.merge(RowState.from_block(block)), None)  # noqa: E731
    return jax.lax.scan(read, RowState.empty((len(rows),)), blocks)[0].finalise().entropy


def exact(row: np.ndarray) -> float:
    """Entropy in float64, by the definition."""
    t = np.float64(row) - np.float64(row).max()
    log_weights = t - np.log(np.exp(t).sum())
    return float(-(np.exp(log_weights) * log_weights).sum())


def from_all_logits(query, key):
    """Entropies [n] of the rows of a head from its [n, n] logits."""
    return entropy(query @ key.T / WIDTH**0.5)


def from_one_stream(query, key):
    """The same, a block of queries and a block of keys at a time."""
    blocks = key.reshape(-1, BLOCK, WIDTH)

    def rows(queries):
        read = lambda state, keys: (state.merge(RowState.from_block(queries @ keys.T / WIDTH**0.5)), None)  # noqa: E731
        return jax.lax.scan(read, RowState.empty((BLOCK,)), blocks)[0].finalise().entropy

    return jax.lax.map(rows, query.reshape(-1, BLOCK, WIDTH)).reshape(-1)


WAYS = {"all logits": from_all_logits, "one stream": from_one_stream}


def temporary_bytes(function, tokens: int) -> int:
    """Temporary memory of the compiled program."""
    shape = jax.ShapeDtypeStruct((tokens, WIDTH), jnp.float32)
    return jax.jit(function).lower(shape, shape).compile().memory_analysis().temp_size_in_bytes


def run(cell: str) -> list[dict]:
    """One cell: errors of all shapes of row, or memory of both ways."""
    if cell == "memory":
        return [
            {"way": name, "bytes": {str(n): temporary_bytes(function, n) for n in TOKENS}}
            for name, function in WAYS.items()
        ]
    named = shapes()
    entropies = np.asarray(streamed(np.stack(list(named.values()))), np.float64)
    truth = [exact(row) for row in named.values()]
    return [
        {"shape": name, "entropy": true, "error": float(found - true)}
        for name, found, true in zip(named, entropies, truth)
    ]


def assemble(parts: list) -> dict:
    """The data of the result."""
    rows, memory = parts
    return {"keys": KEYS, "block": BLOCK, "rows": rows, "tokens": list(TOKENS), "memory": memory}

"""Depth: models whose first layer attends to all alike, and trained ones whose layers are looked at as sets grow.

cascade        untrained models of 6 layers on random tokens, one row for each kind and seed: kind, seed; "uniform", the
               largest spread of any row in each layer when the first is made to attend uniformly; "ordinary", the same
               when it is not
kinds          each kind in words
tokens         n of the cascade
sizes, sets    test sizes of the trained models and how many sets of 16 two-hop questions each
rows           trained models, one for each cell of theirs: layers, seed, seconds; one_hop and two_hops, accuracy in the
               last 100 training steps; looks, one for each size and reading: n, reading (of each layer), and what
               `two_hops.measure` returns

The two-layer model of seed 0 is stored beside it as two_hops.npz.
"""

from __future__ import annotations

import re
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from adatemp.attention.api import dot_product_attention
from adatemp.models.config import TransformerConfig
from adatemp.models.transformer import Transformer
from adatemp.tasks import two_hops

SEEDS = 5
TRAINED = ("2 layers, seed 0", "1 layer, seed 0", *(f"2 layers, seed {seed}" for seed in range(1, 6)))
CELLS = ("cascade", *TRAINED)
SECONDS = 60
DATA = ()

FILE = Path(__file__).resolve().parents[2] / "book" / "results" / "two_hops.npz"
STEPS = 3_000
COUNTED = {16: 32, 64: 16, 256: 8, 1_024: 4}
TOKENS = 64

PARTS = dict(vocabulary=100, layers=6, width=64, heads=4, context=TOKENS)
KINDS = {
    "encoder, no residual": dict(
        causal=False, residual=False, norm_place="post", embedding_norm=True, final_norm=False
    ),
    "encoder, residual, norms after": dict(causal=False, norm_place="post", embedding_norm=True, final_norm=False),
    "encoder, residual, norms before": dict(causal=False),
    "causal, no residual": dict(residual=False, norm_place="post", embedding_norm=True, final_norm=False),
    "causal, residual, norms before": dict(),
}


def run(cell: str) -> dict | list[dict]:
    """The untrained models, or one trained one."""
    if cell == "cascade":
        return [cascade(kind, seed) for kind in KINDS for seed in range(SEEDS)]
    layers, seed = (int(word) for word in re.findall(r"\d+", cell))
    return follow(layers, seed, STEPS)


def cascade(kind: str, seed: int) -> dict:
    """Largest spread by layer of one untrained model, with and without a uniform first layer."""
    model = Transformer(TransformerConfig(**PARTS, **KINDS[kind]), rngs=nnx.Rngs(seed))
    tokens = jax.random.randint(jax.random.key(seed), (1, TOKENS), 0, PARTS["vocabulary"])
    return {
        "kind": kind,
        "seed": seed,
        "uniform": spreads(model, tokens, uniform=True).tolist(),
        "ordinary": spreads(model, tokens, uniform=False).tolist(),
    }


@partial(nnx.jit, static_argnames="uniform")
def spreads(model: Transformer, tokens, *, uniform: bool) -> jax.Array:
    """The largest spread of any row in each layer [L]; that of a layer made uniform is 0."""

    def alike(*arrays, scale=None, **options):
        return dot_product_attention(*arrays, scale=0.0, temperature=None, **options)

    attend = partial(dot_product_attention, temperature=None)
    x, at = model.embed(tokens), jnp.arange(tokens.shape[1])
    found = []
    for layer, block in enumerate(model.blocks):
        first = uniform and layer == 0
        x, _, (_, _, spread) = block(x, None, at, None, alike if first else attend, True)
        found.append(0.0 if first else spread.max())
    return jnp.stack(found)


def follow(layers: int, seed: int, steps: int, sizes: dict[int, int] = COUNTED) -> dict:
    """Train one model and look at its layers."""
    start = time.perf_counter()
    model, history = two_hops.train_follower(seed, layers=layers, steps=steps, progress=False)
    if (layers, seed, steps) == (2, 0, STEPS):
        two_hops.save_follower(FILE, model, seed=seed, steps=steps)
    looks = []
    for n, sets in sizes.items():
        links = two_hops.sample(jax.random.fold_in(jax.random.key(seed), n), sets, n, hops=2)
        for reading in readings(layers):
            found = two_hops.measure(model, links, reading)
            looks.append({"n": n, "reading": reading} | {name: np.asarray(x).tolist() for name, x in found.items()})
    return {
        "layers": layers,
        "seed": seed,
        "one_hop": float(history.metrics["one_hop"][-100:].mean()),
        "two_hops": float(history.metrics["two_hops"][-100:].mean()),
        "looks": looks,
        "seconds": round(time.perf_counter() - start, 1),
    }


def readings(layers: int) -> list[tuple[str, ...]]:
    """All soft, all hard, and each layer hard or flat with the others soft."""
    soft = ("soft",) * layers
    single = [soft[:i] + (how,) + soft[i + 1 :] for how in ("hard", "flat") for i in range(layers)]
    return list(dict.fromkeys([soft, ("hard",) * layers, *single]))


def assemble(parts: list) -> dict:
    """The data of the result from its parts."""
    return {
        "cascade": parts[0],
        "kinds": list(KINDS),
        "tokens": TOKENS,
        "sizes": list(COUNTED),
        "sets": list(COUNTED.values()),
        "rows": parts[1:],
    }

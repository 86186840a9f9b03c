"""The implementations that one test body runs over, with blocks small enough that every test has several."""

from __future__ import annotations

import jax

from adatemp.attention.chunked import ChunkedConfig
from adatemp.attention.configs import PallasConfig

IMPLEMENTATIONS = {
    "dense": {"implementation": "dense"},
    "queries": {"implementation": "chunked", "config": ChunkedConfig(block_q=8)},
    "keys": {"implementation": "chunked", "config": ChunkedConfig(block_q=8, block_k=16)},
    "pallas": {
        "implementation": "pallas",
        "config": PallasConfig(block_q=16, block_k=16, block_q_backward=16, block_k_backward=16, interpret=True),
    },
}
EXACT = ("dense", "queries", "keys")  # those that take float64


def compiled(function, *arguments):
    """The function compiled for these arguments without LLVM's optimisations, which takes half as long."""
    return jax.jit(function).lower(*arguments).compile({"xla_backend_optimization_level": 0})

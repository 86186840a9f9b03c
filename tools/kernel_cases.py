"""The programs whose kernels are compiled without a GPU: attention of one long sequence with its default tiles."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from adatemp._polynomial import PAPER
from adatemp.attention import configs, pallas
from adatemp.attention._problem import Problem

KEYS = 131_072
HEADS, KEY_HEADS = 2, 1

PROGRAMS = {
    "adaptive": "the output under the published map",
    "adaptive gradient": "the gradient of query, key and value under the published map",
    "plain": "the output of plain softmax: flash attention",
    "plain gradient": "its gradient",
    "entropy": "the entropy of every row alone",
}


class Case(NamedTuple):
    """One program for one GPU."""

    architecture: str
    program: str
    dtype: str
    width: int
    precision: str | None = None


def cases(architecture: str) -> list[Case]:
    """What is compiled for a GPU."""
    found = [Case(architecture, program, "bfloat16", width) for width in (64, 128) for program in PROGRAMS]
    found += [Case(architecture, program, "bfloat16", 256) for program in ("adaptive", "adaptive gradient")]
    found += [Case(architecture, program, "float32", 64) for program in ("adaptive", "adaptive gradient")]
    return [*found, Case(architecture, "adaptive", "float32", 64, "highest")]


def program(case: Case, config: configs.PallasConfig | None = None):
    """(function, shapes of its arguments) of a case."""
    dtype = jnp.dtype(case.dtype)
    query = jax.ShapeDtypeStruct((1, KEYS, HEADS, case.width), dtype)
    key = jax.ShapeDtypeStruct((1, KEYS, KEY_HEADS, case.width), dtype)
    rule = PAPER if case.program.startswith("adaptive") else None
    entropy_alone = case.program == "entropy"

    def run(query, key, value):
        problem = Problem(query, key, value, scale=case.width**-0.5, is_causal=True, precision=case.precision)
        output, stats = pallas.attend(
            problem, rule, with_output=not entropy_alone, with_stats=entropy_alone, config=config
        )
        return stats.entropy if entropy_alone else output

    def gradient(query, key, value, cotangent):
        return jax.vjp(run, query, key, value)[1](cotangent)

    if entropy_alone:
        return (lambda query, key: run(query, key, None)), (query, key)
    return (gradient, (query, key, key, query)) if case.program.endswith("gradient") else (run, (query, key, key))

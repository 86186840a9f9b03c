"""What a traced function does: its equations, those of its loops, branches and kernels included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax


def equations(traced: Any) -> Iterator[Any]:
    """Every equation of a program that `jax.make_jaxpr` returned, and of the programs inside it."""
    for equation in getattr(traced, "jaxpr", traced).eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
            if _is_program(inner):
                yield from equations(inner)


def _is_program(part: Any) -> bool:
    return hasattr(part, "eqns") or hasattr(part, "jaxpr")

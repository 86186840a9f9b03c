"""A Transformer from arrays by name, all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from flax import nnx, traverse_util

from adatemp.models.config import TransformerConfig
from adatemp.models.transformer import Transformer

if TYPE_CHECKING:
    from jaxtyping import Float


def fill(config: TransformerConfig, arrays: Mapping[str, Float[np.ndarray, "..."]]) -> Transformer:
    """The model of a config with given parameters; no random ones are drawn on the way.

    Args:
        config: what the model is made of.
        arrays: a parameter for each path in the model, joined by dots: "blocks.0.attention.query.kernel".

    Raises:
        ValueError: a parameter is missing, or there is one too many, or one has the wrong shape.
    """
    graph, state = nnx.split(nnx.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0))))
    wanted = traverse_util.flatten_dict(nnx.to_pure_dict(state))
    names = {path: ".".join(map(str, path)) for path in wanted}
    if set(names.values()) != set(arrays):
        missing, unknown = sorted(set(names.values()) - set(arrays)), sorted(set(arrays) - set(names.values()))
        raise ValueError(f"the weights do not belong to this config: missing {missing}, not wanted {unknown}")
    for path, name in names.items():
        if wanted[path].shape != arrays[name].shape:
            raise ValueError(
                f"the weights do not belong to this config: {name} has shape {arrays[name].shape}, and "
                f"{wanted[path].shape} is wanted"
            )
    filled = {path: jnp.asarray(arrays[name]) for path, name in names.items()}
    nnx.replace_by_pure_dict(state, traverse_util.unflatten_dict(filled))
    return nnx.merge(graph, state)


class Source:
    """Arrays of a file, each taken once, so that what nobody took can be named.

    Args:
        tensors: by their names in the file.
    """

    def __init__(self, tensors: Mapping[str, Float[np.ndarray, "..."]]):
        self.tensors = dict(tensors)

    def take(self, name: str) -> Float[np.ndarray, "..."]:
        """The array of that name."""
        if name not in self.tensors:
            raise ValueError(f"the file has no tensor {name!r}: it is cut, or of another model")
        return self.tensors.pop(name)

    def linear(self, name: str) -> Float[np.ndarray, "in out"]:
        """The matrix of a linear map, which files keep as [out, in]."""
        return self.take(name).T

    def heads(self, name: str, heads: int) -> Float[np.ndarray, "in heads width"]:
        """The matrix of queries, keys or values, by head."""
        matrix = self.linear(name)
        if matrix.shape[1] % heads:
            raise ValueError(f"tensor {name!r} has {matrix.shape[1]} rows, which {heads} heads do not share evenly")
        return matrix.reshape(matrix.shape[0], heads, -1)

    def from_heads(self, name: str, heads: int) -> Float[np.ndarray, "heads width out"]:
        """The matrix behind the heads, by head."""
        matrix = self.linear(name)
        if matrix.shape[0] % heads:
            raise ValueError(f"tensor {name!r} has {matrix.shape[0]} columns, which {heads} heads do not share evenly")
        return matrix.reshape(heads, -1, matrix.shape[1])

    def finish(self, *, unused: tuple[str, ...] = ()) -> None:
        """Refuses a file of which something was left, but for names that are known to have no use."""
        left = sorted(name for name in self.tensors if not name.startswith(unused))
        if left:
            raise ValueError(f"the file has tensors that this model has no place for: {left[:5]}")

"""A function of queries run a block of queries at a time, and computed again when its gradient is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from collections.abc import Callable

    from adatemp.attention._logits import Queries


def map_query_blocks(function: Callable, tree, T: int, block_q: int):
    """`function(tree)`, block by block along axis 1 of every array in the tree and in the result; T is its length.

    The last block is made up with zeros, whose results are dropped, so no row may depend on another, and the gradient
    of a row of zeros must be finite. Backwards only the arrays of the tree are kept of a block.
    """
    blocks = -(-T // block_q)
    if blocks == 1:
        return jax.checkpoint(function)(tree)
    padding = blocks * block_q - T

    def cut(array):
        array = jnp.pad(array, [(0, padding if axis == 1 else 0) for axis in range(array.ndim)])
        if array.shape[0] == 1:  # without its axis of length 1, XLA sees that the cut moves nothing and copies nothing
            return array.reshape(blocks, block_q, *array.shape[2:])
        return jnp.moveaxis(array.reshape(array.shape[0], blocks, block_q, *array.shape[2:]), 1, 0)

    def of_block(block):
        return function(jax.tree.map(lambda x, whole: x[None] if whole.shape[0] == 1 else x, block, tree))

    def joined(array):
        array = jnp.moveaxis(array, 0, 1)
        return array.reshape(array.shape[0], -1, *array.shape[3:])[:, :T]

    return jax.tree.map(joined, jax.lax.map(jax.checkpoint(of_block), jax.tree.map(cut, tree)))


def hide_filling(queries: Queries, block_q: int) -> Queries:
    """The queries, said to be alive, where zeros will make up a last block: those see nothing, and so no NaN either."""
    B, T = queries.query.shape[:2]
    if T % block_q == 0 or queries.alive is not None:
        return queries
    return queries.replace(alive=jnp.ones((B, T), bool))

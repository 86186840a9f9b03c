"""Keys and values of the tokens read so far, so that the next token does not read them again."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._rule import is_concrete

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int


@partial(jax.tree_util.register_dataclass, data_fields=["key", "value", "length"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class Cache:
    """A value, not a place: a model takes one and returns the next.

    Attributes:
        key: [L, B, S, K, H], as they enter the product: normalised and turned.
        value: [L, B, S, K, H].
        length: how many of the S places are filled, the same for the whole batch.
    """

    key: Float[Array, "L B S K H"]
    value: Float[Array, "L B S K H"]
    length: Int[Array, ""]

    @staticmethod
    def empty(config, batch: int, length: int, dtype=jnp.float32) -> Cache:
        """Room for `length` tokens of a `TransformerConfig`, none filled.

        >>> from adatemp.models import presets
        >>> Cache.empty(presets.toy(), batch=2, length=16).key.shape
        (2, 2, 16, 4, 16)
        """
        room = jnp.zeros((config.layers, batch, length, config.key_heads, config.head_width), dtype)
        return Cache(room, room, jnp.zeros((), jnp.int32))

    def check(self, config, tokens: int, where) -> None:
        """Raises ValueError where a model of the config cannot put so many tokens behind those in the cache."""
        if not config.causal:
            raise ValueError("cache needs causal attention: without it an earlier token would have to look again")
        if where is not None:
            raise ValueError("where cannot be given with a cache: put padding behind the tokens and cut its logits off")
        room = self.key.shape[2]
        if is_concrete(self.length) and int(self.length) + tokens > room:
            raise ValueError(f"cache has room for {room} tokens, got {tokens} more than the {int(self.length)} in it")
        if config.positions == "learned" and room > config.context:
            raise ValueError(
                f"cache has room for {room} tokens, and the model has learned {config.context} positions: "
                "make it no longer than that"
            )

    def write(self, layer: int, key: Float[Array, "B T K H"], value: Float[Array, "B T K H"]):
        """(the cache with a layer's new keys and values, all keys of the layer, all values)."""

        def put(room, new):
            start = (layer, 0, self.length, 0, 0)
            return jax.lax.dynamic_update_slice(room, new[None].astype(room.dtype), start)

        cache = dataclasses.replace(self, key=put(self.key, key), value=put(self.value, value))
        return cache, cache.key[layer].astype(key.dtype), cache.value[layer].astype(value.dtype)

    def advance(self, tokens: int) -> Cache:
        """The cache with so many more places counted as filled."""
        return dataclasses.replace(self, length=self.length + tokens)

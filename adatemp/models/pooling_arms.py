"""Two relatives of the set-pooling head: normalised queries and keys, and keys that see the priority alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from adatemp.models.set_pooling import PRECISION, SetPooling

if TYPE_CHECKING:
    from jaxtyping import Array, Float


class NormedPooling(SetPooling):
    """A head with QK-norm: after the projections, queries and keys are divided by their root mean square.

    With N(v) = v/√(mean v² + ε), q = g_Q N(W_Q f(y)) and k_i = g_K N(W_K h_i), channel by channel, the logits are
    ⟨k_i, q⟩/√d. Whatever the kernels are, ‖N(v)‖ ≤ √d, so only the two gains can buy spread.

    Args:
        classes, width, rngs: as in `SetPooling`.
    """

    def __init__(self, *, classes: int = 10, width: int = 128, rngs: nnx.Rngs):
        super().__init__(classes=classes, width=width, rngs=rngs)
        self.query_gain = nnx.Param(jnp.ones(width))
        self.key_gain = nnx.Param(jnp.ones(width))

    def logits_from_hidden(self, hidden: Float[Array, "B n width"], query: Float[Array, "B 1"]) -> Float[Array, "B n"]:
        """Attention logits of items given by their hidden layer."""
        head_query = self.query(self.query_out(jax.nn.gelu(self.query_in(query))))
        head_query = self.query_gain[...] * rms_norm(head_query)
        # W₂W_K once, so that an item costs one product of width × width; flat, as in `SetPooling.hidden`.
        folded = jnp.dot(self.item_out.kernel[...], self.key.kernel[...], precision=PRECISION)
        offset = jnp.dot(self.item_out.bias[...], self.key.kernel[...], precision=PRECISION)
        flat = jnp.dot(hidden.reshape(-1, hidden.shape[-1]), folded, precision=PRECISION) + offset
        keys = rms_norm(flat).reshape(*hidden.shape[:-1], -1)
        weighted = head_query * self.key_gain[...]
        return jnp.einsum("bnw,bw->bn", keys, weighted, precision=PRECISION) / math.sqrt(weighted.shape[-1])


class PriorityPooling(SetPooling):
    """A head whose keys are computed from the priority alone, by a network of their own.

    No class can disturb the order of the keys, so what goes wrong as items are added is dispersion and nothing else.

    Args:
        classes, width, rngs: as in `SetPooling`.
    """

    def __init__(self, *, classes: int = 10, width: int = 128, rngs: nnx.Rngs):
        super().__init__(classes=classes, width=width, rngs=rngs)
        self.key_in = nnx.Linear(1, width, precision=PRECISION, rngs=rngs)
        self.key_out = nnx.Linear(width, width, precision=PRECISION, rngs=rngs)

    def hidden(self, items: Float[Array, "B n features"]) -> Float[Array, "B n hidden"]:
        """First layers of the two item networks, side by side: that of the keys, then that of the values."""
        of_key = jax.nn.gelu(self.key_in(items[..., :1].reshape(-1, 1))).reshape(*items.shape[:-1], -1)
        return jnp.concatenate([of_key, super().hidden(items)], axis=-1)

    def logits_from_hidden(self, hidden: Float[Array, "B n hidden"], query: Float[Array, "B 1"]) -> Float[Array, "B n"]:
        """Attention logits of items given by their hidden layers."""
        head_query = self.query(self.query_out(jax.nn.gelu(self.query_in(query))))
        direction = jnp.dot(head_query, self.key.kernel[...].T, precision=PRECISION)
        folded = jnp.dot(direction, self.key_out.kernel[...].T, precision=PRECISION)
        offset = jnp.dot(direction, self.key_out.bias[...], precision=PRECISION)
        of_key = hidden[..., : folded.shape[-1]]
        scores = jnp.einsum("bnw,bw->bn", of_key, folded, precision=PRECISION) + offset[:, None]
        return scores / math.sqrt(head_query.shape[-1])

    def classify_from_hidden(
        self, hidden: Float[Array, "B n hidden"], weights: Float[Array, "*rules B n"]
    ) -> Float[Array, "*rules B classes"]:
        """Class logits from one or several rows of weights over the same items."""
        width = self.key_out.kernel[...].shape[0]
        return super().classify_from_hidden(hidden[..., width:], weights)


class Vectors(NamedTuple):
    """What the bounds on a head's spread are made of, for a batch of sets."""

    query_input: Float[Array, "B D"]  # y, as it enters W_Q
    item_inputs: Float[Array, "B n D"]  # x_i, as they enter W_K
    query: Float[Array, "B H"]  # as the product sees it, after a norm if there is one
    keys: Float[Array, "B n H"]


def vectors(model: SetPooling, items: Float[Array, "B n features"], query: Float[Array, "B 1"]) -> Vectors:
    """Inputs of the two projections of a head, and the vectors whose products over √d are the logits."""
    y = model.query_out(jax.nn.gelu(model.query_in(query)))
    if isinstance(model, PriorityPooling):
        x = model.key_out(jax.nn.gelu(model.key_in(items[..., :1])))
    else:
        x = model.item_out(jax.nn.gelu(model.item_in(items)))
    q, k = model.query(y), model.key(x)
    if isinstance(model, NormedPooling):
        q, k = model.query_gain[...] * rms_norm(q), model.key_gain[...] * rms_norm(k)
    return Vectors(y, x, q, k)


def rms_norm(x: Float[Array, "... H"], epsilon: float = 1e-6) -> Float[Array, "... H"]:
    """x over its root mean square, so that the result is no longer than √H."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + epsilon)

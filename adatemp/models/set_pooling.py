"""One attention head over a set: the model that learns to retrieve the maximum."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx

from adatemp._checkpoint import load, read_about, save
from adatemp._softmax import adaptive_temperature_softmax
from adatemp._stored_results import results_file

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float

    from adatemp._attention_stats import AttentionStats
    from adatemp.temperature import TemperatureRule

# Logits of a trained head reach the hundreds and gaps of a hundredth decide: tensor-float products cannot tell them.
PRECISION = jax.lax.Precision.HIGHEST


class SetPooling(nnx.Module):
    """Item network, query network, one attention head, read-out network.

    With g_i = gelu(W₁x_i + b₁), h_i = W₂g_i + b₂ for an item x_i, q = W_Q f(y) for the query y and √d for the width:

        e_i = ⟨W_K h_i, q⟩ / √d,    w = softmax(e),    class logits = r(Σ_i w_i W_V h_i).

    Linear maps on either side of the softmax are moved to where they act once per set instead of once per item:
    e_i = ⟨g_i, W₂ᵀW_Kᵀq⟩/√d + ⟨b₂, W_Kᵀq⟩/√d and Σ w_i W_V h_i = W_V(W₂ Σ w_i g_i + b₂ Σ w_i). Both are equalities,
    so nothing but rounding changes, in values and in gradients, and an item costs no width × width product instead of
    three.

    Args:
        classes: number of classes C; an item is its priority followed by the one-hot class, 1 + C numbers.
        width: width of every hidden layer and of the head.
        rngs: where the initial parameters come from.
    """

    def __init__(self, *, classes: int = 10, width: int = 128, rngs: nnx.Rngs):
        def linear(inputs, outputs, use_bias=True):
            return nnx.Linear(inputs, outputs, use_bias=use_bias, precision=PRECISION, rngs=rngs)

        self.item_in = linear(1 + classes, width)
        self.item_out = linear(width, width)
        self.query_in = linear(1, width)
        self.query_out = linear(width, width)
        self.query = linear(width, width, use_bias=False)
        self.key = linear(width, width, use_bias=False)
        self.value = linear(width, width, use_bias=False)
        self.read_in = linear(width, width)
        self.read_out = linear(width, classes)

    def hidden(self, items: Float[Array, "B n features"]) -> Float[Array, "B n width"]:
        """First layer of the item network, g_i: all that is computed item by item."""
        batch, n, features = items.shape
        flat = jax.nn.gelu(
            self.item_in(items.reshape(batch * n, features))
        )  # XLA's CPU gradient is 3 times slower in 3-d
        return flat.reshape(batch, n, -1)

    def logits_from_hidden(self, hidden: Float[Array, "B n width"], query: Float[Array, "B 1"]) -> Float[Array, "B n"]:
        """Attention logits of items given by their hidden layer."""
        head_query = self.query(self.query_out(jax.nn.gelu(self.query_in(query))))  # [B, width]
        direction = jnp.dot(head_query, self.key.kernel[...].T, precision=PRECISION)  # W_Kᵀq
        folded = jnp.dot(direction, self.item_out.kernel[...].T, precision=PRECISION)  # W₂ᵀW_Kᵀq
        offset = jnp.dot(direction, self.item_out.bias[...], precision=PRECISION)  # ⟨b₂, W_Kᵀq⟩
        scores = jnp.einsum("bnw,bw->bn", hidden, folded, precision=PRECISION) + offset[:, None]
        return scores / math.sqrt(head_query.shape[-1])

    def classify_from_hidden(
        self, hidden: Float[Array, "B n width"], weights: Float[Array, "*rules B n"]
    ) -> Float[Array, "*rules B classes"]:
        """Class logits from one or several rows of weights over the same items."""
        pooled = jnp.einsum("...bn,bnw->...bw", weights, hidden, precision=PRECISION)  # Σ w_i g_i
        pooled = jnp.dot(pooled, self.item_out.kernel[...], precision=PRECISION)
        pooled = pooled + weights.sum(-1, keepdims=True) * self.item_out.bias[...]
        return self.read_out(jax.nn.gelu(self.read_in(self.value(pooled))))

    def logits(self, items: Float[Array, "B n features"], query: Float[Array, "B 1"]) -> Float[Array, "B n"]:
        """Attention logits e_i, scaled by 1/√d; masking is left to the softmax."""
        return self.logits_from_hidden(self.hidden(items), query)

    def pool_and_classify(
        self, items: Float[Array, "B n features"], weights: Float[Array, "*rules B n"]
    ) -> Float[Array, "*rules B classes"]:
        """Class logits read from the values averaged under any weights: soft, tempered or one-hot."""
        return self.classify_from_hidden(self.hidden(items), weights)

    def __call__(
        self,
        items: Float[Array, "B n features"],
        query: Float[Array, "B 1"],
        where: Bool[Array, "B n"] | None = None,
        *,
        temperature: TemperatureRule | None = None,
        return_stats: bool = False,
    ) -> Float[Array, "B classes"] | tuple[Float[Array, "B classes"], AttentionStats]:
        """Class logits of each set.

        Args:
            items: priority and one-hot class of each item.
            query: one number a set.
            where: which items exist; the others take no part.
            temperature: the rule for the softmax; None is plain softmax.
            return_stats: also return the row statistics of the attention.

        Returns:
            Class logits, and the statistics if asked for.
        """
        hidden = self.hidden(items)  # once, so that its gradient is also taken once
        logits = self.logits_from_hidden(hidden, query)
        weights, stats = adaptive_temperature_softmax(logits, where=where, temperature=temperature, return_stats=True)
        classes = self.classify_from_hidden(hidden, weights)
        return (classes, stats) if return_stats else classes


def load_head(path: str | os.PathLike | None = None) -> SetPooling:
    """The trained head that the book follows: seed 0 of the stored runs, read from book/results/head.npz.

    Args:
        path: another file written by `save_head`.
    """
    path = results_file("head.npz") if path is None else path
    about = read_about(path)
    head = SetPooling(classes=about["classes"], width=about["width"], rngs=nnx.Rngs(0))
    state = nnx.state(head)
    # A pure dict has the same paths in every version of flax.
    nnx.replace_by_pure_dict(state, load(path, nnx.to_pure_dict(state)))
    nnx.update(head, state)
    return head


def save_head(path: str | os.PathLike, head: SetPooling, **about: Any) -> None:
    """Write a head to an npz file, with what is to be said about it."""
    width, classes = head.read_out.kernel[...].shape
    save(path, nnx.to_pure_dict(nnx.state(head)), about={**about, "classes": classes, "width": width})

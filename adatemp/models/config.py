"""What a Transformer is made of, as one value."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from adatemp.models import norms, positions

ACTIVATIONS = {
    "gelu": partial(jax.nn.gelu, approximate=True),
    "gelu_exact": partial(jax.nn.gelu, approximate=False),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """What a Transformer is made of; `adatemp.models.presets` has well-known ones.

    Attributes:
        vocabulary: number of tokens.
        layers: L.
        width: D, of the hidden states.
        heads: N.
        key_heads: K, a divisor of N; None for N.
        head_width: H; None for D / N.
        mlp_width: of the hidden layer of the MLP; None for 4 D.
        context: number of learned positions.
        causal: whether a token sees itself and earlier ones only.
        positions: "none", "learned", "sinusoidal", "rotary" or "alibi".
        rotary_base: of the wavelengths; `local_rotary_base` that of layers with a window, None for the same.
        norm: "layer", "rms" or "none".
        norm_epsilon: added to the mean square; may be 0.
        norm_from_one: whether gains are stored as their excess over 1.
        norm_place: "pre" (before each branch), "post" (after each sum), "both" (before and after each branch).
        embedding_norm: whether the embeddings are normalised.
        final_norm: whether the last hidden states are.
        qk_norm: "none", "rms" or "layer" on each head's queries and keys, before they are turned.
        residual: whether each branch is added to its input, or replaces it.
        parallel: whether attention and MLP read the same input and are added, or follow each other.
        mlp: "plain", "gated" or "none".
        activation: of the MLP: gelu (by tanh), gelu_exact, relu, silu or tanh.
        bias: whether linear maps have biases; the read-out never has.
        tied: whether the read-out is the embedding.
        scale_embedding: whether embeddings are multiplied by √D.
        scale: of the attention logits; None for 1/√H.
        attention_soft_cap: of the attention logits.
        logits_soft_cap: of the read-out.
        windows: how many keys a token sees in each layer, itself included, None for all; repeated over the layers.
        precision: of the linear maps of float32.
    """

    vocabulary: int
    layers: int
    width: int
    heads: int
    key_heads: int | None = None
    head_width: int | None = None
    mlp_width: int | None = None
    context: int | None = None
    causal: bool = True
    positions: Literal["none", "learned", "sinusoidal", "rotary", "alibi"] = "learned"
    rotary_base: float = 10_000.0
    local_rotary_base: float | None = None
    norm: Literal["layer", "rms", "none"] = "layer"
    norm_epsilon: float = 1e-6
    norm_from_one: bool = False
    norm_place: Literal["pre", "post", "both"] = "pre"
    embedding_norm: bool = False
    final_norm: bool = True
    qk_norm: Literal["none", "rms", "layer"] = "none"
    residual: bool = True
    parallel: bool = False
    mlp: Literal["plain", "gated", "none"] = "plain"
    activation: str = "gelu"
    bias: bool = False
    tied: bool = False
    scale_embedding: bool = False
    scale: float | None = None
    attention_soft_cap: float | None = None
    logits_soft_cap: float | None = None
    windows: tuple[int | None, ...] = (None,)
    precision: str | None = "highest"

    def __post_init__(self):
        choices = {
            "positions": positions.KINDS,
            "norm": norms.KINDS,
            "norm_place": ("pre", "post", "both"),
            "qk_norm": norms.KINDS,
            "mlp": ("plain", "gated", "none"),
            "activation": tuple(ACTIVATIONS),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        derived = {
            "key_heads": self.heads,
            "head_width": self.width // self.heads,
            "mlp_width": 4 * self.width,
        }
        if self.head_width is None and self.width % self.heads:
            raise ValueError(f"width {self.width} is no multiple of heads {self.heads}: give head_width")
        for name, value in derived.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.heads % self.key_heads:
            raise ValueError(f"heads must be a multiple of key_heads, got {self.heads} and {self.key_heads}")
        if self.positions == "learned" and self.context is None:
            raise ValueError("context must be given with learned positions: the number of positions to learn")
        if not self.windows or any(window is not None and window < 1 for window in self.windows):
            raise ValueError(f"windows must be None or at least 1 for each layer of a period, got {self.windows}")

    def window(self, layer: int) -> int | None:
        """The window of a layer."""
        return self.windows[layer % len(self.windows)]

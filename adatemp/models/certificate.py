"""Radii and spreads of a Transformer certified from its weights alone: they hold for any number of tokens.

`adatemp.dispersion` has the radius of each kind of map; here they follow one another as the model's layers do. A bias
is one more row of its kernel, met by a constant 1: the ball of radius R becomes one of radius √(R² + 1).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from flax import nnx

from adatemp import dispersion

if TYPE_CHECKING:
    from jaxtyping import Float

    from adatemp.models.config import TransformerConfig
    from adatemp.models.transformer import Transformer


class Certificate(NamedTuple):
    """Upper bounds, for any tokens, any number of them, any attention weights that sum to 1.

    Attributes:
        hidden: of the norms of hidden states, the embeddings first.
        inputs: of the norms of what each layer's queries, keys and values are projected from.
        spread: of δ of each head's logits; infinite for ALiBi, whose biases grow with the distance.
    """

    hidden: Float[np.ndarray, "L+1"]
    inputs: Float[np.ndarray, " L"]
    spread: Float[np.ndarray, "L N"]


def certify(model: Transformer) -> Certificate:
    """The certificate of a model, in float64; see `Certificate`.

    Norms bound themselves, so with them the radius stops growing with depth faster than the residual sums; without
    them it is multiplied in every layer. It is a bound on the worst case over all inputs, often orders of magnitude
    above what a sequence reaches: what matters is that n is not in it.

    Raises:
        ValueError: for a model whose embeddings do not have a largest norm.

    Example:
        >>> from adatemp.models import Transformer, presets
        >>> certificate = certify(Transformer(presets.toy(), rngs=nnx.Rngs(0)))
        >>> certificate.hidden.shape, certificate.spread.shape
        ((3,), (2, 4))
    """
    config, parameters = model.config, nnx.to_pure_dict(nnx.state(model, nnx.Param))
    radius = _embedding(config, parameters)
    hidden, inputs, spreads = [radius], [], []
    for layer in range(config.layers):
        block = parameters["blocks"][layer]
        read, radius = _block(config, block, radius)
        hidden.append(radius)
        inputs.append(read)
        spreads.append(_spreads(config, block["attention"], read))
    return Certificate(*(np.array(values, np.float64) for values in (hidden, inputs, spreads)))


def _embedding(config: TransformerConfig, parameters: dict) -> float:
    def longest(table):
        return float(np.linalg.norm(np.asarray(table, np.float64), axis=-1).max())

    radius = longest(parameters["embedding"]) * (math.sqrt(config.width) if config.scale_embedding else 1.0)
    if config.positions == "learned":
        radius += longest(parameters["position_embedding"])
    elif config.positions == "sinusoidal":
        radius += math.sqrt(math.ceil(config.width / 2))  # a sine and a cosine have length 1 together
    if not math.isfinite(radius):
        raise ValueError("model: its embeddings are not finite, so no radius bounds them")
    return _norm(config, parameters.get("embedding_norm"), radius)


def _block(config: TransformerConfig, block: dict, radius: float) -> tuple[float, float]:
    """(radius of what attention reads, radius after the block)."""
    post = config.norm_place == "post"

    def norm(name: str, radius: float) -> float:
        return _norm(config, block.get(name), radius)

    def join(radius: float, branch: float, name: str) -> float:
        radius = branch + (radius if config.residual else 0.0)
        return norm(name, radius) if post else radius

    read = radius if post else norm("attention_norm", radius)
    attention = block["attention"]
    branch = dispersion.attention_radius(
        read, *(_float(attention[part].get(name)) for name in ("kernel", "bias") for part in ("value", "out"))
    )
    branch = norm("attention_after", float(branch))
    if config.mlp != "none" and config.parallel:
        branch += norm("mlp_after", _mlp(config, block["mlp"], read))
    radius = join(radius, branch, "attention_norm")
    if config.mlp != "none" and not config.parallel:
        branch = _mlp(config, block["mlp"], radius if post else norm("mlp_norm", radius))
        radius = join(radius, norm("mlp_after", branch), "mlp_norm")
    return read, radius


def _norm(config: TransformerConfig, norm: dict | None, radius: float) -> float:
    """A norm that is not there changes nothing."""
    if not norm:
        return radius
    gain = _gain(config, norm)
    return float(dispersion.layer_norm_radius(radius, gain, _float(norm.get("bias")), epsilon=config.norm_epsilon))


def _mlp(config: TransformerConfig, mlp: dict, radius: float) -> float:
    activation = "gelu" if config.activation == "gelu_exact" else config.activation
    down, bias = _float(mlp["down"]["kernel"]), _float(mlp["down"].get("bias"))
    up, within = _with_bias(mlp["up"], radius)
    if config.mlp == "plain":
        return float(dispersion.mlp_radius(within, [up, down], [None, bias], activation=activation))
    gate, _ = _with_bias(mlp["gate"], radius)
    after = dispersion.gated_mlp_radius(within, gate, up, down, activation=activation)
    return float(after + (0.0 if bias is None else np.linalg.norm(bias)))


def _spreads(config: TransformerConfig, attention: dict, radius: float) -> list[float]:
    """The bound on δ of each head of a layer."""
    if config.positions == "alibi":
        return [math.inf] * config.heads
    (query, within), (key, _) = (_with_bias(attention[name], radius) for name in ("query", "key"))
    group, spreads = config.heads // config.key_heads, []
    for head in range(config.heads):
        bound = dispersion.spread_bound_norms(query[:, head], key[:, head // group], within, within, scale=config.scale)
        if config.qk_norm != "none":
            # Instead of the kernels: whatever they are, the norms bring all to one length.
            gains = (_gain(config, attention[name]) for name in ("query_norm", "key_norm"))
            rotated = config.positions == "rotary"
            bound = dispersion.qk_norm_ceiling(*gains, norm=config.qk_norm, rotated=rotated, scale=config.scale)
        cap = math.inf if config.attention_soft_cap is None else config.attention_soft_cap
        spreads.append(2 * cap * math.tanh(float(bound) / (2 * cap)) if cap < math.inf else float(bound))
    return spreads


def _gain(config: TransformerConfig, norm: dict):
    return _float(norm["gain"]) + (1.0 if config.norm_from_one else 0.0)


def _with_bias(linear: dict, radius: float):
    """A kernel with its bias as one more row, and the radius of vectors with one more entry, 1."""
    kernel, bias = _float(linear["kernel"]), _float(linear.get("bias"))
    return (kernel, radius) if bias is None else (np.concatenate([kernel, bias[None]]), math.hypot(radius, 1.0))


def _float(array):
    return None if array is None else np.asarray(array, np.float64)

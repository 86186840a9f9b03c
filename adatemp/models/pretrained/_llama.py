"""The Llama family: what files call its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from adatemp.models import presets
from adatemp.models.config import TransformerConfig
from adatemp.models.pretrained._parameters import Source, fill

if TYPE_CHECKING:
    from jaxtyping import Float

build = fill


def config_from_gguf(metadata: Mapping[str, Any], tensors: Mapping[str, Any]) -> TransformerConfig:
    """The config that a GGUF file describes."""
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise ValueError(f"path: the file holds a model of architecture {architecture!r}; 'llama' can be read")

    def field(name):
        if (key := f"llama.{name}") not in metadata:
            raise ValueError(f"path: the file does not say {key!r}")
        return metadata[key]

    heads, width = field("attention.head_count"), field("embedding_length")
    if metadata.get("llama.rope.scaling.type", "none") != "none":
        raise ValueError("path: the file's rotary positions are rescaled, which is not read")
    return presets.llama(
        vocabulary=metadata.get("llama.vocab_size", len(metadata["tokenizer.ggml.tokens"])),
        layers=field("block_count"),
        width=width,
        heads=heads,
        key_heads=metadata.get("llama.attention.head_count_kv", heads),
        head_width=metadata.get("llama.rope.dimension_count", width // heads),
        mlp_width=field("feed_forward_length"),
        rotary_base=float(metadata.get("llama.rope.freq_base", 10_000.0)),
        norm_epsilon=float(field("attention.layer_norm_rms_epsilon")),
        tied="output.weight" not in tensors,
    )


def config_from_hub(described: Mapping[str, Any]) -> TransformerConfig:
    """The config that a `config.json` describes."""
    for name, plain in {"rope_scaling": None, "attention_bias": False, "mlp_bias": False, "hidden_act": "silu"}.items():
        if described.get(name, plain) != plain:
            raise ValueError(f"path: config.json has {name}={described[name]!r}; only {plain!r} can be read")
    heads, width = described["num_attention_heads"], described["hidden_size"]
    # Newer versions of `transformers` keep the base among the parameters of the rotation.
    rotation = described.get("rope_parameters") or {}
    if rotation.get("rope_type", "default") != "default":
        raise ValueError(f"path: config.json has rotary positions of type {rotation['rope_type']!r}, not 'default'")
    return presets.llama(
        vocabulary=described["vocab_size"],
        layers=described["num_hidden_layers"],
        width=width,
        heads=heads,
        key_heads=described.get("num_key_value_heads") or heads,
        head_width=described.get("head_dim") or width // heads,
        mlp_width=described["intermediate_size"],
        rotary_base=float(described.get("rope_theta") or rotation.get("rope_theta") or 10_000.0),
        norm_epsilon=described["rms_norm_eps"],
        tied=described.get("tie_word_embeddings", False),
    )


def from_gguf_names(
    config: TransformerConfig, tensors: Mapping[str, Float[np.ndarray, "..."]]
) -> dict[str, Float[np.ndarray, "..."]]:
    """Parameters by our paths, from a GGUF file's tensors."""
    source = Source(tensors)
    names = {
        "embedding": "token_embd.weight",
        "final_norm.gain": "output_norm.weight",
        "read_out": "output.weight",
        "block": "blk.{}.",
        "attention_norm": "attn_norm.weight",
        "mlp_norm": "ffn_norm.weight",
        "query": "attn_q.weight",
        "key": "attn_k.weight",
        "value": "attn_v.weight",
        "out": "attn_output.weight",
        "gate": "ffn_gate.weight",
        "up": "ffn_up.weight",
        "down": "ffn_down.weight",
    }
    arrays = _take(config, source, names)
    for layer in range(config.layers):
        for name in ("query", "key"):
            path = f"blocks.{layer}.attention.{name}.kernel"
            arrays[path] = _halves(arrays[path])
    source.finish(unused=("rope_freqs",))
    return arrays


def from_hub_names(
    config: TransformerConfig, tensors: Mapping[str, Float[np.ndarray, "..."]]
) -> dict[str, Float[np.ndarray, "..."]]:
    """Parameters by our paths, from a hub directory's tensors."""
    source = Source(tensors)
    names = {
        "embedding": "model.embed_tokens.weight",
        "final_norm.gain": "model.norm.weight",
        "read_out": "lm_head.weight",
        "block": "model.layers.{}.",
        "attention_norm": "input_layernorm.weight",
        "mlp_norm": "post_attention_layernorm.weight",
        "query": "self_attn.q_proj.weight",
        "key": "self_attn.k_proj.weight",
        "value": "self_attn.v_proj.weight",
        "out": "self_attn.o_proj.weight",
        "gate": "mlp.gate_proj.weight",
        "up": "mlp.up_proj.weight",
        "down": "mlp.down_proj.weight",
    }
    arrays = _take(config, source, names)
    # A tied read-out is stored by some writers once more, under its own name.
    source.finish(unused=("lm_head.weight",) if config.tied else ())
    return arrays


def _take(config: TransformerConfig, source: Source, names: dict[str, str]) -> dict[str, Float[np.ndarray, "..."]]:
    arrays = {"embedding": source.take(names["embedding"]), "final_norm.gain": source.take(names["final_norm.gain"])}
    if not config.tied:
        arrays["free_read_out.kernel"] = source.linear(names["read_out"])
    for layer in range(config.layers):
        at, block = f"blocks.{layer}.", names["block"].format(layer)
        for norm in ("attention_norm", "mlp_norm"):
            arrays[f"{at}{norm}.gain"] = source.take(block + names[norm])
        for name, heads in {"query": config.heads, "key": config.key_heads, "value": config.key_heads}.items():
            arrays[f"{at}attention.{name}.kernel"] = source.heads(block + names[name], heads)
        arrays[f"{at}attention.out.kernel"] = source.from_heads(block + names["out"], config.heads)
        for name in ("gate", "up", "down"):
            arrays[f"{at}mlp.{name}.kernel"] = source.linear(block + names[name])
    return arrays


def _halves(kernel: Float[np.ndarray, "in heads width"]) -> Float[np.ndarray, "in heads width"]:
    """Channels for rotations of channels i and i + H/2, from the order for those of 2i and 2i + 1, which GGUF has."""
    return kernel.reshape(*kernel.shape[:2], -1, 2).swapaxes(-1, -2).reshape(kernel.shape)

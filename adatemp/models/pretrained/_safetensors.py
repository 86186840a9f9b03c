"""Directories as the Hugging Face hub has them, by the package `safetensors`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adatemp._compat import require

if TYPE_CHECKING:
    from jaxtyping import Float

WEIGHTS = "model.safetensors"


def read_config(directory: Path) -> dict:
    """What `config.json` says."""
    path = directory / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"path: there is no {path}; a model's directory has config.json and {WEIGHTS}")
    return json.loads(path.read_text("utf-8"))


def read(directory: Path) -> dict[str, Float[np.ndarray, "..."]]:
    """All tensors as float32, by their names in the files; several files are put together."""
    safe_open = require("safetensors", extra="language-models").safe_open
    index = directory / f"{WEIGHTS}.index.json"
    names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values())) if index.is_file() else [WEIGHTS]
    tensors = {}
    for name in names:
        if not (directory / name).is_file():
            raise FileNotFoundError(f"path: there is no {directory / name}; were all files of the model downloaded?")
        try:
            # Through Flax, since NumPy has no bfloat16.
            with safe_open(directory / name, framework="flax") as file:
                for tensor in file.keys():
                    tensors[tensor] = np.asarray(file.get_tensor(tensor), np.float32)
        except Exception as error:  # the package's own error class derives from Exception alone
            raise ValueError(f"path: {directory / name} cannot be read, perhaps because it is cut: {error}") from error
    return tensors

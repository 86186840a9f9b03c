"""GGUF files, by the package `gguf`, which its makers keep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adatemp._compat import require

if TYPE_CHECKING:
    from jaxtyping import Float


class File(NamedTuple):
    """What a GGUF file holds.

    Attributes:
        metadata: everything but the tensors, by its name in the file.
        tensors: float32 arrays [out, in] or [channels], by their names in the file.
    """

    metadata: dict[str, Any]
    tensors: dict[str, Float[np.ndarray, "..."]]


def read(path: Path) -> File:
    """All of a file, its quantised tensors turned to float32."""
    if not path.is_file():
        raise FileNotFoundError(f"path: there is no file {path}")
    gguf = require("gguf", extra="language-models")
    try:
        reader = gguf.GGUFReader(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {
            tensor.name: np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)
            for tensor in reader.tensors
        }
    except (ValueError, IndexError, KeyError, OSError, NotImplementedError) as error:
        raise ValueError(f"path: {path} cannot be read as GGUF, perhaps because it is cut: {error}") from error
    return File(metadata, tensors)

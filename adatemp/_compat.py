"""Differences between the versions of JAX and Flax that the project supports, and nothing else."""

from __future__ import annotations

import importlib
import warnings
from importlib import metadata
from types import ModuleType

import jax

# `jax.enable_x64` replaced `jax.experimental.enable_x64`; between the two ends of the supported range one or the
# other is missing.
if hasattr(jax, "enable_x64"):
    enable_x64 = jax.enable_x64
else:
    from jax.experimental import enable_x64  # noqa: F401

# The first Flax that imports with each JAX, newest JAX first: (jax at least, flax at least).
_FLAX_FOR_JAX = (((0, 9), (0, 12)), ((0, 7, 2), (0, 11, 2)))


def _version(package: str) -> tuple[int, ...]:
    numbers = []
    for part in metadata.version(package).split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def require(package: str, *, extra: str) -> ModuleType:
    """Imports an optional dependency, or says what to install.

    Args:
        package: The module to import: `flax`, `optax`, `matplotlib` or `ipywidgets`.
        extra: The extra of this project that brings it, as in `pip install 'adatemp[models]'`.

    Raises:
        ModuleNotFoundError: The package is not installed.
        ImportError: Flax is installed but too old for the installed JAX.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        message = f"this part of adatemp needs {package}: pip install 'adatemp[{extra}]'"
        raise ModuleNotFoundError(message, name=package) from error
    except Exception as error:
        mismatch = flax_mismatch() if package == "flax" else None
        if mismatch is None:
            raise
        raise ImportError(mismatch, name=package) from error


def flax_mismatch() -> str | None:
    """The reason why the installed Flax cannot import with the installed JAX, or None when it can."""
    try:
        flax_version, jax_version = _version("flax"), _version("jax")
    except metadata.PackageNotFoundError:
        return None
    needed = next((flax for jax_, flax in _FLAX_FOR_JAX if jax_version >= jax_), None)
    if needed is None or flax_version >= needed:
        return None
    dotted = ".".join(map(str, needed))
    return (
        f"flax {metadata.version('flax')} does not import with jax {metadata.version('jax')}: it needs "
        f"flax>={dotted}. Run: pip install 'flax>={dotted}'"
    )


def quiet_triton() -> None:
    """Silences the one warning that Pallas on Triton is deprecated, given from JAX 0.11 on, and no other.

    It is given when a program is lowered, which under jit is after our call has returned, so there is nothing to wrap:
    the filter stays. No replacement runs on every GPU since Ampere; the version range says what is tested.
    """
    warnings.filterwarnings("ignore", "The Pallas Triton backend is deprecated", DeprecationWarning)

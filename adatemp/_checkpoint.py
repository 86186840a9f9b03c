"""Checkpoints: a pytree of arrays in one npz file with a readable header, written aside and renamed."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jaxtyping import PyTree

FORMAT = "adatemp checkpoint 1"


def save(path: str | os.PathLike, tree: PyTree, *, about: dict[str, Any] | None = None) -> None:
    """Write a pytree of arrays to an npz file; the file is complete or absent, never half written.

    The entry `header` is JSON: the format's name, what `about` says, and for every leaf its path in the tree, its
    dtype and its shape. Dtypes that numpy lacks (bfloat16, float8) are stored as unsigned integers of their width, and
    random keys as their key data, so the file opens with `allow_pickle=False`. Equal trees give equal bytes.

    Args:
        path: where to write; folders are created.
        tree: arrays, numbers and random keys in any pytree.
        about: anything JSON can hold; comes back from `read_about`.
    """
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    stored, entries = {}, []
    for index, (where, leaf) in enumerate(leaves):
        entry = _describe(where, leaf)
        array = np.asarray(jax.random.key_data(leaf) if entry["key"] else leaf)
        if array.dtype.kind == "O":
            raise TypeError(
                f"tree{entry['path']}: {type(leaf).__name__} is not an array; a checkpoint holds arrays alone."
            )
        stored[f"leaf{index:04d}"] = array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array
        entries.append(entry)
    header = json.dumps({"format": FORMAT, "about": about or {}, "leaves": entries}, sort_keys=True)
    stored["header"] = np.frombuffer(header.encode(), dtype=np.uint8)

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, because a rename is only atomic within one file system.
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name + ".", delete=False) as aside:
        try:
            np.savez(aside, **stored)
            aside.flush()
            os.fsync(aside.fileno())
        except BaseException:
            os.unlink(aside.name)
            raise
    os.chmod(aside.name, 0o644)  # a temporary file is private; a checkpoint is an ordinary file
    os.replace(aside.name, path)


def load(path: str | os.PathLike, like: PyTree) -> PyTree:
    """Read a pytree written by `save`, in the structure of `like`.

    Args:
        path: the file.
        like: a tree with the same paths, dtypes and shapes; its values are not used.

    Returns:
        A tree shaped as `like` with the stored values.

    Raises:
        ValueError: when the file holds another tree, naming the first difference, or is not a checkpoint.
    """
    expected, structure = jax.tree_util.tree_flatten_with_path(like)
    header, stored = _open(path)
    _compare(path, header["leaves"], [_describe(where, leaf) for where, leaf in expected])
    values = []
    for index, (entry, (_, leaf)) in enumerate(zip(header["leaves"], expected)):
        array = stored[f"leaf{index:04d}"]
        if entry["key"]:
            values.append(jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf)))
        else:
            dtype = jnp.dtype(entry["dtype"])
            array = array.view(dtype) if dtype.kind == "V" else array
            values.append(jnp.asarray(array) if isinstance(leaf, jax.Array) else array)
    return jax.tree_util.tree_unflatten(structure, values)


def read_about(path: str | os.PathLike) -> dict[str, Any]:
    """What `save` was told about the tree."""
    return _open(path)[0]["about"]


def _describe(where: tuple, leaf: Any) -> dict[str, Any]:
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    dtype = str(leaf.dtype if is_key else np.asarray(leaf).dtype)
    return {"path": jax.tree_util.keystr(where), "dtype": dtype, "shape": list(np.shape(leaf)), "key": is_key}


def _open(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            stored = {name: file[name] for name in file.files}
        header = json.loads(bytes(stored.pop("header")))
        known = header["format"] == FORMAT
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"path={str(path)!r} is not a checkpoint written by adatemp ({error}).") from error
    if not known:
        raise ValueError(f"path={str(path)!r} has format {header['format']!r}; this version reads {FORMAT!r}.")
    return header, stored


def _compare(path: str | os.PathLike, found: list[dict], wanted: list[dict]) -> None:
    found_by_path, wanted_by_path = ({entry["path"]: entry for entry in entries} for entries in (found, wanted))
    missing = [name for name in wanted_by_path if name not in found_by_path]
    surplus = [name for name in found_by_path if name not in wanted_by_path]
    if missing or surplus:
        raise ValueError(
            f"path={str(path)!r} holds another tree than `like`: it lacks {missing[:3] or 'nothing'} and has "
            f"{surplus[:3] or 'nothing'} besides; a checkpoint is read into the structure that was saved."
        )
    for name, entry in wanted_by_path.items():
        if found_by_path[name] != entry:
            there, here = (f"{e['dtype']}{e['shape']}" for e in (found_by_path[name], entry))
            raise ValueError(
                f"path={str(path)!r} holds another tree than `like`: {name} is {there} in the file and {here} here; "
                "a checkpoint is read into the shapes and dtypes that were saved."
            )

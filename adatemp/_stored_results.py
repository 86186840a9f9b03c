"""Reads the stored results of the book: from a clone, from a named folder, or from the project's address."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tempfile
import urllib.error
import urllib.request
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDER = Path("book", "results")
TIMEOUT = 20  # seconds


@dataclasses.dataclass(frozen=True)
class StoredResult:
    """A stored result and where it comes from.

    Attributes:
        name: the result's name; the file is book/results/<name>.json.
        data: what was measured; each result's layout is described in tools/make_results.py.
        provenance: command, commit, code_hash, device, date, versions.
    """

    name: str
    data: dict[str, Any]
    provenance: dict[str, Any]


def results(name: str) -> StoredResult:
    """Load a stored result of the book.

    Looked for in this order: the folder or address in the environment variable ADATEMP_RESULTS, which is then the only
    place; book/results of the clone that holds this library; book/results of the clone that holds the working folder;
    the project's address, at the tag of the installed version or, for a version under development, at its main branch.

    Args:
        name: "table1", for example.

    Returns:
        The result, with `data` and `provenance`.

    Raises:
        FileNotFoundError: when no place has it, saying where it was looked for and what to do.
        ValueError: for a name that cannot be a result's.
    """
    content = json.loads(results_file(f"{name}.json").read_text("utf-8"))
    return StoredResult(name, content["data"], content["provenance"])


def results_file(file: str) -> Path:
    """Path of a file of book/results, fetched first when there is no clone; places and errors as in `results`."""
    if not re.fullmatch(r"[a-z0-9_]+\.(json|npz)", file):
        raise ValueError(f"{file!r} names no stored result; names are small letters, digits and underscores.")
    place = os.environ.get("ADATEMP_RESULTS")
    if place is not None:
        if place.startswith("https://"):
            return _fetch(f"{place.rstrip('/')}/{file}")
        path = Path(place) / file
        if not path.is_file():
            raise FileNotFoundError(f"ADATEMP_RESULTS={place!r} holds no {file}. {_what_there_is(Path(place))}")
        return path
    folders = [root / FOLDER for start in (Path(__file__), Path.cwd() / "here") for root in start.resolve().parents]
    clones = [
        folder for folder in dict.fromkeys(folders) if folder.is_dir() and (folder.parents[1] / "adatemp").is_dir()
    ]
    for folder in clones:
        if (folder / file).is_file():
            return folder / file
    if clones:
        raise FileNotFoundError(
            f"{clones[0]} holds no {file}. {_what_there_is(clones[0])} `make results` computes those it knows."
        )
    return _fetch(f"{_address_of_results()}/{file}")


def repository() -> str:
    """Address of the project's repository, from the metadata of the installed package."""
    for entry in metadata.metadata("adatemp").get_all("Project-URL") or []:
        label, _, address = entry.partition(",")
        if label.strip().lower() == "repository":
            return address.strip().rstrip("/")
    raise RuntimeError("The installed adatemp names no repository in its metadata; install it again.")


def _address_of_results() -> str:
    version = metadata.version("adatemp")
    revision = "main" if re.search(r"[a-z]", version) else f"v{version}"  # 0.2.0.dev1 and 0.2.0rc1 have no tag
    return f"{repository().replace('https://github.com/', 'https://raw.githubusercontent.com/')}/{revision}/{FOLDER.as_posix()}"


@cache
def _fetch(address: str) -> Path:
    """The file at an address, kept for the length of the process."""
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
            content = answer.read()
    except (urllib.error.URLError, TimeoutError) as error:
        raise FileNotFoundError(
            f"No clone of the project here, and {address} cannot be read ({error}). Clone {repository()} and run from "
            "inside it, or set the environment variable ADATEMP_RESULTS to a folder that holds the file."
        ) from error
    folder = Path(tempfile.mkdtemp(prefix="adatemp-results-"))
    path = folder / address.rsplit("/", 1)[1]
    path.write_bytes(content)
    return path


def _what_there_is(folder: Path) -> str:
    found = sorted(path.name for path in folder.glob("*") if path.suffix in (".json", ".npz"))
    return f"There is {', '.join(found)}." if found else "There is nothing."

"""Compute the stored results of the book: `python -m tools.make_results [names] [--first N] [--list]`.

Each result is computed cell by cell and every finished cell is kept in _build/results, so an interrupted run goes on
where it stopped. A result whose code has not changed is skipped. Files written: book/results/<name>.json, with

    provenance   command; commit checked out, with "-dirty" when a file the result depends on differs from it;
                 code_hash; device; date; versions; cells that were computed; seconds of computing, all cells together
    data         what was measured: the docstring of tools/stored_results/<name>.py describes it
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from adatemp import runtime
from tools.code_hash import ROOT, code_hash, depends_on

# In the order of what needs what.
NAMES = (
    "recipes",
    "table1",
    "head",
    "added_items",
    "dispersion_bounds",
    "failures",
    "spectral_bounds",
    "training_arms",
    "transformer_spread",
    "temperature_entropy",
    "dispersion_only",
    "trained_to",
    "map_fit",
    "long_rows_rules",
    "variants_bench",
    "depth_by_layer",
    "streaming",
    "compiled",
    "language_model",
)
STORED = ROOT / "book" / "results"
CELLS = ROOT / "_build" / "results"
DIGITS = 5


class Result(NamedTuple):
    """One result as it would be computed now."""

    name: str
    script: Any  # the module of tools/stored_results
    code_hash: str
    cells: tuple[str, ...]  # those asked for

    def cell_file(self, cell: str) -> Path:
        """Where a finished cell is kept."""
        return CELLS / f"{self.name}-{self.code_hash}" / f"{cell.replace(' ', '_').replace(',', '')}.json"

    @property
    def missing(self) -> list[str]:
        """Cells that are neither in the stored result of this code nor kept from an interrupted run."""
        if self.is_stored:
            return []
        return [cell for cell in self.cells if not self.cell_file(cell).exists()]

    @property
    def is_stored(self) -> bool:
        """Whether the stored result was made by this code and has all cells asked for."""
        path = STORED / f"{self.name}.json"
        if not path.exists():
            return False
        provenance = json.loads(path.read_text("utf-8"))["provenance"]
        return provenance["code_hash"] == self.code_hash and set(self.cells) <= set(provenance["cells"])


def main(arguments: list[str]) -> None:
    """Parse the command line, say how long it will take, and compute what is missing."""
    parser = argparse.ArgumentParser(prog="python -m tools.make_results", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"which results; without any: {', '.join(NAMES)}")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N cells of each, for a look")
    parser.add_argument("--list", action="store_true", help="say what there is to do and stop")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"no result is called {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    if options.first is not None and options.first < 1:
        parser.error(f"--first {options.first}: give at least 1 cell")

    names = [name for name in NAMES if not options.names or name in options.names]
    seconds = sum(announce(find(name, options.first)) for name in names)
    print(f"About {max(1, round(seconds / 60))} min in all on two idle cores." if seconds else "Nothing to compute.")
    if not options.list:
        command = " ".join(["python -m tools.make_results", *arguments])
        for name in names:
            make(find(name, options.first), command)  # looked up anew: an earlier result may be what it reads


def find(name: str, first: int | None = None) -> Result:
    """The result of that name, as the code is now."""
    script = importlib.import_module(f"tools.stored_results.{name}")
    return Result(name, script, code_hash(Path(script.__file__), *script.DATA), script.CELLS[:first])


def announce(result: Result) -> float:
    """Print what is to be done for a result; the seconds it should take."""
    seconds = result.script.SECONDS * len(result.missing)
    state = (
        "stored, same code" if result.is_stored else f"{len(result.missing)} of {len(result.cells)} cells to compute"
    )
    print(f"{result.name:12} {state}" + (f", about {seconds / 60:.1f} min" if seconds else ""))
    return seconds


def make(result: Result, command: str) -> None:
    """Compute the missing cells of a result, keeping each, and write the result."""
    if result.is_stored:
        return
    commit = commit_of_code(result)
    for cell in result.missing:
        start = time.perf_counter()
        part = result.script.run(cell)
        seconds = time.perf_counter() - start
        write(result.cell_file(cell), {"seconds": round(seconds, 1), "part": part})
        print(f"{result.name}: {cell} in {seconds:.0f} s", flush=True)
    kept = [json.loads(result.cell_file(cell).read_text("utf-8")) for cell in result.cells]
    provenance = {
        "command": command,
        "commit": commit,
        "code_hash": result.code_hash,
        "device": runtime.device(),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": runtime.versions(),
        "cells": list(result.cells),
        "seconds": round(sum(entry["seconds"] for entry in kept), 1),
    }
    write(
        STORED / f"{result.name}.json",
        {"provenance": provenance, "data": result.script.assemble([e["part"] for e in kept])},
    )
    print(f"{result.name}: wrote book/results/{result.name}.json", flush=True)


def commit_of_code(result: Result) -> str:
    """The commit checked out, marked when a file that the result depends on differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", *map(str, depends_on(Path(result.script.__file__))))
        return git("rev-parse", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON that is complete or absent, short enough to read and to compare."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text(layout(rounded(content)) + "\n", "utf-8")
    os.replace(aside, path)


def rounded(value: Any) -> Any:
    """Floats to five significant digits, more than any of them is known to."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(entry) for entry in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def layout(value: Any, indent: str = "") -> str:
    """JSON with whatever fits one line on one line."""
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(indent) + len(flat) <= 160 or not isinstance(value, dict | list):
        return flat
    deeper = indent + " "
    if isinstance(value, dict):
        entries = [f"{json.dumps(key, ensure_ascii=False)}: {layout(entry, deeper)}" for key, entry in value.items()]
    else:
        entries = [layout(entry, deeper) for entry in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{deeper}" + f",\n{deeper}".join(entries) + f"\n{indent}{closing}"


if __name__ == "__main__":
    main(sys.argv[1:])

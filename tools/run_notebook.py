"""Runs one notebook from top to bottom and says which cell failed: python -m tools.run_notebook chapters/01_x.ipynb."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

TIMEOUT = 600  # seconds a cell


def run_notebook(path: Path) -> nbformat.NotebookNode:
    """Executes a notebook in its own folder and returns it with its outputs; the file stays as it is.

    Raises:
      CellExecutionError: a cell raised; the message holds the cell and the traceback.
    """
    notebook = nbformat.read(path, as_version=4)
    cells = sum(cell.cell_type == "code" for cell in notebook.cells)
    done, start = 0, time.monotonic()

    def progress(cell: nbformat.NotebookNode, cell_index: int, **_) -> None:
        nonlocal done
        done += 1
        first_line = cell.source.strip().split("\n")[0]
        print(f"  [{done}/{cells}] {time.monotonic() - start:4.0f} s  {first_line[:80]}", flush=True)

    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_executed=progress,
    )
    return client.execute()


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        run_notebook(Path(sys.argv[1]).resolve())
    except CellExecutionError as error:
        print(re.sub(r"\x1b\[[0-9;]*m", "", str(error)), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

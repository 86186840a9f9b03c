"""A small book in a temporary folder, whose pages a test can rewrite before it exports them."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest

SAMPLE = Path(__file__).parent / "data" / "sample"
HEADER = "---\nkernelspec:\n  display_name: Python 3\n  language: python\n  name: python3\n---\n\n# A chapter\n\n"


class SampleBook:
    """The sample in tests/notebooks/data, copied, with one chapter that a test writes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, body: str, *, header: str = HEADER) -> None:
        """Replaces the first chapter; its body begins in line 10."""
        (self.root / "chapters" / "01_sample.md").write_text(header + body, encoding="utf-8")

    def notebook(self) -> nbformat.NotebookNode:
        export_notebooks = pytest.importorskip("tools.export_notebooks", reason="exporting needs the book's packages")
        text = export_notebooks.export_all(self.root)[self.root / "chapters" / "01_sample.ipynb"]
        return nbformat.reads(text, as_version=4)

    def cells(self, body: str) -> list[nbformat.NotebookNode]:
        """The cells after title and setup cell of a chapter with this body."""
        self.write(body)
        return self.notebook().cells[2:]

    def markdown(self, body: str) -> str:
        """The text of a chapter that has no code."""
        return "\n\n".join(cell.source for cell in self.cells(body))


@pytest.fixture
def book(tmp_path) -> SampleBook:
    pytest.importorskip("myst_parser", reason="exporting needs the book's packages")
    shutil.copytree(SAMPLE, tmp_path / "book")
    return SampleBook(tmp_path / "book")

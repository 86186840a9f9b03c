"""The built site, and a miniature book that builds in seconds with the same configuration and extensions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools.check_pages import ROOT, built_site

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path[:0] = [str(ROOT / "book" / "_ext"), str(ROOT / "book")]  # the extensions and scoreboard.py, by their own names

TOC = """format: jb-book
root: book/index
parts:
  - caption: Part
    numbered: true
    chapters:
      - file: chapters/01_first
"""

INDEX = """# A miniature

See {doc}`../chapters/01_first`, and {cite:t}`someone2000`.

```{bibliography}
```
"""

CHAPTER = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# First

With $x^2$.

```{code-cell} ipython3
import adatemp

print("the library says", adatemp.WORD)
```
"""

LIBRARY = '"""A library of one word."""\n\nWORD = "first"\n'
REFERENCES = "@misc{someone2000, title = {Something}, author = {Someone, A.}, year = {2000}}\n"


class Miniature:
    """A book of two pages in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("book/_ext", "book/_static", "book/_templates"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("_config.yml", "pyproject.toml", "LICENSE"):
            shutil.copyfile(ROOT / name, root / name)
        for name, text in {
            "_toc.yml": TOC,
            "book/index.md": INDEX,
            "book/references.bib": REFERENCES,
            "chapters/01_first.md": CHAPTER,
            "adatemp/__init__.py": LIBRARY,
        }.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def build(self) -> subprocess.CompletedProcess[str]:
        """Builds strictly, as tools/build_book.py does. The kernel imports this book's own library."""
        command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", "."]
        environment = {**os.environ, "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [*command, "-W", "-n", "--keep-going"],
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )

    def page(self, name: str) -> str:
        return (self.root / "_build" / "html" / name).read_text("utf-8")

    def git(self, *arguments: str) -> None:
        identity = [
            "-c",
            "user.name=A Reader",
            "-c",
            "user.email=reader@example.org",
            "-c",
            "protocol.file.allow=always",
        ]
        subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True)


@pytest.fixture
def miniature(tmp_path: Path) -> Callable[[str], Miniature]:
    """Makes a miniature book in a folder of the given name."""
    return lambda name="miniature": Miniature(tmp_path / name)


@pytest.fixture(scope="session")
def site_dir() -> Path:
    """The built site."""
    return built_site()

"""The notebooks in chapters/ are exactly what their sources say."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

jupytext = pytest.importorskip("jupytext", reason="reading a chapter's source needs the book's packages")
export_notebooks = pytest.importorskip("tools.export_notebooks")

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "chapters").glob("[0-9][0-9]_*.md"))
SETUP_TITLE = "# @title Setup: run this cell first\n"


@pytest.fixture(params=SOURCES, ids=lambda path: path.stem)
def source(request) -> Path:
    return request.param


def notebook_of(source: Path) -> nbformat.NotebookNode:
    return nbformat.read(source.with_suffix(".ipynb"), as_version=4)


def test_there_are_chapters():
    assert SOURCES


def test_every_notebook_equals_a_fresh_export():
    fresh = export_notebooks.export_all()
    assert set(fresh) == set((ROOT / "chapters").glob("*.ipynb"))
    stale = [path.name for path, text in fresh.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, f"run `make chapters` and commit {stale}"


def test_notebook_holds_exactly_the_sources_code_after_the_setup_cell(source):
    # jupytext reads the source by itself, so that a fault of our own parser cannot hide.
    expected = [cell.source for cell in jupytext.read(source).cells if cell.cell_type == "code"]
    code = [cell.source for cell in notebook_of(source).cells if cell.cell_type == "code"]
    assert code[0].startswith(SETUP_TITLE)
    assert [re.sub(r"\A# @title Solution to Exercise [\d.]+\n", "", cell) for cell in code[1:]] == expected


def test_no_directive_survives(source):
    for cell in notebook_of(source).cells:
        if cell.cell_type == "markdown":
            assert not export_notebooks.debris(cell.source), cell.source


def test_links_inside_a_notebook_have_a_place_to_go(source):
    text = "\n".join(cell.source for cell in notebook_of(source).cells if cell.cell_type == "markdown")
    places = set(re.findall(r'<a id="([^"]+)"', text))
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= places


def test_relative_links_are_gone(source):
    text = "\n".join(cell.source for cell in notebook_of(source).cells if cell.cell_type == "markdown")
    targets = re.findall(r"\]\(([^)\s]+)\)", export_notebooks.without_code(text))
    assert [target for target in targets if not re.match(r"https?://|#|mailto:", target)] == []


def test_folds_open_and_close(source):
    for cell in notebook_of(source).cells:
        assert cell.source.count("<details") == cell.source.count("</details>"), cell.source[:200]


def test_the_parser_knows_the_books_extensions():
    import yaml

    from tools.notebook_source import EXTENSIONS

    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert set(config["parse"]["myst_enable_extensions"]) == EXTENSIONS

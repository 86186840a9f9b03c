"""Every property test that a page names exists, so that a claim on a page cannot outlive its test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "chapters").glob("*.md"), *(ROOT / "book").glob("*.md")])
LINE = re.compile(r"^Property tests?: (.+)$", re.MULTILINE)
NAME = re.compile(r"`([\w/]+\.py)::(\w+)`")


def named_tests(text: str) -> list[tuple[str, str]]:
    """File and function of every test named in lines that begin with "Property test:" or "Property tests:"."""
    found = []
    for line in LINE.findall(text):
        names = [name.strip() for name in line.rstrip(".").split(", ")]
        for name in names:
            match = NAME.fullmatch(name)
            if match is None:
                raise ValueError(f"{name!r} is not `tests/test_x.py::test_name`; separate several by commas")
            found.append((match[1], match[2]))
    return found


def missing(named: list[tuple[str, str]], root: Path = ROOT) -> list[str]:
    """Those of the named tests that do not exist."""
    absent = []
    for file, function in named:
        path = root / file
        tree = ast.parse(path.read_text("utf-8")) if path.is_file() else ast.Module([], [])
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if not function.startswith("test_") or function not in functions:
            absent.append(f"{file}::{function}")
    return absent


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_that_a_page_names_exists(page):
    assert missing(named_tests(page.read_text("utf-8"))) == []


def test_the_first_chapter_names_a_test_for_each_of_its_propositions():
    text = (ROOT / "chapters" / "01_softmax_and_attention.md").read_text("utf-8")
    parts = re.split(r"^`{3,}\{prf:proposition\} ", text, flags=re.MULTILINE)[1:]
    assert len(parts) >= 8
    assert [part.splitlines()[0] for part in parts if not LINE.search(part)] == []


def test_a_name_that_does_not_exist_is_found():
    here = "tests/book/test_named_tests.py"
    text = f"Property tests: `{here}::test_a_name_that_does_not_exist_is_found`, `{here}::test_nothing`\n"
    assert missing(named_tests(text)) == [f"{here}::test_nothing"]
    assert missing([("tests/nowhere.py", "test_x")]) == ["tests/nowhere.py::test_x"]


def test_a_badly_written_name_is_refused():
    with pytest.raises(ValueError, match="test_x"):
        named_tests("Property test: tests/test_x.py\n")

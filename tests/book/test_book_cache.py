"""Executed pages are kept under a name that changes with everything they depend on."""

from __future__ import annotations

import os
import shutil

import book_cache
import pytest


@pytest.fixture
def root(tmp_path):
    for name, text in {
        "adatemp/__init__.py": "WORD = 1\n",
        "adatemp/data/table.csv": "1,2\n",
        "book/results/table1.json": "{}",
        "book/scoreboard.py": "RULE = 1\n",
        "book/index.md": "# Book\n",
        "chapters/01_first.md": "# First\n",
        "requirements.lock": "numpy==2.0\n",
        "pyproject.toml": "[project]\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "adatemp/__init__.py",
        "adatemp/data/table.csv",
        "book/results/table1.json",
        "book/scoreboard.py",
        "requirements.lock",
        "pyproject.toml",
    ],
)
def test_fingerprint_changes_with_every_file_that_a_page_reads(root, name):
    before = book_cache.fingerprint(root)
    with (root / name).open("a") as file:
        file.write(" ")
    assert book_cache.fingerprint(root) != before


def test_fingerprint_changes_when_a_file_comes_goes_or_is_renamed(root):
    seen = {book_cache.fingerprint(root)}
    added = root / "adatemp" / "models" / "head.py"
    added.parent.mkdir()
    added.write_text("WORD = 1\n")
    seen.add(book_cache.fingerprint(root))
    added = added.rename(added.with_name("tail.py"))
    seen.add(book_cache.fingerprint(root))
    assert len(seen) == 3
    shutil.rmtree(added.parent)
    assert book_cache.fingerprint(root) in seen


def test_fingerprint_sees_text_moved_from_one_file_to_the_next(root):
    first, second = root / "adatemp" / "a.py", root / "adatemp" / "b.py"
    first.write_text("xy")
    second.write_text("z")
    before = book_cache.fingerprint(root)
    first.write_text("x")
    second.write_text("yz")
    assert book_cache.fingerprint(root) != before


def test_fingerprint_changes_with_scale_and_interpreter(root, monkeypatch):
    monkeypatch.delenv("ADATEMP_SCALE", raising=False)
    before = book_cache.fingerprint(root)
    assert book_cache.fingerprint(root, scale="fast") == before
    assert book_cache.fingerprint(root, scale="full") != before
    assert book_cache.fingerprint(root, python="3.99.0") != before
    monkeypatch.setenv("ADATEMP_SCALE", "full")
    assert book_cache.fingerprint(root) == book_cache.fingerprint(root, scale="full")


def test_fingerprint_is_deaf_to_pages_and_to_compiled_code(root):
    before = book_cache.fingerprint(root)
    (root / "chapters" / "01_first.md").write_text("# Another\n")
    (root / "book" / "index.md").write_text("# Another\n")
    compiled = root / "adatemp" / "__pycache__" / "x.cpython-311.pyc"
    compiled.parent.mkdir()
    compiled.write_bytes(b"0")
    assert book_cache.fingerprint(root) == before


@pytest.mark.book
def test_page_never_shows_an_older_library(miniature):
    book = miniature()
    assert book.build().returncode == 0
    assert "the library says first" in book.page("chapters/01_first.html")

    again = book.build()
    assert again.returncode == 0
    assert "Executing notebook" not in again.stdout  # nothing changed, so nothing runs

    book.write("adatemp/__init__.py", 'WORD = "second"\n')
    changed = book.build()
    assert changed.returncode == 0, changed.stdout
    assert "the library says second" in book.page("chapters/01_first.html")

    book.write("adatemp/__init__.py", '"""A library of one word."""\n\nWORD = "first"\n')
    back = book.build()  # the first version's pages are still kept
    assert "Executing notebook" not in back.stdout
    assert "the library says first" in book.page("chapters/01_first.html")

    caches = book.root / "_build" / ".jupyter_cache"
    for number in range(book_cache.KEPT + 2):
        old = caches / f"old-{number}"
        old.mkdir()
        os.utime(old, (number, number))
    assert book.build().returncode == 0
    assert len(list(caches.iterdir())) == book_cache.KEPT
    assert (caches / book_cache.fingerprint(book.root)).is_dir()

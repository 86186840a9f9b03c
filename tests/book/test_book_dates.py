"""A book builds strictly whatever git knows about it; dates appear where they can be known."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.book
DATE = re.compile(r"Last updated on \d\d? \w+ \d{4}")


def _date(page: str) -> bool:
    return bool(DATE.search(" ".join(page.split())))


def test_book_builds_without_git_history(miniature):
    book = miniature()
    built = book.build()
    assert built.returncode == 0, built.stdout
    assert not _date(book.page("chapters/01_first.html"))


def test_uncommitted_chapter_builds_beside_dated_pages(miniature):
    book = miniature()
    book.git("init", "-q")
    book.git("add", "book", "adatemp", "_config.yml", "_toc.yml", "pyproject.toml", "LICENSE")
    book.git("commit", "-q", "-m", "All but the chapter")
    built = book.build()
    assert built.returncode == 0, built.stdout
    assert _date(book.page("book/index.html"))
    assert not _date(book.page("chapters/01_first.html"))


def test_shallow_clone_builds(miniature):
    book = miniature("origin")
    book.git("init", "-q")
    book.git("add", ".")
    book.git("commit", "-q", "-m", "All")
    book.write("chapters/note.txt", "a second commit, so that the clone is shallow\n")
    book.git("add", ".")
    book.git("commit", "-q", "-m", "A note")
    clone = book.root.with_name("clone")
    book.git("clone", "-q", "--depth", "1", f"file://{book.root}", str(clone))
    book.root = clone
    built = book.build()
    assert built.returncode == 0, built.stdout
    assert "the library says first" in book.page("chapters/01_first.html")

"""Repairs of the theme's pages do what they say, and fail the build when the theme has changed."""

from __future__ import annotations

import pytest
from book_repairs import Repair, RepairNotFound, has_layout, holding, mend

BUTTON = Repair("two names", r'<button title="Search">', "<button>", has_layout)


def test_mend_replaces_on_pages_that_call_for_it_only():
    page = '<main id="main-content"><button title="Search"></button></main>'
    assert mend(page, [BUTTON], "a.html") == '<main id="main-content"><button></button></main>'
    redirect = '<p><button title="Search"></button></p>'
    assert mend(redirect, [BUTTON], "index.html") == redirect


def test_mend_is_loud_when_the_text_is_gone():
    page = '<main id="main-content"><button title="Find"></button></main>'
    with pytest.raises(RepairNotFound, match=r"a\.html: nothing matches the repair of 'two names'"):
        mend(page, [BUTTON], "a.html")


def test_conditions_look_at_the_page_as_it_was():
    first = Repair("a", "old", "new", holding("old"))
    second = Repair("b", "new", "newer", holding("new"))
    assert mend("old", [first, second], "page") == "new"  # the page had no "new", so the second does not apply


@pytest.mark.book
def test_build_fails_and_leaves_no_page_when_a_repair_finds_nothing(miniature):
    book = miniature()
    lean = book.root / "book" / "_ext" / "book_lean.py"
    right = lean.read_text()
    lean.write_text(right.replace(r"scripts/fontawesome\.js", r"scripts/renamed\.js"))
    assert lean.read_text() != right
    failed = book.build()
    assert failed.returncode != 0
    assert "1.5 MB of script that draws icons" in failed.stdout
    assert not (book.root / "_build" / "html" / "chapters" / "01_first.html").exists()

    lean.write_text(right)
    mended = book.build()
    assert mended.returncode == 0, mended.stdout
    assert "fontawesome.js" not in book.page("chapters/01_first.html")

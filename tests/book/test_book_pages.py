"""What a page offers for download is the notebook made for readers, as the repository holds it now."""

from __future__ import annotations

import pytest
from book_pages import serve_our_notebooks


def test_ours_is_served_and_what_the_build_ran_is_not(tmp_path):
    source, site = tmp_path / "source", tmp_path / "site"
    for path, text in {
        source / "chapters/01_x.ipynb": "ours",
        site / "_sources/chapters/01_x.ipynb": "ours of last week",
        site / "_sources/book/page.ipynb": "what the build ran",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    serve_our_notebooks(source, site, ["chapters/01_x", "book/page", "book/without"])
    assert (site / "_sources/chapters/01_x.ipynb").read_text() == "ours"
    assert not (site / "_sources/book/page.ipynb").exists()


@pytest.mark.book
def test_a_notebook_that_changed_without_its_page_is_served_anew(miniature):
    book = miniature()
    book.write("chapters/01_first.ipynb", '{"made": "by one exporter"}')
    assert book.build().returncode == 0
    served = book.root / "_build/html/_sources/chapters/01_first.ipynb"
    assert "one exporter" in served.read_text("utf-8")
    book.write("chapters/01_first.ipynb", '{"made": "by another"}')
    again = book.build()
    assert again.returncode == 0
    assert "[100%] chapters/01_first" not in again.stdout  # the page itself is not written
    assert "by another" in served.read_text("utf-8")

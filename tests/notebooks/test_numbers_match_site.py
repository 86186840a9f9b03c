"""Numbers and anchors that notebooks show are those of the built site."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

read_book = pytest.importorskip("tools.notebook_numbers").read_book

pytestmark = pytest.mark.book

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "_build" / "html"


@pytest.fixture(scope="module")
def book():
    assert SITE.exists(), "build the site first: make book"
    return read_book(ROOT)


def page(docname: str) -> str:
    return (SITE / f"{docname}.html").read_text(encoding="utf-8")


def test_every_label_is_an_anchor_of_its_page(book):
    missing = [label for label, target in book.targets.items() if f'id="{target.anchor}"' not in page(target.docname)]
    assert book.targets and not missing


def test_theorems_and_exercises_have_the_sites_numbers(book):
    checked = 0
    for label, target in book.targets.items():
        if target.kind in {"section", "equation", "figure", "table"} or not target.number:
            continue
        shown = page(target.docname).partition(f'id="{target.anchor}"')[2]
        title = re.search(r'<span class="caption-number">(.*?)</span>', shown, flags=re.DOTALL)
        assert title and html.unescape(title[1]).strip() == target.name, label
        checked += 1
    assert checked > 10


def test_equations_have_the_sites_numbers(book):
    for label, target in book.targets.items():
        if target.kind == "equation":
            shown = page(target.docname).partition(f'id="{target.anchor}"')[2]
            assert re.search(r'<span class="eqno">\((.*?)\)', shown)[1] == target.number, label


def test_figures_have_the_sites_numbers(book):
    for label, target in book.targets.items():
        if target.kind == "figure":
            shown = page(target.docname).partition(f'id="{target.anchor}"')[2]
            assert re.search(r'<span class="caption-number">(.*?)</span>', shown)[1].strip() == target.name, label


def test_terms_are_anchors_of_the_glossary(book):
    glossary = page(book.glossary)
    assert book.terms and [term for term, anchor in book.terms.items() if f'id="{anchor}"' not in glossary] == []


def test_titles_are_those_of_the_pages(book):
    for docname, title in book.titles.items():
        heading = re.search(r'<h1>((?:(?!</h1>).)*)<a class="headerlink"', page(docname), flags=re.DOTALL)
        plain = html.unescape(re.sub(r"<[^>]+>", "", heading[1]))
        number = f"{book.chapters[docname]}. " if docname in book.chapters else ""
        if "$" not in title and "`" not in title:
            assert plain.strip() == number + title.replace("*", ""), docname

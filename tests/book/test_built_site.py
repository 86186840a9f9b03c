"""The site as it was built: nothing wrong in it, nothing in it that no page needs, and notebooks made for readers."""

from __future__ import annotations

import re

import pytest
from book_address import read_address
from book_mathjax import files_of_a_page, source_folder

from tools.check_pages import ROOT, check, pages_of_the_book
from tools.named_results import read_page

pytestmark = pytest.mark.book
CHAPTERS = [name for name in pages_of_the_book() if name.startswith("chapters/")]


def test_check_finds_no_fault(site_dir):
    assert check(site_dir) == []


def test_mathjax_is_served_whole_and_with_its_licence(site_dir):
    served = site_dir / "_static" / "mathjax"
    for name in files_of_a_page():
        assert (served / name).read_bytes() == (source_folder() / name).read_bytes()
    assert len(list((served / "output/chtml/fonts/woff-v2").glob("*.woff"))) == 23
    licence = (served / "LICENSE.txt").read_text("utf-8")
    assert "MathJax 3.2.2" in licence
    assert "Apache License" in licence
    assert "TERMS AND CONDITIONS" in licence


def test_nothing_is_served_that_no_page_loads(site_dir):
    names = {path.name for path in (site_dir / "_static").rglob("*")}
    assert not [name for name in names if name.endswith((".map", ".ttf")) or "fontawesome.js" in name]
    assert not [name for name in names if "thebe" in name or "embed" in name]


def test_no_page_holds_widget_state_or_a_widget_script(site_dir):
    for name in pages_of_the_book():
        page = (site_dir / f"{name}.html").read_text("utf-8")
        assert "application/vnd.jupyter.widget" not in page, name


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapter_offers_its_exported_notebook(site_dir, name):
    repository = read_address(ROOT).repository.removeprefix("https://github.com/")
    page = (site_dir / f"{name}.html").read_text("utf-8")
    assert f"https://colab.research.google.com/github/{repository}/blob/main/{name}.ipynb" in page
    assert f"/edit/main/{name}.md" in page
    # What is downloaded is what the repository holds for readers, not what the build ran.
    assert (site_dir / "_sources" / f"{name}.ipynb").read_bytes() == (ROOT / f"{name}.ipynb").read_bytes()


def test_page_without_a_notebook_offers_none(site_dir):
    for name in set(pages_of_the_book()) - set(CHAPTERS):
        page = (site_dir / f"{name}.html").read_text("utf-8")
        assert not (site_dir / "_sources" / f"{name}.ipynb").exists()
        assert not re.search(r"colab\.research\.google\.com/github/[^\"]*", page), name


def test_every_executed_page_is_in_the_table_of_times(site_dir):
    status = (site_dir / "book/status.html").read_text("utf-8")
    for name in CHAPTERS:
        assert f'href="../{name}.html"' in status


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_numbered_result_shows_that_its_tests_passed(site_dir, name):
    page = (site_dir / f"{name}.html").read_text("utf-8")
    stated = read_page((ROOT / f"{name}.md").read_text("utf-8"), name)
    for result in stated.results:
        # From this result to the next one stands a line with each of its tests, and the mark at the line's end.
        start = page.index(f'id="{result.label}"')
        others = (page.find(f'id="{other.label}"', start) for other in stated.results if other is not result)
        beneath = page[start : min((place for place in others if place > start), default=len(page))]
        lines = re.findall(r'<p class="named-tests">(.*?)</p>', beneath, re.DOTALL)
        passed = "".join(line for line in lines if '<span class="test-passed">' in line)
        assert [test for test in result.tests if test.rpartition("::")[2] not in passed] == [], result
    assert page.count("named-tests-foot") == bool(stated.tests)

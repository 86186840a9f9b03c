"""README.md and CITATION.cff say what pyproject.toml says."""

from __future__ import annotations

import pytest

stamp_address = pytest.importorskip("tools.stamp_address", reason="reading the chapters needs the book's packages")


README = """# adatemp

<!-- chapters:begin -->
old
<!-- chapters:end -->

pip install "adatemp @ git+https://github.com/old/name"
"""
CITATION = 'cff-version: 1.2.0\nversion: 0.0.1\nrepository-code: ""\nurl: "https://old"\nreferences:\n  - version: 9\n'


@pytest.fixture
def sample(book):
    return stamp_address.read_project(book.root), stamp_address.read_book(book.root)


def test_readme_gets_address_and_table(sample):
    shown = stamp_address.stamped_readme(README, *sample)
    assert "old" not in shown
    assert 'git+https://github.com/someone/adatemp"' in shown
    assert "| 2 | [Another chapter](https://someone.github.io/adatemp/chapters/02_other.html) |" in shown
    assert "colab.research.google.com/github/someone/adatemp/blob/main/chapters/02_other.ipynb" in shown
    assert stamp_address.stamped_readme(shown, *sample) == shown


def test_readme_without_markers_is_an_error(sample):
    with pytest.raises(ValueError, match="chapters:begin"):
        stamp_address.stamped_readme("# adatemp\n", *sample)


def test_citation_gets_version_and_addresses(sample):
    shown = stamp_address.stamped_citation(CITATION, sample[0])
    assert shown == (
        'cff-version: 1.2.0\nversion: 0.3.0\nrepository-code: "https://github.com/someone/adatemp"\n'
        'url: "https://someone.github.io/adatemp/"\nreferences:\n  - version: 9\n'
    )


def test_citation_without_a_line_is_an_error(sample):
    with pytest.raises(ValueError, match="`url:`"):
        stamp_address.stamped_citation(CITATION.replace("url:", "site:"), sample[0])


def test_committed_files_are_fresh():
    stale = [path.name for path, text in stamp_address.stamp_all().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, f"run `make chapters` and commit {stale}"


def test_repository_must_be_where_colab_reads(book):
    project = book.root / "pyproject.toml"
    project.write_text(project.read_text().replace("https://github.com/", "https://example.org/"))
    with pytest.raises(ValueError, match=r"must begin with https://github\.com/"):
        stamp_address.read_project(book.root)

"""`make book` refuses the wrong Jupyter Book, shows progress, and takes its addresses from one place."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from book_address import read_address

from tools import build_book
from tools.check_pages import ROOT, pages_of_the_book


@pytest.mark.parametrize("installed", [None, "2.1.7", "10.0.0", "0.15.1"])
def test_any_other_jupyter_book_is_refused(installed):
    with pytest.raises(build_book.WrongEnvironment, match=r"Jupyter Book 1"):
        build_book.require_jupyter_book_1(installed)


def test_jupyter_book_1_is_accepted():
    build_book.require_jupyter_book_1("1.0.4.post1")
    build_book.require_jupyter_book_1(build_book.installed_jupyter_book())


def test_command_fails_under_jupyter_book_2(tmp_path):
    # A distribution of that name and version, found before the installed one.
    metadata = tmp_path / "jupyter_book-2.1.7.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: jupyter-book\nVersion: 2.1.7\n")
    output = tmp_path / "output"
    result = subprocess.run(
        [sys.executable, "-m", "tools.build_book", "--output", str(output)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 2
    assert "2.1.7 of jupyter-book is installed" in result.stderr
    assert not output.exists()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("reading sources... [ 73%] book/notation", "[ 73%] reading book/notation"),
        ("/a/b/chapters/02_sharpness.md: Executed notebook in 12.34 seconds [mystnb]", "       ran in 12.34 s"),
        ("writing output... [100%] chapters/02_sharpness", "[100%] writing chapters/02_sharpness"),
        ("copying static files... done", None),
    ],
)
def test_progress_is_a_line_a_page(line, shown):
    assert build_book.progress(line) == shown


def test_addresses_come_from_pyproject(tmp_path):
    project = '[project.urls]\nRepository = "https://example.org/a/b/"\nDocumentation = "https://a.example.org/b"\n'
    (tmp_path / "pyproject.toml").write_text(project)
    address = read_address(tmp_path)
    assert address == ("https://example.org/a/b", "https://a.example.org/b/")
    assert address.prefix == "/b/"


@pytest.mark.parametrize("urls", ["", '[project.urls]\nRepository = "example.org"\nDocumentation = "https://a.org"\n'])
def test_missing_address_is_named(tmp_path, urls):
    (tmp_path / "pyproject.toml").write_text(f"[project]\nname = 'x'\n{urls}")
    with pytest.raises(ValueError, match=r"\[project\.urls\] Repository"):
        read_address(tmp_path)


def test_configuration_holds_no_address_of_ours():
    owner = read_address(ROOT).repository.rsplit("/", 2)[1]
    assert f"{owner}." not in (ROOT / "_config.yml").read_text("utf-8")
    assert f"/{owner}/" not in (ROOT / "_config.yml").read_text("utf-8")


def test_every_source_of_the_contents_exists():
    names = pages_of_the_book()
    assert names[0] == "book/index"
    assert len(names) == len(set(names))
    assert [name for name in names if not (ROOT / f"{name}.md").is_file()] == []

"""The check of the built pages names every fault that is planted, and no other."""

from __future__ import annotations

import pytest

from tools import check_pages

PROJECT = '[project.urls]\nRepository = "https://example.org/a/b"\nDocumentation = "https://a.example.org/b/"\n'
TOC = "format: jb-book\nroot: book/index\nparts:\n  - caption: Part\n    chapters:\n      - file: chapters/01_first\n"
SHELL = "<!DOCTYPE html><html><head><title>x</title>{head}</head><body><article>{body}</article></body></html>"
CLEAN = (
    '<h1 id="top">First<a class="headerlink" href="#top">#</a></h1><h2>Second</h2><h3>Third</h3><h2>Fourth</h2>'
    '<p><a href="../book/index.html#place">there</a> <a href="https://elsewhere.example">out</a></p>'
    '<svg role="img" aria-label="A line that falls from one to a half as n grows"><svg></svg></svg>'
    '<img src="../_static/a.png" alt="The same line, drawn by hand, with a remark">'
    '<svg aria-hidden="true"></svg>'
)


@pytest.fixture
def site(tmp_path):
    """A clean site of two pages, its source of addresses and contents, and a way to plant a fault."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "_toc.yml").write_text(TOC)
    built = tmp_path / "html"
    pages = {
        "book/index.html": '<h1 id="place">Book</h1>',
        "chapters/01_first.html": CLEAN,
        **{name: "<p>x</p>" for name in check_pages.GENERATED},
    }
    for name, body in pages.items():
        path = built / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SHELL.format(head="", body=body))
    (built / "_static").mkdir()
    (built / "_static" / "a.png").write_bytes(b"1")

    def faults(body="", head=""):
        (built / "chapters/01_first.html").write_text(SHELL.format(head=head, body=CLEAN + body))
        return check_pages.check(built, tmp_path)

    faults.built, faults.root = built, tmp_path
    return faults


def test_clean_site_has_no_fault(site):
    assert site() == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('<div class="output traceback">Error</div>', "traceback"),
        ("<h4>Fifth</h4>", "heading 'Fifth' of level 4 follows one of level 2"),
        ("<h1>Again</h1>", "a second heading of the first level: 'Again'"),
        ('<p id="top"></p>', "the id 'top' stands more than once"),
        ('<img src="../_static/a.png">', "has no text for readers"),
        ('<img src="../_static/a.png" alt="../_build/jupyter_execute/0f3a.png">', "says too little"),
        ('<img src="../_static/a.png" alt="a plot">', "says too little"),
        ("<svg><path/></svg>", "has no text for readers"),
        ('<svg role="img"></svg>', "has no text for readers"),
        ('<a href="02_none.html">x</a>', "link to 02_none.html, which does not exist"),
        ('<a href="../book/index.html#nowhere">x</a>', "the page has no such place"),
        ('<a href="#nowhere">x</a>', "the page has no such place"),
        ('<a href="https://a.example.org/b/gone.html">x</a>', "which does not exist"),
        ('<script src="https://cdn.example/x.js"></script>', "asks a third party for https://cdn.example/x.js"),
        ('<script src="//cdn.example/x.js"></script>', "asks a third party"),
        ("<style>@import 'https://fonts.example/f.css';</style>", "asks a third party"),
        ('<p style="background: url(https://cdn.example/x.png)"></p>', "asks a third party"),
    ],
)
def test_planted_fault_is_named(site, body, expected):
    found = site(body)
    assert len(found) == 1, found
    assert found[0].startswith("chapters/01_first.html: ")
    assert expected in found[0]


def test_stylesheet_of_a_third_party_is_named(site):
    assert "asks a third party" in site(head='<link rel="stylesheet" href="https://cdn.example/x.css">')[0]
    assert site(head='<link rel="canonical" href="https://elsewhere.example/x.html">') == []


def test_missing_page_and_missing_heading_are_named(site):
    (site.built / "book/index.html").write_text(SHELL.format(head="", body='<p id="place">no heading</p>'))
    assert site() == ["book/index.html: no heading of the first level with text"]
    (site.built / "chapters/01_first.html").unlink()
    assert "chapters/01_first.html: the page was not built" in check_pages.check(site.built, site.root)


def test_nothing_built_is_a_fault_for_every_page(site, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert len(check_pages.check(empty, site.root)) == 2 + len(check_pages.GENERATED)


def test_heavy_page_is_named(site):
    # Bytes that do not compress: each is hashed from the one before.
    import hashlib

    noise = b"".join(hashlib.sha256(number.to_bytes(4)).digest() for number in range(20_000))
    (site.built / "_static" / "a.png").write_bytes(noise)
    assert "weighs 0.64 MB over the wire, more than 0.6" in site()[0]

"""After a build: mends the pages it wrote, takes out what they do not need, and gives the site's root a page."""

from __future__ import annotations

import shutil
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import book_accessibility
import book_lean
from book_repairs import RepairNotFound, mend
from sphinx.errors import ExtensionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from docutils.nodes import document
    from sphinx.application import Sphinx

REPAIRS = [*book_lean.REPAIRS, *book_accessibility.REPAIRS]

ROOT_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="_static/favicon.svg">
<link rel="canonical" href="{canonical}">
<meta http-equiv="refresh" content="0; url={page}">
</head>
<body><main><p><a href="{page}">{title}</a></p></main></body>
</html>
"""


def _note(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: document | None) -> None:
    app.book_pages_written.add(pagename)


def _offer_our_notebook_only(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: document | None
) -> None:
    """Buttons for Colab and for a notebook stand only where the repository holds a notebook made for readers.

    The theme offers Colab the source, which it cannot read, and for download the notebook that the build ran, whose
    text is full of directives.
    """
    if Path(app.srcdir, f"{pagename}.ipynb").exists():
        return
    buttons = [group for group in context["header_buttons"] if group.get("label") != "launch-buttons"]
    for group in buttons:
        offered = group.get("buttons", [])
        group["buttons"] = [button for button in offered if button.get("label") != "download-notebook-button"]
    context["header_buttons"] = buttons


def serve_our_notebooks(source: Path, site: Path, pages: Iterable[str]) -> None:
    """Puts the notebooks made for readers where pages offer them, and takes out those that the build ran.

    Of every page, written in this build or not: a notebook changes without its page when its exporter does.
    """
    for name in pages:
        ours, served = source / f"{name}.ipynb", site / "_sources" / f"{name}.ipynb"
        if ours.exists():
            served.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ours, served)
        else:
            served.unlink(missing_ok=True)


def _start(app: Sphinx) -> None:
    app.book_pages_written = set()


def _finish(app: Sphinx, error: Exception | None) -> None:
    if app.builder.format != "html":
        return
    site = Path(app.outdir)
    written = [site / f"{name}.html" for name in sorted(app.book_pages_written)]
    try:
        if error:
            raise error
        for path in written:
            path.write_text(mend(path.read_text("utf-8"), REPAIRS, path.name), "utf-8")
    except BaseException as failure:
        # Sphinx takes a page on disk for finished. What is only half finished goes, and the next build writes it anew.
        for path in written:
            path.unlink(missing_ok=True)
        if isinstance(failure, RepairNotFound):
            raise ExtensionError(str(failure)) from failure
        if not error:
            raise
        return
    serve_our_notebooks(Path(app.srcdir), site, app.env.found_docs)
    book_lean.remove_unused_files(site)
    root = app.config.root_doc
    if root != "index":
        page = f"{root}.html"
        html = ROOT_PAGE.format(
            title=escape(app.config.html_title), page=page, canonical=app.config.html_baseurl + page
        )
        (site / "index.html").write_text(html, "utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    # Jupyter Book passes a setting of sphinx-comments, which this book leaves out, and Sphinx warns of unknown ones.
    app.add_config_value("comments_config", {}, rebuild="")
    app.connect("builder-inited", _start)
    app.connect("html-page-context", _note)
    app.connect("html-page-context", _offer_our_notebook_only, priority=502)  # the theme makes its buttons at 501
    app.connect("build-finished", _finish, priority=100)  # before the table of contents writes a bare redirect
    return {"parallel_read_safe": True, "parallel_write_safe": False}  # the set of pages lives in one process

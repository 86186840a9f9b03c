"""Writes chapters/NN_x.ipynb, for Colab and JupyterLab, from the MyST source chapters/NN_x.md.

python -m tools.export_notebooks            write what has changed
python -m tools.export_notebooks --check    write nothing; fail when a committed notebook is not what would be written
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools.notebook_citations import Bibliography, read_bibliography
from tools.notebook_inline import Context, cited_keys, convert, without_code
from tools.notebook_markdown import caption, details, render_blocks, solution_title
from tools.notebook_numbers import Book, read_book
from tools.notebook_source import Block, SourceError, blocks, front_matter, walk
from tools.project import BADGE, ROOT, Project, read_project

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nbformat import NotebookNode

TEMPLATE = Path(__file__).with_name("setup_cell.py")
COLAB_LIST = Path("constraints/colab.txt")
EXPECTED_TIME = "under 75 seconds on two CPU cores"  # the bar every chapter's fast profile keeps
FOLDED_TAGS = {"hide-input", "hide-cell", "remove-input", "remove-cell"}

# What a reader of a plain notebook must never see: fences, labels, comments, cell breaks; and roles, unless quoted.
DEBRIS = re.compile(r"^\s*:{3,}|^\s*`{3,}\{|^\+\+\+|^\([\w.:-]+\)=\s*$|^% ", flags=re.MULTILINE)
ROLE_DEBRIS = re.compile(r"\{[a-z][\w:.-]*\}`")


def export(source: Path, root: Path, project: Project, book: Book, works: Bibliography) -> str:
    """One chapter as the text of a notebook: no outputs, the same bytes on every machine.

    Args:
      source: the chapter, below root.
      root: the repository.
      project: addresses and version.
      book: labels and titles of all pages.
      works: the bibliography.

    Raises:
      SourceError: the chapter holds something that plain Markdown cannot show.
    """
    path = source.relative_to(root).as_posix()
    text = source.read_text(encoding="utf-8")
    header, header_lines = front_matter(text)
    if "kernelspec" not in header:
        raise SourceError("a chapter begins with the jupytext header; without it its cells would be text", path, 1)
    body = "\n".join(text.split("\n")[header_lines:])
    parts = blocks(body, path, header_lines + 1)
    spoken = (block.text if block.kind in {"prose", "heading"} else block.argument for block in walk(body, path))
    cited = frozenset().union(*map(cited_keys, spoken))
    context = Context(project, book, works, path.removesuffix(".md"), path, cited)
    if not parts or parts[0].kind != "heading" or parts[0].level != 1:
        raise SourceError("a chapter begins with its title, as in `# Softmax`", path, header_lines + 1)
    cells = [
        new_markdown_cell(_opening(parts[0], context)),
        _folded(setup_cell(root, project, header.get("expected_time", EXPECTED_TIME)), "Setup: run this cell first"),
        *_cells(parts[1:], context),
    ]
    notebook = new_notebook(
        cells=_with_stable_ids(cells, path),
        metadata={
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "colab": {"provenance": [], "toc_visible": True},
        },
    )
    _refuse_debris(notebook, path)
    nbformat.validate(notebook)
    return nbformat.writes(notebook, version=4) + "\n"


def setup_cell(root: Path, project: Project, expected_time: str) -> str:
    """The one generated cell: the template, with this version's address and the versions it was tested with."""
    colab = (root / COLAB_LIST).read_text(encoding="utf-8")
    tested_on = re.search(r"^# (Colab's package list of .*)$", colab, flags=re.MULTILINE)
    python = re.search(r"^# Python (\d+\.\d+)", colab, flags=re.MULTILINE)
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", colab, flags=re.MULTILINE))
    if not tested_on or not python:
        raise ValueError(
            f"{COLAB_LIST}: the header must name the list's date and its Python; see the file's first lines"
        )
    values = {
        "ARCHIVE": project.archive,
        "TESTED_ON": f"{tested_on[1]} (Python {python[1]}, jax {pins['jax']}, flax {pins['flax']})",
        "PYTHON": python[1],
        "JAX": pins["jax"],
        "FLAX": pins["flax"],
        "NUMPY": pins["numpy"],
        "EXPECTED": expected_time,
    }
    return re.sub(r"__([A-Z_]+)__", lambda found: values[found[1]], TEMPLATE.read_text(encoding="utf-8")).rstrip("\n")


def _opening(title: Block, context: Context) -> str:
    """Chapter number and title, the badge, and where the page stands on the site."""
    notebook = f"{context.docname}.ipynb"
    number = context.book.chapters.get(context.docname)
    heading = f"# {number}. " if number else "# "
    return (
        f"{heading}{convert(title.text, context, title.line)}\n\n"
        f"[![Open in Colab]({BADGE})]({context.project.colab(notebook)}) "
        f"[Read this chapter on the site]({context.project.page(context.docname)})\n\n"
        f"<!-- Made from {context.path} by `make chapters`: edit that file, not this one. -->"
    )


def _cells(parts: list[Block], context: Context) -> Iterator[NotebookNode]:
    """Cells in order: stretches of text between code cells, and what stands in a solution folded."""
    stretch: list[Block] = []
    solution = ""  # title of the solution being read
    opened = False  # whether some of it has been shown
    level = 1

    def text() -> Iterator[NotebookNode]:
        nonlocal level, opened
        shown = render_blocks(stretch, context, level=level)
        level = next((block.level for block in reversed(stretch) if block.kind == "heading"), level)
        stretch.clear()
        if shown:
            summary = f"{solution}, continued" if opened else solution
            yield new_markdown_cell(details(summary, shown) if solution else shown)
            opened = bool(solution)

    for block in parts:
        name = block.name if block.kind == "directive" and not block.indent else ""
        if name == "code-cell":
            yield from text()
            yield from _code(block, solution, context)
            opened = bool(solution)
        elif name == "solution-start":
            yield from text()
            if solution:
                raise context.fail(f"{solution} is still open here; close it with solution-end", block.line)
            solution, opened = solution_title(block.argument, context, block.line), False
        elif name == "solution-end":
            if not solution:
                raise context.fail("solution-end without a solution-start", block.line)
            yield from text()
            solution, opened = "", False
        elif block.kind == "break":
            yield from text()
        else:
            stretch.append(block)
    if solution:
        raise context.fail(f"{solution} is never closed by solution-end", parts[-1].line)
    yield from text()


def _code(block: Block, solution: str, context: Context) -> Iterator[NotebookNode]:
    """A code cell, folded where the site hides it, and its caption."""
    tags = block.options.get("tags", [])
    cell = _folded(block.text, solution) if solution or FOLDED_TAGS & set(tags) else new_code_cell(block.text)
    if tags:
        cell.metadata["tags"] = tags
    yield cell
    figure = (block.options.get("mystnb") or {}).get("figure") or {}
    if figure.get("caption"):
        yield new_markdown_cell(caption(block, figure["caption"], context))


def _folded(source: str, title: str) -> NotebookNode:
    """A cell whose code is hidden until asked for: a form in Colab, a collapsed input in JupyterLab."""
    cell = new_code_cell(f"# @title {title}\n{source}" if title else source)
    cell.metadata.update({"cellView": "form", "jupyter": {"source_hidden": True}})
    return cell


def _with_stable_ids(cells: list[NotebookNode], path: str) -> list[NotebookNode]:
    """Ids made of what a cell says, so that an edit elsewhere leaves them alone."""
    seen: dict[str, int] = {}
    for cell in cells:
        times = seen[cell.source] = seen.get(cell.source, -1) + 1
        cell.id = hashlib.sha256(f"{path}\0{cell.source}\0{times}".encode()).hexdigest()[:12]
    return cells


def debris(markdown: str) -> str:
    """The first directive, label or role that is left in exported text, or nothing."""
    found = DEBRIS.search(markdown) or ROLE_DEBRIS.search(without_code(markdown))
    return found[0].strip() if found else ""


def _refuse_debris(notebook: NotebookNode, path: str) -> None:
    for cell in notebook.cells:
        left = debris(cell.source) if cell.cell_type == "markdown" else ""
        if left:
            raise SourceError(f"the export would show {left!r}, in: {cell.source[:80]!r}", path, 1)


def export_all(root: Path = ROOT) -> dict[Path, str]:
    """Every chapter's notebook: where it belongs, and its text."""
    project, book = read_project(root), read_book(root)
    works = read_bibliography(root / "book" / "references.bib")
    sources = sorted((root / "chapters").glob("[0-9][0-9]_*.md"))
    return {source.with_suffix(".ipynb"): export(source, root, project, book, works) for source in sources}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail when a committed notebook is stale")
    check = parser.parse_args(arguments).check
    try:
        fresh = export_all()
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1
    committed = set((ROOT / "chapters").glob("*.ipynb"))
    stale = [path for path, text in fresh.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    orphans = sorted(committed - set(fresh))
    for path in orphans:
        print(f"{path.relative_to(ROOT)}: no chapter of that name; remove it", file=sys.stderr)
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)}: stale; run `make chapters` and commit the result", file=sys.stderr)
        else:
            path.write_text(fresh[path], encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    print(f"{len(fresh) - len(stale)} of {len(fresh)} notebooks were up to date")
    return 1 if orphans or (check and stale) else 0


if __name__ == "__main__":
    sys.exit(main())

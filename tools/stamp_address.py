"""Writes the project's address, version and table of chapters into README.md and CITATION.cff, from pyproject.toml.

python -m tools.stamp_address            write what has changed
python -m tools.stamp_address --check    write nothing; fail when something is stale
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from tools.notebook_numbers import Book, read_book
from tools.project import BADGE, ROOT, Project, read_project

if TYPE_CHECKING:
    from pathlib import Path

BEGIN, END = "<!-- chapters:begin -->", "<!-- chapters:end -->"


def stamped_readme(text: str, project: Project, book: Book) -> str:
    """README.md with its marked block and its install command made anew.

    Args:
      text: the README as it is.
      project: addresses.
      book: the chapters, with their numbers and titles.

    Raises:
      ValueError: the markers are missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md must hold the lines {BEGIN} and {END}; the table of chapters goes between them")
    rows = [
        f"| {number} | [{book.titles[docname]}]({project.page(docname)}) "
        f"| [![Open in Colab]({BADGE})]({project.colab(f'{docname}.ipynb')}) |"
        for docname, number in book.chapters.items()
    ]
    block = (
        f"\nOr read it on [the site]({project.site}), and open a chapter in Colab:\n\n"
        "| | chapter | notebook |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )
    return re.sub(r"git\+https://[^\s\"']+", f"git+{project.repository}", f"{before}{begin}{block}{end}{after}")


def stamped_citation(text: str, project: Project) -> str:
    """CITATION.cff with the version and both addresses.

    Raises:
      ValueError: one of the three lines is missing.
    """
    for key, value in {"version": project.version, "repository-code": project.repository, "url": project.site}.items():
        quoted = value if key == "version" else f'"{value}"'
        text, found = re.subn(rf"^{key}:.*$", f"{key}: {quoted}", text, count=1, flags=re.MULTILINE)
        if not found:
            raise ValueError(f"CITATION.cff must have a line that begins with `{key}:`")
    return text


def stamp_all(root: Path = ROOT) -> dict[Path, str]:
    """What README.md and CITATION.cff should hold."""
    project, book = read_project(root), read_book(root)
    readme, citation = root / "README.md", root / "CITATION.cff"
    return {
        readme: stamped_readme(readme.read_text(encoding="utf-8"), project, book),
        citation: stamped_citation(citation.read_text(encoding="utf-8"), project),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail when a file is stale")
    check = parser.parse_args(arguments).check
    stale = {path: text for path, text in stamp_all().items() if path.read_text(encoding="utf-8") != text}
    for path, text in stale.items():
        if check:
            print(f"{path.relative_to(ROOT)}: stale; run `make chapters` and commit the result", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"stamped {path.relative_to(ROOT)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

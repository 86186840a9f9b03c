"""Gives each chapter the number its file name begins with: chapters/10_streaming_entropy is chapter 10.

Sphinx counts the chapters that are there. Here most are still to be written, and a chapter has to keep its number, and
those of its sections, figures and theorems, when an earlier one appears. `tools.notebook_numbers` follows the same
rule for the notebooks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx_external_toc.collectors import TocTreeCollectorWithStyles

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

NUMBER = re.compile(r"(?:.*/)?0*(\d+)_[^/]*")


def chapter_number(docname: str) -> int | None:
    """The number in front of a page's name, None where there is none.

    Args:
      docname: a page below the root, without its ending.
    """
    found = NUMBER.fullmatch(docname)
    return int(found[1]) if found else None


def renumber(env: BuildEnvironment) -> None:
    """Replaces the first part of every section number of the numbered chapters."""
    for docname, sections in env.toc_secnumbers.items():
        chapter = chapter_number(docname)
        title = env.titles.get(docname)
        if chapter is None or title is None or not title.get("secnumber"):
            continue
        title["secnumber"] = [chapter, *title["secnumber"][1:]]
        for anchor, number in sections.items():
            sections[anchor] = number and (chapter, *number[1:])
        for reference in env.tocs[docname].findall(nodes.reference):
            if reference.get("secnumber"):
                reference["secnumber"] = [chapter, *reference["secnumber"][1:]]


def setup(app: Sphinx) -> dict[str, bool]:
    # Figures are numbered by section right afterwards, in the same event, so no event is left to connect to.
    assign = TocTreeCollectorWithStyles.assign_section_numbers

    def assign_section_numbers(self: TocTreeCollectorWithStyles, env: BuildEnvironment) -> list[str]:
        before = {docname: dict(sections) for docname, sections in env.toc_secnumbers.items()}
        assign(self, env)
        renumber(env)
        return [docname for docname, sections in env.toc_secnumbers.items() if sections != before.get(docname)]

    TocTreeCollectorWithStyles.assign_section_numbers = assign_section_numbers
    return {"parallel_read_safe": True, "parallel_write_safe": True}

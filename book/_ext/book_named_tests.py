"""Shows beneath each numbered result that its property tests passed in this build, and at the page's foot when.

`tools.build_book` runs the tests first and names their record in ADATEMP_NAMED_TESTS; a failing test stops it before
Sphinx starts. Without that variable nothing is known of the tests, and the lines stay as the source has them.
"""

from __future__ import annotations

import json
import os
import re
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

VARIABLE = "ADATEMP_NAMED_TESTS"
LINE = re.compile(r"(Property tests?|Tests? of the code): ")
MARK = "passed in this build"
logger = logging.getLogger(__name__)


def mark(document: nodes.document, record: dict[str, dict], docname: str) -> None:
    """Adds the mark to every line of named tests and one sentence to the foot of the page.

    Args:
      document: the page.
      record: as `tools.run_named_tests` writes it: for each file its date and the tests that passed.
      docname: where to say that a test is not in the record.
    """
    shown = set()
    for paragraph in list(document.findall(nodes.paragraph)):
        if not LINE.match(paragraph.astext()):
            continue
        names = [literal.astext() for literal in paragraph.findall(nodes.literal)]
        for name in names:
            file, _, function = name.partition("::")
            if function not in record.get(file, {}).get("passed", ()):
                logger.warning(f"{name} is named and did not pass in this build", location=docname)
                return
        shown.update(names)
        said = MARK if len(names) == 1 else f"all {MARK}"
        paragraph["classes"].append("named-tests")
        paragraph += [nodes.Text(" "), nodes.inline("", said, classes=["test-passed"])]
    last = list(document.findall(nodes.section))
    if shown and last:
        last[-1] += nodes.paragraph("", foot(shown, record), classes=["named-tests-foot"])


def foot(shown: set[str], record: dict[str, dict]) -> str:
    """The sentence at the foot of a page that names these tests."""
    days = sorted({date.fromisoformat(record[name.partition("::")[0]]["date"]) for name in shown})
    first, last = (f"{day.day} {day:%B %Y}" for day in (days[0], days[-1]))
    when = f"on {last}" if first == last else f"between {first} and {last}"
    what = "The test named on this page" if len(shown) == 1 else f"The {len(shown)} tests named on this page"
    return f"{what} passed {when}, with the library, the chapter's code and the versions this page was built with."


def _read_record(app: Sphinx, config: Config) -> None:
    path = os.environ.get(VARIABLE)
    config.book_named_tests = Path(path).read_text("utf-8") if path else ""


def _mark(app: Sphinx, document: nodes.document, docname: str) -> None:
    if app.config.book_named_tests:
        mark(document, json.loads(app.config.book_named_tests), docname)


def setup(app: Sphinx) -> dict[str, bool]:
    # Marks are set as a page is written, so a new record calls for new pages and not for another run of their cells.
    app.add_config_value("book_named_tests", "", rebuild="html", types=str)
    app.connect("config-inited", _read_record)
    app.connect("doctree-resolved", _mark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

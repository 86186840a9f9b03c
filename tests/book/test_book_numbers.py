"""A chapter is numbered by its file's name, on the site and in the notebooks, whichever chapters exist."""

from __future__ import annotations

import re

import pytest
from book_numbers import chapter_number

from tools.notebook_numbers import read_book


@pytest.mark.parametrize(
    ("docname", "number"),
    [("chapters/01_first", 1), ("chapters/10_tenth", 10), ("12_x", 12), ("book/notation", None), ("book/2nd", None)],
)
def test_number_stands_in_front_of_the_name(docname, number):
    assert chapter_number(docname) == number


LATER = """# Tenth

## A section

````{prf:theorem} Nothing
:label: thm-nothing

$1 = 1$.
````

```{math}
:label: eq-nothing
0 = 0
```

:::{table} A table
:name: tab-nothing

| a |
| --- |
| b |
:::

See {prf:ref}`thm-nothing`, {eq}`eq-nothing` and {numref}`tab-nothing`.
"""


@pytest.mark.book
def test_site_and_notebooks_number_a_late_chapter_alike(miniature):
    book = miniature()
    toc = (book.root / "_toc.yml").read_text()
    later = "  - caption: Later\n    numbered: true\n    chapters:\n      - file: chapters/10_tenth\n"
    book.write("_toc.yml", toc + later)
    book.write("chapters/10_tenth.md", LATER)
    built = book.build()
    assert built.returncode == 0, built.stdout
    page = " ".join(re.sub(r"<[^>]+>", "", book.page("chapters/10_tenth.html")).split())
    for shown in ("10. Tenth", "10.1. A section", "Theorem 10.1", "(10.1)", "Table 10.1"):
        assert shown in page, shown
    assert "1. First" in " ".join(re.sub(r"<[^>]+>", "", book.page("chapters/01_first.html")).split())
    # The sidebar of another page, whose numbers come from the table of contents.
    assert "10. Tenth" in " ".join(re.sub(r"<[^>]+>", "", book.page("book/index.html")).split())

    targets = read_book(book.root).targets
    names = {label: targets[label].name for label in ("thm-nothing", "eq-nothing", "tab-nothing")}
    assert names == {"thm-nothing": "Theorem 10.1", "eq-nothing": "(10.1)", "tab-nothing": "Table 10.1"}

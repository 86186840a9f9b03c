"""Cells of an exported notebook: the source's code untouched, solutions folded, the same bytes every time."""

from __future__ import annotations

import nbformat
import pytest

SOLVED = """## Exercises

```{exercise} T
:label: ex-a

Do it.
```

```{code-cell} ipython3
stub = None
```

```{solution-start} ex-a
:class: dropdown
```

An idea.

```{code-cell} ipython3
:tags: [raises-exception]

solved = 1
```

And a remark.

```{code-cell} ipython3
solved
```

```{solution-end}
```

After.
"""


def test_solution_is_folded_with_its_code(book):
    cells = book.cells(SOLVED)
    assert [cell.cell_type for cell in cells] == [
        "markdown",
        "code",
        "markdown",
        "code",
        "markdown",
        "code",
        "markdown",
    ]
    _, stub, idea, solved, remark, shown, after = cells
    assert stub.source == "stub = None" and "cellView" not in stub.metadata
    assert idea.source == "<details>\n<summary>Solution to Exercise 1.1</summary>\n\nAn idea.\n\n</details>"
    assert "<summary>Solution to Exercise 1.1, continued</summary>\n\nAnd a remark." in remark.source
    for cell, code in ((solved, "solved = 1"), (shown, "solved")):
        assert cell.source == f"# @title Solution to Exercise 1.1\n{code}"
        assert cell.metadata["cellView"] == "form"
        assert cell.metadata["jupyter"] == {"source_hidden": True}
    assert solved.metadata["tags"] == ["raises-exception"]
    assert after.source == "After."


def test_solution_that_begins_with_code_goes_on_with_text(book):
    exercise = "```{exercise} T\n:label: ex-a\nA\n```\n\n```{solution-start} ex-a\n```\n\n"
    _, code, text = book.cells(f"{exercise}```{{code-cell}} ipython3\nx\n```\n\nThen.\n\n```{{solution-end}}\n```")
    assert code.source == "# @title Solution to Exercise 1.1\nx"
    assert "<summary>Solution to Exercise 1.1, continued</summary>" in text.source


@pytest.mark.parametrize("tag", ["hide-input", "hide-cell", "remove-input", "remove-cell"])
def test_what_the_site_hides_is_folded(book, tag):
    (cell,) = book.cells(f"```{{code-cell}} ipython3\n:tags: [{tag}]\nx = 1\n```")
    assert cell.source == "x = 1"
    assert cell.metadata["jupyter"] == {"source_hidden": True}


def test_opening_has_number_badge_and_site(book):
    first, setup = book.notebook().cells[:2]
    assert first.source.startswith("# 1. A sample of every construct with $n$ items\n")
    colab = "https://colab.research.google.com/github/someone/adatemp/blob/main/chapters/01_sample.ipynb"
    assert f"badge.svg)]({colab})" in first.source
    assert "(https://someone.github.io/adatemp/chapters/01_sample.html)" in first.source
    assert setup.source.startswith("# @title Setup")


def test_setup_cell_takes_its_facts_from_one_place(book):
    setup = book.notebook().cells[1].source
    assert '"https://github.com/someone/adatemp/archive/refs/tags/v0.3.0.zip"' in setup  # a release: its tag
    assert "Colab's package list of 1 May 2026 (Python 3.13, jax 0.7.2, flax 0.11.2)" in setup
    assert "Expected time: about 20 s on two CPU cores." in setup  # from the chapter's header
    assert "__A" not in setup and "__E" not in setup
    compile(setup, "setup", "exec")

    project = book.root / "pyproject.toml"
    project.write_text(project.read_text().replace('"0.3.0"', '"0.3.1.dev0"'))
    assert "archive/refs/heads/main.zip" in book.notebook().cells[1].source  # not released: the branch


def test_notebook_is_valid_and_has_no_outputs(book):
    notebook = book.notebook()
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert notebook.metadata["kernelspec"]["name"] == "python3"


def test_export_is_the_same_every_time_and_ids_survive_edits_elsewhere(book):
    before = book.notebook()
    assert nbformat.writes(before) == nbformat.writes(book.notebook())
    ids = [cell.id for cell in before.cells]
    assert len(set(ids)) == len(ids)

    source = book.root / "chapters" / "01_sample.md"
    source.write_text(source.read_text().replace("(sec-here)=", "New words.\n\n(sec-here)="))
    after = [cell.id for cell in book.notebook().cells]
    assert len(after) == len(ids)
    assert sum(old != new for old, new in zip(ids, after)) == 1


def test_equal_cells_get_different_ids(book):
    first, second = book.cells("```{code-cell} ipython3\nx\n```\n\n```{code-cell} ipython3\nx\n```")
    assert first.source == second.source and first.id != second.id


def test_numbers_run_through_parts_and_skip_what_has_none(book):
    from tools.notebook_numbers import read_book

    sample = read_book(book.root)
    assert sample.chapters == {"chapters/01_sample": 1, "chapters/02_other": 2}
    assert sample.targets["eq-other"].name == "(2.1)"
    assert sample.targets["eq-math-convex"].name == "(1)"
    assert sample.targets["sec-convexity"].number == ""

"""What cannot be exported is an error that names the file, the line and the remedy, and never debris."""

from __future__ import annotations

import pytest

CHAPTER = "chapters/01_sample.md"
FIRST_LINE = 10  # where a body begins in the fixture's chapter


@pytest.mark.parametrize(
    "body, line, said",
    [
        ("Text.\n\n```{tab-set}\nA\n```", 2, "{tab-set} has no export"),
        ("Text.\n\nA {sub}`x`.", 2, "{sub} has no export"),
        ("A\nB {ref}`nowhere`.", 1, "'nowhere', which no page defines"),
        ("{prf:ref}`nowhere`", 0, "'nowhere', which no page defines"),
        ("{cite}`nobody2020`", 0, "references.bib has no entry 'nobody2020'"),
        ("{term}`sharpness`", 0, "no term 'sharpness'"),
        ("{doc}`03_missing`", 0, "no such page"),
        ("[x](03_missing.md)", 0, "_toc.yml does not have"),
        ("A note[^1].\n\n[^1]: Text.", 0, "no counterpart in plain Markdown"),
        ("Term\n: Definition", 0, "no counterpart in plain Markdown"),
        ("> ```{note}\n> A\n> ```", 0, "inside a quotation"),
        ("Text\n\n```{note}\nA", 2, "never closed"),
        ("```{exercise} T\n\nNo label.\n```", 0, "needs a :label:"),
        ("```{solution} ex-none\nA\n```", 0, "'ex-none', which no page defines"),
        ("```{figure} a.svg\n\nCaption.\n```", 0, "needs an :alt:"),
        ("\\begin{align}\na\n\\end{align}", 0, "by a label"),
        ("$$\nx % why\n$$", 0, "neither comments nor blank lines"),
        ("```{bibliography}\n```", 0, "docname in docnames"),
        ("```{note}\nA\n\nB {ref}`nowhere`\n```", 3, "'nowhere'"),
        ("````{note}\n:class: x\n\n```{prf:lemma}\n:label: l\n\nB {ref}`nowhere`\n```\n````", 6, "'nowhere'"),
        ("## A\n\n```{solution-end}\n```", 2, "without a solution-start"),
        ("(a)=\n## A\n\n(a)=\n## B", 4, "is used before"),
        ("Title\n=====", 0, "with # signs"),
    ],
)
def test_error_names_file_line_and_remedy(book, body, line, said):
    from tools.notebook_source import SourceError

    with pytest.raises(SourceError) as caught:
        book.cells(body)
    assert str(caught.value).startswith(f"{CHAPTER}:{FIRST_LINE + line}: "), str(caught.value)
    assert said in str(caught.value)


def test_open_solution_is_an_error(book):
    from tools.notebook_source import SourceError

    with pytest.raises(SourceError, match="never closed by solution-end"):
        book.cells("```{exercise} T\n:label: ex-a\nA\n```\n\n```{solution-start} ex-a\n```\n\nText.")


def test_chapter_without_header_or_title_is_an_error(book):
    from tools.notebook_source import SourceError

    book.write("", header="# Title\n")
    with pytest.raises(SourceError, match="jupytext header"):
        book.notebook()
    book.write("Text.", header="---\nkernelspec: {name: python3}\n---\n\nNo title.\n\n")
    with pytest.raises(SourceError, match="begins with its title"):
        book.notebook()


@pytest.mark.parametrize(
    "left", [":::{note}", "```{note}", "+++", "(label)=", "% comment", "a {ref}`b` c", "{prf:ref}`x`", "  ::: end"]
)
def test_debris_is_recognised(left):
    export_notebooks = pytest.importorskip("tools.export_notebooks")
    assert export_notebooks.debris(f"Text.\n\n{left}\n")


@pytest.mark.parametrize(
    "kept", ["`{ref}`", "`` {cite}`x` ``", "50 % more", "a (label) = b", "1 +++ 2", "{x}", "a ::: b"]
)
def test_ordinary_text_is_no_debris(kept):
    export_notebooks = pytest.importorskip("tools.export_notebooks")
    assert not export_notebooks.debris(f"Text.\n\n{kept}\n")

"""Each directive and block of a chapter, as the plain Markdown a notebook shows."""

from __future__ import annotations

import pytest

SITE = "https://someone.github.io/adatemp"


def test_theorem_is_a_numbered_quotation(book):
    shown = book.markdown("```{prf:theorem} Bound, with $n$\n:label: thm-a\n\nIt holds.\n\n1. so\n2. there\n```")
    assert shown == (
        '> <a id="thm-a" name="thm-a"></a>**Theorem 1.1 (Bound, with $n$).**\n>\n> It holds.\n>\n> 1. so\n> 2. there'
    )


@pytest.mark.parametrize("kind", ["lemma", "proposition", "definition", "corollary", "remark"])
def test_each_kind_of_result_has_its_own_count(book, kind):
    shown = book.markdown(f"```{{prf:theorem}}\nA.\n```\n\n```{{prf:{kind}}}\nB.\n```\n\n```{{prf:{kind}}}\nC.\n```")
    assert f"**{kind.title()} 1.1.**" in shown and f"**{kind.title()} 1.2.**" in shown


def test_unlabelled_results_are_counted(book):
    shown = book.markdown("```{prf:theorem}\nA.\n```\n\n```{prf:theorem}\n:label: thm-b\nB.\n```\n\n{prf:ref}`thm-b`")
    assert "**Theorem 1.2.**" in shown and "[Theorem 1.2](#thm-b)" in shown


def test_unnumbered_results_are_not_counted(book):
    shown = book.markdown("```{prf:remark}\n:nonumber:\nA.\n```\n\n```{prf:remark}\nB.\n```")
    assert "**Remark.**" in shown and "**Remark 1.1.**" in shown


def test_proof_ends_with_its_sign(book):
    assert book.markdown(":::{prf:proof}\nClear.\n:::") == "*Proof.* Clear. ∎"
    assert book.markdown(":::{prf:proof}\nBy\n\n$$\nx\n$$\n:::") == "*Proof.* By\n\n$$ x $$\n\n∎"


def test_colon_and_backtick_fences_are_alike(book):
    assert book.markdown(":::{note}\nHear.\n:::") == book.markdown("```{note}\nHear.\n```")


def test_admonition_is_a_quotation_under_its_title(book):
    assert book.markdown("```{admonition} The claim\n:class: claim\n\nSmall.\n```") == "> **The claim**\n>\n> Small."


@pytest.mark.parametrize("name, title", [("note", "Note"), ("warning", "Warning"), ("seealso", "See also")])
def test_named_admonitions(book, name, title):
    assert book.markdown(f"```{{{name}}}\nHear.\n```") == f"> **{title}**\n>\n> Hear."


@pytest.mark.parametrize("opening", ["```{dropdown} Hint\n", "```{admonition} Hint\n:class: dropdown\n"])
def test_dropdown_is_folded(book, opening):
    assert book.markdown(f"{opening}Think.\n```") == "<details>\n<summary>Hint</summary>\n\nThink.\n\n</details>"


def test_answers_inside_an_admonition_stay_folded_outside_a_quotation(book):
    body = "<details>\n<summary>Answer</summary>\n\nYes, $n$.\n\n</details>"
    assert book.markdown(f"```{{admonition}} Quick check\n\nIs it?\n\n{body}\n```") == (
        f"**Quick check**\n\nIs it?\n\n{body}"
    )


def test_directives_nest(book):
    body = "`````{note}\nOuter.\n\n````{prf:lemma}\nInner.\n\n```{math}\n:label: eq-in\nx\n```\n````\n`````"
    shown = book.markdown(body)
    assert "> > **Lemma 1.1.**" in shown
    assert "> > $$ x \\tag{1.1} $$" in shown


def test_directive_in_a_list_stays_in_its_item(book):
    shown = book.markdown("- one\n  ```{note}\n  Hear.\n  ```\n- two")
    assert shown == "- one\n\n  > **Note**\n  >\n  > Hear.\n\n- two"


def test_exercise_is_a_heading_below_its_section(book):
    shown = book.markdown("## Exercises\n\n```{exercise} Do it\n:label: ex-a\n\nLevel 2, 10 minutes.\n```")
    assert shown == ('## Exercises\n\n<a id="ex-a" name="ex-a"></a>\n\n### Exercise 1.1: Do it\n\nLevel 2, 10 minutes.')


@pytest.mark.parametrize(
    "source",
    [
        "$$ x = 1 $$ (eq-a)",
        "$$\nx\n= 1\n$$ (eq-a)",
        "```{math}\n:label: eq-a\nx = 1\n```",
        "```{math}\n:label: eq-a\n\nx\n= 1\n\n```",
    ],
)
def test_labelled_formula_carries_its_number(book, source):
    assert book.markdown(source).endswith("\n\n$$ x = 1 \\tag{1.1} $$")


def test_formula_of_several_lines_is_aligned_as_on_the_site(book):
    assert book.markdown("$$\nx &= 1 \\\\\n  &= 2\n$$") == r"$$ \begin{aligned} x &= 1 \\ &= 2 \end{aligned} $$"


def test_bare_environment_becomes_a_display(book):
    shown = book.markdown("\\begin{align*}\na &= b \\\\\nc &= d\n\\end{align*}\n\nAfter.")
    assert shown == "$$ \\begin{aligned} a &= b \\\\ c &= d \\end{aligned} $$\n\nAfter."


def test_figure_has_a_number_and_an_address_that_works_anywhere(book):
    shown = book.markdown("```{figure} ../book/_static/row.svg\n:alt: Three bars\n:name: fig-a\n\nThe\nbars.\n```")
    assert shown == (
        "![Three bars](https://github.com/someone/adatemp/raw/main/book/_static/row.svg)\n\n"
        '<a id="fig-a" name="fig-a"></a>*Fig. 1.1. The bars.*'
    )


def test_captions_of_code_cells_follow_them(book):
    options = "mystnb:\n  figure:\n    caption: A row,\n      sorted.\n    name: fig-b"
    cells = book.cells(f"```{{code-cell}} ipython3\n---\n{options}\n---\n1\n```\n\n{{numref}}`fig-b`")
    assert [cell.source for cell in cells] == [
        "1",
        '<a id="fig-b" name="fig-b"></a>*Fig. 1.1. A row, sorted.*',
        "[Fig. 1.1](#fig-b)",
    ]


def test_table_has_a_number(book):
    shown = book.markdown("```{table} Scores\n:name: tab-a\n\n| a |\n| --- |\n| 1 |\n```\n\n{numref}`tab-a`")
    assert "*Table 1.1. Scores*\n\n| a |" in shown and "[Table 1.1](#tab-a)" in shown


def test_code_block_stays_code(book):
    assert book.markdown("```{code-block} bash\nmake book  # {ref}`x`\n```") == "```bash\nmake book  # {ref}`x`\n```"


def test_comments_and_labels_leave_no_trace_but_an_anchor(book):
    shown = book.markdown("% hidden\n\n(sec-a)=\n## Title\n\nText.")
    assert shown == '<a id="sec-a" name="sec-a"></a>\n\n## Title\n\nText.'


def test_references_are_the_works_cited(book):
    shown = book.markdown("See {cite:t}`two2020`.\n\n```{bibliography}\n:filter: docname in docnames\n```")
    assert shown.endswith("- Johannes van der Waals, Ann Smith (2020). *A Note on LaTeX études*.")
    assert shown.count("\n- ") == 1

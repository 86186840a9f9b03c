"""Roles and links inside a paragraph."""

from __future__ import annotations

import pytest

SITE = "https://someone.github.io/adatemp"
FIRST = "(sec-a)=\n## First part\n\n```{prf:lemma} L\n:label: lem-a\nA.\n```\n\n$$ x $$ (eq-a)\n\n"


@pytest.mark.parametrize(
    "role, shown",
    [
        ("{ref}`sec-a`", "[First part](#sec-a)"),
        ("{ref}`here <sec-a>`", "[here](#sec-a)"),
        ("{ref}`sec-other`", f"[Somewhere else]({SITE}/chapters/02_other.html#sec-other)"),
        ("{numref}`sec-a`", "[Section 1.1](#sec-a)"),
        ("{numref}`part %s <sec-a>`", "[part 1.1](#sec-a)"),
        ("{prf:ref}`lem-a`", "[Lemma 1.1](#lem-a)"),
        ("{eq}`eq-a`", "[(1.1)](#equation-eq-a)"),
        ("{eq}`eq-other`", f"[(2.1)]({SITE}/chapters/02_other.html#equation-eq-other)"),
        ("{term}`Entropy`", f"[Entropy]({SITE}/book/glossary.html#term-entropy)"),
        ("{term}`the distance <KL divergence>`", f"[the distance]({SITE}/book/glossary.html#term-KL-divergence)"),
        ("{doc}`02_other`", f"[Another chapter]({SITE}/chapters/02_other.html)"),
        ("{doc}`/book/mathematics`", f"[Mathematics used]({SITE}/book/mathematics.html)"),
        ("{doc}`facts <../book/mathematics>`", f"[facts]({SITE}/book/mathematics.html)"),
        ("{cite}`holm1979simple`", "([Holm, 1979](https://doi.org/10.1000/holm))"),
        ("{cite:p}`two2020`", "(van der Waals and Smith, 2020)"),
        ("{cite:t}`velickovic2025softmax`", "[Veličković et al. (2025)](https://arxiv.org/abs/2410.01104)"),
        (
            "{cite}`velickovic2025softmax, two2020`",
            "([Veličković et al., 2025](https://arxiv.org/abs/2410.01104); van der Waals and Smith, 2020)",
        ),
        ("{math}`x^2`", "$x^2$"),
        ("[page](../book/mathematics.md#convexity)", f"[page]({SITE}/book/mathematics.html#convexity)"),
        ("[](02_other.md)", f"[Another chapter]({SITE}/chapters/02_other.html)"),
        ("[](#lem-a)", "[L](#lem-a)"),
        ("[code](../adatemp/_softmax.py)", "[code](https://github.com/someone/adatemp/blob/main/adatemp/_softmax.py)"),
        ("[out](https://example.org/a)", "[out](https://example.org/a)"),
    ],
)
def test_role_or_link_becomes(book, role, shown):
    assert book.markdown(f"{FIRST}See {role}, then.").endswith(f"See {shown}, then.")


def test_role_may_go_on_over_a_line(book):
    assert book.markdown("As {cite:t}`holm1979simple` and {term}`the\ndistance <KL divergence>` say.").endswith(
        f"[the distance]({SITE}/book/glossary.html#term-KL-divergence) say."
    )


@pytest.mark.parametrize("left", ["`{ref}`", "`` {cite}`x` ``", "$a {ref} b$", r"\$5 and \$6", "`a` {b} `c`", "a_b_c"])
def test_code_mathematics_and_escapes_stay(book, left):
    assert book.markdown(f"Keep {left} so.") == f"Keep {left} so."


def test_formula_in_a_quotation_stays_on_one_line(book):
    # A line inside a quotation begins with >, which a notebook would typeset as part of the formula.
    shown = book.markdown("```{note}\nIt is $a +\nb$ here.\n```")
    assert shown == "> **Note**\n>\n> It is $a + b$ here."


def test_roles_in_titles_and_tables(book):
    shown = book.markdown(f"{FIRST}## About {{eq}}`eq-a`\n\n| a |\n| --- |\n| {{prf:ref}}`lem-a` |")
    assert "## About [(1.1)](#equation-eq-a)" in shown
    assert "| [Lemma 1.1](#lem-a) |" in shown


def test_caption_with_a_link_can_be_referred_to(book):
    figure = "```{figure} a.svg\n:alt: Bars\n:name: fig-a\n\nFrom {prf:ref}`lem-a`.\n```"
    assert book.markdown(f"{FIRST}{figure}\n\nSee {{ref}}`fig-a`").endswith("See [From Lemma 1.1.](#fig-a)")

"""Citations as plain Markdown: author and year linked to the work, and a list of the works a chapter cites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybtex.database import parse_file
from pybtex.richtext import Text

if TYPE_CHECKING:
    from pathlib import Path

    from pybtex.database import BibliographyData, Entry, Person

Bibliography = dict[str, "Entry"]


def read_bibliography(path: Path) -> Bibliography:
    """The works of a BibTeX file by key."""
    works: BibliographyData = parse_file(str(path), bib_format="bibtex")
    return dict(works.entries)


def address(work: Entry) -> str:
    """Where a work can be read: its DOI, else its arXiv number, else its own address, else nothing."""
    fields = work.fields
    if "doi" in fields:
        return f"https://doi.org/{fields['doi']}"
    if "eprint" in fields:
        return f"https://arxiv.org/abs/{fields['eprint']}"
    return fields.get("url", "")


def label(work: Entry) -> tuple[str, str]:
    """Authors, shortened as in the text, and year: ("Veličković et al.", "2025")."""
    names = [_last_name(person) for person in work.persons.get("author", work.persons.get("editor", []))]
    authors = names[0] if len(names) == 1 else " and ".join(names) if len(names) == 2 else f"{names[0]} et al."
    return authors, work.fields.get("year", "n.d.")


def in_text(work: Entry, *, textual: bool) -> str:
    """One citation: a link that reads "Kingma and Ba (2015)" in a sentence, "Kingma and Ba, 2015" in brackets."""
    authors, year = label(work)
    return _link(f"{authors} ({year})" if textual else f"{authors}, {year}", address(work))


def full(work: Entry) -> str:
    """One entry of a list of references."""
    fields = work.fields
    people = work.persons.get("author", work.persons.get("editor", []))
    authors = ", ".join(_full_name(person) for person in people)
    where = next((fields[key] for key in ("journal", "booktitle", "howpublished", "publisher") if key in fields), "")
    title = f"*{_plain(fields['title'])}*"
    parts = [f"{authors} ({fields.get('year', 'n.d.')})", _link(title, address(work)), _plain(where)]
    return ". ".join(part.rstrip(".") for part in parts if part) + "."


def _last_name(person: Person) -> str:
    return _plain(" ".join((*person.prelast_names, *person.last_names)))


def _full_name(person: Person) -> str:
    names = (
        *person.first_names,
        *person.middle_names,
        *person.prelast_names,
        *person.last_names,
        *person.lineage_names,
    )
    return _plain(" ".join(names))


def _plain(latex: str) -> str:
    """Text without BibTeX's braces, accents and line breaks."""
    return " ".join(str(Text.from_latex(latex)).split())


def _link(text: str, target: str) -> str:
    return f"[{text}]({target})" if target else text

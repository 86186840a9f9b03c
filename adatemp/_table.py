"""A small table: HTML for the page, aligned columns for a terminal or any other front end of text."""

from __future__ import annotations

import html
import re
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXT_WIDTH = 100  # characters; where columns need more, the widest are wrapped
NARROWEST = 12

# What reads as a number once tags are gone: 1,024, −0.5, ≈ 3 ms, 2 TB/s, 12%, and 3.1 ± 0.2, 4.1 × 10⁻⁴, 128 × 64.
_ONE = r"[<>≤≥≈]? ?[+−-]?\d[\d.,]*[⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹]*( ?[^\W\d_]{1,3}| ?[^\W\d_]{1,6}/s|%|×)?"
_NUMBER = re.compile(rf"{_ONE}( (±|×|to) {_ONE})*|[–—]?|never")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_RAISED = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")


@dataclass(frozen=True)
class Table:
    """A finished table: displays as HTML, prints as text."""

    text: str
    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def table(caption: str, columns: Iterable[str], lines: Iterable[Iterable[Any]]) -> Table:
    """Makes a table for the page; as the last expression of a cell it is displayed.

    Columns in which every cell reads as a number are set to the right. Cells, heads and caption may hold inline HTML,
    such as 10<sup>5</sup>; text of unknown origin goes through `html.escape` first.

    Args:
        caption: what the table shows, with units and source.
        columns: the head of each column, the first of which stands over the heads of the lines.
        lines: for each line its head and its cells, as many as there are columns. Numbers come formatted, as strings.

    Returns:
        A `Table`.

    Raises:
        ValueError: the caption, a head of a column or the head of a line is empty, there are no lines, or a line has
            more or fewer cells than there are columns.

    Example:
        >>> table("Largest weight", ("items", "softmax"), [("8", "0.90"), ("1,024", "0.12")])
        Largest weight
        <BLANKLINE>
        items  softmax
        -----  -------
        8         0.90
        1,024     0.12
    """
    if isinstance(columns, str):
        raise ValueError(f"table: columns={columns!r} is one string; give a sequence with the head of each column")
    heads = [str(column) for column in columns]
    rows = [[str(cell) for cell in line] for line in lines]
    _check(caption, heads, rows)
    numeric = [all(_NUMBER.fullmatch(plain(cell)) for cell in column) for column in zip(*rows, strict=True)]
    numeric[0] = False  # the heads of the lines are names, also where they are sizes
    return Table(_as_text(caption, heads, rows, numeric), _as_html(caption, heads, rows, numeric))


def plain(cell: str) -> str:
    """A cell without its HTML: tags gone, entities read, powers raised."""
    raised = re.sub(r"<sup>([\d+−-]+)</sup>", lambda found: found[1].translate(_RAISED), cell)
    return html.unescape(_TAG.sub("", re.sub(r"<br ?/?>", " ", raised))).strip()


def _check(caption: str, heads: list[str], rows: list[list[str]]) -> None:
    if not plain(str(caption)):
        raise ValueError("table: caption is empty; say what the table shows, whatever stands around it")
    if not heads:
        raise ValueError("table: columns is empty; give the head of each column")
    for place, head in enumerate(heads):
        if not plain(head):
            raise ValueError(
                f"table: columns[{place}] is empty; name it, as a screen reader reads the head before each cell"
            )
    if not rows:
        raise ValueError("table: lines is empty; give at least one line")
    for place, row in enumerate(rows):
        if len(row) != len(heads):
            raise ValueError(
                f"table: lines[{place}] has {len(row)} cells and there are {len(heads)} columns; a line is its head "
                f"and a cell for each further column, an empty one as ''. Given: {row}"
            )
        if not plain(row[0]):
            raise ValueError(f"table: lines[{place}] begins with an empty head; name the line. Given: {row}")


def _as_html(caption: str, heads: list[str], rows: list[list[str]], numeric: list[bool]) -> str:
    kinds = [' class="number"' if right else "" for right in numeric]
    head = "".join(f'<th scope="col"{kind}>{name}</th>' for kind, name in zip(kinds, heads, strict=True))

    def line(name: str, *cells: str) -> str:
        data = "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds[1:], cells, strict=True))
        return f'<tr><th scope="row">{name}</th>{data}</tr>'

    body = "".join(line(*row) for row in rows)
    return (
        f'<table class="adatemp-table"><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _as_text(caption: str, heads: list[str], rows: list[list[str]], numeric: list[bool]) -> str:
    cells = [[plain(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > TEXT_WIDTH and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1

    def line(row: list[str]) -> list[str]:
        wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
        return [
            "  ".join(
                part.rjust(width) if right else part.ljust(width)
                for part, width, right in zip(parts, widths, numeric, strict=True)
            ).rstrip()
            for parts in zip(*(_filled(parts, max(map(len, wrapped))) for parts in wrapped), strict=True)
        ]

    rule = ["  ".join("-" * width for width in widths)]
    shown = [*textwrap.wrap(plain(caption), TEXT_WIDTH), "", *line(cells[0]), *rule]
    return "\n".join([*shown, *(part for row in cells[1:] for part in line(row))])


def _filled(parts: list[str], height: int) -> list[str]:
    return parts + [""] * (height - len(parts))

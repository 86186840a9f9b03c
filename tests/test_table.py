"""Tables: the page gets marked-up HTML, a terminal gets columns, and what no reader could follow is refused."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from IPython.core.formatters import DisplayFormatter

from adatemp import plotting

LINES = [("8", "53.8", "hard"), ("1,024", "−3.1 ± 0.2", ""), ("2 < 3", "4.1 × 10<sup>−4</sup>", "soft &amp; slow")]


def parsed(table: plotting.Table) -> ElementTree.Element:
    """The table as an XML parser reads it, which is stricter than a browser."""
    return ElementTree.fromstring(table.html.replace("2 < 3", "2 &lt; 3"))


def test_every_cell_has_its_line_s_head_and_its_column_s() -> None:
    root = parsed(plotting.table("Accuracy", ("items", "mean", "reading"), LINES))
    assert (root.tag, root.get("class"), root.findtext("caption")) == ("table", "adatemp-table", "Accuracy")
    assert [(th.get("scope"), th.text) for th in root.findall("thead/tr/th")] == [
        ("col", "items"),
        ("col", "mean"),
        ("col", "reading"),
    ]
    rows = root.findall("tbody/tr")
    assert [row[0].tag for row in rows] == ["th"] * 3 and {row[0].get("scope") for row in rows} == {"row"}
    assert [["".join(cell.itertext()) for cell in row] for row in rows] == [
        ["8", "53.8", "hard"],
        ["1,024", "−3.1 ± 0.2", ""],
        ["2 < 3", "4.1 × 10−4", "soft & slow"],
    ]


@pytest.mark.parametrize(
    ("cells", "right"),
    [
        (("1,024", "", "−0.5"), True),
        (("12%", "+3.1%"), True),
        (("27.9 to 50.0", "4.1 × 10<sup>5</sup>", "3.1 ± 0.2"), True),
        (("1.4×", "≈ 3 ms", "2.0 GB", "61 TFLOP/s"), True),
        (("731", "never"), True),
        (("4, 14", "3"), False),
        (("71.3 / 12.0", "3"), False),
        (("float16", "3"), False),
        (("2 heads of ten", "3"), False),
    ],
)
def test_a_column_of_numbers_is_set_to_the_right_with_its_head(cells, right) -> None:
    table = plotting.table("c", ("name", "value"), [(str(i), cell) for i, cell in enumerate(cells)])
    root = parsed(table)
    marked = [cell.get("class") == "number" for cell in [root.findall("thead/tr/th")[1], *root.findall(".//td")]]
    assert marked == [right] * (1 + len(cells))


def test_heads_of_lines_stay_left_also_where_they_are_sizes() -> None:
    root = parsed(plotting.table("c", ("n", "x"), [("8", "1"), ("16", "2")]))
    assert root.find("thead/tr/th").get("class") is None and root.find("tbody/tr/th").get("class") is None


def test_it_prints_as_columns_without_markup() -> None:
    text = repr(plotting.table("Accuracy", ("items", "mean", "reading"), LINES))
    assert text.splitlines() == [
        "Accuracy",
        "",
        "items        mean  reading",
        "-----  ----------  -----------",
        "8            53.8  hard",
        "1,024  −3.1 ± 0.2",
        "2 < 3  4.1 × 10⁻⁴  soft & slow",
    ]


def test_long_cells_are_wrapped_and_lose_no_word() -> None:
    sentence = "that the read-out is continuous at the value of B, however slowly the weight of A goes to zero " * 2
    text = repr(plotting.table("c", ("name", "says"), [("a version", sentence), ("another", "nothing")]))
    assert max(map(len, text.splitlines())) <= 100
    assert [word for line in text.splitlines()[4:-1] for word in line.removeprefix("a version").split()] == (
        sentence.split()
    )


def test_a_front_end_is_given_html_and_text() -> None:
    table = plotting.table("c", ("n", "x"), [("8", "1")])
    data, _ = DisplayFormatter().format(table)
    assert data["text/html"] == table.html and data["text/plain"] == table.text
    assert "<" not in data["text/plain"]


@pytest.mark.parametrize(
    ("caption", "columns", "lines", "message"),
    [
        (" ", ("n", "x"), [("8", "1")], "caption is empty"),
        ("c", (), [], "columns is empty"),
        ("c", "nx", [("8", "1")], "columns='nx' is one string"),
        ("c", ("n", ""), [("8", "1")], r"columns\[1\] is empty"),
        ("c", ("n", "<b> </b>"), [("8", "1")], r"columns\[1\] is empty"),
        ("c", ("n", "x"), [], "lines is empty"),
        ("c", ("n", "x"), [("8", "1"), ("16",)], r"lines\[1\] has 1 cells and there are 2 columns"),
        ("c", ("n", "x"), [("8", "1", "2")], r"lines\[0\] has 3 cells"),
        ("c", ("n", "x"), [("", "1")], r"lines\[0\] begins with an empty head"),
    ],
)
def test_what_no_reader_could_follow_is_refused(caption, columns, lines, message) -> None:
    with pytest.raises(ValueError, match=message):
        plotting.table(caption, columns, lines)


def test_lines_and_cells_may_come_from_iterators_and_be_numbers() -> None:
    table = plotting.table("c", iter(["n", "x"]), ((n, n * n) for n in (2, 3)))
    assert [row.findtext("td") for row in parsed(table).findall("tbody/tr")] == ["4", "9"]

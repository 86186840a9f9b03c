"""What a report says, in a notebook and in a terminal."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from adatemp.checks import CheckFailed, Finding, Report
from adatemp.checks._report import Diagnosis

WRONG = Diagnosis("scale left out", "The logits grow with <H>.", "It is easy to forget.", "Look at `query.shape`.")


class _Picture:
    def _repr_html_(self) -> str:
        return "<svg role='img'></svg>"


def _failed(picture=None) -> Report:
    findings = (
        Finding("one key", "passed"),
        Finding("the gradient", "left out", note="written in NumPy"),
        Finding("many keys", "failed", WRONG),
        Finding("a mask", "not reached"),
    )
    return Report("01.4 Attention", False, "The logits grow.", findings, picture)


def _passed() -> Report:
    return Report("01.4 Attention", True, "Everything holds.", (Finding("one key", "passed"),))


class _WellFormed(HTMLParser):
    """Collects the text of HTML in which every tag is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def _text(report: Report) -> str:
    parser = _WellFormed()
    parser.feed(report._repr_html_())
    assert not parser.open
    return parser.text


def test_truth_value_and_mistake_follow_the_outcome():
    assert _passed() and _passed().mistake is None
    assert not _failed() and _failed().mistake == "scale left out"


def test_require_returns_a_passed_report_and_raises_on_a_failed_one():
    report = _passed()
    assert report.require() is report
    with pytest.raises(CheckFailed, match="scale left out"):
        _failed().require()


@pytest.mark.parametrize("shown", [str, _text], ids=["terminal", "notebook"])
def test_every_stage_and_sentence_is_told_in_words(shown):
    text = shown(_failed())
    for words in ("one key (passed)", "(left out: written in NumPy)", "(failed: scale left out)", "(not reached)"):
        assert words in text
    for words in ("What is wrong", "Why it is likely", "What to look at", "grow with <H>.", "easy to forget"):
        assert words in text
    assert "Everything holds." in shown(_passed())


def test_html_escapes_text_and_sets_code():
    shown = _failed()._repr_html_()
    assert "<H>" not in shown and "&lt;H&gt;" in shown
    assert "<code>query.shape</code>" in shown


def test_html_names_the_group_for_screen_readers_and_hides_the_symbols():
    shown = _failed()._repr_html_()
    assert "role='group'" in shown and "aria-label='Check of exercise 01.4 Attention: not yet'" in shown
    for symbol in "✓✗–·":
        assert len(re.findall(f"aria-hidden='true'[^>]*>{symbol}<", shown)) == 1


def test_html_fixes_no_text_colour_so_that_both_colour_schemes_are_legible():
    colours = re.findall(r"(?<![-\w])(?:color|background):([^;']+)", _failed()._repr_html_())
    assert colours
    assert all(c == "inherit" or c.startswith(("var(--adatemp-", "rgba(127, 127, 127")) for c in colours)


def test_picture_is_drawn_when_the_report_is_displayed_and_not_before():
    drawn = []

    def draw() -> _Picture:
        drawn.append(True)
        return _Picture()

    report = _failed(draw)
    assert str(report) and not drawn
    assert "<svg" in report._repr_html_() and drawn
    assert "<svg" in _failed(_Picture())._repr_html_()


def test_report_appears_even_when_the_picture_cannot_be_drawn():
    def draw() -> _Picture:
        raise ZeroDivisionError

    assert "scale left out" in _failed(draw)._repr_html_()

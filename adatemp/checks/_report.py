"""The report that an exercise check returns: what passed, what failed, why that is likely and what to look at."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["passed", "failed", "left out", "not reached"]

_SYMBOL = {"passed": "✓", "failed": "✗", "left out": "–", "not reached": "·"}

# Text keeps the page's own colour, so that it is legible on any background; the two accents are middle tones with at
# least 3:1 contrast on white and on near-black, and a theme may replace them.
_GOOD = "var(--adatemp-good, #2e8b57)"
_BAD = "var(--adatemp-bad, #d1495b)"
_FAINT = "rgba(127, 127, 127, 0.09)"


class CheckFailed(AssertionError):
    """Raised by `Report.require` when a check did not pass; the message is the whole report as text."""


@dataclass(frozen=True)
class Diagnosis:
    """What a failed stage tells the reader.

    Attributes:
        name: the mistake's name, a few words.
        wrong: what is wrong with what came back.
        why: why this mistake is a likely one.
        look: what to look at next; never the answer.
    """

    name: str
    wrong: str
    why: str
    look: str

    def sentences(self) -> tuple[tuple[str, str], ...]:
        labelled = (("What is wrong", self.wrong), ("Why it is likely", self.why), ("What to look at", self.look))
        return tuple((label, text) for label, text in labelled if text)


@dataclass(frozen=True)
class Finding:
    """The outcome of one stage, with a diagnosis if it failed and a note if it was left out."""

    stage: str
    outcome: Outcome
    diagnosis: Diagnosis | None = None
    note: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """What a check found. Displays itself in a notebook, prints itself in a terminal, is true when everything passed.

    Attributes:
        exercise: number and title, as in "01.2 Entropy without p log p".
        passed: whether every stage that was run passed.
        message: the finding in words.
        findings: one `Finding` a stage, in the order they were run.
        picture: a picture with `_repr_html_`, or a function that draws it when the report is displayed.
    """

    exercise: str
    passed: bool
    message: str
    findings: tuple[Finding, ...] = ()
    picture: Any | Callable[[], Any] | None = None

    def __bool__(self) -> bool:
        return self.passed

    @property
    def mistake(self) -> str | None:
        """The name of the mistake that was recognised, or None when the check passed."""
        failed = self._failed()
        return failed.name if failed else None

    def require(self) -> Report:
        """Returns the report if it passed and raises `CheckFailed` otherwise: for solutions that must stay right."""
        if not self.passed:
            raise CheckFailed(str(self))
        return self

    def _failed(self) -> Diagnosis | None:
        return next((f.diagnosis for f in self.findings if f.diagnosis is not None), None)

    def __str__(self) -> str:
        lines = [f"Exercise {self.exercise}: {'passed' if self.passed else 'not yet'}"]
        lines += [f"  {_SYMBOL[f.outcome]} {f.stage} ({_words(f)})" for f in self.findings]
        failed = self._failed()
        lines += [f"{label}: {text}" for label, text in failed.sentences()] if failed else [self.message]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        accent = _GOOD if self.passed else _BAD
        verdict = "passed" if self.passed else "not yet"
        failed = self._failed()
        told = (
            "".join(f"<dt {_TERM}>{label}</dt><dd {_TOLD}>{_prose(text)}</dd>" for label, text in failed.sentences())
            if failed
            else ""
        )
        body = f"<dl style='margin:0.6em 0 0'>{told}</dl>" if told else f"<p {_LINE}>{_prose(self.message)}</p>"
        return (
            f"<div role='group' aria-label='Check of exercise {html.escape(self.exercise, quote=True)}: {verdict}' "
            f"style='border-left:0.3em solid {accent};background:{_FAINT};padding:0.6em 1em;margin:0.5em 0;"
            "border-radius:0.25em;max-width:46em;color:inherit;line-height:1.5'>"
            f"<p style='margin:0'><strong>Exercise {html.escape(self.exercise)}: {verdict}</strong></p>"
            f"<ul style='list-style:none;margin:0.4em 0 0;padding:0'>{''.join(map(_item, self.findings))}</ul>"
            f"{body}{_drawn(self.picture)}</div>"
        )


_TERM = "style='font-weight:600;margin:0.3em 0 0'"
_TOLD = "style='margin:0 0 0.2em'"
_LINE = "style='margin:0.5em 0 0'"


def _item(finding: Finding) -> str:
    accent = {"passed": f"color:{_GOOD}", "failed": f"color:{_BAD}"}.get(finding.outcome, "")
    weight = "font-weight:600" if finding.outcome == "failed" else ""
    return (
        f"<li style='margin:0;{weight}'><span aria-hidden='true' style='display:inline-block;width:1.4em;{accent}'>"
        f"{_SYMBOL[finding.outcome]}</span>{_prose(finding.stage)} <span>({_prose(_words(finding))})</span></li>"
    )


def _words(finding: Finding) -> str:
    if finding.diagnosis is not None:
        return f"{finding.outcome}: {finding.diagnosis.name}"
    return f"{finding.outcome}: {finding.note}" if finding.note else finding.outcome


def _prose(text: str) -> str:
    """Escapes text for HTML and sets what stands in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text)).replace("\n", "<br>")


def _drawn(picture: Any | Callable[[], Any] | None) -> str:
    """The picture as HTML, or nothing: a reader's function may fail in any way, and the report must still appear."""
    if picture is None:
        return ""
    try:
        shown = picture() if callable(picture) else picture
        return f"<div style='margin-top:0.6em'>{shown._repr_html_()}</div>"
    except Exception:
        return ""

"""Checks of exercises that ask for more than one function: one examination each, one report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from adatemp.checks._report import Finding, Report


def in_turn(
    examinations: Sequence[Callable[[], Report]],
    *,
    remark: str = "",
    picture: Callable[[], Any] | None = None,
) -> Report:
    """Runs examinations until one fails and joins what they found into one report.

    Args:
        examinations: each examines one of the reader's functions; a later one runs only if all before it passed.
        remark: one sentence that a reader who passed everything should take away.
        picture: draws the result; called only when the report is displayed.

    Returns:
        The joint report: the first failed one's message, or a sentence that counts what holds.
    """
    findings: list[Finding] = []
    report = None
    for examination in examinations:
        report = examination()
        findings += report.findings
        if not report:
            return dataclasses.replace(report, findings=tuple(findings), picture=picture)
    assert report is not None
    message = f"Everything that was checked holds ({len(findings)} stages). {remark}".strip()
    return dataclasses.replace(report, message=message, findings=tuple(findings), picture=picture)

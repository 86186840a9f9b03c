"""Checks of the exercises, one module a chapter: `checks.ch01.ex1(my_softmax)` says what is wrong and what to look at.

A check never shows the answer. It runs the reader's function from basic cases to subtle ones, stops at the first that
fails, and compares what came back with what the usual mistakes would have returned.

A chapter's checks are written with three names:

* `Stage`: one property, the call that probes it, the right result from an independent source, and the mistakes to name;
* `Mistake`: a name, how it is recognised from what the function returned, and three sentences for the reader;
* `examine`: runs the stages on the reader's function and returns a `Report`.
"""

from __future__ import annotations

import importlib

from adatemp.checks._report import CheckFailed, Finding, Report
from adatemp.checks._stages import Mistake, NotApplicable, Stage, examine

_CHAPTERS = ("ch01", "ch02", "ch03", "ch04", "ch05", "ch06", "ch07", "ch08", "ch09", "ch10", "ch11")

__all__ = ["CheckFailed", "Finding", "Mistake", "NotApplicable", "Report", "Stage", "examine", *_CHAPTERS]


def __getattr__(name: str):
    if name in _CHAPTERS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; the chapters with checks are {_CHAPTERS}")


def __dir__() -> list[str]:
    return sorted(__all__)

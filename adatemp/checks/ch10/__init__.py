"""Checks of chapter 10: the merge, two forms of the sum, one more moment, no new kernel, one pass, many devices."""

from __future__ import annotations

from adatemp.checks.ch10._merge import ex1
from adatemp.checks.ch10._offset import ex2

__all__ = ["ex1", "ex2"]

"""Checks of chapter 06: the margin theorem, rounding, exact arithmetic, the referee, (log n)/n, the repair."""

from __future__ import annotations

from adatemp.checks.ch06._exact import ex3
from adatemp.checks.ch06._log_rate import ex5
from adatemp.checks.ch06._margin import ex1
from adatemp.checks.ch06._read_outs import ReadOut, read_outs
from adatemp.checks.ch06._referee import ex4
from adatemp.checks.ch06._repair import ASSUMPTIONS, VERSIONS, ex6
from adatemp.checks.ch06._rounding import ex2

__all__ = ["ASSUMPTIONS", "VERSIONS", "ReadOut", "ex1", "ex2", "ex3", "ex4", "ex5", "ex6", "read_outs"]

"""Checks of chapter 04: a certificate, black boxes, jumps, the ALiBi floor, measured spread, a repaired theorem."""

from __future__ import annotations

from adatemp.checks.ch04._alibi import ex4
from adatemp.checks.ch04._certificate import ex1
from adatemp.checks.ch04._jumps import ex3
from adatemp.checks.ch04._measured import ex5
from adatemp.checks.ch04._repair import ex6
from adatemp.checks.ch04._suspects import suspects
from adatemp.checks.ch04._which import ex2

__all__ = ["ex1", "ex2", "ex3", "ex4", "ex5", "ex6", "suspects"]

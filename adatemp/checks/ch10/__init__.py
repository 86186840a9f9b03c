"""Checks of chapter 10: the merge, two forms of the sum, one more moment, no new kernel, one pass, many devices."""

from __future__ import annotations

from adatemp.checks.ch10._devices import ex6
from adatemp.checks.ch10._kernel_free import CASES, ex4
from adatemp.checks.ch10._merge import ex1
from adatemp.checks.ch10._moment import ex3
from adatemp.checks.ch10._offset import ex2
from adatemp.checks.ch10._one_pass import ex5

__all__ = ["CASES", "ex1", "ex2", "ex3", "ex4", "ex5", "ex6"]

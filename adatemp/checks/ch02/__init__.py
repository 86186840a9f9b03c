"""Checks of chapter 02: sharpness, larger problems, kinds of error, one number for a head, what is added, intervals."""

from __future__ import annotations

from adatemp.checks.ch02._added import ex5
from adatemp.checks.ch02._definition import ex1
from adatemp.checks.ch02._errors import ex3
from adatemp.checks.ch02._growth import ex2
from adatemp.checks.ch02._intervals import ex6
from adatemp.checks.ch02._one_number import ex4

__all__ = ["ex1", "ex2", "ex3", "ex4", "ex5", "ex6"]

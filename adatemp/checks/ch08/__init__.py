"""Checks of chapter 08: the window, rows left alone, a test suite, the gradient of β, the best β, the offset rule."""

from __future__ import annotations

from adatemp.checks.ch08._best import ex5
from adatemp.checks.ch08._gradient import ex4
from adatemp.checks.ch08._offset import ex6
from adatemp.checks.ch08._suite import ex3
from adatemp.checks.ch08._untouched import ex2
from adatemp.checks.ch08._window import ex1

__all__ = ["ex1", "ex2", "ex3", "ex4", "ex5", "ex6"]

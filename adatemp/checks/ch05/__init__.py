"""Checks of chapter 05: attained bounds, rotations, the spectral budget, the QK-norm ceiling, a tracked norm."""

from __future__ import annotations

from adatemp.checks.ch05._attain import ex1
from adatemp.checks.ch05._budget import ex3
from adatemp.checks.ch05._ceiling import ex4
from adatemp.checks.ch05._rotations import ex2, rotate
from adatemp.checks.ch05._track import ex5

__all__ = ["ex1", "ex2", "ex3", "ex4", "ex5", "rotate"]

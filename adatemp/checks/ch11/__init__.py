"""Checks of chapter 11: the ragged tile, the second loop, row scalars, the count of the work, the choice of a tile."""

from __future__ import annotations

from adatemp.checks.ch11._choice import ex5
from adatemp.checks.ch11._occupancy import LIMITS, Limits
from adatemp.checks.ch11._ragged import ex1
from adatemp.checks.ch11._row_problem import Rows
from adatemp.checks.ch11._row_scalars import ex3
from adatemp.checks.ch11._second_loop import ex2
from adatemp.checks.ch11._work import ex4

__all__ = ["LIMITS", "Limits", "Rows", "ex1", "ex2", "ex3", "ex4", "ex5"]

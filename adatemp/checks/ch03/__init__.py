"""Checks of chapter 03: both ends, the smallest size, the entropy floor, false bounds, mass and weight, growth of δ."""

from __future__ import annotations

from adatemp.checks.ch03._attack import ex4
from adatemp.checks.ch03._claims import claims
from adatemp.checks.ch03._ends import ex1
from adatemp.checks.ch03._floor import ex3
from adatemp.checks.ch03._growth import ex6
from adatemp.checks.ch03._mass import ex5
from adatemp.checks.ch03._size import ex2

__all__ = ["claims", "ex1", "ex2", "ex3", "ex4", "ex5", "ex6"]

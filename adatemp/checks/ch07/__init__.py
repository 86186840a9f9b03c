"""Checks of chapter 07: dispersed heads, a common shift, the causal average, who arrives first, inducing points."""

from __future__ import annotations

from adatemp.checks.ch07._arrivals import ex4
from adatemp.checks.ch07._average import ex3
from adatemp.checks.ch07._dispersed import ex1
from adatemp.checks.ch07._inducing import ex5
from adatemp.checks.ch07._maps import Map, maps
from adatemp.checks.ch07._shift import ex2

__all__ = ["Map", "ex1", "ex2", "ex3", "ex4", "ex5", "maps"]

"""Checks of chapter 09: the length-free threshold, 1.5-entmax, sinks as gates, top-k, visible counts, a fair table."""

from __future__ import annotations

from adatemp.checks.ch09._entmax import ex2
from adatemp.checks.ch09._fair import ex6
from adatemp.checks.ch09._planted_runs import TRAIN_SIZES, clean
from adatemp.checks.ch09._sink import ex3
from adatemp.checks.ch09._threshold import ex1
from adatemp.checks.ch09._top_k import ex4
from adatemp.checks.ch09._visible import ex5

__all__ = ["TRAIN_SIZES", "clean", "ex1", "ex2", "ex3", "ex4", "ex5", "ex6"]

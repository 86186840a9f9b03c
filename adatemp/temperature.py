"""Temperature rules: how sharp a softmax row should be, given what its own statistics say.

A rule turns the statistics of a row into beta, the *inverse* temperature that multiplies its logits: beta above 1
sharpens. Rules are values. They are frozen dataclasses registered as pytrees, whose parameters are leaves, so a rule
can be differentiated, vmapped, trained and passed through jit; whatever chooses code is static. A parameter
broadcasts against the row's shape: one number for all rows or, for logits [B, N, T, S] and a value a head, [N, 1].

`constant`, `polynomial`, `log_ratio`, `exp_offset`, `newton`, `guarded` and `target_entropy` build rules and check what
they are given.
`scalable`, `yarn` and `llama4` go by the length of the row alone.
`PAPER` is the published quartic, `PAPER_HELD` the same held at its peak. `fit_inverse_temperature` fits a new map,
`fit_guarded` the guarded rule to a head's training lengths.

Each rule lives in a file of its own; this one only names them.
"""

from __future__ import annotations

from adatemp._constant import constant
from adatemp._exp_offset import exp_offset
from adatemp._fit import TemperatureFit, fit_inverse_temperature
from adatemp._guarded import guarded
from adatemp._guarded_fit import GuardedFit, fit_guarded
from adatemp._length_rules import llama4, scalable, yarn
from adatemp._log_ratio import log_ratio
from adatemp._newton import newton
from adatemp._polynomial import PAPER, PAPER_COEFFICIENTS, PAPER_HELD, polynomial
from adatemp._rule import RowStatistics, TemperatureRule
from adatemp._target_entropy import target_entropy

__all__ = [
    "GuardedFit",
    "PAPER",
    "PAPER_COEFFICIENTS",
    "PAPER_HELD",
    "RowStatistics",
    "TemperatureFit",
    "TemperatureRule",
    "constant",
    "exp_offset",
    "fit_guarded",
    "fit_inverse_temperature",
    "guarded",
    "llama4",
    "log_ratio",
    "newton",
    "polynomial",
    "scalable",
    "target_entropy",
    "yarn",
]

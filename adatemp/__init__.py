"""Softmax attention with an entropy-driven temperature, and what an executable textbook about it needs.

Names are loaded when they are first used, so that `import adatemp` brings JAX and nothing heavier: no Flax, no
Matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adatemp import attention as attention
    from adatemp import checks as checks
    from adatemp import dispersion as dispersion
    from adatemp import models as models
    from adatemp import plotting as plotting
    from adatemp import runtime as runtime
    from adatemp import sinks as sinks
    from adatemp import tasks as tasks
    from adatemp import temperature as temperature
    from adatemp import training as training
    from adatemp import variants as variants
    from adatemp import widgets as widgets
    from adatemp._attention_stats import AttentionStats, StatsReport
    from adatemp._entropy import entropy
    from adatemp._row_state import RowState
    from adatemp._softmax import adaptive_temperature_softmax
    from adatemp.attention.api import attention_entropy, dot_product_attention
    from adatemp.temperature import (
        PAPER,
        PAPER_HELD,
        constant,
        exp_offset,
        fit_guarded,
        fit_inverse_temperature,
        guarded,
        llama4,
        log_ratio,
        newton,
        polynomial,
        scalable,
        target_entropy,
        yarn,
    )

_MODULE_OF = {
    "adaptive_temperature_softmax": "adatemp._softmax",
    "entropy": "adatemp._entropy",
    "attention_entropy": "adatemp.attention.api",
    "dot_product_attention": "adatemp.attention.api",
    "AttentionStats": "adatemp._attention_stats",
    "StatsReport": "adatemp._attention_stats",
    "RowState": "adatemp._row_state",
    "PAPER": "adatemp.temperature",
    "PAPER_HELD": "adatemp.temperature",
    "constant": "adatemp.temperature",
    "polynomial": "adatemp.temperature",
    "log_ratio": "adatemp.temperature",
    "exp_offset": "adatemp.temperature",
    "newton": "adatemp.temperature",
    "guarded": "adatemp.temperature",
    "fit_guarded": "adatemp.temperature",
    "target_entropy": "adatemp.temperature",
    "scalable": "adatemp.temperature",
    "yarn": "adatemp.temperature",
    "llama4": "adatemp.temperature",
    "fit_inverse_temperature": "adatemp.temperature",
}
_SUBMODULES = (
    "attention",
    "checks",
    "dispersion",
    "models",
    "plotting",
    "runtime",
    "sinks",
    "tasks",
    "temperature",
    "training",
    "variants",
    "widgets",
)

# Not the submodules: `from adatemp import *` must not import Flax.
__all__ = [
    "PAPER",
    "PAPER_HELD",
    "AttentionStats",
    "RowState",
    "StatsReport",
    "adaptive_temperature_softmax",
    "attention_entropy",
    "constant",
    "dot_product_attention",
    "entropy",
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


def __getattr__(name: str):
    if name in _SUBMODULES:
        return importlib.import_module(f"adatemp.{name}")
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    if name == "__version__":
        from importlib.metadata import version

        return version("adatemp")
    from difflib import get_close_matches

    close = get_close_matches(name, __dir__(), n=1)
    raise AttributeError(
        f"module 'adatemp' has no attribute {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""),
        name=name,
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES, "__version__"})

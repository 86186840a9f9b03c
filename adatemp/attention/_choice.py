"""Which implementation serves a call: decided at trace time from sizes, dtypes and the visible devices."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from adatemp.attention.chunked import FEW_QUERIES, ChunkedConfig
from adatemp.attention.configs import PallasConfig, compute_capabilities

if TYPE_CHECKING:
    from types import ModuleType

    from adatemp.attention._problem import Problem
    from adatemp.temperature import TemperatureRule

_MODULES = {"dense": "reference", "chunked": "chunked", "pallas": "pallas"}
_ALIASES = {"xla": "dense"}
_CONFIGS = {"chunked": ChunkedConfig, "pallas": PallasConfig}

# Bytes of logits up to which the dense form is used: below, the loop of the chunked form costs more than it saves.
_DENSE_BYTES = 2**21


def module_of(name: str) -> ModuleType:
    """The module of an implementation."""
    return importlib.import_module(f"adatemp.attention.{_MODULES[name]}")


def choose(problem: Problem, rule: TemperatureRule | None, implementation, config) -> tuple[str, object, str | None]:
    """The implementation that runs, its config, and the one that runs if the call is placed on the host's processor.

    Raises:
        ValueError: A name that does not exist, or a config of an implementation that was not asked for.
        NotImplementedError: None of those asked for can serve.
    """
    names = _names(problem, implementation, config)
    if config is not None and not any(isinstance(config, _CONFIGS.get(name, ())) for name in names):
        raise ValueError(
            f"config is a {type(config).__name__} and implementation={implementation!r} takes none; give a "
            "ChunkedConfig with 'chunked' or a PallasConfig with 'pallas', or leave config out"
        )
    reasons = []
    for name in names:
        its_config = config if isinstance(config, _CONFIGS.get(name, ())) else None
        reason = _refusal(name, problem, rule, its_config)
        if reason is None:
            on_device = name == "pallas" and not (its_config is not None and its_config.interpret)
            return name, its_config, "chunked" if on_device else None
        reasons.append(f"{name}: {reason}")
    raise NotImplementedError(
        "no implementation asked for can serve this call. "
        + "; ".join(reasons)
        + ". implementation=None always works"
        + ("" if config is None else " without config")
    )


def _names(problem: Problem, implementation, config) -> tuple[str, ...]:
    if config is not None and not isinstance(config, tuple(_CONFIGS.values())):
        raise TypeError(f"config must be a ChunkedConfig or a PallasConfig, got {config!r}")
    if implementation is None:
        for name, kind in _CONFIGS.items():
            if isinstance(config, kind):
                return (name,)
        B, T, S, N, _ = problem.sizes
        small = B * N * T * S * problem.stats_dtype.itemsize <= _DENSE_BYTES
        if small:
            return ("dense",)
        # A tile of the kernel has sixteen queries at the least: for a few it would work for nothing.
        return ("chunked", "dense") if T <= FEW_QUERIES else ("pallas", "chunked", "dense")
    given = (implementation,) if isinstance(implementation, str) else implementation
    if not isinstance(given, (tuple, list)) or not all(isinstance(name, str) for name in given):
        raise TypeError(f"implementation must be None, a name or a sequence of names, got {implementation!r}")
    names = tuple(_ALIASES.get(name, name) for name in given)
    if not names:
        raise ValueError("implementation is an empty sequence; leave it out for the fastest that can serve")
    for name in names:
        if name == "cudnn":
            raise ValueError(
                "implementation 'cudnn' has no row statistics and no temperature; leave implementation out, or call "
                "jax.nn.dot_product_attention for plain attention by cuDNN"
            )
        if name not in _MODULES:
            raise ValueError(
                f"implementation must be None, {', '.join(map(repr, _MODULES))} or a sequence of these, got {name!r}"
            )
    return names


def _refusal(name: str, problem: Problem, rule, config) -> str | None:
    if name == "chunked":
        return module_of("chunked").refusal(problem, rule, config)
    if name == "pallas":
        return module_of("pallas").refusal(problem, rule, config, compute_capabilities())
    return None

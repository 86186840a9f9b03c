"""The option matrix of attention: every option alone, and mixed cases in which every pair of options meets.

A case names one level of each factor it uses. Arrays are drawn in float64 from the case's name, so that every
implementation and dtype sees the same numbers.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
from rules import RULES

# All different, none a multiple of a block; more than one block of 16 in both directions.
B, T, S, N, K, H, V = 2, 19, 37, 4, 2, 8, 5

FACTORS = {
    "order": ("causal", "window", "causal_window"),
    "offset": ("one", "each"),
    "lengths": ("query", "key", "both"),
    "segments": ("pair",),
    "bias": ("full", "by_key", "by_head"),
    "mask": ("full", "by_key"),
    "cap": ("on",),
    "sink": ("on",),
    "scale": ("on",),
    "heads": ("one_key_head", "no_groups"),
    "rule": tuple(RULES),
    "positions": ("given",),
    "precision": ("highest",),
}

# An offset moves nothing without an order, and positions are read by one rule: those come with what they act on.
ALONE = {
    "plain": {},
    **{
        f"{factor}-{level}": {factor: level}
        for factor, levels in FACTORS.items()
        if factor not in ("offset", "positions")
        for level in levels
    },
    "offset-one": {"offset": "one", "order": "causal"},
    "offset-each": {"offset": "each", "order": "causal_window"},
    "positions-given": {"positions": "given", "rule": "position"},
}

# The factors of the mixed cases; a rule of each kind a kernel tells apart.
MIXED_FACTORS = {
    **{name: FACTORS[name] for name in FACTORS if name not in ("rule", "heads", "precision")},
    "heads": ("one_key_head",),
    "rule": ("paper", "offset", "everything"),
}
# Found by a greedy search over random cases; `test_options` counts the pairs.
MIXED = (
    dict(
        order="window",
        offset="one",
        lengths="key",
        segments="pair",
        bias="full",
        mask="by_key",
        cap="on",
        sink="on",
        scale="on",
        positions="given",
        heads="one_key_head",
        rule="everything",
    ),
    dict(
        order="causal",
        offset="each",
        lengths="query",
        segments="pair",
        bias="by_head",
        mask="full",
        cap="on",
        scale="on",
        positions="given",
        heads="one_key_head",
        rule="everything",
    ),
    dict(
        order="window",
        lengths="both",
        bias="by_key",
        mask="full",
        cap="on",
        sink="on",
        positions="given",
        heads="one_key_head",
        rule="paper",
    ),
    dict(
        order="causal_window",
        offset="one",
        lengths="key",
        segments="pair",
        bias="by_head",
        mask="full",
        sink="on",
        scale="on",
        positions="given",
        heads="one_key_head",
        rule="offset",
    ),
    dict(
        order="causal_window",
        offset="each",
        lengths="key",
        bias="full",
        mask="full",
        cap="on",
        sink="on",
        scale="on",
        positions="given",
        heads="one_key_head",
        rule="offset",
    ),
    dict(order="causal", lengths="both", bias="by_key", mask="by_key", scale="on", rule="offset"),
    dict(offset="one", lengths="query", segments="pair", bias="full", scale="on", rule="paper"),
    dict(
        order="causal_window",
        offset="each",
        lengths="query",
        bias="by_key",
        mask="by_key",
        cap="on",
        positions="given",
        rule="paper",
    ),
    dict(
        order="causal_window",
        offset="one",
        lengths="both",
        bias="by_key",
        mask="full",
        cap="on",
        sink="on",
        positions="given",
        rule="everything",
    ),
    dict(
        offset="each",
        lengths="both",
        segments="pair",
        bias="by_head",
        mask="by_key",
        cap="on",
        scale="on",
        positions="given",
        rule="paper",
    ),
    dict(
        order="window",
        offset="each",
        lengths="query",
        bias="by_head",
        sink="on",
        positions="given",
        heads="one_key_head",
        rule="offset",
    ),
    dict(
        order="causal",
        offset="one",
        lengths="key",
        bias="full",
        cap="on",
        sink="on",
        scale="on",
        positions="given",
        heads="one_key_head",
        rule="paper",
    ),
    dict(
        order="causal_window",
        lengths="key",
        segments="pair",
        bias="by_key",
        cap="on",
        heads="one_key_head",
        rule="paper",
    ),
    dict(
        lengths="both",
        segments="pair",
        bias="full",
        mask="full",
        sink="on",
        scale="on",
        positions="given",
        rule="offset",
    ),
)


class Case(NamedTuple):
    arrays: dict  # query, key, value and where used bias, sink, rule: what is differentiated; float64
    options: dict  # the other arguments of attention, the bias among them
    rule: object  # a rules.Case, or None


def build(name: str, levels: dict) -> Case:
    """The arrays and options of a case."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    key_heads = {"one_key_head": 1, "no_groups": N}.get(levels.get("heads"), K)
    # Entropies from 0.3 to 3 nats, where the published map moves fastest.
    query, key = 1.8 * rng.normal(size=(B, T, N, H)), rng.normal(size=(B, S, key_heads, H))
    arrays = {"query": query, "key": key, "value": rng.normal(size=(B, S, key_heads, V))}
    options = {}
    for factor, level in levels.items():
        if factor == "rule":
            arrays["rule"] = RULES[level].parameters
        else:
            options |= _OPTIONS[factor](level, rng)
    for name in ("bias", "sink"):
        if name in options:
            arrays[name] = options[name]
    return Case(arrays, options, RULES[levels["rule"]] if "rule" in levels else None)


def _order(level, rng):
    window = {"window": (14, 9), "causal_window": 11}
    return ({"is_causal": True} if "causal" in level else {}) | (
        {"local_window_size": window[level]} if level in window else {}
    )


def _lengths(level, rng):
    # The first sequence of the batch has no queries, or no keys.
    lengths = {"query_seq_lengths": np.array([0, 17]), "key_value_seq_lengths": np.array([0, 31])}
    if level == "both":
        return {"query_seq_lengths": np.array([17, 11]), "key_value_seq_lengths": np.array([S, 23])}
    return {name: array for name, array in lengths.items() if name.startswith(level)}


def _bias(level, rng):
    shape = {"full": (B, N, T, S), "by_key": (B, 1, 1, S), "by_head": (1, N, T, 1)}[level]
    bias = rng.normal(size=shape)
    if level != "by_head":
        bias[rng.random(shape) < 0.15] = -np.inf
    if level == "full":
        bias[0, 1, 3], bias[1, :, 17] = -np.inf, -np.inf  # dead rows, the last block's last but one among them
    return {"bias": bias}


def _mask(level, rng):
    mask = rng.random((B, N, T, S) if level == "full" else (B, 1, 1, S)) < 0.7
    if level == "full":
        mask[0, :, 0] = mask[1, 2, 5:9] = mask[1, 3] = False  # dead rows: first, in the middle, a whole head
    return {"mask": mask}


_OPTIONS = {
    "order": _order,
    "offset": lambda level, rng: {"query_offset": 7 if level == "one" else np.array([18, 3])},
    "lengths": _lengths,
    "segments": lambda level, rng: {
        "segment_ids": (3 * (np.arange(T) >= [[9], [4]]), 3 * (np.arange(S) >= [[14], [6]]))
    },
    "bias": _bias,
    "mask": _mask,
    "cap": lambda level, rng: {"logits_soft_cap": 3.0},
    "sink": lambda level, rng: {"sink": rng.normal(size=N) + 1},
    "scale": lambda level, rng: {"scale": 0.6},
    "heads": lambda level, rng: {},
    "positions": lambda level, rng: {"query_positions": rng.integers(0, 100, (B, T))},
    "precision": lambda level, rng: {"precision": "highest"},
}


def pairs(levels: dict) -> set:
    """The pairs of levels that meet in a case."""
    chosen = sorted(levels.items())
    return {(a, b) for i, a in enumerate(chosen) for b in chosen[i + 1 :]}


def all_pairs() -> set:
    """Every pair of levels of different factors."""
    chosen = [(factor, level) for factor in MIXED_FACTORS for level in MIXED_FACTORS[factor]]
    return {(a, b) for a in sorted(chosen) for b in sorted(chosen) if a < b and a[0] != b[0]}

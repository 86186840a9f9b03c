"""Queries in a few spans, each with the keys it can see at all: half the work of a causal mask is never begun.

What a span sees follows from positions that are known when the program is traced, and each span is a program of its
own, so there are few of them. Inside a span the mask does the rest.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax

from adatemp.attention._logits import Keys, Queries
from adatemp.attention._problem import Problem

# Bytes of all logits together from which spans are worth their compilation, a program each. A window leaves little to
# every span. A causal mask leaves more to the later ones, whose copies of the keys also add up: four spans do 5/8 of
# the work with 2.5 times the keys, eight would do 9/16 with 4.5 times.
_FROM_BYTES, _SPANS_OF_WINDOW, _SPANS_OF_CAUSAL = 2**28, 8, 4
# Share of the work that must be saved.
_WORTH = 0.2


class Span(NamedTuple):
    """Queries [first, last) and the keys [start, stop) that they see at most; at least one key."""

    first: int
    last: int
    start: int
    stop: int


def spans_of(problem: Problem, rule, block_q: int) -> list[Span]:
    """The spans of a call, in order, each of whole blocks of block_q queries but the last."""
    B, T, S, N, _ = problem.sizes
    whole = [Span(0, T, 0, S)]
    bounded = problem.is_causal or problem.window is not None
    if not bounded or problem.query_offset is not None or (rule is not None and "row" in rule.needs):
        return whole
    if B * N * T * S * problem.stats_dtype.itemsize < _FROM_BYTES:
        return whole
    before, after = problem.window or (T, S)
    after = 0 if problem.is_causal else after
    wanted = _SPANS_OF_CAUSAL if problem.window is None else _SPANS_OF_WINDOW
    length = math.ceil(math.ceil(T / block_q) / wanted) * block_q
    spans = []
    for first in range(0, T, length):
        last = min(first + length, T)
        start = min(max(0, first - before), S - 1)
        spans.append(Span(first, last, start, max(start + 1, min(S, last + after))))
    work = sum((span.last - span.first) * (span.stop - span.start) for span in spans)
    return spans if work < (1 - _WORTH) * T * S else whole


def cut_span(span: Span, queries: Queries, sliced, keys: Keys):
    """The part of queries, of a rule's sliced leaves and of keys that belongs to a span."""

    def of_queries(array):
        return array if array is None else jax.lax.slice_in_dim(array, span.first, span.last, axis=1)

    def of_keys(array, axis):
        if array is None or array.shape[axis] == 1:
            return array
        return jax.lax.slice_in_dim(array, span.start, span.stop, axis=axis)

    queries, sliced = jax.tree.map(of_queries, (queries, sliced))
    queries = queries.replace(bias=of_keys(queries.bias, -1), mask=of_keys(queries.mask, -1))
    axes = Keys(key=2, value=2, index=0, alive=1, segments=1, bias=-1, mask=-1)
    return queries, sliced, Keys(*(of_keys(array, axis) for array, axis in zip(keys, axes)))

"""Attention with all logits at once: the plainest form, in any floating dtype, and what the others are held against."""

from __future__ import annotations

from adatemp.attention._logits import split
from adatemp.attention._rows import attend_rows


def attend(problem, rule, *, with_output: bool, with_stats: bool, config=None):
    """Output [B, T, N, V] and statistics [B, T, N]; differentiable forwards, backwards, and as often as is liked.

    Memory grows with T times S. Everything is done in the dtype of the statistics but the last product, whose weights
    are rounded to the dtype of the values.
    """
    queries, keys = split(problem)
    return attend_rows(problem, rule, queries, keys, with_stats=with_stats)

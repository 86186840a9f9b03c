"""Few queries against many keys, as in decoding: the keys in splits that are worked on at once.

One query gives one row, too little to keep a device busy; its keys are cut into splits instead. Each split has its
`RowState`, which are merged; each then sums its part of the tempered output, which are added. The logits of a few
queries fit in memory, so they are kept and no key is read twice.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._row_state import row_state
from adatemp.attention._key_blocks import beta_from_state, cut_keys, finish, join, merge_all, tempered
from adatemp.attention._logits import live_logits
from adatemp.attention._products import weighted_values, weighted_values_as_they_are

if TYPE_CHECKING:
    from adatemp.attention._logits import Keys, Queries


def attend_key_splits(problem, rule, queries: Queries, keys: Keys, split: int, *, with_stats: bool):
    """Output [B, T, N, V], or None without values, and statistics [B, T, N], from splits of `split` keys."""
    splits = cut_keys(problem, queries, keys, split)
    z = jax.vmap(lambda part: live_logits(problem, *join(queries, part)))(splits)  # [splits, B, K, G, T, split]
    second_moment = rule is not None and "variance" in rule.needs
    state = merge_all(row_state(z, (5,), second_moment=second_moment))
    beta = beta_from_state(rule, queries, state)
    sums = tuple(jnp.sum(part, 0) for part in _sums(problem, z, splits[0], beta, state.m))
    return finish(problem, rule, state, beta, sums, None if keys.value is None else keys.value.dtype, with_stats)


def _sums(problem, z, keys: Keys, beta, m):
    """Each split's sum of e and, with values, of e v.

    To make sure that all values are finite, or to set those to 0 that are not, would be to read them twice; reading is
    all that a decoding step does. So they are used as they are, and only a NaN in the result makes it be done again.
    """
    e = jax.vmap(lambda z: tempered(z, beta, m))(z)
    totals = jnp.sum(e, -1)
    if keys.value is None:
        return (totals,)
    quick = jax.vmap(partial(weighted_values_as_they_are, problem))(e, keys.value)
    numerators = jax.lax.cond(
        jnp.any(jnp.isnan(quick)),
        lambda e: jax.vmap(partial(weighted_values, problem))(e, z, keys.value),
        lambda e: quick,
        e,
    )
    return totals, numerators

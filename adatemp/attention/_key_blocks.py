"""Attention of queries that see the keys a block at a time: statistics merged first, then the tempered output.

Beta depends on the entropy of the whole row, so the output cannot begin before every key has been seen: the logits are
computed twice. The first sweep gives each block's `RowState`; they are merged in pairs, pairs of pairs and so on, which
rounds log2(blocks) times where a running sum rounds blocks times. The second sweep knows the largest logit, so its sums
are never rescaled. Gradients are those of these lines, each block computed again backwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._row_state import RowState, row_state
from adatemp._softmax import LOWEST_TEMPERED
from adatemp.attention._logits import Keys, Queries, live_logits
from adatemp.attention._products import weighted_values
from adatemp.attention._rows import beta_of_queries, sink_logits, stats_of, to_public_output

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from adatemp.attention._problem import Problem


def attend_key_blocks(problem, rule, queries: Queries, keys: Keys, block_k: int, *, with_stats: bool):
    """Output [B, T, N, V], or None without values, and statistics [B, T, N], with logits for block_k keys at a time."""
    blocks = cut_keys(problem, queries, keys, block_k)
    second_moment = rule is not None and "variance" in rule.needs
    # The gradient of queries adds up over the blocks of keys, in the dtype that the loop sees: never bfloat16.
    wide = queries.replace(query=queries.query.astype(problem.stats_dtype))

    def joined(block):
        queries_of_block, keys_of_block = join(wide, block)
        return queries_of_block.replace(query=queries_of_block.query.astype(queries.query.dtype)), keys_of_block

    def state_of(block):
        return key_state(problem, *joined(block), second_moment=second_moment)

    state = merge_all(jax.lax.map(jax.checkpoint(state_of), blocks))
    beta = beta_from_state(rule, queries, state)

    @jax.checkpoint
    def add(sums, block):
        queries_and_keys = joined(block)
        part = tempered_sums(problem, live_logits(problem, *queries_and_keys), queries_and_keys[1], beta, state.m)
        return tuple(a + b for a, b in zip(sums, part)), None

    sums, _ = jax.lax.scan(add, empty_sums(problem, queries, keys), blocks)
    return finish(problem, rule, state, beta, sums, None if keys.value is None else keys.value.dtype, with_stats)


def key_state(problem: Problem, queries: Queries, keys: Keys, *, second_moment: bool) -> RowState:
    """The state [B, K, G, T] of the rows against these keys."""
    return row_state(live_logits(problem, queries, keys), (4,), second_moment=second_moment)


def beta_from_state(rule, queries: Queries, state: RowState) -> Float[Array, "B K G T"]:
    """The rule's beta for rows of which only the state is known."""
    summary = state.finalise()
    readable = {"count": state.count, "entropy": summary.entropy, "variance": summary.variance}
    return beta_of_queries(rule, queries, readable, state.count == 0, state.m.dtype)


def merge_all(states: RowState) -> RowState:
    """One state of states stacked along the first axis."""
    while (n := states.m.shape[0]) > 1:
        left = jax.tree.map(lambda x: x[: n // 2], states)
        right = jax.tree.map(lambda x: x[n // 2 : n // 2 * 2], states)
        merged = left.merge(right)
        if n % 2:
            merged = jax.tree.map(lambda x, last: jnp.concatenate([x, last[-1:]]), merged, states)
        states = merged
    return jax.tree.map(lambda x: x[0], states)


def tempered_sums(problem: Problem, z: Float[Array, "B K G T S"], keys: Keys, beta, m):
    """(sum of e [B, K, G, T], and with values sum of e v [B, T, K, G, V]) with e = exp(beta (z - m))."""
    e = tempered(z, beta, m)
    if keys.value is None:
        return (jnp.sum(e, -1),)
    return jnp.sum(e, -1), weighted_values(problem, e, z, keys.value)


def tempered(z, beta, m):
    """exp(beta (z - m)), 0 at a hidden key."""
    return jnp.exp(beta[..., None] * jnp.maximum(z - m[..., None], LOWEST_TEMPERED))


def empty_sums(problem: Problem, queries: Queries, keys: Keys) -> tuple[Float[Array, "..."], ...]:
    """The sums before any key has been seen."""
    B, T, N, _ = queries.query.shape
    K = keys.key.shape[1]
    total = jnp.zeros((B, K, N // K, T), problem.stats_dtype)
    if keys.value is None:
        return (total,)
    return total, jnp.zeros((B, T, K, N // K, keys.value.shape[-1]), problem.stats_dtype)


def finish(problem: Problem, rule, state: RowState, beta, sums, dtype, with_stats: bool):
    """Output and statistics from a row's state, its beta and its tempered sums."""
    total, *numerator = sums
    live = state.count > 0
    log_total = jnp.log(jnp.where(live, total, 1))
    if problem.sink is not None:
        sink = sink_logits(problem, state.m) - beta * state.m
        log_total = jnp.where(live, jnp.logaddexp(log_total, sink), 0)
    output = None
    if numerator:
        output = numerator[0] * jnp.moveaxis(jnp.exp(-log_total), -1, 1)[..., None]
        output = to_public_output(output, dtype)
    if not with_stats:
        return output, None
    summary = state.finalise()
    return output, stats_of(~live, summary.entropy, beta, state.m, summary.lse - state.m, log_total, rule)


def cut_keys(problem: Problem, queries: Queries, keys: Keys, block_k: int):
    """Keys, and what belongs to queries and keys both, in blocks along a new first axis; added keys are hidden."""
    S = keys.index.shape[0]
    B = keys.key.shape[0]
    blocks = -(-S // block_k)
    padding = blocks * block_k - S
    if padding and keys.alive is None:
        keys = keys._replace(alive=jnp.ones((B, S), bool))

    def cut(array, axis):
        if array is None or array.shape[axis] == 1 < S:
            return array if array is None else jnp.broadcast_to(array, (blocks, *array.shape))
        axis %= array.ndim
        array = jnp.pad(array, [(0, padding if a == axis else 0) for a in range(array.ndim)])
        return jnp.moveaxis(array.reshape(*array.shape[:axis], blocks, block_k, *array.shape[axis + 1 :]), axis, 0)

    axes = Keys(key=2, value=2, index=0, alive=1, segments=1, bias=-1, mask=-1)
    cut_of_keys = Keys(*(cut(array, axis) for array, axis in zip(keys, axes)))
    return cut_of_keys, cut(queries.bias, -1), cut(queries.mask, -1)


def join(queries: Queries, block):
    """The queries and keys of one block."""
    keys, bias, mask = block
    return queries.replace(bias=bias, mask=mask), keys

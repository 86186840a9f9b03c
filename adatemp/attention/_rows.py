"""Attention of queries that see their whole rows of logits: what the dense and the chunked form are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._attention_stats import AttentionStats
from adatemp._entropy import row_statistics
from adatemp._row_state import shifted
from adatemp._rule import beta_of_rows
from adatemp._softmax import LOWEST_TEMPERED
from adatemp.attention._logits import Keys, Queries, live_logits
from adatemp.attention._problem import Problem
from adatemp.attention._products import weighted_values

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from adatemp.temperature import TemperatureRule

HOW = (
    "the rows are [batch, queries, heads]; shape its parameters so, a value a head as [heads], a value a "
    "sequence as [batch, 1, 1]"
)


def attend_rows(problem: Problem, rule: TemperatureRule | None, queries: Queries, keys: Keys, *, with_stats: bool):
    """Output [B, T, N, V], or None without values, and statistics [B, T, N], of queries that see all keys at once."""
    z = live_logits(problem, queries, keys)
    m, log_l, entropy, variance = row_statistics((4,), rule is not None and "variance" in rule.needs, z)
    dead = jnp.max(jax.lax.stop_gradient(z), -1) == -jnp.inf
    readable = {
        "count": jnp.sum(z != -jnp.inf, -1, dtype=jnp.int32),
        "entropy": entropy,
        "variance": variance,
        "row": shifted(z, m, (4,)),
    }
    beta = beta_of_queries(rule, queries, readable, dead, z.dtype)
    sink = None if problem.sink is None else sink_logits(problem, m) - beta * m
    weights, log_total = normalise(beta[..., None] * shifted(z, m, (4,), lowest=LOWEST_TEMPERED), sink)
    output = None
    if keys.value is not None:
        output = weighted_values(problem, weights, z != -jnp.inf, keys.value)
        output = to_public_output(output, keys.value.dtype)
    if not with_stats:
        return output, None
    return output, stats_of(dead, entropy, beta, m, log_l, log_total, rule)


def beta_of_queries(
    rule: TemperatureRule | None, queries: Queries, readable: dict, dead, dtype
) -> Float[Array, "B K G T"]:
    """The rule's beta, 1 in dead rows, from what there is to read of rows [B, K, G, T]."""
    if rule is None:
        return jnp.ones(dead.shape, dtype)
    B, K, G, T = dead.shape
    public = {name: to_public(x) for name, x in readable.items() if name in rule.needs}
    if "position" in rule.needs:
        public["position"] = jnp.broadcast_to(queries.positions[:, :, None], (B, T, K * G))
    beta = beta_of_rows(rule, public, (B, T, K * G), dtype, HOW)
    return jnp.where(dead, 1, from_public(beta, K))


def stats_of(dead, entropy, beta, m, log_l, log_total, rule) -> AttentionStats:
    """Statistics in the public shape from rows [B, K, G, T]."""
    lse, lse_scaled = (jnp.where(dead, -jnp.inf, x) for x in (m + log_l, beta * m + log_total))
    fields = (to_public(x) for x in (entropy, beta, lse, lse_scaled))
    return AttentionStats(*fields, None if rule is None else rule.range)


def sink_logits(problem: Problem, rows) -> Float[Array, "B K G T"]:
    """The sink's logit of each row."""
    _, _, _, N, K = problem.sizes
    return jnp.broadcast_to(problem.sink.astype(rows.dtype).reshape(K, N // K, 1), rows.shape)


@jax.custom_jvp
def normalise(x, sink=None):
    """(a, log L) of rows x whose largest entry is 0, or that are dead; a sink's logit joins L alone.

        L = sum exp(x) + exp(sink),    a = exp(x) / L
        d log L = sum a dx + exp(sink - log L) dsink,    da = a (dx - d log L)

    The largest scaled logit is beta times the largest logit, since beta > 0: it needs no second search. Only a sink
    can be larger.
    """
    shift = None if sink is None else jax.lax.stop_gradient(jnp.maximum(sink, 0))
    e = jnp.exp(x if shift is None else x - shift[..., None])
    total = jnp.sum(e, -1)
    if sink is not None:
        total = total + jnp.exp(sink - shift)
    total = jnp.where(total == 0, 1, total)  # a dead row
    log_total = jnp.log(total)
    return e / total[..., None], log_total if shift is None else log_total + shift


@normalise.defjvp
def _normalise_jvp(primals, tangents):
    x, sink = primals
    dx, dsink = tangents
    a, log_total = normalise(x, sink)
    d_log_total = jnp.sum(a * dx, -1)
    if sink is not None:
        d_log_total = d_log_total + jnp.exp(sink - log_total) * dsink
    return (a, log_total), (a * (dx - d_log_total[..., None]), d_log_total)


def to_public(rows):
    """[B, K, G, T, ...] to [B, T, N, ...]."""
    rows = jnp.moveaxis(rows, 3, 1)
    return rows.reshape(*rows.shape[:2], -1, *rows.shape[4:])


def from_public(rows, K: int):
    """[B, T, N] to [B, K, G, T]."""
    return jnp.moveaxis(rows.reshape(*rows.shape[:2], K, -1), 1, 3)


def to_public_output(output, dtype):
    """[B, T, K, G, V] to [B, T, N, V], rounded once."""
    return output.reshape(*output.shape[:2], -1, output.shape[-1]).astype(dtype)

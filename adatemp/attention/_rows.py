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
    # The largest tempered logit is beta times the largest logit, since beta > 0: it needs no second search.
    e = jnp.exp(beta[..., None] * shifted(z, m, (4,), lowest=LOWEST_TEMPERED))
    log_total = jnp.log(jnp.where(dead, 1, jnp.sum(e, -1)))
    if problem.sink is not None:
        log_total = jnp.where(dead, 0, jnp.logaddexp(log_total, sink_logits(problem, m) - beta * m))
    output = None
    if keys.value is not None:
        output = weighted_values(problem, e, z, keys.value)
        output = output * jnp.moveaxis(jnp.exp(-log_total), -1, 1)[..., None]  # cheaper here than on every weight
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

"""Softmax with a temperature that each row's own statistics decide."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._attention_stats import AttentionStats
from adatemp._constant import is_one
from adatemp._entropy import row_statistics
from adatemp._polynomial import PAPER
from adatemp._row_state import check_rows, live_logits, shifted
from adatemp._rule import TemperatureRule, beta_of_rows, check_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, ArrayLike, Bool, Float


# Where differences of logits are cut before beta multiplies them: low enough that exp(beta t) is 0 for any beta above
# 1e-27, and finite, so that beta's derivative meets 0 * t and not 0 * -inf.
LOWEST_TEMPERED = -1e30

_HOW = "the rows are the logits without axis; shape its parameters so, a value a head as [heads, 1]"


def adaptive_temperature_softmax(
    logits: Float[Array, "..."],
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
    *,
    temperature: TemperatureRule | None = PAPER,
    return_stats: bool = False,
) -> Float[Array, "..."] | tuple[Float[Array, "..."], AttentionStats]:
    """softmax(beta z), with the inverse temperature beta of each row a function of the row's own entropy.

    For a row z with entropy H = H(softmax(z)), the weights are softmax(beta(H) z), and gradients pass through beta.
    Everything is computed in at least float32 and rounded once, to the logits' dtype; `jax.nn.softmax` of float16 or
    bfloat16 rounds at every step. With `temperature=None`, and with `constant(1.0)` whose value is known at trace time,
    the weights are those of `jax.nn.softmax` to the bit.

    A row without live keys (all masked or -inf) gets weights 0, entropy 0, beta 1, and gradient 0. A NaN in a live
    logit makes its row NaN, and no other; a NaN behind the mask changes nothing.

    Args:
        logits: Floating array, in the scale of the softmax (scaled, biased and masked already).
        axis: The axis or axes that run over the keys of a row, as in `jax.nn.softmax`; None for all of them.
        where: Mask that broadcasts to the logits, True where a key takes part. A logit of -inf never does.
        temperature: A rule from `adatemp.temperature`; None for `jax.nn.softmax` itself.
        return_stats: Whether to return the rows' statistics too.

    Returns:
        Weights of the logits' shape and dtype, 0 where masked, 1 in sum over each row with live keys; with
        `return_stats` also `AttentionStats`, whose fields have the shape without `axis`.

    Raises:
        TypeError: Logits that are not floating point, a mask that is not boolean, or a temperature that is not a rule.
        ValueError: An axis that does not exist or has no keys, a mask or a rule's parameter that does not broadcast.

    References:
        "softmax is not enough (for sharp out-of-distribution)", https://arxiv.org/abs/2410.01104

    Example:
        One key stands out by 3 among 64. Plain softmax gives it a quarter of the weight, the published map most of it:

        >>> import jax.numpy as jnp
        >>> from adatemp import adaptive_temperature_softmax
        >>> logits = jnp.zeros(64).at[0].set(3.0)
        >>> print(f"{adaptive_temperature_softmax(logits, temperature=None)[0]:.3f}")
        0.242
        >>> weights, stats = adaptive_temperature_softmax(logits, return_stats=True)
        >>> print(f"{weights[0]:.3f} with entropy {stats.entropy:.3f} nats and beta {stats.beta:.3f}")
        0.947 with entropy 3.695 nats and beta 2.344
    """
    logits, axes, where = check_rows(logits, axis, where)
    if temperature is not None:
        check_rule(temperature)
        if "position" in temperature.needs:
            raise ValueError(
                f"temperature: rule {type(temperature).__name__} reads the query's position, which logits alone do not "
                "have; use adatemp.dot_product_attention, which takes query_positions"
            )
    if temperature is None or is_one(temperature):
        weights = _plain(axes, logits, where)
        return (weights, _plain_stats(axes, logits, where)) if return_stats else weights
    weights, stats = _tempered(axes, logits, where, temperature)
    return (weights, stats) if return_stats else weights


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _plain(axes, logits, where):
    """`jax.nn.softmax`, its very bits, except that a dead row is 0 where it would be NaN.

    Called on the logits as they are and outside any jit of ours: in float16 and bfloat16 the compiler keeps or drops
    roundings by what it fuses. The derivative is written here because that of `jax.nn.softmax` makes NaN of a dead
    row: da = a (dz - sum a dz).
    """
    dead = jnp.max(logits, axes, keepdims=True, where=where, initial=-jnp.inf) == -jnp.inf
    return jnp.where(dead, 0, jax.nn.softmax(logits, axes, where=where))


@_plain.defjvp
def _plain_jvp(axes, primals, tangents):
    logits, where = primals
    a = _plain(axes, logits, where)
    dz = tangents[0] if where is None else jnp.where(where, tangents[0], 0)
    return a, a * (dz - jnp.sum(a * dz, axes, keepdims=True))


@partial(jax.jit, static_argnums=0)
def _plain_stats(axes, logits, where):
    z = live_logits(logits, where)
    m, log_l, entropy, _ = row_statistics(axes, False, z)
    lse = jnp.where(_dead(z, axes), -jnp.inf, m + log_l)
    return AttentionStats(entropy, jnp.ones_like(lse), lse, lse)


@partial(jax.jit, static_argnums=0)
def _tempered(axes, logits, where, rule):
    """Weights and statistics under a rule.

    Gradients, by the chain rule through beta. With p = softmax(z), a = softmax(beta z), w = a (da - sum a da) for a
    cotangent da of the weights, and cotangents dH, dB, dL and dL2 of entropy, beta, lse and lse_scaled:

        dbeta = sum z w + dB + dL2 E_a[z]
        gH    = dH + (d beta / d H) dbeta,    gV = (d beta / d V) dbeta
        dz    = beta w + beta dL2 a + p (dL - gH (z - mu) + gV ((z - mu)^2 + 2 (z - mu) - V))

    with mu and V the mean and variance of z under p. Here they come from two derivative rules, that of
    `row_statistics` for the bracket after p and that of `_normalise` for w and E_a, and from the rule itself.
    """
    z = live_logits(logits, where)
    m, log_l, entropy, variance = row_statistics(axes, "variance" in rule.needs, z)
    readable = {
        "count": jnp.sum(z != -jnp.inf, axes, dtype=jnp.int32),
        "entropy": entropy,
        "variance": variance,
        "row": _keys_last(shifted(z, m, axes), axes) if "row" in rule.needs else None,
    }
    dead = _dead(z, axes)
    beta = jnp.where(dead, 1, beta_of_rows(rule, readable, m.shape, m.dtype, _HOW))

    t = shifted(z, m, axes, lowest=LOWEST_TEMPERED)
    weights, log_total = _normalise(axes, jnp.expand_dims(beta, axes) * t)
    lse, lse_scaled = (jnp.where(dead, -jnp.inf, x) for x in (m + log_l, beta * m + log_total))
    return weights.astype(logits.dtype), AttentionStats(entropy, beta, lse, lse_scaled, rule.range)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _normalise(axes: tuple[int, ...], x):
    """(a, log L) with L = sum exp(x) and a = exp(x) / L, for rows x whose largest entry is 0, or that are dead.

        d log L = sum a dx,    da = a (dx - sum a dx)

    The largest scaled logit is beta times the largest logit, since beta > 0: it needs no second search.
    """
    e = jnp.exp(x)
    total = jnp.sum(e, axes, keepdims=True)
    total = jnp.where(total == 0, 1, total)  # a dead row
    return e / total, jnp.log(jnp.squeeze(total, axes))


@_normalise.defjvp
def _normalise_jvp(axes, primals, tangents):
    (x,), (dx,) = primals, tangents
    a, log_total = _normalise(axes, x)
    mean = jnp.sum(a * dx, axes, keepdims=True)
    return (a, log_total), (a * (dx - mean), jnp.squeeze(mean, axes))


def _dead(z, axes):
    """Which rows of live logits have none."""
    return jnp.max(jax.lax.stop_gradient(z), axes) == -jnp.inf


def _keys_last(array, axes):
    """[..., keys axes ...] to [*rows, n]."""
    array = jnp.moveaxis(array, axes, range(-len(axes), 0))
    return array.reshape(*array.shape[: -len(axes)], -1)

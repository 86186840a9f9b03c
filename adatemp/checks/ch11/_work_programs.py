"""Plain and adaptive attention written out, forward and backward: what exercise 11.4's formulas are compared with."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

_N, _WIDTH = 24, 16


def _logits(q, k):
    return q @ k.T * k.shape[1] ** -0.5


def _plain_forward(q, k, v):
    z = _logits(q, k)
    m = z.max(1)
    e = jnp.exp(z - m[:, None])
    l = e.sum(1)
    return e @ v / l[:, None], m + jnp.log(l)


def _adaptive_forward(q, k, v):
    z = _logits(q, k)  # the first loop
    m = z.max(1)
    t = z - m[:, None]
    e = jnp.exp(t)
    l = e.sum(1)
    entropy = jnp.log(l) - (t * e).sum(1) / l
    beta = 1.0 + 0.3 * entropy
    z = _logits(q, k)  # the second loop has to make the logits again
    e = jnp.exp(beta[:, None] * (z - m[:, None]))
    total = e.sum(1)
    return e @ v / total[:, None], m, jnp.log(l), entropy, jnp.log(total)


def _plain_backward(q, k, v, d_output, lse, delta):
    def weights():
        a = jnp.exp(_logits(q, k) - lse[:, None])
        return a, a * (d_output @ v.T - delta[:, None])

    _, w = weights()  # the kernel that owns queries
    dq = w @ k
    a, w = weights()  # the kernel that owns keys makes everything again
    return dq, w.T @ q, a.T @ d_output


def _adaptive_backward(q, k, v, d_output, m, log_l, log_total, entropy, delta, g):
    beta = 1.0 + 0.3 * entropy

    def weights():
        t = _logits(q, k) - m[:, None]
        p, a = jnp.exp(t - log_l[:, None]), jnp.exp(beta[:, None] * t - log_total[:, None])
        return a, p * (t - (log_l - entropy)[:, None]), a * (d_output @ v.T - delta[:, None])

    _, centred, w = weights()
    dq = beta[:, None] * (w @ k) - g[:, None] * (centred @ k)
    a, centred, w = weights()
    return dq, (beta[:, None] * w - g[:, None] * centred).T @ q, a.T @ d_output


_PROGRAMS = {
    # (adaptive, backward): the function, how many arrays [n, width] it takes, and how many numbers a row
    (False, False): (_plain_forward, 3, 0),
    (True, False): (_adaptive_forward, 3, 0),
    (False, True): (_plain_backward, 4, 2),
    (True, True): (_adaptive_backward, 4, 6),
}


@functools.cache
def counted(adaptive: bool, backward: bool) -> tuple[int, int]:
    """(products of n × n × width, exponentials a pair), from XLA's cost analysis of the program as it is written.

    Twice the width adds the products and nothing that is counted for a pair; what is left over is counted for a row.
    """
    function, arrays, rows = _PROGRAMS[adaptive, backward]

    def cost(width: int) -> dict[str, float]:
        given = [jax.ShapeDtypeStruct((_N, width), jnp.float32)] * arrays
        given += [jax.ShapeDtypeStruct((_N,), jnp.float32)] * rows
        return jax.jit(function).lower(*given).cost_analysis()

    narrow, wide = cost(_WIDTH), cost(2 * _WIDTH)
    products = (wide["flops"] - narrow["flops"]) / (2 * _N * _N * _WIDTH)
    return round(products), round(narrow["transcendentals"] / _N**2)


def moved(n: Any, width: Any, *, adaptive: bool, backward: bool) -> Any:
    """Bytes that a pass has to move: 4 or 8 arrays in bfloat16, and its numbers a row in float32."""
    row_numbers = (6 if adaptive else 2) if backward else (4 if adaptive else 1)
    return (8 if backward else 4) * 2 * n * width + 4 * row_numbers * n

"""Uniform causal attention is the Cesàro mean: its powers, in closed form and in forms that survive rounding.

(Cx)_i = (x_1 + … + x_i)/i. Layers of uniform causal attention without residual apply C again and again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from adatemp._bound_arguments import require_weight

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float


def cesaro_power(states: Float[ArrayLike, "n *features"], layers: int) -> Any:
    """C^L x by averaging L times: sums of positive multiples, so nothing cancels; O(L n).

    Args:
        states: x, tokens on the first axis.
        layers: L, at least 0.

    Returns:
        C^L x: float64 for NumPy and Python numbers, traceable and at least float32 for JAX arrays.

    >>> cesaro_power([1.0, 0.0, 0.0, 0.0], 1)
    array([1.        , 0.5       , 0.33333333, 0.25      ])
    """
    layers = _whole("layers", layers, 0)
    xp = jnp if isinstance(states, jax.Array) else np
    dtype = jnp.promote_types(states.dtype, jnp.float32) if xp is jnp else np.float64
    states = xp.asarray(states, dtype)
    count = xp.arange(1, states.shape[0] + 1, dtype=dtype).reshape(-1, *[1] * (states.ndim - 1))
    if xp is jnp:
        return jax.lax.fori_loop(0, layers, lambda _, x: jnp.cumsum(x, 0) / count, states)
    for _ in range(layers):
        states = np.cumsum(states, 0) / count
    return states


def cesaro_closed_form(states: Sequence[Any], layers: int) -> list[Fraction]:
    """C^L x exactly, by (C^L x)_i = Σ_k C(i−1, k−1) k^(−L) Δ^(k−1)x_1, k from 1 to i.

    The eigenvalues of C are 1, 1/2, 1/3, …, and its eigenvectors are columns of Pascal's triangle, in which x has the
    forward differences Δ^(k−1)x_1 as coordinates. So all but the first token's value dies like 2^(−L). The terms
    alternate and grow like 4^i: after a few layers nothing is left of them in floating point past i ≈ 40, hence the
    fractions.

    Args:
        states: x, a sequence of numbers; floats are taken at their exact value.
        layers: L, at least 0.

    Returns:
        C^L x as fractions.

    >>> [str(value) for value in cesaro_closed_form([1, 0, 0], 2)]
    ['1', '3/4', '11/18']
    """
    layers = _whole("layers", layers, 0)
    row = [Fraction(value) for value in states]
    differences = []
    for _ in range(len(row)):
        differences.append(row[0])
        row = [after - before for before, after in zip(row, row[1:])]
    scaled = [difference / Fraction(k) ** layers for k, difference in enumerate(differences, 1)]
    return [sum(math.comb(i, k) * scaled[k] for k in range(i + 1)) for i in range(len(scaled))]


def cesaro_weights(i: int, layers: int) -> Float[np.ndarray, " i"]:
    """Row i of C^L: what token i is made of after L layers, in closed form without cancellation.

    Since k^(−L) is the mean of e^(−(k−1)t) over a Gamma(L) variable t, the alternating sum becomes a mixture: token i
    consists of token j with the chance that a binomial variable of i − 1 trials and success e^(−t) is j − 1, where
    e^(−t) is a product of L uniform numbers. All terms are positive. The mean is taken by the trapezoidal rule in
    log t, whose error falls faster than any power of its step; time does not depend on L.

    Args:
        i: the token's number, from 1.
        layers: L, at least 1.

    Returns:
        i weights that sum to 1, right to about 1e-12, float64.

    >>> cesaro_weights(3, 2)
    array([0.61111111, 0.27777778, 0.11111111])
    """
    i, layers = _whole("i", i, 1), _whole("layers", layers, 1)
    # log t has a width of about 1/√L under the Gamma law, and the binomial one of about 1/√i in log(e^t − 1).
    step = 0.25 / math.sqrt(max(layers, i, 4))
    low = math.log(layers) - 40.0 / math.sqrt(layers) - 40.0 / layers
    high = math.log(layers + 12.0 * math.sqrt(layers) + 60.0)
    y = np.arange(low, high + step, step)
    t = np.exp(y)
    log_density = layers * y - t - math.lgamma(layers) + math.log(step)
    keep = log_density > -80.0
    t, log_density = t[keep], log_density[keep]
    log_fail = np.log(-np.expm1(-t))
    j = np.arange(i)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, i)))])
    log_choose = factorials[-1] - factorials - factorials[::-1]
    weights = np.zeros(i)
    for part in np.array_split(np.arange(t.size), max(1, t.size * i // 2**22)):  # a bounded table at a time
        table = log_density[part, None] - t[part, None] * j + log_fail[part, None] * (i - 1 - j)
        weights += np.exp(table + log_choose).sum(0)
    return weights


def layers_until_first(i: int, epsilon: float) -> int:
    """How many layers of uniform causal attention bring token i within ε of token 1.

    In units of the largest distance of any token from token 1: the distance of token i is then at most 1 minus its
    weight on token 1, attained where all other tokens are equal. That is at most (i−1) 2^(−L) and nearly so, hence
    about log₂((i−1)/ε) layers: late tokens arrive last.

    Args:
        i: the token's number, from 1.
        epsilon: ε in (0, 1).

    Returns:
        The least such L.

    Raises:
        ValueError: if an argument is out of range.

    >>> layers_until_first(2, 0.01), layers_until_first(1024, 0.01)
    (7, 17)
    """
    i = _whole("i", i, 1)
    require_weight(epsilon)
    if i == 1:
        return 0
    missing = np.concatenate([[0.0], np.ones(i - 1)])  # 1 − the weight on token 1, of every token up to i
    count, layers = np.arange(1, i + 1), 0
    while missing[-1] > epsilon:
        missing, layers = np.cumsum(missing) / count, layers + 1
    return layers


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)

"""The exact entropy floor read backwards: from an entropy to the spread, or the size, that allows it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from adatemp._bound_arguments import floats, prepare, require_not_negative, require_scale, require_size
from adatemp._extremal_rows import peak_normaliser

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float

_NEWTON_STEPS = 60
# x − 1 − log x in even powers of s, from s²; the next term is below 1e-16 of the sum for s < 1/2
_SERIES = (1 / 8, -1 / 576, 1 / 25920, -1 / 1075200, 1 / 43545600, -691 / 1207084032000)


def spread_for_entropy(
    n: ArrayLike, entropy: Float[ArrayLike, "..."], temperature: Float[ArrayLike, "..."] = 1.0
) -> Any:
    """The spread below which no row of n keys has so little entropy: `entropy_floor` inverted.

    With D = log n − H, it solves x − 1 − log x = D for x = s/(1 − e^(−s)) and s = δ/θ. For small D the spread is
    √(8D), for large D it is D + 1 + log D and a little.

    Args:
        n: number of keys, at least 1.
        entropy: H in nats. At log n and above no spread is needed.
        temperature: θ, in the unit of the logits.

    Returns:
        δ in the unit of the logits, broadcast: every row of a smaller spread has more entropy than H.

    Raises:
        ValueError: if n < 1, H is negative or not finite, or θ is not positive.

    >>> round(float(spread_for_entropy(131_072, 5.9445)), 2)
    9.04
    """
    require_size(n)
    require_not_negative("entropy", entropy, "nats")
    require_scale(0.0, temperature)
    xp, n, entropy, temperature = floats(n, entropy, temperature)
    deficit = xp.maximum(xp.log(n) - entropy, 0.0)
    return (temperature * _spread_of_deficit(deficit))[()]


def log_size_for_entropy_above(
    entropy: Float[ArrayLike, "..."], spread: Float[ArrayLike, "..."], temperature: Float[ArrayLike, "..."] = 1.0
) -> Any:
    """The logarithm of the size beyond which every row has more entropy than H: log n = H + x − 1 − log x.

    Args:
        entropy: H in nats.
        spread: δ, in the unit of the logits.
        temperature: θ, in the unit of the logits.

    Returns:
        log n; for larger n no row within the spread has an entropy of H or less.

    Raises:
        ValueError: if H or δ is negative or not finite, or θ is not positive.

    >>> int(np.exp(log_size_for_entropy_above(5.94452, 5.69)))  # where the published map stops
    7418
    """
    require_not_negative("entropy", entropy, "nats")
    require_scale(spread, temperature)
    xp, entropy, s = prepare(entropy, spread, temperature)
    excess = peak_normaliser(xp, s) - 1.0
    return (entropy + excess - xp.log1p(excess))[()]


def _spread_of_deficit(deficit: Any) -> Any:
    if isinstance(deficit, jax.Array):
        return _spread_of_deficit_traced(deficit)
    return _solve(np, deficit)


@jax.custom_jvp
def _spread_of_deficit_traced(deficit):
    return _solve(jnp, deficit)


@_spread_of_deficit_traced.defjvp
def _spread_of_deficit_jvp(primals, tangents):
    s = _spread_of_deficit_traced(*primals)
    _, slope = _deficit_and_slope(jnp, s)
    return s, tangents[0] / slope


def _solve(xp: Any, deficit: Any) -> Any:
    """s with x − 1 − log x = D, by Newton's steps.

    The square root of 2(x − 1 − log x) is nearly a straight line in s at first and nearly √(2s) later, so it is that
    which is solved, from above: √(8D) and D + 1 + log(1 + D) + 1 both exceed the solution.
    """
    root = xp.sqrt(2.0 * deficit)
    s = xp.minimum(2.0 * root, deficit + 2.0 + xp.log1p(deficit))

    def improve(_, s):
        value, slope = _deficit_and_slope(xp, s)
        value_root = xp.sqrt(2.0 * value)
        at_zero = value_root == 0
        step = xp.where(at_zero, 0.0, (value_root - root) * value_root / xp.where(at_zero, 1.0, slope))
        return xp.maximum(s - step, 0.0)

    if xp is jnp:
        return jax.lax.fori_loop(0, _NEWTON_STEPS, improve, s)
    for _ in range(_NEWTON_STEPS):
        s = improve(_, s)
    return s


def _deficit_and_slope(xp: Any, s: Any) -> tuple[Any, Any]:
    """D(s) = x − 1 − log x and dD/ds = (1 − 1/x) dx/ds, both without cancellation at small s."""
    small = s < 0.5
    safe = xp.where(small, 1.0, s)
    low = xp.where(small, s, 0.0)
    x = safe / -xp.expm1(-safe)
    value = x - 1.0 - xp.log(x)
    slope = (1.0 - 1.0 / x) * (x / safe) * (1.0 - x * xp.exp(-safe))
    series = partial(_polynomial, low * low)
    return (
        xp.where(small, low * low * series(_SERIES), value),
        xp.where(small, low * series(tuple(2 * k * c for k, c in enumerate(_SERIES, 1))), slope),
    )


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    total = 0.0 * x
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total

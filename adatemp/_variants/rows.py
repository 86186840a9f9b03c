"""Rows as every variant computes on them: keys last, in at least float32, keys that take no part at -inf."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._row_state import check_rows, live_logits
from adatemp._rule import broadcasts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Array, ArrayLike, Bool, Float


def over_rows(
    weigh: Callable[..., Float[Array, "*rows n"]],
    logits: Float[Array, "..."],
    axis: int | Sequence[int] | None,
    where: Bool[ArrayLike, "..."] | None,
    *,
    settings: tuple = (),
    **parameters: Float[ArrayLike, "..."],
) -> Float[Array, "..."]:
    """Weights of the logits' shape and dtype, 0 at keys that take no part.

    Args:
        weigh: Weights [*rows, n] from z [*rows, n], live [*rows, n], the settings and each parameter [*rows, 1]. The
            logit z of a key that is not live is -inf. What it returns for such a key is replaced by 0, but its
            derivative must be finite there. A function of a module, since it is compiled once for each function.
        logits: As in `jax.nn.softmax`.
        axis: Likewise. Keys that run over several axes are put into one row with the last axis fastest.
        where: Likewise.
        settings: What chooses code.
        parameters: By name, each a number or an array that broadcasts to the rows, the logits without `axis`.

    Raises:
        TypeError: Logits, mask or parameter of a kind that cannot be meant.
        ValueError: An axis that does not exist or has no keys, a mask or a parameter that does not broadcast.
    """
    logits, axes, where = check_rows(logits, axis, where)
    rows = shape_of_rows(logits, axes)
    return _weights(weigh, axes, settings, logits, where, {k: of_rows(k, x, rows) for k, x in parameters.items()})


def shape_of_rows(logits, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The logits' shape without the axes that run over keys."""
    return tuple(size for a, size in enumerate(logits.shape) if a not in axes)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _weights(weigh, axes, settings, logits, where, parameters):
    last = tuple(range(-len(axes), 0))
    z = jnp.moveaxis(live_logits(logits, where), axes, last)
    keys_last = z.shape
    z = z.reshape(*keys_last[: -len(axes)], -1)
    live = z != -jnp.inf  # a NaN is live, so that it shows
    parameters = {k: jnp.broadcast_to(x, z.shape[:-1])[..., None].astype(z.dtype) for k, x in parameters.items()}
    weights = jnp.where(live, weigh(z, live, *settings, **parameters), 0)
    return jnp.moveaxis(weights.reshape(keys_last), last, axes).astype(logits.dtype)


def of_rows(name: str, value, rows: tuple[int, ...]) -> Float[Array, "#*rows"]:
    """A parameter that broadcasts to rows of this shape, or an error that names it."""
    try:
        array = jnp.asarray(value)
    except TypeError as error:
        raise TypeError(f"{name} must be a number or an array of numbers, got {value!r}") from error
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise TypeError(f"{name} must be real, got dtype {array.dtype.name}")
    if not broadcasts(array.shape, rows):
        raise ValueError(
            f"{name} of shape {array.shape} does not broadcast to the rows' shape {rows}, that of the logits "
            "without axis; for logits [batch, heads, queries, keys] give a value a head as [heads, 1]"
        )
    return array


def live_count(live: Bool[Array, "*rows n"], dtype) -> Float[Array, "*rows 1"]:
    """How many keys of each row take part, at least 1 so that a dead row can be divided by it."""
    return jnp.maximum(jnp.sum(live, -1, keepdims=True, dtype=jnp.int32), 1).astype(dtype)

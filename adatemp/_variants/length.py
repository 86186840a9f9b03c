"""Softmax with the logits multiplied by a function of how many keys the row has: temperature rules, as functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adatemp._length_rules import llama4, scalable, yarn
from adatemp._log_ratio import log_ratio
from adatemp._row_state import check_rows
from adatemp._softmax import adaptive_temperature_softmax
from adatemp._variants.rows import of_rows, shape_of_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, ArrayLike, Bool, Float


def log_length_softmax(
    logits: Float[Array, "..."],
    reference_count: Float[ArrayLike, "..."],
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """softmax(z log n / log n0) for a row of n live keys: left alone at n0 keys.

    With n0 = e it is softmax(z log n). It streams, at no cost: `dot_product_attention(...,
    temperature=log_ratio(n0))`, and in any kernel by multiplying the queries.

    Args:
        logits: Floating array; computed in at least float32.
        reference_count: n0, above 1; broadcasts to the rows, the logits without `axis`.
        axis: As in `adaptive_temperature_softmax`, like everything else about rows and edge cases.
        where: Likewise.

    References:
        "Overcoming a Theoretical Limitation of Self-Attention", https://arxiv.org/abs/2202.12172
    """
    rule = log_ratio(reference_count)
    return _tempered(logits, axis, where, rule, reference_count=reference_count)


def scalable_softmax(
    logits: Float[Array, "..."],
    scale: Float[ArrayLike, "..."],
    offset: Float[ArrayLike, "..."] = 0.0,
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """softmax((scale log n + offset) z) for a row of n live keys, scale and offset learned a head.

    It streams, at no cost: `dot_product_attention(..., temperature=scalable(scale, offset))`, where a value a head has
    shape [heads], and in any kernel by multiplying the queries. See `adatemp.temperature.scalable` for what happens at
    one key and where learned parameters turn negative.

    Args:
        logits: Floating array; computed in at least float32.
        scale: s, at least 0; broadcasts to the rows, the logits without `axis`: [heads, 1] for a value a head and
            logits [batch, heads, queries, keys].
        offset: b; likewise.
        axis: As in `adaptive_temperature_softmax`, like everything else about rows and edge cases.
        where: Likewise.

    References:
        "Scalable-Softmax Is Superior for Attention", https://arxiv.org/abs/2501.19399

    Example:
        A needle that stands out by 5, with scale 0.43: scale times gap is 2.15, and it keeps its weight at any n.

        >>> import jax.numpy as jnp
        >>> from adatemp import variants
        >>> for n in (10, 10_000):
        ...     z = jnp.full(n, -2.0).at[0].set(3.0)
        ...     print(f"{variants.scalable_softmax(z, 0.43)[0]:.3f} {variants.scalable_softmax(z, 0.19)[0]:.3f}")
        0.940 0.498
        1.000 0.387
    """
    rule = scalable(scale, offset)
    return _tempered(logits, axis, where, rule, scale=scale, offset=offset)


def yarn_softmax(
    logits: Float[Array, "..."],
    factor: Float[ArrayLike, "..."],
    coefficient: Float[ArrayLike, "..."] = 0.1,
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """softmax((coefficient log factor + 1)^2 z), the temperature of YaRN for a context stretched by a factor.

    It streams, at no cost: `dot_product_attention(..., temperature=yarn(factor))`. Arguments and errors are those of
    `adatemp.temperature.yarn` and `adaptive_temperature_softmax`.

    References:
        "YaRN: Efficient Context Window Extension of Large Language Models", https://arxiv.org/abs/2309.00071
    """
    rule = yarn(factor, coefficient)
    return _tempered(logits, axis, where, rule, factor=factor, coefficient=coefficient)


def llama4_softmax(
    logits: Float[Array, "..."],
    coefficient: Float[ArrayLike, "..."] = 0.1,
    axis: int | Sequence[int] | None = -1,
    where: Bool[ArrayLike, "..."] | None = None,
    *,
    floor_scale: int = 8192,
) -> Float[Array, "..."]:
    """softmax((1 + coefficient log(1 + floor(n / floor_scale))) z) for a row of n live keys, as in Llama 4.

    It streams, at no cost: `dot_product_attention(..., temperature=llama4())`. Arguments and errors are those of
    `adatemp.temperature.llama4` and `adaptive_temperature_softmax`.

    References:
        https://github.com/meta-llama/llama-models, models/llama4/model.py
    """
    rule = llama4(coefficient, floor_scale=floor_scale)
    return _tempered(logits, axis, where, rule, coefficient=coefficient)


def _tempered(logits, axis, where, rule, **parameters):
    logits, axes, where = check_rows(logits, axis, where)
    for name, value in parameters.items():
        of_rows(name, value, shape_of_rows(logits, axes))
    return adaptive_temperature_softmax(logits, axis, where, temperature=rule)

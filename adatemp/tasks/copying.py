"""Copying: a row of distinct tokens, then the same again, token by token; what comes next?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp.tasks._labelled_sets import sizes
from adatemp.tasks._token_rows import TokenRows
from adatemp.tasks.recall import distinct

if TYPE_CHECKING:
    from jaxtyping import Array, Key


def sample(
    key: Key[Array, ""],
    batch: int,
    n: int,
    *,
    answers: int | None = None,
    symbols: int = 1024,
    min_items: int | None = None,
) -> TokenRows:
    """Draw rows # x₁ … xₙ # x₁ … xₙ₋₁, whose last n tokens should be followed by x₁ … xₙ.

    The x of a row are distinct, 1, ..., symbols; # is token 0 and begins both halves, so that one way of looking
    answers all: find the token that came after the last one's first occurrence. The last tokens see the whole row and
    the copy up to themselves, about 2 n keys. Can be called inside jit.

    Args:
        key: a JAX random key.
        batch: number of rows.
        n: tokens to copy, or room for them when `min_items` is given.
        answers: how many of the last tokens ask, A; None for all n.
        symbols: different tokens there are to copy, at least n.
        min_items: when given, each row has its own length, uniform on min_items, ..., n; places before it are masked,
            and so are answers before its copy.

    Returns:
        The batch; rows have 2 n + 1 tokens.

    Raises:
        ValueError: for sizes that leave nothing to draw, more answers than tokens, and fewer symbols than tokens.
    """
    answers = n if answers is None else answers
    if symbols < n:
        raise ValueError(f"symbols={symbols}: the {n} tokens of a row are distinct; give at least {n}.")
    size = sizes(key, batch, n, min_items=min_items).sum(-1, keepdims=True)  # refuses what leaves nothing to draw
    if not 1 <= answers <= n:
        raise ValueError(f"answers={answers}: the last so many of n={n} copied tokens; give 1 to {n}, or None for n.")
    copied = 1 + distinct(jax.random.fold_in(key, 1), batch, n, symbols)  # the first `size` of them
    # Counted from the end, so that short rows end where long ones do: the last token is x of index size − 1 of n.
    at = jnp.arange(2 * n + 1) - (2 * n + 1) + 2 * size + 1  # 0 at the first #
    index = jnp.where(at <= size, at - 1, at - size - 2)  # of x; −1 at both #
    tokens = jnp.where(index < 0, 0, jnp.take_along_axis(copied, jnp.clip(index, 0, n - 1), axis=-1))
    following = index[:, -answers:] + 1
    return TokenRows(
        tokens=tokens,
        where=at >= 0,
        target=jnp.take_along_axis(copied, jnp.clip(following, 0, n - 1), axis=-1),
        asked=(at > size)[:, -answers:],
    )

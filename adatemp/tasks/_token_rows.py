"""Rows of tokens whose last ones ask, each for one token as its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Int


class TokenRows(NamedTuple):
    """A batch of rows of tokens for a causal model, and the answers to the last A tokens of each."""

    tokens: Int[Array, "B T"]
    where: Bool[Array, "B T"]  # which tokens exist: a row shorter than its room begins with tokens that do not
    target: Int[Array, "B A"]  # what should follow the last A tokens
    asked: Bool[Array, "B A"]  # which of them ask; the others are there to fill a row

    @property
    def visible(self) -> Int[Array, "B A"]:
        """Number of keys that each of the last A tokens sees under a causal mask, itself included."""
        return self.where.cumsum(-1)[:, -self.target.shape[1] :]

"""The same three documents in the four ways an engine lays them out: padded, packed, in chunks, one token at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adatemp.checks import _float64

_LENGTHS = (3, 7, 12)
_HEADS, _WIDTH = 2, 4


def documents() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Query, key and value of each document: float32 [length, N, H]."""
    rng = np.random.default_rng(951)
    return [tuple(rng.normal(size=(3, n, _HEADS, _WIDTH)).astype(np.float32)) for n in _LENGTHS]


def alone(document: tuple[np.ndarray, ...], beta: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Causal attention of one document by itself, with β a function of the visible count: [length, N, H]."""
    query, key, value = (part[None].astype(np.float64) for part in document)
    n = query.shape[1]
    factors = beta(np.arange(1, n + 1))[None, :, None, None]
    return _float64.attention(query * factors, key, value, np.tril(np.ones((n, n), bool))[None, None])[0]


@dataclass(frozen=True, eq=False)
class Layout:
    """Where tokens stand.

    Attributes:
        name: in words.
        query_index: [B, T], each query's slot.
        query_segments: [B, T], its document from 1 on, or 0.
        key_segments: [B, S], each slot's document, or 0.
        answered: the documents of which at least one query is here, from 0 on.
    """

    name: str
    query_index: np.ndarray
    query_segments: np.ndarray
    key_segments: np.ndarray
    answered: tuple[int, ...]

    def mask(self) -> np.ndarray:
        """Whether a query sees a slot: [B, T, S]."""
        same = self.query_segments[..., None] == self.key_segments[:, None]
        past = np.arange(self.key_segments.shape[1]) <= self.query_index[..., None]
        return same & past & (self.query_segments[..., None] > 0)

    def counts(self) -> np.ndarray:
        """How many slots each query sees: [B, T]."""
        return self.mask().sum(-1)

    def tail(self, i: int) -> slice:
        """The last queries of document i: those that are here."""
        return slice(_LENGTHS[i] - int((self.query_segments == i + 1).sum()), None)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Query [B, T, N, H], key and value [B, S, N, H]; slots without a token hold numbers that must not matter."""
        rng = np.random.default_rng(953)
        query = rng.normal(size=(*self.query_index.shape, _HEADS, _WIDTH)).astype(np.float32)
        key, value = rng.normal(size=(2, *self.key_segments.shape, _HEADS, _WIDTH)).astype(np.float32)
        for i, (q, k, v) in enumerate(documents()):
            if i in self.answered:
                query[self.query_segments == i + 1] = q[self.tail(i)]
            here = self.key_segments == i + 1
            if here.any():
                key[here], value[here] = k, v
        return query, key, value


def _padded() -> Layout:
    """One document a row, each ending in the last slot."""
    longest = max(_LENGTHS)
    segments = np.zeros((len(_LENGTHS), longest), int)
    for i, n in enumerate(_LENGTHS):
        segments[i, longest - n :] = i + 1
    return Layout("left padding", np.tile(np.arange(longest), (len(_LENGTHS), 1)), segments, segments, (0, 1, 2))


def _packed() -> Layout:
    """All documents in one row, with two empty slots at its end."""
    segments = np.concatenate([np.full(n, i + 1) for i, n in enumerate(_LENGTHS)] + [np.zeros(2, int)])[None]
    return Layout("packing", np.arange(segments.size)[None], segments, segments, (0, 1, 2))


def _chunk() -> Layout:
    """The last five tokens of the second and third document against their caches, which have slots to spare."""
    slots, size = 16, 5
    keys = np.stack([np.where(np.arange(slots) < _LENGTHS[i], i + 1, 0) for i in (1, 2)])
    index = np.stack([np.arange(_LENGTHS[i] - size, _LENGTHS[i]) for i in (1, 2)])
    return Layout("chunked prefill", index, np.repeat([[2], [3]], size, 1), keys, (1, 2))


def _decode() -> Layout:
    """One new token of each document, in caches of which the first two slots are empty."""
    slots, start = 16, 2
    at = np.arange(slots)
    keys = np.stack([np.where((at >= start) & (at < start + n), i + 1, 0) for i, n in enumerate(_LENGTHS)])
    index = np.array([[start + n - 1] for n in _LENGTHS])
    return Layout("decode", index, np.array([[1], [2], [3]]), keys, (0, 1, 2))


LAYOUTS = (_padded(), _packed(), _chunk(), _decode())

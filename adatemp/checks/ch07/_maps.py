"""The attention maps of a set encoder with inducing points, as black boxes: a size goes in, weights come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adatemp.checks import _float64

_WIDTH = 8


@dataclass(frozen=True)
class Map:
    """One attention map.

    Attributes:
        name: one letter.
        says: who attends to whom.
        run: `run(n) -> weights [queries, keys]` for a set of n items, float64.
    """

    name: str
    says: str
    run: Callable[[int], np.ndarray]


def maps() -> tuple[Map, ...]:
    """Seven maps of one untrained set encoder with 6 inducing points and 4 seeds, on sets of n normal items."""
    return (
        Map("A", "inducing points attend to items", lambda n: _weights(_vectors(1, 6), _items(n))),
        Map("B", "items attend to what the inducing points hold", lambda n: _weights(_items(n), _held(n))),
        Map("C", "items attend to items, 300 of them shown at most", lambda n: _weights(_items(n)[:300], _items(n))),
        Map("D", "seeds attend to items", lambda n: _weights(_vectors(2, 4), _items(n))),
        Map("E", "seeds attend to seeds", lambda n: _weights(_pooled(n), _pooled(n), 4.0)),
        Map("F", "seeds attend to items, sharply", lambda n: _weights(_vectors(2, 4), _items(n), 60.0)),
        Map("G", "seeds attend to what the inducing points hold, which comes closer together", _closing),
    )


def _vectors(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, _WIDTH))


def _items(n: int) -> np.ndarray:
    return _vectors(0, n)


def _weights(queries: np.ndarray, keys: np.ndarray, sharpness: float = 1.0) -> np.ndarray:
    return _float64.softmax(sharpness * queries @ keys.T / np.sqrt(_WIDTH))


def _held(n: int) -> np.ndarray:
    return _weights(_vectors(1, 6), _items(n)) @ _items(n)


def _pooled(n: int) -> np.ndarray:
    return _weights(_vectors(2, 4), _items(n)) @ _items(n)


def _closing(n: int) -> np.ndarray:
    """Inducing points that average alike: what they hold differs by noise of one over the root of n."""
    noise = np.stack([_vectors(10 + a, n).mean(0) for a in range(6)])
    return _weights(_vectors(2, 4), noise, 8.0)

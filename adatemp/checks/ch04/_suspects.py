"""Eight attentions as black boxes, for exercise 04.2: a query and keys in, one coefficient a key out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

WIDTH = 8
Attention = Callable[[np.ndarray, np.ndarray], np.ndarray]


def suspects() -> dict[str, Attention]:
    """Eight functions `attend(query, keys) -> coefficients`.

    The query [8] stands at the newest of the keys [n, 8], which come from the oldest to the newest; the coefficients
    [n] are what multiplies the values. The score of a key is its product with the query.

    >>> attend = suspects()["A"]
    >>> attend(np.ones(8) / 4, np.zeros((5, 8))).tolist()
    [0.2, 0.2, 0.2, 0.2, 0.2]
    """
    functions = (_softmax, _rotary, _alibi, _by_length, _window, _hard, _sigmoid, _difference)
    return dict(zip("ABCDEFGH", functions, strict=True))


def normalised(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def _softmax(query, keys):
    return normalised(keys @ query)


def _rotary(query, keys):
    """The first half of the channels are the real parts, the second the imaginary ones."""
    distance = np.arange(len(keys) - 1, -1, -1)
    speeds = 100.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2))
    turned = (keys[:, : WIDTH // 2] + 1j * keys[:, WIDTH // 2 :]) * np.exp(-1j * distance[:, None] * speeds)
    return normalised((turned @ (query[: WIDTH // 2] - 1j * query[WIDTH // 2 :])).real)


def _alibi(query, keys):
    return normalised(keys @ query - 0.25 * np.arange(len(keys) - 1, -1, -1))


def _by_length(query, keys):
    return normalised(keys @ query * np.log(len(keys)))


def _window(query, keys):
    coefficients = np.zeros(len(keys))
    coefficients[-64:] = normalised(keys[-64:] @ query)
    return coefficients


def _hard(query, keys):
    scores = keys @ query
    top = scores == scores.max()
    return top / top.sum()


def _sigmoid(query, keys):
    return 1 / (1 + np.exp(-keys @ query))


def _difference(query, keys):
    return normalised(keys @ query) - 0.5 * normalised(keys @ query / 2)

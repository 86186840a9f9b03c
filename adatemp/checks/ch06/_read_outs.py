"""Read-outs for exercise 06.1, each with two values: networks in NumPy, their class logits and their slopes."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

_GRID = np.linspace(0.0, 1.0, 4001)  # shares of A along the segment


@dataclasses.dataclass(frozen=True, eq=False)
class ReadOut:
    """Class logits of a pooled vector, tanh(x W + b) U + c, with the values of A and B that it is tried on.

    Attributes:
        value_a: the value of A, [d].
        value_b: the value of B, [d].
    """

    value_a: np.ndarray
    value_b: np.ndarray
    _layers: tuple[np.ndarray, ...]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Class logits [..., C] of vectors [..., d]."""
        inner, bias, outer, offset = self._layers
        return np.tanh(np.asarray(x) @ inner + bias) @ outer + offset

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """Slopes [..., C, d] of the class logits at vectors [..., d]."""
        inner, bias, outer, _ = self._layers
        steep = 1 - np.tanh(np.asarray(x) @ inner + bias) ** 2
        return np.einsum("dh,...h,hc->...cd", inner, steep, outer)

    def along(self, share: np.ndarray) -> np.ndarray:
        """Points v_B + share · (v_A − v_B)."""
        return self.value_b + np.asarray(share)[..., None] * (self.value_a - self.value_b)

    @functools.cached_property
    def distance(self) -> float:
        return float(np.linalg.norm(self.value_a - self.value_b))

    @functools.cached_property
    def margin(self) -> float:
        """γ at the value of B, over its best rival."""
        best, second = np.sort(self(self.value_b))[::-1][:2]
        return float(best - second)

    @functools.cached_property
    def steepest(self) -> float:
        """L: the steepest class logit on the segment."""
        return float(np.linalg.norm(self.jacobian(self.along(_GRID[::20])), axis=-1).max())

    @functools.cached_property
    def smallest_share(self) -> float:
        """The least share of A at which the answer is no longer that at the value of B; infinite if none is."""
        answers = self(self.along(_GRID)).argmax(-1)
        other = answers != answers[0]
        return float(_GRID[other.argmax()]) if other.any() else np.inf

    def size_from_share(self, share: float, spread: float, temperature: float) -> float:
        """The n at which A's weight is that share."""
        return 1 + np.exp(spread / temperature) * (1 / share - 1)


def read_outs(count: int, seed: int = 0) -> list[ReadOut]:
    """Random read-outs of five inputs, 24 hidden units and four classes; every third nearly attains the theorem."""
    draw = np.random.default_rng(seed)
    made = []
    for index in range(count):
        value_a, value_b = draw.normal(size=(2, 5))
        layers = (
            draw.normal(size=(5, 24)) / np.sqrt(5) * draw.choice([0.5, 1.0, 2.0]),
            draw.normal(size=24),
            draw.normal(size=(24, 4)) / np.sqrt(24),
            draw.normal(size=4),
        )
        if index % 3 == 0:
            # Two opposite logits that bend late or early along the segment: what the theorem allows at worst.
            layers = _opposite(value_a, value_b, draw.uniform(0.05, 0.9), draw.uniform(2.0, 6.0))
        made.append(ReadOut(value_a, value_b, layers))
    return made


def _opposite(value_a: np.ndarray, value_b: np.ndarray, place: float, steep: float) -> tuple[np.ndarray, ...]:
    """Class 1 falls and class 2 rises along the segment, steepest at a place; class 3 is a near rival of B's."""
    along = (value_a - value_b) / np.sum((value_a - value_b) ** 2)
    inner = np.zeros((5, 24))
    inner[:, 0] = steep * along
    bias = np.zeros(24)
    bias[0] = -steep * (along @ value_b + place)
    outer = np.zeros((24, 4))
    outer[0] = 0.0, -1.0, 1.0, 0.0
    return inner, bias, outer, np.array([-9.0, 0.0, 0.0, -0.1])

"""Exercise 05.2, rotations break the tight form: two equal items that are told apart, and a bound that survives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "05.2 Rotations break the tight form"
_BREAK = "broken(query_kernel, key_kernel, rotate)"
_REPAIRED = "repaired(query_kernel, key_kernel, y, items, query_position, positions, rotate)"


def rotate(vectors: Any, positions: Any) -> np.ndarray:
    """Rotary positions in float64: channel pairs (c, c + H/2), turned by position × 100^(−2c/H).

    Args:
        vectors: [..., H], H even.
        positions: [...], one a vector; they broadcast.
    """
    vectors = np.asarray(vectors).astype(np.float64)
    half = vectors.shape[-1] // 2
    angle = np.asarray(positions, np.float64)[..., None] * 100.0 ** (-np.arange(half) / half)
    a, b = vectors[..., :half], vectors[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)


def ex2(broken: Callable[..., Any], repaired: Callable[..., Any]) -> Report:
    """Checks a counter-example to the tight form under rotary positions, and a bound that holds.

    Args:
        broken: `broken(query_kernel, key_kernel, rotate) -> (y, x, query_position, first, second)`. Two items are the
            same vector x [D] and stand at the positions `first` and `second`; the query y [D] stands at
            `query_position`. Their logits ⟨R_t W_Q y, R_i W_K x⟩/√H shall differ by a fiftieth of the norm form at
            least.
        repaired: the bound c‖q‖ max‖k_i − k_j‖ for queries and keys as the product sees them. `items` is [n, D],
            `positions` [n]. It shall hold for every input and be attained where any bound can be.
        `rotate(vectors, positions)` is `checks.ch05.rotate`; the kernels are [D, H].

    Returns:
        The report. Mistakes it names: only equal offsets tried; a difference moved through two different rotations; the
        tight form of the items; √d dropped; the norm form or the lengths of the keys for their distance.
    """
    return in_turn(
        (
            lambda: examine(broken, _TITLE, _BREAK, _break_stages()),
            lambda: examine(repaired, _TITLE, _REPAIRED, _repair_stages()),
        ),
        remark="The norm form needs no repair: a rotation changes no length.",
        picture=functools.partial(_draw, repaired),
    )


class _Case(NamedTuple):
    """The inputs of one call of `repaired`, without `rotate`."""

    query_kernel: np.ndarray
    key_kernel: np.ndarray
    y: np.ndarray
    items: np.ndarray
    query_position: float
    positions: np.ndarray

    def query(self) -> np.ndarray:
        return rotate(self.y @ self.query_kernel, self.query_position)

    def keys(self) -> np.ndarray:
        return rotate(self.items @ self.key_kernel, self.positions)

    def spread(self) -> float:
        return float(np.ptp(self.keys() @ self.query() / np.sqrt(self.query_kernel.shape[1])))


@functools.cache
def _kernels() -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(5)
    return [tuple(draw.normal(size=(2, model, width))) for model, width in ((7, 4), (10, 6), (9, 8))]


def _break_stages() -> tuple[Stage, ...]:
    given = "three heads, D from 7 to 10, H from 4 to 8"
    called = functools.cache(lambda broken: [_parts(broken(*kernels, rotate)) for kernels in _kernels()])

    def shares(broken: Callable[..., Any]) -> np.ndarray:
        """Spread over the norm form, and the distance of the two positions."""
        found = []
        for (w_q, w_k), (y, x, t, first, second) in zip(_kernels(), called(broken)):
            case = _Case(w_q, w_k, y, np.stack([x, x]), t, np.array([first, second]))
            norms = 2 * np.linalg.norm(w_q, 2) * np.linalg.norm(w_k, 2) * np.linalg.norm(y) * np.linalg.norm(x)
            found.append([case.spread() / (norms / np.sqrt(w_q.shape[1])), abs(first - second)])
        return np.array(found)

    return (
        Stage(
            "two vectors and three positions",
            called,
            given=given,
            accept=lambda answers: all(
                y.shape == x.shape == (w_q.shape[0],) and np.isfinite([*y, *x, *places]).all()
                for (w_q, _), (y, x, *places) in zip(_kernels(), answers)
            ),
            look="Return `(y, x, query_position, first, second)`: two arrays of shape [D] and three numbers.",
        ),
        Stage(
            "equal items with unequal logits",
            shares,
            given=given,
            accept=lambda got: (got[:, 0] >= 0.02).all(),
            mistakes=(
                Mistake(
                    "only equal offsets tried",
                    "Both items stand at the same distance from the query, so their logits are the same number.",
                    "Rotary positions are praised for depending on the offset alone, and here it is one offset.",
                    "Give the two items different positions.",
                    seen=lambda got: (got[:, 1] == 0).all(),
                ),
                Mistake(
                    "a query that sees no difference",
                    "The positions differ, and the logits hardly do.",
                    "A query drawn at random, or across the direction in which the key moves, sees little of the move.",
                    "By which vector does the key change from one position to the other? Put the query along it.",
                    seen=lambda got: (got[:, 1] > 0).any(),
                ),
            ),
            look="Rotate one key to two positions and look at the difference.",
        ),
    )


@functools.cache
def _cases() -> tuple[list[_Case], list[_Case]]:
    """Heads drawn at random, and heads whose query is along the difference of their two furthest keys."""
    draw = np.random.default_rng(6)
    plain, attained = [], []
    for w_q, w_k in _kernels():
        for n, near in ((2, 1.0), (5, 1.0), (4, 0.01), (3, 0.0)):
            model = w_q.shape[0]
            items = draw.normal(size=model) * (1 - near / 2) + near * draw.normal(size=(n, model))
            positions, t = 1.0 + np.arange(n), n + 2.0
            case = _Case(w_q, w_k, draw.normal(size=model), items, t, positions)
            plain.append(case)
            keys = case.keys()
            i, j = np.unravel_index(_distances(keys).argmax(), (n, n))
            head_query = rotate(keys[i] - keys[j], -t)
            attained.append(case._replace(y=np.linalg.lstsq(w_q.T, head_query, rcond=None)[0]))
    return plain, attained


def _distances(points: np.ndarray) -> np.ndarray:
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


def _repair_stages() -> tuple[Stage, ...]:
    plain, attained = _cases()
    every = plain + attained
    right = np.array([_form(case) for case in every])
    spreads = np.array([case.spread() for case in every])

    def both(form: Callable[[_Case], float]) -> Callable[[Any], bool]:
        return lambda got: np.allclose(got, [form(case) for case in every], rtol=1e-9, atol=1e-12)

    moved = Mistake(
        "a difference moved through two different rotations",
        "The bound has the distance of two keys before they are rotated, as if both were rotated alike.",
        "A rotation keeps lengths, and so the length of a difference: if it is one rotation.",
        "Is R_i k_i − R_j k_j a rotation of k_i − k_j? Try two equal keys.",
        seen=both(lambda case: _c(case) * np.linalg.norm(case.query()) * _unrotated(case)),
    )
    items_only = Mistake(
        "the tight form of the items",
        "The bound is that of the items' distance. Two equal items have none.",
        "It is the tight form as it stands in the text.",
        "The first half of this exercise broke this bound.",
        seen=both(lambda case: _c(case) * _sigma(case) * np.linalg.norm(case.y) * _distances(case.items).max()),
    )
    return (
        Stage(
            "no head breaks it",
            lambda repaired: np.array([float(repaired(*case, rotate)) for case in every]),
            given="24 heads, half of them built to attain it, some with equal items",
            accept=lambda got: got.shape == right.shape and (got >= spreads * (1 - 1e-9)).all(),
            mistakes=(
                moved,
                items_only,
                Mistake(
                    "divided once too often",
                    "The bound is too small by the square root of the head's width, or by its half.",
                    "A factor 1/√d in the logits and another in the bound.",
                    "How many products of query and key stand in one logit?",
                    seen=both(lambda case: _c(case) * _form(case)),
                ),
            ),
            look="Compute queries and keys as the product sees them, then their spread, and compare.",
        ),
        Stage(
            "and it is attained",
            lambda repaired: np.array([float(repaired(*case, rotate)) for case in every]),
            given="the same heads",
            expected=right,
            rtol=1e-9,
            atol=1e-12,
            mistakes=(
                Mistake(
                    "√d dropped",
                    "The bound is that of the products, before they are scaled.",
                    "Many texts leave the scale out.",
                    "Logits are ⟨q, k⟩/√H.",
                    seen=both(lambda case: _form(case) / _c(case)),
                ),
                Mistake(
                    "the norm form",
                    "The bound is made of singular values and lengths.",
                    "It survives rotations, so it is one repair.",
                    "Nothing in it becomes smaller when the items come together. The repair asked for does.",
                    seen=both(
                        lambda case: (
                            2 * _c(case) * np.linalg.norm(case.query_kernel, 2) * np.linalg.norm(case.key_kernel, 2)
                            * np.linalg.norm(case.y) * np.linalg.norm(case.items, axis=1).max()
                        )
                    ),
                ),
                Mistake(
                    "the lengths of the keys for their distance",
                    "The bound has twice the largest length of a key.",
                    "No two vectors of length r are further apart than 2r.",
                    "How far apart are these keys?",
                    seen=both(
                        lambda case: (
                            2 * _c(case) * np.linalg.norm(case.query()) * np.linalg.norm(case.keys(), axis=1).max()
                        )
                    ),
                ),
                Mistake(
                    "σ(W_Q)‖y‖ for the length of the query",
                    "The length of the query is replaced by a bound on it.",
                    "In the tight form only singular values are known of the kernels.",
                    "The query is at hand; how long is it?",
                    seen=both(
                        lambda case: (
                            _form(case) * np.linalg.norm(case.query_kernel, 2) * np.linalg.norm(case.y)
                            / np.linalg.norm(case.query())
                        )
                    ),
                ),
            ),
            look="Which is the smallest number that bounds ⟨q, k_i − k_j⟩ and knows lengths only?",
        ),
    )  # fmt: skip


def _c(case: _Case) -> float:
    return 1 / np.sqrt(case.query_kernel.shape[1])


def _sigma(case: _Case) -> float:
    return float(np.linalg.norm(case.query_kernel @ case.key_kernel.T, 2))


def _form(case: _Case) -> float:
    return float(_c(case) * np.linalg.norm(case.query()) * _distances(case.keys()).max())


def _unrotated(case: _Case) -> float:
    return float(_distances(case.items @ case.key_kernel).max())


def _parts(answer: Any) -> tuple[Any, ...]:
    y, x, *places = answer
    t, first, second = map(float, places)
    return np.asarray(y).astype(np.float64), np.asarray(x).astype(np.float64), t, first, second


def _draw(repaired: Callable[..., Any]) -> Any:
    """Spread against the returned bound, all cases."""
    from adatemp import plotting

    figure, axes = plotting.figure(height=2.8)
    words = []
    for cases, name, role in zip(_cases(), ("drawn at random", "built to attain it"), ("plain", "highlight")):
        found = np.array([float(repaired(*case, rotate)) for case in cases])
        spreads = np.array([case.spread() for case in cases])
        axes.plot(found, spreads, "o", color=plotting.palette[role], label=name)
        words.append(f"{name} at most {(spreads / found).max():.2f}")
    reach = axes.get_xlim()
    axes.plot(reach, reach, **plotting.role("bound") | {"marker": None})
    axes.set(xlabel="your bound", ylabel="spread")
    axes.legend()
    return plotting.show(figure, alt="Spread of 24 heads over your bound: " + ", ".join(words) + ".")

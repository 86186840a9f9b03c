"""Exercise 02.2: a generator of larger problems, and whether the problem grew or only the array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "02.2 Did n really grow?"
_SIGNATURE = "grow(key, n, length)"
_SIZES = ((5, 21), (20, 21), (37, 512), (300, 512))  # (items wanted, length of the array)
_WANTED = np.array([n for n, _ in _SIZES])


class _Problem(NamedTuple):
    priority: np.ndarray
    label: np.ndarray
    where: np.ndarray
    position: int
    target: int

    @property
    def visible(self) -> np.ndarray:
        """What a causal head sees from the answer position: unmasked keys at or before it."""
        return self.where & (np.arange(self.where.size) <= self.position)


def ex2(grow: Callable[..., tuple[Any, Any, Any, int, int]]) -> Report:
    """Checks a generator of max-retrieval problems of any size for a causal model with arrays of fixed length.

    Args:
        grow: `grow(key, n, length) -> (priority, label, where, position, target)`. `priority`, `label`, `where` are
            arrays [length]: uniform priorities in [0, 1), classes 0 to 9, and True exactly where there is an item.
            `position` is the index of the query token, at which the answer is read; it is no item. The model is
            causal: at `position` it sees the unmasked keys at or before it. `target` is the class of the largest
            priority among the n items. `length` is at least n + 1.

    Returns:
        The report. Mistakes it names: an array that grows while the problem does not; the query before the items;
        masked distractors; items after the answer; padding or the query counted as items; copies of a small set;
        distractors that are no rivals; a target looked up among what is not there.
    """
    return examine(
        grow,
        _TITLE,
        _SIGNATURE,
        _STAGES,
        remark="Assert the number of visible keys wherever a result is quoted against size: nothing else shows it.",
    )


def _problem(grow: Callable[..., Any], seed: int, n: int, length: int) -> _Problem:
    priority, label, where, position, target = grow(jax.random.key(seed), n, length)
    return _Problem(
        np.asarray(priority, np.float64), np.asarray(label), np.asarray(where, bool), int(position), int(target)
    )


def _all(grow: Callable[..., Any]) -> list[_Problem]:
    return [_problem(grow, 0, n, length) for n, length in _SIZES]


def _seen(problems: list[_Problem]) -> np.ndarray:
    """Number of keys that each problem's answer position sees."""
    return np.array([int(p.visible.sum()) for p in problems])


def _present(problems: list[_Problem]) -> np.ndarray:
    """Number of unmasked keys in each problem's array, wherever they stand."""
    return np.array([int(p.where.sum()) for p in problems])


_SHAPES = Stage(
    "three arrays of the asked length, a position and a target",
    _all,
    given="(n, length) = " + ", ".join(map(str, _SIZES)),
    accept=lambda problems: all(
        p.priority.shape == p.label.shape == p.where.shape == (length,) and 0 <= p.position < length
        for p, (_, length) in zip(problems, _SIZES, strict=True)
    ),
    look="The arrays keep their length for every n, as a compiled model needs; only their contents change.",
)

_COUNTS = Stage(
    "the answer position sees n items",
    _all,
    given="(n, length) = " + ", ".join(map(str, _SIZES)),
    accept=lambda problems: (_seen(problems) == _WANTED).all(),
    mistakes=(
        Mistake(
            "the query is placed before the items",
            "At the answer position not one item is visible, whatever n is.",
            "In a set the order means nothing, so the query is put first; a causal model reads only what came before.",
            "Which keys does a causal mask leave to the row at `position`?",
            seen=lambda problems: (_seen(problems) <= 1).all() and all(p.position <= 1 for p in problems),
        ),
        Mistake(
            "the distractors are masked",
            "One item is visible for every n: the one with the answer.",
            "A mask that marks the answer is easily taken for the mask of what may be attended to.",
            "`where` is True at every item that the head has to choose among.",
            seen=lambda problems: (_seen(problems) == 1).all(),
        ),
        Mistake(
            "the array grew, the problem did not",
            "The array has the length asked for, and the number of visible items stops growing.",
            "A batching function pads to the right of the answer by itself. A causal model never sees that.",
            "Compare the number of True in `where`, up to `position`, with n for the last two sizes.",
            seen=lambda problems: (
                (_seen(problems) <= _WANTED).all()
                and _seen(problems)[-1] == _seen(problems)[-2]
                and (_present(problems) == _seen(problems)).all()
            ),
        ),
        Mistake(
            "items after the answer",
            "All n items are in the array, and some of them come after the answer position.",
            "A query in the middle or at a random place is as good as any in a set, and not in a causal model.",
            "Count the items before `position` and after it.",
            seen=lambda problems: (_seen(problems) < _WANTED).any() and (_present(problems) >= _WANTED).all(),
        ),
        Mistake(
            "the query is counted as an item",
            "There is one visible key too many, and it is the query's own position.",
            "The causal mask includes the diagonal, so the query sees itself unless it is masked.",
            "Look at `where[position]`.",
            seen=lambda problems: (_seen(problems) == _WANTED + 1).all() and all(p.where[p.position] for p in problems),
        ),
        Mistake(
            "the padding is visible",
            "More than n keys are visible: the padding is not masked.",
            "An array of ones is the first mask one writes, and with n + 1 = length it would even be nearly right.",
            "For n = 5 and length = 21, write down which entries of `where` should be True.",
            seen=lambda problems: (_seen(problems) > _WANTED).any(),
        ),
    ),
    look="Count the True entries of `where` at or before `position`.",
)

_TARGETS = Stage(
    "the target is the class of the largest visible priority",
    lambda grow: [_problem(grow, seed, n, length) for seed in range(3) for n, length in _SIZES],
    given="three keys at each size",
    accept=lambda problems: all(p.target == p.label[_largest(p, p.visible)] for p in problems),
    mistakes=(
        Mistake(
            "the target is a position",
            "The target is the index of the largest priority, not the class found there.",
            "`argmax` returns an index, and for small n an index looks like a class.",
            "One more look-up is missing.",
            seen=lambda problems: all(p.target == _largest(p, p.visible) for p in problems),
        ),
        Mistake(
            "the target is looked up among what is not there",
            "The target belongs to the largest number in the whole array, padding and query included.",
            "Random numbers fill the whole array in one call, and the mask is then forgotten in `argmax`.",
            "The largest priority has to be taken over the items only.",
            seen=lambda problems: all(p.target == p.label[p.priority.argmax()] for p in problems),
        ),
    ),
    look="Recompute the target of one problem by hand, from `priority`, `label` and `where`.",
)

_RIVALS = Stage(
    "the added items are new, and rivals",
    lambda grow: [_problem(grow, seed, 300, 512) for seed in range(24)],
    given="n = 300, 24 keys",
    accept=lambda problems: all(_fresh(p) for p in problems) and 0.4 < _mean_gap(problems) < 2.5,
    mistakes=(
        Mistake(
            "copies of a small set",
            "The same priorities appear again and again among the visible items.",
            "Tiling a small problem is a quick way to a large one, but the maximum then has as many copies as tiles.",
            "Count the different priorities among the visible items.",
            seen=lambda problems: not all(_fresh(p) for p in problems),
        ),
        Mistake(
            "distractors that are no rivals",
            "The gap between the two largest priorities is far wider than 1/n, as if there were fewer items.",
            "Adding only small priorities keeps the answer safe. It also keeps the problem as easy as it was.",
            "For n independent uniform priorities the mean gap between the two largest is 1/(n + 1).",
            seen=lambda problems: _mean_gap(problems) >= 2.5,
        ),
    ),
    look="All n items are drawn alike: independent, uniform on [0, 1).",
)

_KEYS = Stage(
    "different keys give different problems",
    lambda grow: [_problem(grow, seed, 16, 21).priority for seed in range(4)],
    given="four keys",
    accept=lambda drawn: all(not np.array_equal(drawn[0], other) for other in drawn[1:]),
    look="The random numbers have to come from the `key` that was passed.",
)


def _largest(problem: _Problem, among: np.ndarray) -> int:
    return int(np.where(among, problem.priority, -np.inf).argmax())


def _fresh(problem: _Problem) -> bool:
    priorities = problem.priority[problem.visible]
    return np.unique(priorities).size >= priorities.size - 1  # two of 300 float32 draws may agree by chance


def _mean_gap(problems: list[_Problem]) -> float:
    """Mean gap between the two largest visible priorities, in units of its value for uniform draws, 1/(n + 1)."""
    gaps = []
    for problem in problems:
        largest, second = np.sort(problem.priority[problem.visible])[::-1][:2]
        gaps.append((largest - second) * (problem.visible.sum() + 1))
    return float(np.mean(gaps))


_STAGES = (_SHAPES, _COUNTS, _TARGETS, _RIVALS, _KEYS)

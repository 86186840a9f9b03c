"""Exercise 10.5, one pass: rows that the plain state cannot tell apart, and a grid of β in a single reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from adatemp.checks import _float64
from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written
from adatemp.checks.ch10._one_pass_bound import bound_stages, cost_stages

_TITLE = "10.5 One pass?"
# The shapes of the rows on which the bound is tried, so that a reader's function is compiled once.
_ROWS, _KEYS, _BLOCK, _WIDTH, _POINTS = 70, 128, 32, 10, 9


def ex5(
    pair: Callable[..., Any], one_pass: Callable[..., Any], bound: Callable[..., Any], cost: Callable[..., Any]
) -> Report:
    """Checks a pair of rows with one plain state, a one-pass approximation on a grid of β, its error and its cost.

    Args:
        pair: `pair() -> (row, other, beta)`: two rows of equally many logits whose maximum, Σ e^t and Σ e^t·t, with
            t = z − m, agree to six digits, and a β > 0 at which Σ e^(β·t) differs by at least 1%.
        one_pass: `one_pass(blocks, grid, choose) -> output` [rows, d]. `blocks` yields pairs (logits [rows, k], values
            [k, d]) of float32; it can be gone through once, and a block is deleted when the next one comes. `grid` is
            an increasing array of equally spaced β > 0, and `choose(entropy) -> beta` gives each row's β, within the
            grid, from its entropy in nats.
        bound: `bound(spread, values, step) -> number`: an error that `one_pass` cannot exceed in any component of the
            output, whatever the row, if its logits span `spread` nats, the component of the values spans `values` and
            the grid has the distance `step`.
        cost: `cost(keys, width, points) -> (products, exponentials, carried)` of `one_pass` with its logits counted
            in, for one row, width `width` of query, key and value alike: multiply-adds, weights exponentiated, and
            numbers carried from block to block.

    Returns:
        The report. Mistakes it names: a tempered sum taken to be a multiple of the plain one; one factor for every
        point of the grid; β chosen before the row ends; a second pass; a bound from random rows, without the values'
        range or far too loose; work counted once that is done for every point.
    """
    call = written(one_pass)
    return in_turn(
        (
            lambda: examine(pair, _TITLE, "pair()", _pair_stages(written(pair))),
            lambda: examine(one_pass, _TITLE, "one_pass(blocks, grid, choose)", _pass_stages(call)),
            lambda: examine(bound, _TITLE, "bound(spread, values, step)", bound_stages(call, written(bound))),
            lambda: examine(cost, _TITLE, "cost(keys, width, points)", cost_stages(written(cost))),
        ),
        remark="A grid pays one output a point; reading the keys twice pays one product more. That settles it.",
    )


def _sums(row: np.ndarray, beta: float = 1.0) -> np.ndarray:
    """m, Σ e^(βt) and Σ e^(βt)·t."""
    t = row - row.max()
    return np.array([row.max(), np.exp(beta * t).sum(), (np.exp(beta * t) * t).sum()])


def _pair_stages(pair: Callable[..., Any]) -> tuple[Stage, ...]:
    def call(_: Any) -> tuple[np.ndarray, np.ndarray, float]:
        row, other, beta = pair()
        return np.asarray(row, np.float64), np.asarray(other, np.float64), float(beta)

    def same(row: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.isclose(_sums(row), _sums(other), rtol=2e-6, atol=2e-6)

    def apart(row: np.ndarray, other: np.ndarray, beta: float) -> float:
        one, two = _sums(row, beta)[1], _sums(other, beta)[1]
        return abs(one - two) / max(one, two)

    def shapes(row: np.ndarray, other: np.ndarray) -> bool:
        return row.shape == other.shape and row.ndim == 1 and bool(np.isfinite(row).all() and np.isfinite(other).all())

    return (
        Stage(
            "two rows with the same plain state",
            call,
            given="your two rows",
            accept=lambda got: shapes(*got[:2]) and same(*got[:2]).all(),
            look="Three numbers of the rows have to agree, so four logits a row leave one free.",
            mistakes=(
                Mistake(
                    "two lengths",
                    "The rows are not two rows of equally many finite logits.",
                    "A longer row has more freedom.",
                    "Look at the shapes, and for −∞.",
                    seen=lambda got: not shapes(*got[:2]),
                ),
                Mistake(
                    "the rows differ by an offset",
                    "The maxima are not the same.",
                    "Log-sum-exp moves with an offset, and the entropy does not.",
                    "The state is (m, l, s): three numbers.",
                    seen=lambda got: not same(*got[:2])[0],
                ),
                Mistake(
                    "the same normaliser and another entropy",
                    "Σ e^t agrees and Σ e^t·t does not.",
                    "One condition is easily met by moving two logits against each other.",
                    "An entropy kernel knows s as well. Which logits are free to satisfy both?",
                    seen=lambda got: same(*got[:2])[1],
                ),
            ),
        ),
        Stage(
            "whose tempered normalisers differ",
            call,
            given="your two rows and your β",
            accept=lambda got: got[2] > 0 and apart(*got) >= 0.01,
            look="Compare Σ e^(β·t) of the two rows over a range of β.",
            mistakes=(
                Mistake(
                    "β is not positive",
                    "β has to be above 0.",
                    "At β = 0 every row of one length has the same sum, and below it the order of the keys turns.",
                    "Which inverse temperatures does a rule return?",
                    seen=lambda got: got[2] <= 0,
                ),
                Mistake(
                    "β = 1",
                    "At β = 1 the tempered normaliser is the plain one.",
                    "It is where the two rows were made to agree.",
                    "How does the difference behave as β leaves 1?",
                    seen=lambda got: abs(got[2] - 1) < 1e-3,
                ),
                Mistake(
                    "one row in another order",
                    "The two rows hold the same logits.",
                    "A permutation leaves m, l and s alone, and everything else.",
                    "Which change of a row moves Σ e^(2t) and neither l nor s?",
                    seen=lambda got: np.allclose(np.sort(got[0]), np.sort(got[1]), atol=1e-4),
                ),
            ),
        ),
    )


class Stream:
    """Blocks that can be gone through once; each is deleted when the next one is asked for."""

    def __init__(self, logits: np.ndarray, values: np.ndarray, block: int) -> None:
        self.logits, self.values, self.block, self.passes = logits, values, block, 0

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        self.passes += 1
        if self.passes > 1:
            return
        shown: tuple[Any, ...] = ()
        for start in range(0, self.logits.shape[1], self.block):
            for array in shown:
                array.delete()
            part = slice(start, start + self.block)
            # copies: a deleted block must not be readable through the array that it was made of
            shown = jnp.array(self.logits[:, part]), jnp.array(self.values[part])
            yield shown
        for array in shown:
            array.delete()


def tempered(logits: np.ndarray, values: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """The exact output, [rows, d]."""
    return _float64.softmax(beta[:, None] * logits.astype(np.float64)) @ values


def _pass_stages(one_pass: Callable[..., Any]) -> tuple[Stage, ...]:
    logits = _float64.logits(501, _ROWS, _KEYS)
    levels = np.array([[0, 2, 5, 1], [3, 0, 1, 0], [0, -40, 4, 6]], np.float32)  # of the blocks, by turns
    logits += np.repeat(levels[np.arange(_ROWS) % 3], _BLOCK, axis=1)
    values = _float64.logits(502, _KEYS, _WIDTH)
    entropies = _float64.entropy(logits)
    grid = np.linspace(0.5, 2.5, _POINTS).astype(np.float32)
    step = 0.04
    fine = (1.0 + step * np.arange(_POINTS)).astype(np.float32)
    on_grid = grid[(3 * np.arange(_ROWS)) % _POINTS].astype(np.float64)
    between = 1.0 + step * (1.3 + np.arange(_ROWS) % (_POINTS - 4))
    moved = np.abs(tempered(logits, values, between + step) - tempered(logits, values, between)).max()
    latest: list[Any] = []

    def call(beta: np.ndarray, grid: np.ndarray) -> Any:
        stream = Stream(logits, values, _BLOCK)
        asked: list[np.ndarray] = []

        def choose(entropy: Any) -> np.ndarray:
            asked.append(np.asarray(entropy, np.float64))
            return beta.astype(np.float32)

        latest[:] = [stream, asked]
        return one_pass(stream, grid, choose)

    def asked_too_early() -> bool:
        return bool(latest[1]) and not np.allclose(latest[1][-1], entropies, atol=1e-3)

    def with_one_factor(beta: np.ndarray) -> np.ndarray:
        """e^(m − m') for e^(β(m − m')) as the maximum rises."""
        top, norm, out = np.full(_ROWS, -np.inf), np.zeros(_ROWS), np.zeros((_ROWS, _WIDTH))
        for start in range(0, _KEYS, _BLOCK):
            part = logits[:, start : start + _BLOCK].astype(np.float64)
            new = np.maximum(top, part.max(1))
            kept, weights = np.exp(top - new), np.exp(beta[:, None] * (part - new[:, None]))
            norm = kept * norm + weights.sum(1)
            out = kept[:, None] * out + weights @ values[start : start + _BLOCK]
            top = new
        return out / norm[:, None]

    def near(got: Any, beta: np.ndarray) -> bool:
        """Whether the output is that at β, to within three quarters of a step of the grid."""
        return np.abs(np.asarray(got, np.float64) - tempered(logits, values, beta)).max() < 0.75 * moved

    passes = (
        Mistake(
            "a second pass",
            "The blocks were gone through twice; the second time there was nothing left.",
            "With β known after the first loop, a second one is the natural place for it.",
            "What would have to be accumulated in the first loop, before β is known?",
            seen=lambda _: latest[0].passes > 1,
        ),
        Mistake(
            "the blocks are kept",
            "A block was read after the next one had come.",
            "A list of blocks makes one pass out of two, and needs the memory of the whole row.",
            "What is left of a block when the next one comes, in a kernel?",
            seen=lambda got: isinstance(got, RuntimeError) and "delete" in str(got),
        ),
    )
    return (
        Stage(
            "β on the grid: the exact output",
            lambda _: call(on_grid, grid),
            given=f"{_ROWS} rows of {_KEYS} keys in four blocks; a grid of {_POINTS} points holds each row's β",
            accept=lambda got: (
                np.shape(got) == (_ROWS, _WIDTH)
                and np.allclose(got, tempered(logits, values, on_grid), rtol=1e-4, atol=1e-4)
                and not asked_too_early()
                and latest[0].passes == 1
            ),
            look="For every β of the grid the row has a normaliser and an output of its own.",
            mistakes=(
                *passes,
                Mistake(
                    "wrong shape",
                    f"The output should have shape ({_ROWS}, {_WIDTH}): rows by width.",
                    "The grid's axis is still there, or rows and keys are exchanged.",
                    "Which axis does the chosen β remove?",
                    seen=lambda got: not isinstance(got, Exception) and np.shape(got) != (_ROWS, _WIDTH),
                ),
                Mistake(
                    "rescaled by a scalar",
                    "The answer is the plain output, whatever β is.",
                    "A number for each row, put on the sums after the loop, looks as if it could make up for β. It "
                    "stands above and below the fraction.",
                    "Your two rows above share m, l and s. What can be done with these three alone?",
                    seen=lambda got: np.allclose(got, tempered(logits, values, np.ones(_ROWS)), atol=1e-3),
                ),
                Mistake(
                    "one factor for every point of the grid",
                    "The old sums were rescaled as the plain ones are.",
                    "The factor e^(m − m') is right for l and s, and stands there already.",
                    "By how much does e^(β(z − m)) change when m does?",
                    seen=lambda got: np.allclose(got, with_one_factor(on_grid), rtol=1e-3, atol=1e-3),
                ),
                Mistake(
                    "θ for β",
                    "The answer belongs to 1/β.",
                    "A temperature divides the logits; its inverse multiplies them.",
                    "Does a larger β make the row sharper or flatter, here and in your function?",
                    seen=lambda got: np.allclose(got, tempered(logits, values, 1 / on_grid), atol=1e-3),
                ),
                Mistake(
                    "β chosen before the row ends",
                    "`choose` was given an entropy that is not the row's.",
                    "Inside the loop an entropy is at hand after every block.",
                    "When is the entropy of the row known?",
                    seen=lambda _: asked_too_early(),
                ),
            ),
        ),
        Stage(
            "β between the points of a fine grid",
            lambda _: call(between, fine),
            given=f"the same rows and a grid of {_POINTS} points, a step of {step} apart",
            accept=lambda got: near(got, between),
            look="Which point of the grid, or which two, stand for a β between them?",
            mistakes=(
                *passes,
                Mistake(
                    "an index out of step",
                    "The answer belongs to a neighbouring point of the grid.",
                    "`searchsorted` returns the point above, and rounding an index may go either way.",
                    "For β on the grid, which index do you get, and which a little above and below?",
                    seen=lambda got: any(near(got, between + shift * step) for shift in (-2, -1, 1, 2)),
                ),
            ),
        ),
    )

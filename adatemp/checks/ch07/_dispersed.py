"""Exercise 07.1, dispersed and not uniform: small weights, outputs apart, and what makes a layer's outputs equal."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adatemp.checks import _float64
from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "07.1 Dispersed, not uniform"
_HEAD = "head(n)"
_SIZES = (10, 100, 1_001, 10_000)
_APART = 0.5


class _Run(NamedTuple):
    """What a head does at one size, in float64."""

    n: int
    weights: np.ndarray  # [T, n]
    values: np.ndarray  # [n, e]
    outputs: np.ndarray  # [T, e]

    @property
    def apart(self) -> float:
        return float(np.linalg.norm(self.outputs[0] - self.outputs[1]))


def ex1(head: Callable[..., Any], collapses: Callable[..., Any]) -> Report:
    """Checks a dispersed head whose outputs stay apart, and a test for layers whose outputs cannot.

    Args:
        head: `head(n) -> (queries [2, d], keys [n, d], values [n, e])`. Logits are the products over √d. Every weight
            of both rows is below 2/n, no value is longer than 1, and the two outputs are at least ½ apart, at every n.
        collapses: `collapses(weights) -> bool`, from all weights [N, T, n] of a layer's heads: whether its output,
            without residual, is one and the same for all T queries whatever the values are.

    Returns:
        The report. Mistakes it names: one query for two; a weight above 2/n; values that grow; each weight tends to 0
        read as uniform; values that cancel; in `collapses`, uniform demanded; small weights taken for equal rows; one
        head looked at; heads compared with each other.
    """
    runs = functools.cache(_runs)
    return in_turn(
        (
            lambda: examine(head, _TITLE, _HEAD, _head_stages(runs)),
            lambda: examine(collapses, _TITLE, "collapses(weights)", _collapse_stages()),
        ),
        remark="The remark on depth needs equal rows. Small weights alone leave the outputs where they were.",
        picture=lambda: _draw(runs(head)),
    )


def _runs(head: Callable[..., Any]) -> list[_Run]:
    made = []
    for n in _SIZES:
        queries, keys, values = (np.asarray(part).astype(np.float64) for part in head(n))
        if queries.ndim != 2 or keys.shape != (n, queries.shape[1]) or values.ndim != 2 or len(values) != n:
            raise ValueError(f"shapes {queries.shape}, {keys.shape}, {values.shape} for [2, d], [n, d], [n, e]")
        weights = _float64.softmax(queries @ keys.T / np.sqrt(queries.shape[1]))
        made.append(_Run(n, weights, values, weights @ values))
    return made


def _head_stages(runs: Callable[..., list[_Run]]) -> tuple[Stage, ...]:
    given = "n = 10, 100, 1,001 and 10,000"
    return (
        Stage(
            "two queries",
            runs,
            given=given,
            accept=lambda made: all(len(run.weights) == 2 for run in made),
            mistakes=(
                Mistake(
                    "one query for two",
                    "The head has one query.",
                    "One row is all that the bounds on weights are about.",
                    "Between what are the outputs to differ?",
                    seen=lambda made: all(len(run.weights) == 1 for run in made),
                ),
            ),
            look="`queries` has two rows, `keys` and `values` have n.",
        ),
        Stage(
            "every weight below 2/n",
            runs,
            given=given,
            accept=lambda made: all(run.weights.max() < 2 / run.n for run in made),
            mistakes=(
                Mistake(
                    "a weight above 2/n",
                    "At some n a weight reaches 2/n.",
                    "A larger contrast holds the outputs further apart, and lifts weights too.",
                    "If a share of the items stands high, what is the most that one of them can have?",
                    seen=lambda made: True,
                ),
            ),
            look="Print n times the largest weight.",
        ),
        Stage(
            "no value longer than 1",
            runs,
            given=given,
            accept=lambda made: all(np.linalg.norm(run.values, axis=1).max() <= 1 + 1e-9 for run in made),
            mistakes=(
                Mistake(
                    "values that grow",
                    "Values are longer than 1, and at larger n longer still.",
                    "Whatever an average loses, larger values can buy back.",
                    "The states of a layer are bounded. Which values of length 1 will do?",
                    seen=lambda made: (
                        np.linalg.norm(made[-1].values, axis=1).max() > 2 * np.linalg.norm(made[0].values, axis=1).max()
                    ),
                ),
            ),
            look="Print the largest norm of a value.",
        ),
        Stage(
            "outputs at least one half apart",
            runs,
            given=given,
            accept=lambda made: all(run.apart >= _APART for run in made),
            mistakes=(
                Mistake(
                    "each weight tends to 0 read as uniform",
                    "Both queries weigh all items alike, so both outputs are the plain average.",
                    "When every weight is small, a row seems to have no shape left.",
                    "2/n allows one item twice the weight of the average one. Which items should that be, for which "
                    "query?",
                    seen=lambda made: all(np.abs(run.weights[0] - run.weights[1]).max() * run.n < 1e-6 for run in made),
                ),
                Mistake(
                    "values that cancel",
                    "The rows differ, and the outputs come together as n grows, like one over its root.",
                    "Values without regard to the weights average out, whatever the weights are.",
                    "Let the values say which items a query favours.",
                    seen=lambda made: made[-1].apart < 0.3 * made[0].apart,
                ),
                Mistake(
                    "the same for both queries",
                    "The weights are not uniform, and they are the same for both queries.",
                    "A row that is not uniform looks like enough.",
                    "What does the difference of the two outputs have to do with the difference of the two rows?",
                    seen=lambda made: all(np.abs(run.weights[0] - run.weights[1]).max() * run.n < 0.01 for run in made),
                ),
            ),
            look="Print the two outputs, and n times the difference of the two rows.",
        ),
    )


@functools.cache
def _layers() -> tuple[tuple[np.ndarray, bool], ...]:
    """Weights [N, T, n] of layers, and whether all their outputs are equal for any values."""
    draw = np.random.default_rng(2)
    uniform = np.full((2, 5, 8), 1 / 8)
    one_row = np.repeat(draw.dirichlet(np.ones(9), (3, 1)), 4, axis=1)  # rows equal within each head, heads differ
    sharp = np.repeat(np.eye(6)[None, :1], 3, axis=1)  # one head, every query on one and the same item
    groups = np.where(np.arange(1_000) < 500, 1.7, 0.3) / 1_000
    dispersed = np.stack([groups, groups[::-1]])[None]
    one_bad = np.concatenate([uniform, draw.dirichlet(np.ones(8), (1, 5))])
    last_query = np.array(uniform)
    last_query[0, -1] = draw.dirichlet(np.ones(8))
    same_heads = np.repeat(draw.dirichlet(np.ones(7), (1, 3)), 2, axis=0)  # heads equal, queries differ
    return (
        (uniform, True),
        (one_row, True),
        (sharp, True),
        (dispersed, False),
        (one_bad, False),
        (last_query, False),
        (same_heads, False),
    )


def _collapse_stages() -> tuple[Stage, ...]:
    layers = _layers()
    right = np.array([answer for _, answer in layers], float)

    def by(test: Callable[[np.ndarray], bool]) -> np.ndarray:
        return np.array([test(weights) for weights, _ in layers], float)

    return (
        Stage(
            "which layers give all queries one output",
            lambda collapses: np.array([float(bool(collapses(weights))) for weights, _ in layers]),
            given="seven layers: uniform, of equal rows, sharp on one item, dispersed, and with one row or head astray",
            expected=right,
            mistakes=(
                Mistake(
                    "uniform demanded",
                    "Layers of equal rows that are not uniform were let off.",
                    "The remark speaks of full dispersion, and uniform attention is the case one thinks of.",
                    "Two queries with one and the same row: what are their outputs?",
                    seen=by(lambda w: np.allclose(w, 1 / w.shape[-1])),
                ),
                Mistake(
                    "one head looked at",
                    "A layer was judged by its first head.",
                    "One head is what a figure shows.",
                    "The output is the sum over heads. Is one of them enough to keep queries apart?",
                    seen=by(lambda w: np.allclose(w[0], w[0, :1])),
                ),
                Mistake(
                    "heads compared with each other",
                    "Rows were compared along the axis of the heads.",
                    "The first axis is where a comparison falls without a second thought.",
                    "Weights are [N, T, n]. Which axis counts the queries?",
                    seen=by(lambda w: np.allclose(w, w[:1])),
                ),
                Mistake(
                    "small weights taken for equal rows",
                    "A layer in which every weight is below 2/n was said to collapse.",
                    "Dispersion is about the size of weights, and so is the test.",
                    "Your own head has small weights too.",
                    seen=lambda got: got[3] == 1,
                ),
                Mistake(
                    "one row looked at",
                    "A layer was judged by two of its queries.",
                    "Two rows are enough for a counter-example, not for a proof.",
                    "All T queries have to agree.",
                    seen=by(lambda w: np.allclose(w[:, 0], w[:, 1])),
                ),
            ),
            look="Write the difference of the outputs of two queries as a sum over heads and items.",
        ),
    )


def _draw(runs: list[_Run]) -> Any:
    """n times the largest weight, and the distance of the outputs, against n."""
    from adatemp import plotting

    figure, axes = plotting.figure(height=2.8)
    n = [run.n for run in runs]
    axes.plot(n, [run.apart for run in runs], label="outputs apart", **plotting.role("ours"))
    axes.plot(n, [run.weights.max() for run in runs], label="largest weight", **plotting.role("plain"))
    axes.set(xscale="log", yscale="log", xlabel="items n")
    axes.legend()
    return plotting.show(
        figure,
        alt=f"Against n from 10 to 10,000 your outputs stay {runs[-1].apart:.2f} apart at the end, while the largest "
        f"weight falls to {runs[-1].weights.max():.1e}.",
    )

"""Exercise 04.3, discontinuous is not enough: maps that jump keep the spread bounded, one that magnifies does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "04.3 Discontinuous is not enough"
_SIZES = (10, 300, 10_000)
_WIDTH = 4


def layer_norm(x: np.ndarray) -> np.ndarray:
    """Without epsilon, gain or bias; NaN for a constant vector, as the formula has it."""
    x = np.asarray(x, np.float64)
    centred = x - x.mean()
    with np.errstate(invalid="ignore", divide="ignore"):
        return centred / np.sqrt((centred**2).mean())


def reciprocal(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, np.float64)
    square = x @ x
    return x / square if square > 0 else np.zeros_like(x)


def ex3(worst_spread: Callable[..., Any], escape: Callable[..., Any]) -> Report:
    """Checks a search for the largest spread behind a map, and a map that has none.

    Args:
        worst_spread: `worst_spread(item_map, n) -> δ`, the largest spread that you can find for n ≥ 10 items in the
            unit ball of four dimensions: a head with equal weights averages them, `item_map` sends the average, a
            vector [4], to a query [4], and the keys are the items, with logits ⟨query, item⟩. The map may return NaN
            where its formula has none: such a query is no query. 10 to 10,000 items are asked for.
        escape: `escape(x) -> [4]`, for x [4], finite everywhere, with the same value for the same x, such that your
            worst spread grows without bound in n.

    Returns:
        The report. Mistakes it names: the proof argued in place of the claim, by an infinite spread for a map that
        jumps; NaN counted as an escape; items outside the ball; items that do not cancel; a jump offered as an escape;
        a map unbounded only far away; a value that is not finite.
    """
    return in_turn(
        (
            lambda: examine(worst_spread, _TITLE, "worst_spread(item_map, n)", _search_stages()),
            lambda: examine(
                lambda x: np.asarray(escape(x), np.float64), _TITLE, "escape(x)", _escape_stages(worst_spread)
            ),
        ),
        remark="What a proof assumes and what it needs are two things.",
    )


def _found(item_map: Callable[..., Any]) -> Callable[..., np.ndarray]:
    return lambda worst_spread: np.array([float(worst_spread(item_map, n)) for n in _SIZES])


def _search_stages() -> tuple[Stage, ...]:
    given = "n = 10, 300 and 10,000"
    outside = Mistake(
        "items outside the ball",
        "No n items of length at most 1 have a spread as large as this.",
        "Items drawn from a normal distribution are longer than 1.",
        "Print the length of the longest item.",
        seen=lambda got: np.isfinite(got).all() and got.max() > 4 * (1 + 1e-6),
    )
    jumps = (
        Mistake(
            "NaN counted as an escape",
            "The spread is NaN.",
            "At a constant vector the formula is 0/0, and `max` of numbers and NaN is NaN.",
            "A map that has no value there gives no query. Which averages are constant vectors?",
            seen=lambda got: np.isnan(got).any(),
        ),
        Mistake(
            "the proof argued in place of the claim",
            "An infinite spread is reported for a map with bounded values.",
            "The theorem assumes continuity, and this map is not continuous.",
            "The exercise asks what is, not what the proof uses. How long can the query be?",
            seen=lambda got: np.isinf(got).any(),
        ),
        outside,
    )
    return (
        Stage(
            "the identity",
            _found(np.asarray),
            given=given,
            accept=lambda got: ((got >= 1) & (got <= 2 * (1 + 1e-9))).all(),
            mistakes=(
                Mistake(
                    "items outside the ball",
                    "The spread exceeds 2, and an average of items of the ball has a length of at most 1.",
                    "Items drawn from a normal distribution are longer than 1.",
                    "Print the length of the longest item.",
                    seen=lambda got: got.max() > 2,
                ),
                Mistake(
                    "random items only",
                    "A spread of more than 1 can be had at every n, and your search finds less.",
                    "The average of items drawn at random is close to 0.",
                    "Which items have an average that is long, while one of them points the other way?",
                    seen=lambda got: got[-1] < 1,
                ),
            ),
            look="The logit of an item is its product with the average of all.",
        ),
        Stage(
            "a LayerNorm without epsilon",
            _found(layer_norm),
            given=given,
            accept=lambda got: ((got >= 1.5) & (got <= 4 * (1 + 1e-6))).all(),
            mistakes=jumps,
            look="The query has a length of 2 here, the square root of the width, or none.",
        ),
        Stage(
            "a sign function",
            _found(np.sign),
            given=given,
            accept=lambda got: ((got >= 1.5) & (got <= 4 * (1 + 1e-6))).all(),
            mistakes=jumps,
            look="Every entry of the query is −1, 0 or 1.",
        ),
        Stage(
            "x/‖x‖²",
            _found(reciprocal),
            given=given,
            accept=lambda got: np.isfinite(got).all() and got[-1] > 50 * got[0] and got[-1] > 500,
            mistakes=(
                Mistake(
                    "items that do not cancel",
                    "The spread of a map that magnifies short vectors should grow with n, and yours does not.",
                    "Averages of length one are where this map does nothing.",
                    "How short can the average of n items be, without being 0, while one item is long?",
                    seen=lambda got: np.isfinite(got).all() and got[-1] <= 50 * got[0],
                ),
            ),
            look="Let the average shrink as n grows.",
        ),
    )


def _escape_stages(worst_spread: Callable[..., Any]) -> tuple[Stage, ...]:
    draw = np.random.default_rng(43)
    directions = draw.normal(size=(40, _WIDTH))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions = np.concatenate([directions, np.eye(_WIDTH), -np.eye(_WIDTH), 0.5 * np.ones((1, _WIDTH))])
    points = np.concatenate([scale * directions for scale in 10.0 ** np.arange(-7, 4)] + [np.zeros((1, _WIDTH))])

    def values(escape: Callable[..., Any]) -> np.ndarray:
        return np.stack([escape(point.copy()) for point in points])

    def growth(escape: Callable[..., Any]) -> dict[str, np.ndarray]:
        lengths = np.linalg.norm(values(escape), axis=1)
        found = _found(escape)(worst_spread)
        return {"spread": found, "near": lengths[: len(directions)], "far": lengths[-1 - len(directions) : -1]}

    return (
        Stage(
            "finite vectors of four entries",
            values,
            given="600 vectors of lengths from 10⁻⁷ to 1,000, and 0",
            accept=lambda got: got.shape == points.shape and np.isfinite(got).all(),
            mistakes=(
                Mistake(
                    "a value that is not finite",
                    "Some value is infinite or NaN.",
                    "A division by 0 is the quickest way to something unbounded.",
                    "A map may be finite everywhere and yet exceed every bound. What shall it be at 0?",
                    seen=lambda got: got.shape == points.shape and not np.isfinite(got).all(),
                ),
            ),
            look="Return one array of shape [4].",
        ),
        Stage(
            "the same value every time",
            lambda escape: np.abs(values(escape) - values(escape)).max(),
            given="the same vectors twice",
            accept=lambda got: got == 0,
            look="A map of items has no memory and throws no dice.",
        ),
        Stage(
            "a spread that grows without bound",
            growth,
            given="your own search at n = 10, 300 and 10,000",
            accept=lambda got: got["spread"][-1] > got["spread"][1] + 1 > got["spread"][0] + 2,
            mistakes=(
                Mistake(
                    "unbounded only far away",
                    "The map is large for long vectors and not for short ones, and averages of the ball are short.",
                    "Growing without bound suggests a power, or an exponential.",
                    "Averages never leave the unit ball. Where inside it can a map be without a bound?",
                    seen=lambda got: got["far"].max() > 50 and got["near"].max() < 10,
                ),
                Mistake(
                    "a jump offered as an escape",
                    "The map is bounded, and so is the spread.",
                    "The paper's proof needs continuity, so a jump seems to be the way out.",
                    "A proof that fails is no counter-example. What does the spread need, for it to grow?",
                    seen=lambda got: max(got["near"].max(), got["far"].max()) < 1e4,
                ),
            ),
            look="Print the length of your map's value at vectors of length 1/n.",
        ),
    )

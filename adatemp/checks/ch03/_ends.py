"""Exercise 03.1, both ends: the largest and the smallest mass that k items of a row can hold, and rows that show it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks import _float64
from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine

_SIGNATURE = "ends(n, k, spread, temperature)"

# (n, k, δ, θ): n odd and even, one item and several, θ on both sides of 1.
_CASES = (
    (3, 1, 2.0, 1.0),
    (7, 1, 3.0, 0.5),
    (12, 5, 1.25, 2.0),
    (33, 8, 4.0, 1.6),
    (100, 1, 9.0, 3.0),
    (1001, 400, 0.7, 0.25),
)
_GIVEN = "six rows of 3 to 1,001 items, k from 1 to 400, temperatures from 0.25 to 3"


def ex1(ends: Callable[..., Any]) -> Report:
    """Checks the two rows in which the first k items hold the most and the least mass, and these masses.

    Args:
        ends: `ends(n, k, spread, temperature) -> (upper, lower, high, low)` with 1 ≤ k < n. `upper` and `lower` are
            rows of n logits, before the temperature, of spread at most δ = `spread`. `high` is the largest and `low`
            the smallest mass that the first k weights of such a row can hold together at temperature θ, and the rows
            attain them.

    Returns:
        The report. Mistakes it names: one row offered for both ends; the spread scaled by the temperature in the rows,
        or left unscaled in the masses; n or n − 1 for n − k; the simple bound; k times the bound of one weight; the
        ends exchanged.
    """
    return examine(ends, "03.1 Both ends", _SIGNATURE, _stages(), picture=_draw)


def _stages() -> tuple[Stage, ...]:
    called = functools.cache(lambda ends: [ends(*case) for case in _CASES])
    high = np.array([_mass(k, n, spread / temperature)[0] for n, k, spread, temperature in _CASES])
    low = np.array([_mass(k, n, spread / temperature)[1] for n, k, spread, temperature in _CASES])
    return (
        Stage(
            "two rows of n logits and two numbers",
            called,
            given=_GIVEN,
            accept=lambda answers: all(
                len(answer) == 4
                and np.shape(answer[0]) == np.shape(answer[1]) == (case[0],)
                and np.shape(answer[2]) == np.shape(answer[3]) == ()
                for case, answer in zip(_CASES, answers, strict=True)
            ),
            look="Return `(upper, lower, high, low)`: two arrays of shape [n] and two numbers.",
        ),
        Stage(
            "the rows have a spread of at most δ",
            lambda ends: np.array([[np.ptp(_row(row)) for row in answer[:2]] for answer in called(ends)]),
            given=_GIVEN,
            accept=lambda got: (got <= _spreads()[:, None] * (1 + 1e-12)).all(),
            mistakes=(
                Mistake(
                    "the spread scaled by the temperature",
                    "The rows have a spread of δθ or of δ/θ.",
                    "Only δ/θ enters the bounds, so it is natural to build the rows with it.",
                    "The rows are logits, before they are divided by the temperature. Where is δ measured?",
                    seen=lambda got: any(np.allclose(got.max(1), _spreads() * t) for t in (_thetas(), 1 / _thetas())),
                ),
            ),
            look="Subtract the smallest logit from the largest.",
        ),
        Stage(
            "the upper row attains the largest mass",
            lambda ends: _masses(called(ends), 0),
            given=_GIVEN,
            expected=high,
            rtol=1e-12,
            atol=0,
            mistakes=(
                Mistake(
                    "the ends exchanged",
                    "The first k items of the upper row hold the least mass they can.",
                    "The two rows mirror one another.",
                    "In which of your rows do the first k items stand above the others?",
                    seen=lambda got: np.allclose(got, low, rtol=1e-9, atol=0),
                ),
                Mistake(
                    "one item for k",
                    "The mass is that of a row in which one item is high, whatever k is.",
                    "For k = 1 it is the right row.",
                    "The mass of the first k items is asked for, together.",
                    seen=lambda got: np.allclose(got, _only_one(), rtol=1e-9, atol=0),
                ),
            ),
            look="Write the mass as a ratio of sums. To which logits should the numerator go, to which the rest?",
        ),
        Stage(
            "the lower row attains the smallest mass",
            lambda ends: _masses(called(ends), 1),
            given=_GIVEN,
            expected=low,
            rtol=1e-12,
            atol=0,
            mistakes=(
                Mistake(
                    "one row offered for both",
                    "The lower row is the upper one, perhaps in another order: its first k items do not hold the "
                    "least mass.",
                    "One high logit looks extreme in both directions, and with two items it is.",
                    "Take n = 3, k = 1. Which two logits should stand beside the first, to leave it least?",
                    seen=lambda got: (
                        np.allclose(got, high, rtol=1e-9, atol=0) or np.allclose(got, _beside_one_high(), rtol=1e-9)
                    ),
                ),
            ),
            look="The least mass of k items is one minus the most mass of the others.",
        ),
        Stage(
            "the two masses in closed form",
            lambda ends: np.array([[float(part) for part in answer[2:]] for answer in called(ends)]),
            given=_GIVEN,
            expected=np.stack([high, low], 1),
            rtol=1e-12,
            atol=0,
            mistakes=_closed_form_mistakes(),
            look="Compare your numbers with the masses of your own rows, computed by a softmax.",
        ),
    )


def _closed_form_mistakes() -> tuple[Mistake, ...]:
    def pairs(formula: Callable[..., tuple[float, float]]) -> np.ndarray:
        return np.array([formula(*case) for case in _CASES])

    def others(count: Callable[[int, int], int]) -> np.ndarray:
        return pairs(lambda n, k, spread, theta: _ratio(k, count(n, k), spread / theta))

    return (
        Mistake(
            "δ for δ/θ",
            "The masses are right at temperature 1 and at no other.",
            "Many texts set the temperature to 1 and leave it there.",
            "By what is a logit divided before it is exponentiated?",
            seen=pairs(lambda n, k, spread, theta: _mass(k, n, spread)),
        ),
        Mistake(
            "n for n − k",
            "The competitors were counted wrongly: all n items stand in the denominator beside the k.",
            "The item itself is easily counted among its own competitors, and for large n it hardly shows.",
            "How many items are not among the first k?",
            seen=lambda got: (
                np.allclose(got, others(lambda n, k: n), rtol=1e-9, atol=0)
                or np.allclose(got, others(lambda n, k: n - 1), rtol=1e-9, atol=0)
            ),
        ),
        Mistake(
            "the simple bound",
            "The numbers are k/n times the largest and the smallest ratio: true bounds that no row attains.",
            "They are what the lemma gives when it is summed over k items.",
            "The denominator was bounded as if every item stood at an end, the k items themselves included.",
            seen=pairs(lambda n, k, spread, theta: (k / n * np.exp(spread / theta), k / n * np.exp(-spread / theta))),
        ),
        Mistake(
            "k times the bound of one weight",
            "Each of the k items is given the largest weight that it could have alone.",
            "A bound on every weight is a bound on their sum.",
            "Can two items both have the largest weight of the theorem, in one row?",
            seen=pairs(lambda n, k, spread, theta: tuple(k * part for part in _ratio(1, n - 1, spread / theta))),
        ),
        Mistake(
            "the ends exchanged",
            "The first number is the smaller one.",
            "Bounds are often written from low to high.",
            "The exercise asks for `high` before `low`.",
            seen=lambda got: np.allclose(
                got[:, ::-1], pairs(lambda n, k, spread, theta: _mass(k, n, spread / theta)), rtol=1e-9, atol=0
            ),
        ),
    )


def _row(logits: Any) -> np.ndarray:
    return np.asarray(logits).astype(np.float64)


def _spreads() -> np.ndarray:
    return np.array([spread for _, _, spread, _ in _CASES])


def _thetas() -> np.ndarray:
    return np.array([temperature for *_, temperature in _CASES])


def _masses(answers: list[Any], end: int) -> np.ndarray:
    """Mass of the first k items of the upper (0) or lower (1) rows, by a float64 softmax."""
    return np.array(
        [
            _float64.softmax(_row(answer[end]) / temperature)[:k].sum()
            for (_, k, _, temperature), answer in zip(_CASES, answers, strict=True)
        ]
    )


def _mass(k: int, n: int, s: float) -> tuple[float, float]:
    """Most and least mass of k items of n, from sums over explicit rows."""
    levels = np.exp(np.where(np.arange(n) < k, 0.0, -s)), np.exp(np.where(np.arange(n) < k, -s, 0.0))
    high, low = (powers[:k].sum() / powers.sum() for powers in levels)
    return float(high), float(low)


def _ratio(k: int, others: int, s: float) -> tuple[float, float]:
    return k / (k + others * np.exp(-s)), k / (k + others * np.exp(s))


def _only_one() -> np.ndarray:
    """Mass of the first k items where only the first is high."""
    return np.array([(np.exp(d / t) + k - 1) / (np.exp(d / t) + n - 1) for n, k, d, t in _CASES])


def _beside_one_high() -> np.ndarray:
    """Mass of the first k items where one item, and not one of them, is high."""
    return np.array([k / (np.exp(d / t) + n - 1) for n, k, d, t in _CASES])


def _draw(ends: Callable[..., Any]) -> Any:
    """The two rows for twelve items, three of them followed."""
    from adatemp import plotting

    n, k, spread, temperature = 12, 3, 3.0, 1.5
    upper, lower, high, low = ends(n, k, spread, temperature)
    figure, panels = plotting.figure(height=2.4, ncols=2, sharey=True)
    for panel, row, mass, name in zip(panels, (upper, lower), (high, low), ("upper", "lower"), strict=True):
        colours = [plotting.palette["highlight" if i < k else "plain"] for i in range(n)]
        panel.bar(range(n), _row(row) - _row(row).min(), color=colours)
        panel.set(title=f"{name}: mass {float(mass):.3f}", xlabel="item", xticks=[])
    panels[0].set_ylabel("logit")
    return plotting.show(
        figure,
        alt=f"Logits of your two rows for 12 items, spread {spread:g}, temperature {temperature:g}; the first three "
        f"hold {float(high):.3f} of the mass in the upper row, {float(low):.3f} in the lower.",
    )

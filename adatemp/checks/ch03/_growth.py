"""Exercise 03.6, how fast must δ grow: spreads that keep, lose or win the top weight, for two kinds of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "03.6 How fast must δ grow?"
_EXPONENTS = (2, 4, 10, 30, 100)  # n = 10 to these powers: log log n is slow
_TEMPERATURES = (1.0, 2.5)
_BEHAVIOURS = ("1/n", "(log n)/n", "constant", "one")
_CROWDS = ((1_000, 0.25, 1.0), (5_000, 0.5, 2.0), (20_001, 0.9, 0.5))  # (n, w, θ)


def ex6(spread: Callable[..., Any], crowded: Callable[..., Any]) -> Report:
    """Checks how a spread must grow with n for the top weight to behave in four ways, and what a crowd changes.

    Args:
        spread: `spread(behaviour, n, temperature) -> δ_n`. With one logit δ_n above n − 1 equal ones, the top weight w
            behaves, as n grows, like
                "1/n"        a constant over n
                "(log n)/n"  a constant times (log n)/n
                "constant"   a constant strictly between 0 and 1
                "one"        1
            n is a float up to 10¹⁰⁰, and no row is made.
        crowded: `crowded(n, top_weight, temperature) -> δ`: for n logits equally spaced from 0 to δ, the spread at
            which the largest weight is `top_weight`, right to a thousandth of it. n is 1,000 or more.

    Returns:
        The report. Mistakes it names: a constant spread for all; log log n for a constant weight; the temperature
        forgotten; a spread beyond what the best case needs; a threshold reached and not passed; the best case's log n
        used for a crowd; the spacing given for the spread.
    """
    return in_turn(
        (
            lambda: examine(spread, _TITLE, "spread(behaviour, n, temperature)", _growth_stages()),
            lambda: examine(crowded, _TITLE, "crowded(n, top_weight, temperature)", (_crowd_stage(),)),
        ),
        remark="log n is what the bound demands; what the head has to pay is decided by the competitors near the top.",
        picture=lambda: _draw(spread),
    )


def _growth_stages() -> tuple[Stage, ...]:
    return tuple(_behaviour_stage(name) for name in _BEHAVIOURS)


def _behaviour_stage(name: str) -> Stage:
    accept, words = {
        "1/n": (lambda c: _steady(c.times_n) and c.grows_by_less(3.0), "n·w tends to a constant"),
        "(log n)/n": (lambda c: _steady(c.times_n - np.log(c.log_n)), "n·w/log n tends to a constant"),
        "constant": (
            lambda c: _steady(c.log_w) and (0.001 < c.w[-1]).all() and (c.w[-1] < 0.999).all(),
            "w tends to a constant between 0 and 1",
        ),
        "one": (lambda c: (c.left[-1] < math.log(0.02)).all() and (np.diff(c.left, axis=0) < 0).all(), "w tends to 1"),
    }[name]
    return Stage(
        words,
        lambda spread: _Curve(spread, name),
        given=f'behaviour "{name}", n = 10² to 10¹⁰⁰, θ = 1 and 2.5',
        accept=accept,
        mistakes=_mistakes(name, accept),
        look="Write w = 1/(1 + (n − 1)e^(−δ/θ)) and ask how (n − 1)e^(−δ/θ) has to behave.",
    )


def _mistakes(name: str, accept: Callable[..., bool]) -> tuple[Mistake, ...]:
    constant = Mistake(
        "a constant spread for all",
        "The spread does not grow with n, and w falls like 1/n.",
        "With a larger constant the fall begins later, and for every n that one tries it may look prevented.",
        "At n = 10¹⁰⁰, what is w for your spread?",
        seen=lambda c: np.ptp(c.spread, axis=0).max() < 1e-6 * (1 + c.spread.max()),
    )
    log_log = Mistake(
        "a constant weight with log log n",
        "With δ growing like log log n, w falls like (log n)/n.",
        "log log n grows without bound, and that seems to be enough.",
        "(n − 1)e^(−δ/θ) has to stay bounded. Which δ cancels n?",
        seen=lambda c: _steady(c.times_n - np.log(c.log_n)) or _steady(c.times_n - np.log(c.log_n) / c.theta, 0.3),
    )
    temperature = Mistake(
        "the temperature forgotten",
        "At temperature 1 the behaviour is right, at temperature 2.5 it is another one.",
        "The formulas look the same with θ left out.",
        "By what is δ divided before it is exponentiated?",
        seen=lambda c: accept(c.at(0)),
    )
    beyond = Mistake(
        "more than the best case needs",
        "The spread grows faster than log n, and w tends to 1.",
        "A crowd of near competitors needs that much. Here all n − 1 competitors stand at the bottom, which is the "
        "best case.",
        "How many competitors does this row have, and where do they stand?",
        seen=lambda c: (c.w[-1] > 0.98).all(),
    )
    threshold = Mistake(
        "a threshold reached and not passed",
        "w stays below 1: δ follows θ log n at a constant distance.",
        "At δ = θ log n the weight stops falling, which is the turning point and not yet the goal.",
        "What does (n − 1)e^(−δ/θ) have to tend to?",
        seen=lambda c: _steady(c.log_w, 0.3) and (c.w[-1] < 0.98).all(),
    )
    return {
        "1/n": (beyond, log_log),
        "(log n)/n": (constant, temperature, beyond),
        "constant": (constant, temperature, log_log, beyond),
        "one": (constant, log_log, threshold, temperature),
    }[name]


class _Curve:
    """What a spread makes of the top weight: arrays [sizes, temperatures], logarithms where numbers are huge."""

    def __init__(self, spread: Callable[..., Any], name: str, temperatures: tuple[float, ...] = _TEMPERATURES):
        self._call = (spread, name)
        self.theta = np.array(temperatures)
        self.log_n = np.array([[exponent * math.log(10.0)] * self.theta.size for exponent in _EXPONENTS])
        self.spread = np.array(
            [[float(spread(name, 10.0**exponent, theta)) for theta in temperatures] for exponent in _EXPONENTS]
        )
        odds = self.log_n - self.spread / self.theta  # log of (n − 1)e^(−δ/θ), but for the 1
        self.log_w = -np.logaddexp(0.0, odds)
        self.w = np.exp(self.log_w)
        self.left = odds + self.log_w  # log(1 − w)
        self.times_n = self.log_w + self.log_n  # log(n w)

    def at(self, index: int) -> _Curve:
        """The same at one temperature."""
        return _Curve(*self._call, temperatures=(_TEMPERATURES[index],))

    def grows_by_less(self, nats: float) -> bool:
        return bool((self.spread[-1] - self.spread[0] < nats).all())


def _steady(logarithms: np.ndarray, slack: float = 0.2) -> bool:
    """Whether the last three sizes, 90 powers of ten apart, agree within e^slack, at every temperature."""
    return bool(np.isfinite(logarithms).all() and (np.ptp(logarithms[-3:], axis=0) < slack).all())


def _crowd_stage() -> Stage:
    right = np.array([_crowd(*case) for case in _CROWDS])
    best_case = np.array([theta * math.log((n - 1) * w / (1 - w)) for n, w, theta in _CROWDS])
    theta = np.array([theta for *_, theta in _CROWDS])
    n = np.array([n for n, *_ in _CROWDS])
    return Stage(
        "equally spaced logits",
        lambda crowded: np.array([float(crowded(*case)) for case in _CROWDS]),
        given="n = 1,000, 5,000 and 20,001; top weights 0.25, 0.5 and 0.9; θ = 1, 2 and 0.5",
        expected=right,
        rtol=2e-3,
        atol=0,
        mistakes=(
            Mistake(
                "the best case's log n used for a crowd",
                "The answer is what a single leader over n − 1 equal logits needs.",
                "It is the formula of the bound, and the bound holds for this row too.",
                "How close is the runner-up here, and how far must it be for the leader to have half of the weight?",
                seen=lambda got: np.allclose(got, best_case, rtol=0.02),
            ),
            Mistake(
                "the spacing given for the spread",
                "The answer is the distance of two neighbours.",
                "It is the spacing that decides the weight.",
                "How many spacings make the spread?",
                seen=lambda got: np.allclose(got, right / (n - 1), rtol=0.01),
            ),
            Mistake(
                "the temperature forgotten",
                "The answers are right at temperature 1 and at no other.",
                "The geometric series is summed with the temperature set to 1.",
                "By what is a spacing divided before it is exponentiated?",
                seen=lambda got: np.allclose(got * theta, right, rtol=0.01),
            ),
        ),
        look="The weights are a geometric sequence. What is its sum, for n this large?",
    )


def _crowd(n: int, top_weight: float, temperature: float) -> float:
    """The spread by bisection on the largest weight of the row itself."""
    ranks = np.arange(n) / (n - 1)
    low, high = 0.0, 1e7
    for _ in range(80):
        middle = (low + high) / 2
        reached = 1.0 / np.exp(-middle / temperature * ranks).sum()
        low, high = (low, middle) if reached >= top_weight else (middle, high)
    return high


def _draw(spread: Callable[..., Any]) -> Any:
    """What each behaviour holds steady: n times the top weight for two of them, the top weight for the others."""
    from adatemp import plotting

    figure, (product, weight) = plotting.figure(height=2.8, ncols=2)
    words = []
    for name, colour in zip(_BEHAVIOURS, ("plain", "adaptive", "ours", "argmax"), strict=True):
        curve = _Curve(spread, name, (1.0,))
        falls = name.endswith("/n")
        values = np.exp(np.minimum(curve.times_n[:, 0], 300.0)) if falls else curve.w[:, 0]
        panel = product if falls else weight
        panel.plot(_EXPONENTS, values, color=plotting.palette[colour], label=name, marker="o")
        words.append(f"{name}: {values[-1]:.3g}")
    product.set(yscale="log", xlabel="log₁₀ n", ylabel="n · top weight")
    weight.set(ylim=(0, 1.05), xlabel="log₁₀ n", ylabel="top weight")
    for panel in (product, weight):
        panel.legend()
    return plotting.show(
        figure,
        alt="Left n times the top weight, right the top weight, against the logarithm of n; at n = 10¹⁰⁰ "
        + ", ".join(words),
    )

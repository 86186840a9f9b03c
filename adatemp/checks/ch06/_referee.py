"""Exercise 06.4, when is the referee right: how many distractors a large constant survives, of which kind, read how."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "06.4 When is the referee right?"
_SIGNATURE = "half_size(contrast, distractors, margin, classes)"
_CONTRASTS = (math.exp(2.0), math.exp(4.0), math.exp(6.0))
_CLASSES = (3, 10)
_MARGINS = (0.05, 0.2)


def ex4(half_size: Callable[..., Any]) -> Report:
    """Checks the number of distractors at which A is still found in half of the sets.

    Values are vectors of length C, the number of classes. A's is the first unit vector. A's weight is κ times that of
    each of m distractors B, so the pooled vector is x = (κ v_A + Σ v_B)/(κ + m). Distractors are

        "identical"  all equal to the second unit vector;
        "random"     independent, normal, mean 0, covariance (identity)/C: zero-mean, and of length about 1.

    A is found if x₁ exceeds every other entry by more than the margin. Margin 0 asks for the largest entry only, as a
    read-out does that normalises x first; a positive one is a threshold on x as it is.

    Args:
        half_size: `half_size(contrast, distractors, margin, classes) -> m`, a float, to 10%: for more distractors A is
            found in less than half of the sets.

    Returns:
        The report. Mistakes it names: A compared with one B; normalisation without zero mean; e^δ for both kinds; a
        single draw; the number of classes forgotten; the margin or the fluctuation forgotten.
    """
    return examine(half_size, _TITLE, _SIGNATURE, _stages(), remark=_REMARK, picture=_draw)


_REMARK = "A constant κ buys a factor κ against identical items and κ² against zero-mean ones read by direction."


def half(contrast: float, distractors: str, margin: float, classes: int) -> float:
    """The size, by bisection on A's lead less what the distractors bring at the median."""
    low, high = 1e-9, 1e-9
    while _lead(high, contrast, distractors, margin, classes) > 0:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        ahead = _lead(middle, contrast, distractors, margin, classes) > 0
        low, high = (middle, high) if ahead else (low, middle)
    return high


def _lead(m: float, contrast: float, distractors: str, margin: float, classes: int) -> float:
    brought = m if distractors == "identical" else math.sqrt(m / classes) * median_lead(classes)
    return contrast - brought - margin * (contrast + m)


@functools.cache
def median_lead(classes: int) -> float:
    """The median of max(g₂, …, g_C) − g₁ for independent standard normal g, by numerical integration."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    t = np.linspace(-9, 9, 4001)

    def below(q: float) -> float:
        return float(np.sum(norm.pdf(t) * norm.cdf(t + q) ** (classes - 1)) * (t[1] - t[0]))

    return float(brentq(lambda q: below(q) - 0.5, -1.0, 10.0))


def _stages() -> tuple[Stage, ...]:
    def stage(name: str, kind: str, margins: tuple[float, ...], mistakes: Callable[..., Any], look: str) -> Stage:
        cases = [(k, kind, t, c) for k in _CONTRASTS for t in margins for c in _CLASSES]
        right = np.array([half(*case) for case in cases])
        return Stage(
            name,
            lambda f: np.array([float(f(*case)) for case in cases]),
            given=f"{kind} distractors, κ = e², e⁴ and e⁶, margin {' and '.join(f'{t:g}' for t in margins)}, 3 and 10 "
            "classes",
            expected=right,
            rtol=0.1,
            mistakes=(*_COMMON, *mistakes(cases, right), _single_draw(right)),
            look=look,
        )

    squared = Mistake(
        "normalisation without zero mean",
        "The size goes like κ² for distractors that all point the same way.",
        "κ² is what the random kind allows.",
        "Identical values add up to m times one of them, with nothing to cancel.",
        seen=lambda got: _exponent(got) > 1.7,
    )

    def identical_direction(cases: Any, right: np.ndarray) -> tuple[Mistake, ...]:
        return (squared,)

    def identical_margin(cases: Any, right: np.ndarray) -> tuple[Mistake, ...]:
        unmargined = np.array([k for k, *_ in cases])
        return (
            squared,
            Mistake(
                "the margin forgotten",
                "The sizes are those for margin 0.",
                "The largest entry decides in most read-outs.",
                "x₁ has to lead by more than the margin.",
                seen=unmargined,
            ),
            Mistake(
                "A's own entry for its lead",
                "The size is that at which x₁ alone falls to the margin.",
                "It is the weight of A that the bound is about.",
                "The second entry of x is not zero: there are m Bs in it.",
                seen=lambda got: np.allclose(got, [k * (1 / t - 1) for k, _, t, _ in cases], rtol=0.1),
            ),
        )

    def random_direction(cases: Any, right: np.ndarray) -> tuple[Mistake, ...]:
        k, c = np.array([case[0] for case in cases]), np.array([case[3] for case in cases])
        return (
            Mistake(
                "e^δ for both kinds",
                "The size goes like κ.",
                "It does for identical distractors.",
                "How long is a sum of m independent vectors of mean 0?",
                seen=lambda got: _exponent(got) < 1.3,
            ),
            Mistake(
                "the number of classes forgotten",
                "The sizes for three and for ten classes stand in the wrong ratio.",
                "In the order of magnitude the classes do not show.",
                "A must beat the largest of C − 1 others, each with a variance of m/C.",
                seen=lambda got: np.allclose(got, k**2, rtol=0.1) or np.allclose(got, c * k**2, rtol=0.1),
            ),
        )

    def random_margin(cases: Any, right: np.ndarray) -> tuple[Mistake, ...]:
        return (
            Mistake(
                "normalisation where there is none",
                "The sizes are those for margin 0, which go like κ².",
                "Zero-mean distractors cancel, so only a fluctuation of order √m remains.",
                "x is divided by κ + m, and the margin is not.",
                seen=lambda got: _exponent(got) > 1.7,
            ),
            Mistake(
                "the fluctuation forgotten",
                "The size is that at which A's weight alone falls to the margin.",
                "For large κ the fluctuation is small beside it.",
                "At κ = e² it is not.",
                seen=lambda got: np.allclose(got, [k * (1 / t - 1) for k, _, t, _ in cases], rtol=0.03),
            ),
        )

    return (
        stage(
            "identical, read by direction",
            "identical",
            (0.0,),
            identical_direction,
            "When is κ larger than m?",
        ),
        stage("identical, with a threshold", "identical", _MARGINS, identical_margin, "Write out the entries of x."),
        stage(
            "random, read by direction",
            "random",
            (0.0,),
            random_direction,
            "Half of the sets: where A's lead is the *median* of what the best rival gains on it.",
        ),
        stage(
            "random, with a threshold",
            "random",
            _MARGINS,
            random_margin,
            "The same, with the margin times κ + m on one side: a quadratic equation in √m.",
        ),
    )


_COMMON = (
    Mistake(
        "A compared with one B",
        "The size is infinite or astronomical: A is found for ever.",
        "A's weight is κ times that of any B, at every m.",
        "What does the read-out see of a single B?",
        seen=lambda got: (got > 1e8).all(),
    ),
)


def _single_draw(right: np.ndarray) -> Mistake:
    return Mistake(
        "a single draw",
        "The sizes scatter about the right ones.",
        "One draw of the distractors gives an answer, and another draw another.",
        "Half of the sets: average over draws, or use the distribution.",
        seen=lambda got: abs(np.log(got / right).mean()) < 1.5 and np.log(got / right).std() > 0.25,
    )


def _exponent(got: np.ndarray) -> float:
    """The power of κ that the sizes follow, from the smallest to the largest κ."""
    logs = np.log(got).reshape(len(_CONTRASTS), -1).mean(1)
    return float((logs[-1] - logs[0]) / math.log(_CONTRASTS[-1] / _CONTRASTS[0]))


def _draw(half_size: Callable[..., Any]) -> Any:
    """The four thresholds against κ."""
    from adatemp import plotting

    contrasts = np.geomspace(3, 1000, 9)
    fig, axes = plotting.figure(height=3.0)
    names = {("identical", 0.0): "plain", ("identical", 0.1): "published", ("random", 0.0): "ours"}
    names["random", 0.1] = "adaptive"
    last = []
    for (kind, margin), role in names.items():
        sizes = [float(half_size(float(k), kind, margin, 10)) for k in contrasts]
        how = "a threshold" if margin else "by direction"
        axes.plot(contrasts, sizes, label=f"{kind}, {how}", **plotting.role(role))
        last.append(f"{kind} {how} {sizes[-1]:.2g}")
    axes.set(xscale="log", yscale="log", xlabel="contrast κ", ylabel="distractors m")
    axes.legend()
    return plotting.show(
        fig, alt="Distractors survived against κ on log axes, four lines; at κ = 1,000: " + ", ".join(last) + "."
    )

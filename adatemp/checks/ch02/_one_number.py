"""Exercise 02.4: one number for a head, and the whole accuracy curve from it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "02.4 One number for a head"
_CLASSES = 10
_SEEN, _UNSEEN = 256, (512, 2048)


class _Head(NamedTuple):
    """A head whose logit is two straight lines in priority: slope `steep` above `knee`, `rest` below."""

    steep: float
    rest: float
    knee: float

    def logits(self, priority: np.ndarray) -> np.ndarray:
        top = np.maximum(priority - self.knee, 0)
        return self.steep * top + self.rest * np.minimum(priority, self.knee)


_HEADS = (_Head(90.0, 90.0, 0.5), _Head(200.0, 30.0, 0.9), _Head(45.0, 160.0, 0.9))
_SLOPES = np.array([head.steep for head in _HEADS])


def ex4(slope: Callable[..., float], accuracy: Callable[..., float]) -> Report:
    """Checks an estimate of a head's slope near the top and the accuracy curve predicted from n/S.

    Args:
        slope: `slope(priority, logits) -> S`, both arrays [sets, n]. S is the slope of the logit in the priority among
            the largest priorities, in nats per unit of priority. Each set's logits have an offset of their own.
        accuracy: `accuracy(n_over_s, classes) -> float`, the share of sets, in [0, 1], on which the class with the
            largest summed weight is the class of the maximum, for priorities uniform on [0, 1), logits S·priority,
            classes uniform and n large. It is called for n_over_s up to 46
            and should take no more than a second or so.

    Returns:
        The report. Mistakes it names: a slope fitted over the whole range; the range of the logits taken for S; one
        line through sets with different offsets; the base of the logarithm; the top weight taken for the accuracy;
        chance level or the number of classes forgotten; n·S or S/n for n/S.
    """
    return in_turn(
        (
            lambda: examine(slope, _TITLE, "slope(priority, logits)", (_slope_stage(),)),
            lambda: examine(accuracy, _TITLE, "accuracy(n_over_s, classes)", _accuracy_stages()),
            lambda: examine(accuracy, _TITLE, "accuracy(n_over_s, classes)", (_curve_stage(slope),)),
        ),
        remark="Accuracy here depends on n and S through n/S alone, so a temperature buys sizes by the factor 1/θ.",
        picture=lambda: _draw(slope, accuracy),
    )


def _slope_stage() -> Stage:
    samples = [_sample(head, seed) for seed, head in enumerate(_HEADS)]
    ranges = np.array([np.ptp(logits, axis=1).mean() for _, logits in samples])
    whole = np.array([_fit(*sample) for sample in samples])
    pooled = np.array([np.polyfit(p.ravel(), e.ravel(), 1)[0] for p, e in samples])
    return Stage(
        "the slope near the top",
        lambda slope: np.array([float(slope(priority, logits)) for priority, logits in samples]),
        given=f"three heads of known slope, 200 sets of {_SEEN} items each",
        expected=_SLOPES,
        rtol=0.08,
        atol=0,
        mistakes=(
            Mistake(
                "the slope is fitted over the whole range",
                "The answer is that of a line through all items.",
                "More points make a steadier fit, and for a head that is straight from 0 to 1 it is even right.",
                "Which items have weight? Draw the logit against the priority for the second head.",
                seen=lambda got: np.allclose(got, whole, rtol=0.04),
            ),
            Mistake(
                "the range of the logits is taken for S",
                "The answer is the difference between the largest and the smallest logit.",
                "For a straight head over the unit interval, range and slope are the same number.",
                "The range depends on items that no one will ever attend to.",
                seen=lambda got: np.allclose(got, ranges, rtol=0.04),
            ),
            Mistake(
                "one line through sets with different offsets",
                "The answer is that of one regression over all sets together.",
                "Flattening the arrays is the shortest way to `polyfit`.",
                "Every set's logits are shifted by a number of their own. Softmax ignores it; does your fit?",
                seen=lambda got: np.allclose(got, pooled, rtol=0.04),
            ),
            Mistake(
                "the base of the logarithm",
                "Every answer is off by the same factor, a logarithm of 2 or of 10.",
                "A slope read from weights by their logarithm depends on its base.",
                "Softmax is made of exponentials to base e.",
                seen=lambda got: any(
                    np.allclose(got, _SLOPES * factor, rtol=0.08)
                    for base in (2.0, 10.0)
                    for factor in (math.log(base), 1 / math.log(base))
                ),
            ),
        ),
        look="Sort each set by priority, keep the items whose weight is not negligible, and look at those.",
    )


def _accuracy_stages() -> tuple[Stage, ...]:
    ratios = (0.5, 2.0, 4.0, 16.0)
    truth = np.array([_simulated(ratio, _CLASSES) for ratio in ratios])
    top_weight = np.array([_top_weight(ratio) for ratio in ratios])
    turned = np.array([_simulated(1 / ratio, _CLASSES) for ratio in ratios])
    chance_free = (truth - 1 / _CLASSES) / (1 - 1 / _CLASSES)
    return (
        Stage(
            "the accuracy from n/S, ten classes",
            lambda accuracy: np.array([float(accuracy(ratio, _CLASSES)) for ratio in ratios]),
            given="n/S = 0.5, 2, 4, 16",
            expected=truth,
            atol=0.025,
            rtol=0,
            mistakes=(
                Mistake(
                    "n/S turned round",
                    "The accuracy grows with n/S.",
                    "S/n and n·S are as easily written as n/S.",
                    "More items, or a flatter head, make the task harder.",
                    seen=lambda got: np.allclose(got, turned, atol=0.03) or got[-1] > got[0] + 0.05,
                ),
                Mistake(
                    "the top weight is taken for the accuracy",
                    "The mean weight of the largest item came back.",
                    "Both fall from one as n grows, and the weight is a probability in form.",
                    "A class needs more mass than every other class, not more than a half, nor all of it.",
                    seen=lambda got: np.allclose(got, top_weight, atol=0.02),
                ),
                Mistake(
                    "chance level forgotten",
                    "The curve tends to zero where it should tend to one in ten.",
                    "A weight tends to zero, and accuracy is thought of as one.",
                    "With all mass spread evenly, how often is a guess right?",
                    seen=lambda got: np.allclose(got, chance_free, atol=0.02),
                ),
                Mistake(
                    "percent for shares",
                    "The answer is a hundred times too large.",
                    "The text quotes accuracies in percent.",
                    "Return a number between 0 and 1.",
                    seen=lambda got: np.allclose(got / 100, truth, atol=0.03),
                ),
            ),
            look="Near the top the gaps between priorities, times n, are independent exponentials of mean 1. Draw so "
            "many that the weights left out are negligible: several times n/S.",
        ),
        Stage(
            "the number of classes matters",
            lambda accuracy: np.array([float(accuracy(4.0, classes)) for classes in (2, 40)]),
            given="n/S = 4, with 2 and with 40 classes",
            expected=np.array([_simulated(4.0, 2), _simulated(4.0, 40)]),
            atol=0.025,
            rtol=0,
            mistakes=(
                Mistake(
                    "the number of classes is ignored",
                    "The same accuracy came back for 2 and for 40 classes.",
                    "Ten classes are written into the task, and then into the code.",
                    "Look for a 10.",
                    seen=lambda got: abs(got[0] - got[1]) < 0.02,
                ),
            ),
            look="Competitors of one class join forces; with many classes few of them do.",
        ),
    )


def _curve_stage(slope: Callable[..., float]) -> Stage:
    samples = [_sample(head, seed) for seed, head in enumerate(_HEADS)]
    return Stage(
        f"the heads' accuracy at {_UNSEEN[0]:,} and {_UNSEEN[1]:,} items",
        lambda accuracy: np.array(
            [[float(accuracy(n / float(slope(*sample)), _CLASSES)) for n in _UNSEEN] for sample in samples]
        ),
        given=f"the three heads, seen with {_SEEN} items only",
        expected=np.array([[_measured(head, n) for n in _UNSEEN] for head in _HEADS]),
        atol=0.03,
        rtol=0,
        look="Both functions are right by themselves; compare n over your S with n over the known slope.",
    )


# Planted heads and the truth about them.


def _sample(head: _Head, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    priority = rng.uniform(size=(200, _SEEN))
    offset = rng.normal(scale=200.0, size=(200, 1)) + 10_000.0 * seed
    return priority, head.logits(priority) + offset


def _fit(priority: np.ndarray, logits: np.ndarray) -> float:
    """Mean over sets of the least-squares slope through all items of a set."""
    p = priority - priority.mean(1, keepdims=True)
    return float(((p * logits).sum(1) / (p * p).sum(1)).mean())


@functools.cache
def _simulated(ratio: float, classes: int, sets: int = 20_000) -> float:
    """Accuracy in the limit of many items at a fixed n/S, from independent class masses.

    Apart from the maximum itself, which adds 1 to its own class, the mass of a class is a sum of exp(−Γ/s) over a
    Poisson process of rate 1/C, so it has the law of M = U^(C/s)·(1 + M') with U uniform and M' a copy of M: a
    generalised Dickman variable. Iterating that equation from 0 converges at the rate s/(C + s).
    """
    rng = np.random.default_rng(1)
    shape = ratio / classes
    steps = math.ceil(math.log(1e-4) / math.log(shape / (1 + shape))) if shape > 0.01 else 4
    mass = np.zeros((sets, classes))
    for _ in range(steps):
        mass = rng.uniform(size=mass.shape) ** (1 / shape) * (1 + mass)
    mass[:, 0] += 1
    return float((mass.argmax(1) == 0).mean())


def _top_weight(ratio: float) -> float:
    """Mean weight of the maximum in the same limit."""
    gaps = np.cumsum(np.random.default_rng(2).exponential(size=(2000, 24 + math.ceil(14 * ratio))), axis=1)
    return float((1 / (1 + np.exp(-gaps / ratio).sum(1))).mean())


@functools.cache
def _measured(head: _Head, n: int, sets: int = 4000) -> float:
    """Accuracy of a planted head on sets of n items, read by class mass."""
    rng = np.random.default_rng(n)
    right = 0
    for _ in range(4):
        priority = rng.uniform(size=(sets // 4, n))
        labels = rng.integers(0, _CLASSES, priority.shape)
        logits = head.logits(priority)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        place = np.arange(len(labels))[:, None] * _CLASSES + labels
        mass = np.bincount(place.ravel(), weights.ravel(), place.shape[0] * _CLASSES).reshape(-1, _CLASSES)
        target = np.take_along_axis(labels, priority.argmax(1)[:, None], axis=1)[:, 0]
        right += int((mass.argmax(1) == target).sum())
    return right / sets


def _draw(slope: Callable[..., float], accuracy: Callable[..., float]) -> Any:
    """Predicted curves of the three heads, with the accuracies measured at unseen sizes."""
    from adatemp import plotting

    figure, axes = plotting.figure()
    words = []
    for seed, (head, colour) in enumerate(zip(_HEADS, ("plain", "adaptive", "argmax"), strict=True)):
        found = float(slope(*_sample(head, seed)))
        sizes = found * np.geomspace(0.25, 46, 7)
        curve = [100 * float(accuracy(n / found, _CLASSES)) for n in sizes]
        axes.plot(sizes, curve, color=plotting.palette[colour], label=f"predicted, S = {found:.0f}")
        measured = [100 * _measured(head, n) for n in _UNSEEN]
        axes.plot(_UNSEEN, measured, "o", color=plotting.palette[colour])
        words.append(
            f"S = {found:.0f}, measured " + " and ".join(f"{a:.0f}% at {n}" for n, a in zip(_UNSEEN, measured))
        )
    axes.set_xscale("log")
    axes.set_xlabel("items n")
    axes.set_ylabel("accuracy, %")
    axes.legend()
    return plotting.show(
        figure, alt="Predicted accuracy of three planted heads against n, dots measured: " + "; ".join(words)
    )

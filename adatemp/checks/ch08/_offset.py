"""Exercise 08.6, the offset and not the target: what exp(H − h) holds fixed, a choice of h, and the control."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "08.6 The offset, not the target"
_REACHED, _CHOOSE, _CONTROL = "reached(offset)", "choose(sample)", "control(offset, logits)"
_OFFSETS = (-1.0, 0.15, 1.0, 2.0, 4.0)
_CLASSES, _LONGEST = 10, 16
_NEAR = 0.3  # in h: a factor of 1.35 in the n/(βS) that is held
_TESTS = (512, 2048, 16384)


def ex6(reached: Callable[..., Any], choose: Callable[..., Any], control: Callable[..., Any]) -> Report:
    """Checks what β = exp(max(0, H − h)) holds fixed, how h is chosen, and what it does to a head that averages.

    Args:
        reached: `reached(h) -> (ratio, entropy)`, in the limit of many items: for logits z = Sρ, ρ uniform on [0, 1),
            the value of n/(βS) that the rule holds, and the mean entropy in nats of the sharpened rows, to 0.03.
        choose: `choose(sample) -> h`. `sample(n, sets)` draws rows of a head of unknown S, read at temperature 1:
            `(logits, top)`, arrays [sets, n] and [sets], `top` the index of the right item. Training had 5 to 16
            items. With your h the sharpened rows of 512 to 16,384 items must be as sharp as the head's rows of
            16, within a factor of 1.35 in n/(βS), and its accuracy flat to a point.
        control: `control(h, logits) -> (before, after)`: the mean effective number of items e^H of rows [rows, n], as
            they are and under the rule.

    Returns:
        The report. Mistakes it names: h taken for the entropy that is reached; the training entropy taken for h; h
        chosen at test sizes; a control left out, or reported as untouched; bits.
    """
    return in_turn(
        (
            lambda: examine(reached, _TITLE, _REACHED, _reached_stages()),
            lambda: examine(choose, _TITLE, _CHOOSE, _choose_stages()),
            lambda: examine(control, _TITLE, _CONTROL, _control_stages()),
        ),
        remark="The rule works for the family it was derived for. The control says what it does to another.",
    )


@functools.cache
def mean_entropy(ratio: float, sets: int = 4000, seed: int = 806) -> float:
    """Mean entropy of rows with weights exp(−t/ratio) over a Poisson process t of rate 1 that starts at 0."""
    draw = np.random.default_rng(seed)
    points = int(10 + 30 * ratio)
    t = np.cumsum(draw.exponential(size=(sets, points)), axis=1) / ratio
    t = np.concatenate([np.zeros((sets, 1)), t], axis=1)
    powers = np.exp(-t)
    total = powers.sum(1)
    return float((np.log(total) + (powers * t).sum(1) / total).mean())


@functools.cache
def accuracy(slope: float, n: int, offset: float | None, sets: int = 2000, seed: int = 8061) -> float:
    """Share of sets whose right class has the most mass under the rule, or without it where `offset` is None.

    The 15 n/S highest of the n priorities are drawn from their Poisson limit; the others hold e⁻¹⁵ of the mass.
    """
    draw = np.random.default_rng(seed)
    ratio = n / slope
    points = min(n, int(12 + 15 * ratio)) - 1
    block, right = max(1, 1_000_000 // points), 0
    for start in range(0, sets, block):
        rows = min(block, sets - start)
        t = np.zeros((rows, points + 1))
        np.cumsum(draw.exponential(1 / ratio, size=(rows, points)), axis=1, out=t[:, 1:])
        powers = np.exp(-t)
        if offset is not None:
            total = powers.sum(1)
            entropy = np.log(total) + (powers * t).sum(1) / total
            powers = np.exp(-t * np.exp(np.maximum(entropy - offset, 0.0))[:, None])
        label = draw.integers(0, _CLASSES, t.shape)
        cells = label + _CLASSES * np.arange(rows)[:, None]
        mass = np.bincount(cells.ravel(), powers.ravel(), _CLASSES * rows).reshape(rows, _CLASSES)
        right += int((mass.argmax(1) == label[:, 0]).sum())
    return right / sets


def head(slope: float, asked: list[int]) -> Callable[[int, int], tuple[np.ndarray, np.ndarray]]:
    """A sampler of rows z = Sρ that writes down which sizes it was asked for."""
    draw = np.random.default_rng(int(slope))

    def sample(n: int, sets: int) -> tuple[np.ndarray, np.ndarray]:
        asked.append(int(n))
        priority = draw.uniform(size=(int(sets), int(n)))
        return slope * priority, priority.argmax(1)

    return sample


def _reached_stages() -> tuple[Stage, ...]:
    ratios = np.exp(np.array(_OFFSETS) - 1)
    entropies = np.array([mean_entropy(float(r)) for r in ratios])
    called = functools.cache(lambda f: np.array([[float(x) for x in f(h)] for h in _OFFSETS]))
    return (
        Stage(
            "what is held fixed",
            lambda f: called(f)[:, 0],
            given="offsets of −1, 0.15, 1, 2 and 4 nats",
            expected=ratios,
            rtol=1e-3,
            atol=0,
            mistakes=(
                Mistake(
                    "e^h for e^(h − 1)",
                    "The ratio is too large by a factor e.",
                    "H ≈ log(n/S) is the leading term, and the constant beside it is easily dropped.",
                    "What is the entropy of an exponential profile of width 1?",
                    seen=np.exp(_OFFSETS),
                ),
                Mistake(
                    "upside down",
                    "The answer is βS/n.",
                    "Slope over density or density over slope: both appear in the derivation.",
                    "Does a larger h leave the row broader or sharper?",
                    seen=1 / ratios,
                ),
            ),
            look="Put H = 1 + log(n/S) into the rule and divide n by βS.",
        ),
        Stage(
            "the entropy that is reached",
            lambda f: called(f)[:, 1],
            given="the same offsets",
            expected=entropies,
            rtol=0,
            atol=0.03,
            nats=True,
            mistakes=(
                Mistake(
                    "h taken for the entropy that is reached",
                    "The answer is h, or 0 where h is negative. For large h that is right.",
                    "The rule is one Newton step towards the entropy h, under a law that holds for broad rows only.",
                    "How many items carry the row when n/(βS) is a half? Simulate it.",
                    seen=lambda got: (
                        np.allclose(got, np.maximum(_OFFSETS, 0), atol=0.02) or np.allclose(got, _OFFSETS, atol=0.02)
                    ),
                ),
                Mistake(
                    "the entropy of the mean row",
                    "The weights were averaged before their entropy was taken, or one row stood for all.",
                    "Entropy is concave: a mean row has more of it than the rows have in the mean.",
                    "Compute the entropy of each row, then the mean.",
                    seen=lambda got: bool(
                        (got[:2] > entropies[:2] + 0.03).all() and np.abs(got[4] - entropies[4]) < 0.1
                    ),
                ),
            ),
            look="Draw rows with that ratio and average their entropies.",
        ),
    )


def _choose_stages() -> tuple[Stage, ...]:
    slopes = (80.0, 250.0)

    @functools.cache
    def called(choose: Callable[..., Any]) -> tuple[list[float], list[int]]:
        asked: list[int] = []
        offsets = [float(choose(head(slope, asked))) for slope in slopes]
        return offsets, asked

    wanted = np.array([1 + math.log(_LONGEST / slope) for slope in slopes])
    trained = np.array([mean_entropy(_LONGEST / slope) for slope in slopes])
    return (
        Stage(
            "chosen from training lengths",
            lambda choose: called(choose)[1],
            given="two heads of unknown S",
            accept=lambda asked: bool(asked) and max(asked) <= _LONGEST,
            mistakes=(
                Mistake(
                    "h chosen at test sizes",
                    "Rows longer than those of training were drawn.",
                    "The law is cleanest in long rows, and they are there for the asking.",
                    "A rule tuned where it is tested shows that it can be tuned. What do rows of 16 tell about S?",
                    seen=lambda asked: bool(asked) and max(asked) > _LONGEST,
                ),
                Mistake(
                    "no row looked at",
                    "The head was not looked at.",
                    "One number for all heads would be simplest.",
                    "Two heads of different S need different offsets.",
                    seen=lambda asked: not asked,
                ),
            ),
            look="Draw rows of 5 to 16 items only.",
        ),
        Stage(
            "the sharpness of 16 items, kept",
            lambda choose: np.array(called(choose)[0]),
            given="heads of S = 80 and S = 250",
            expected=wanted,
            rtol=0,
            atol=_NEAR,
            mistakes=(
                Mistake(
                    "the training entropy taken for h",
                    "Your h is the mean entropy of rows of training length. The accuracy is flat, and lower than at "
                    "16 items.",
                    "The rule looks as if it restored the entropy h.",
                    "Which n/(βS) does this h hold, and which did the head have at 16 items?",
                    seen=lambda offsets: np.allclose(offsets, trained, atol=0.08),
                ),
                Mistake(
                    "sharper than asked",
                    "With your h the head is sharper in long rows than it is at 16 items.",
                    "h → −∞ is the hard argmax, which is right in every set of this task.",
                    "Then the control pays. Hold what the head had in training.",
                    seen=lambda offsets: bool((offsets < wanted - _NEAR).any()),
                ),
                Mistake(
                    "blunter than asked",
                    "With your h the head is blunter in long rows than it is at 16 items.",
                    "An entropy law for broad rows, put to rows of one or two items, gives too large an h.",
                    "Measure S where it can be measured: by what do the two largest logits differ?",
                    seen=lambda offsets: bool((offsets > wanted + _NEAR).any()),
                ),
            ),
            look="n/(βS) should be what it was at 16 items. You need S.",
        ),
        Stage(
            "flat from 512 to 16,384 items",
            lambda choose: np.array([accuracy(slopes[0], n, called(choose)[0][0]) for n in _TESTS]),
            given="the head of S = 80",
            accept=lambda got: bool(np.ptp(got) <= 0.01),
            look="Does your offset depend on the number of rows drawn, or on chance?",
        ),
    )


def _control_stages() -> tuple[Stage, ...]:
    draw = np.random.default_rng(8062)
    noise, offset = 0.3 * draw.normal(size=(40, 1500)), 0.4

    def effective(z: np.ndarray) -> np.ndarray:
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        return np.exp(-(p * np.log(np.where(p > 0, p, 1.0))).sum(1))

    before = effective(noise)
    beta = np.exp(np.maximum(np.log(before) - offset, 0))
    after = effective(beta[:, None] * noise)
    want = np.array([before.mean(), after.mean()])
    return (
        Stage(
            "a head that averages, before and after",
            lambda control: np.array([float(x) for x in control(offset, noise)]),
            given="rows of 1,500 logits of noise, h = 0.4",
            expected=want,
            rtol=5e-3,
            atol=0,
            mistakes=(
                Mistake(
                    "a control reported as untouched",
                    "Before and after are the same.",
                    "A head that has nothing to retrieve should be left alone, so one expects it is.",
                    "The rule sees an entropy near log n. Which β does it choose?",
                    seen=lambda got: bool(abs(got[0] / got[1] - 1) < 0.01),
                ),
                Mistake(
                    "entropies for numbers of items",
                    "The answer is the entropy and not its exponential.",
                    "The entropy is what is at hand.",
                    "How many items does a row of entropy H attend to?",
                    seen=np.log(want),
                ),
                Mistake(
                    "bits for nats",
                    "The number of items is 2^H with H in nats, or H was measured in bits.",
                    "Information theory often uses the logarithm to base 2.",
                    "The exponential and the logarithm must have the same base.",
                    seen=lambda got: bool(abs(got[0] / 2 ** np.log(want[0]) - 1) < 0.02),
                ),
            ),
            look="Compute β from the entropy of each row, multiply, and compute the entropy again.",
        ),
    )

"""Exercise 05.4, the QK-norm ceiling: the largest spread that two gains allow, and the size it gives out at."""

from __future__ import annotations

import decimal
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "05.4 The QK-norm ceiling"
_CEILING = "ceiling(query_gain, key_gain)"
_SIZE = "size(query_gain, key_gain, epsilon, temperature)"
_LIMITS = ((0.5, 1.0), (0.01, 2.0), (0.3, 0.8))  # (ε, θ)


def ex4(ceiling: Callable[..., Any], size: Callable[..., Any]) -> Report:
    """Checks the largest spread of a head with QK-norm, and from which size on no weight reaches ε.

    Args:
        ceiling: `ceiling(query_gain, key_gain) -> δ`: the least upper bound of the spread of logits ⟨q, k⟩/√H over all
            inputs, where queries and keys [H] are divided by their root mean square and then multiplied by the gains
            [H], which may be negative. No rotation.
        size: `size(query_gain, key_gain, epsilon, temperature) -> n`: the smallest integer such that for all n from it
            on no weight of any row of such logits reaches ε, with 0 < ε < 1.

    Returns:
        The report. Mistakes it names: the range of the cosine taken as 1; the gain applied twice; gains reduced to
        their mean; the largest gains of different channels; the length of a normalised vector taken as 1; δ for δ/θ;
        the simple threshold.
    """
    return in_turn(
        (
            lambda: examine(ceiling, _TITLE, _CEILING, _ceiling_stages()),
            lambda: examine(size, _TITLE, _SIZE, _size_stages()),
        ),
        remark="The kernels have dropped out: whatever they become, this head disperses from that size on.",
        picture=functools.partial(_draw, ceiling),
    )


@functools.cache
def _gains() -> list[tuple[np.ndarray, np.ndarray]]:
    """Gains of different widths and signs; the largest of query and key are never in one channel."""
    draw = np.random.default_rng(8)
    made = []
    for width in (3, 8, 20):
        query, key = draw.uniform(0.3, 1.2, (2, width)) * draw.choice([-1.0, 1.0], (2, width))
        query[0], key[1] = 1.6, -1.7
        made.append((query, key))
    return made


def _largest(query: np.ndarray, key: np.ndarray) -> float:
    """By construction: the channel that holds everything, with the key once along it and once against it."""
    width = query.size
    reached = []
    for one_channel in np.sqrt(width) * np.eye(width):  # what a root mean square norm leaves of it
        logit = (query * one_channel) @ (key * one_channel) / np.sqrt(width)
        reached.append(abs(logit - -logit))
    return max(reached)


def _ceiling_stages() -> tuple[Stage, ...]:
    right = np.array([_largest(*pair) for pair in _gains()])
    widths = np.array([query.size for query, _ in _gains()], float)

    def of(stretch: Callable[[np.ndarray, np.ndarray], float]) -> np.ndarray:
        return 2 * np.sqrt(widths) * np.array([stretch(*pair) for pair in _gains()])

    means = (
        of(lambda q, k: abs(q.mean() * k.mean())),
        of(lambda q, k: np.abs(q).mean() * np.abs(k).mean()),
        of(lambda q, k: np.abs(q * k).mean()),
        of(lambda q, k: abs((q * k).mean())),
    )
    return (
        Stage(
            "gains of one",
            lambda ceiling: np.array([float(ceiling(np.ones(h), np.ones(h))) for h in (4, 64, 100)]),
            given="widths of 4, 64 and 100, all gains 1",
            expected=np.array([4.0, 16.0, 20.0]),
            rtol=1e-9,
            atol=0,
            mistakes=(
                Mistake(
                    "the range of the cosine taken as 1",
                    "The answer is half of what it should be.",
                    "The largest logit is √H, and a spread is easily taken for the largest logit.",
                    "Between which two numbers does a cosine lie?",
                    seen=np.array([2.0, 8.0, 10.0]),
                ),
                Mistake(
                    "the length of a normalised vector taken as 1",
                    "The answer falls as the head gets wider, or does not depend on it.",
                    "Normalised suggests length 1, and so it is for another norm.",
                    "Divide a vector by its root mean square. How long is the result?",
                    seen=lambda got: got[2] <= got[0],
                ),
                Mistake(
                    "√d dropped",
                    "The answer grows like the width.",
                    "The product of two vectors of length √H is H.",
                    "By what are products divided before they are logits?",
                    seen=np.array([8.0, 128.0, 200.0]),
                ),
            ),
            look="Write a logit as a cosine times two lengths times the scale.",
        ),
        Stage(
            "gains channel by channel",
            lambda ceiling: np.array([float(ceiling(*pair)) for pair in _gains()]),
            given="gains of both signs at widths 3, 8 and 20",
            expected=right,
            rtol=1e-9,
            atol=0,
            mistakes=(
                Mistake(
                    "gains reduced to their mean",
                    "The answer is that of a head in which all channels have the mean gain.",
                    "One number a head is easier to report.",
                    "The input decides which channels are used. Which would you use?",
                    seen=lambda got: any(np.allclose(got, wrong, rtol=1e-9) for wrong in means),
                ),
                Mistake(
                    "the gain applied twice",
                    "The gains enter squared.",
                    "Query and key have a gain each, and each is thought to have both.",
                    "Write out one term of the sum over channels.",
                    seen=lambda got: any(
                        np.allclose(got, wrong, rtol=1e-9)
                        for wrong in (
                            of(lambda q, k: np.max((q * k) ** 2)),
                            of(lambda q, k: np.max(q**2) * np.max(k**2)),
                            of(lambda q, k: np.max(q**2 * np.abs(k))),
                        )
                    ),
                ),
                Mistake(
                    "the largest gains of different channels",
                    "The answer multiplies the largest query gain with the largest key gain.",
                    "It is a bound, and with a rotation between gain and product it is the one to use.",
                    "Here a channel of the query meets the same channel of the key and no other.",
                    seen=of(lambda q, k: np.abs(q).max() * np.abs(k).max()),
                ),
                Mistake(
                    "the sign of a gain",
                    "Products of gains that are negative were left out.",
                    "A gain is thought of as positive.",
                    "If a channel has the sign turned, can the input turn it back?",
                    seen=lambda got: np.allclose(got, of(lambda q, k: np.max(q * k)), rtol=1e-9),
                ),
            ),
            look="Which input makes the largest use of the gains?",
        ),
    )


def smallest_size(spread: float, epsilon: float, temperature: float) -> int:
    """n′ by bisection on the largest weight, to 40 digits."""
    with decimal.localcontext(prec=40):
        falling = (-decimal.Decimal(spread) / decimal.Decimal(temperature)).exp()
        low, high = 0, 1

        def reached(n: int) -> bool:
            return 1 / (1 + (n - 1) * falling) >= decimal.Decimal(epsilon)

        while reached(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if reached(middle) else (low, middle)
    return high


def _size_stages() -> tuple[Stage, ...]:
    cases = [(*pair, *limit) for pair, limit in zip(_gains(), _LIMITS)]
    spreads = np.array([_largest(*pair) for pair in _gains()])
    epsilons, thetas = np.array(_LIMITS).T
    right = np.array([smallest_size(*values) for values in zip(spreads, epsilons, thetas)], float)
    return (
        Stage(
            "the size from which no weight reaches ε",
            lambda size: np.array([float(size(*case)) for case in cases]),
            given="the same gains with ε = 0.5, 0.01, 0.3 at θ = 1, 2, 0.8",
            expected=right,
            rtol=0,
            atol=0.5,
            mistakes=(
                Mistake(
                    "δ for δ/θ",
                    "The size is right at temperature 1 and at no other.",
                    "Bounds are often written for temperature 1.",
                    "What is the contrast at temperature θ?",
                    seen=np.array([smallest_size(s, e, 1.0) for s, e in zip(spreads, epsilons)], float),
                ),
                Mistake(
                    "the simple threshold",
                    "The size is that of κ/ε, which suffices and is not the smallest.",
                    "It is the published one.",
                    "The last chapter has the size at which the best row just fails.",
                    seen=lambda got: np.allclose(got, np.exp(spreads / thetas) / epsilons, rtol=0, atol=1.01),
                ),
                Mistake(
                    "half the ceiling",
                    "The size belongs to half the spread.",
                    "The largest logit was taken for the spread.",
                    "Compare with your own ceiling.",
                    seen=np.array([smallest_size(s / 2, e, t) for s, e, t in zip(spreads, epsilons, thetas)], float),
                ),
                Mistake(
                    "off by one",
                    "The size is one too large or one too small.",
                    "Below is strict, and a floor is not a ceiling.",
                    "What is the largest weight at your size, and at the size before it?",
                    seen=lambda got: np.allclose(np.abs(got - right), 1),
                ),
            ),
            look="The ceiling is a spread like any other; the chapter on dispersion has the size for a spread.",
        ),
    )


def _draw(ceiling: Callable[..., Any]) -> Any:
    """Ceiling against a common gain at three widths."""
    from adatemp import plotting

    figure, axes = plotting.figure(height=2.8)
    gains = np.linspace(0.5, 2.5, 9)
    words = []
    for width, role in zip((32, 64, 128), ("plain", "adaptive", "argmax")):
        found = [float(ceiling(np.full(width, g), np.ones(width))) for g in gains]
        axes.plot(gains, found, color=plotting.palette[role], label=f"width {width}")
        words.append(f"{found[2]:.1f} at width {width}")
    axes.set(xlabel="gain", ylabel="largest spread, nats")
    axes.legend()
    return plotting.show(figure, alt="Your ceiling grows with the gain; at gain 1 it is " + ", ".join(words) + ".")

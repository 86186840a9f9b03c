"""Exercise 07.4, who goes first: layers until a token is near token 1, and what one layer does to the late half."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "07.4 Who goes first?"
_LATE = "late(states)"
_ASKED = ((2, 0.3), (2, 0.01), (3, 0.25), (17, 0.5), (17, 0.01), (512, 0.01), (1_000, 1e-6), (4_096, 0.5))
_SIZES = (256, 1_024, 4_096)


def ex4(layers: Callable[..., Any], late: Callable[..., Any], exponent: Callable[..., Any]) -> Report:
    """Checks arrival at token 1 under uniform causal attention, and the spread of the late half after one layer.

    Args:
        layers: `layers(i, epsilon) -> L`: the least number of layers after which token i lies within ε of token 1
            whatever the tokens were, with the largest distance of any token from token 1 as the unit. Exact, i to
            4,096.
        late: `late(states) -> [d]`: the largest less the smallest value of tokens n/2 + 1 to n after one layer, channel
            by channel, from states [n, d].
        exponent: `exponent(kind) -> a`: that spread goes like n^a for "noise", independent tokens of one distribution,
            and for a "step", a first half of zeros and a second half of ones.

    Returns:
        The report. Mistakes it names: the bound given for the least number; late tokens first; natural logarithms; the
        unmasked average; 1/n taken from neighbouring rows; the spread before the layer; the spread of all tokens; a
        step taken for noise.
    """
    return in_turn(
        (
            lambda: examine(layers, _TITLE, "layers(i, epsilon)", (_layers_stage(),)),
            lambda: examine(late, _TITLE, _LATE, (_late_stage(),)),
            lambda: examine(exponent, _TITLE, "exponent(kind)", (_exponent_stage(),)),
        ),
        remark="Late tokens become like each other first, if they are noise, and like token 1 last.",
        picture=lambda: _draw(layers),
    )


@functools.cache
def _missing(longest: int, layers: int) -> np.ndarray:
    """What every token up to `longest` consists of beside token 1, after so many layers: [tokens]."""
    rest = np.r_[0.0, np.ones(longest - 1)]
    for _ in range(layers):
        rest = np.cumsum(rest) / np.arange(1, longest + 1)
    return rest


def _least(i: int, epsilon: float) -> int:
    return next(layers for layers in range(200) if _missing(4_096, layers)[i - 1] <= epsilon)


def _layers_stage() -> Stage:
    right = np.array([_least(*case) for case in _ASKED], float)
    i, epsilon = (np.array(part, float) for part in zip(*_ASKED))
    bound = np.log2((i - 1) / epsilon)
    return Stage(
        "layers until token i is within ε of token 1",
        lambda layers: np.array([float(layers(*case)) for case in _ASKED]),
        given="tokens 2 to 4,096 and ε from ½ to 10⁻⁶",
        expected=right,
        rtol=0,
        atol=0.01,
        mistakes=(
            Mistake(
                "the bound given for the least number",
                "The number is log₂((i − 1)/ε): it suffices, and for late tokens fewer layers do.",
                "The slowest component falls by half with each layer, and the others are forgotten.",
                "What does token i consist of after L layers? One worst case decides.",
                seen=lambda got: (
                    any(
                        np.allclose(got, np.ceil(wrong), atol=0.01)
                        for wrong in (bound, np.log2(i / epsilon), np.maximum(bound, 0))
                    )
                    or np.allclose(got, np.floor(bound) + 1, atol=0.01)
                ),
            ),
            Mistake(
                "natural logarithms",
                "The number is that of a halving with the logarithm to base e.",
                "This book's log is natural.",
                "How often is a number to be halved?",
                seen=lambda got: (
                    np.allclose(got, np.ceil(np.log((i - 1) / epsilon)), atol=0.01)
                    or np.allclose(got, np.ceil(np.log(i / epsilon)), atol=0.01)
                ),
            ),
            Mistake(
                "late tokens first",
                "Later tokens were said to arrive earlier.",
                "A late token averages over many, so one layer moves it far.",
                "Towards what does it move? Token 1 is one among many of what it averages.",
                seen=lambda got: got[5] < got[4] or got[4] < got[1],
            ),
            Mistake(
                "the unmasked average",
                "One layer was said to be enough.",
                "Without a mask all tokens are equal after one layer.",
                "What is token 2 after one layer?",
                seen=lambda got: (got <= 1).all(),
            ),
            Mistake(
                "one layer too many",
                "Within ε is reached one layer earlier.",
                "A loop counts a layer before it looks.",
                "After how many layers is token 2 within one half of token 1?",
                seen=right + 1,
            ),
            Mistake(
                "a logarithm for a count",
                "The answer is not a whole number.",
                "The formula is solved for L, and layers are counted.",
                "How many layers are there?",
                seen=lambda got: (np.abs(got - np.round(got)) > 0.02).any(),
            ),
        ),
        look="Take token 1 at 0 and all others at 1, and average.",
    )


def _states() -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(7)
    return (
        draw.normal(size=(64, 3)),
        5 + np.repeat([[0.0, 1.0]], 20, axis=0).T.reshape(-1, 1),
        draw.normal(size=(10, 1)),
    )


def _one_layer(states: np.ndarray) -> np.ndarray:
    return np.cumsum(states, 0) / np.arange(1, len(states) + 1)[:, None]


def _late_stage() -> Stage:
    def of(spread: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return np.concatenate([np.ravel(spread(states)) for states in _states()])

    return Stage(
        "spread of the late half after one layer",
        lambda late: np.concatenate([np.ravel(np.asarray(late(states), np.float64)) for states in _states()]),
        given="noise [64, 3], a step [40, 1], noise [10, 1]",
        expected=of(lambda x: np.ptp(_one_layer(x)[len(x) // 2 :], axis=0)),
        rtol=1e-9,
        atol=1e-12,
        mistakes=(
            Mistake(
                "the spread before the layer",
                "No layer was applied.",
                "Slicing comes to mind first.",
                "After one layer, the exercise says.",
                seen=of(lambda x: np.ptp(x[len(x) // 2 :], axis=0)),
            ),
            Mistake(
                "the late half averaged by itself",
                "The running average starts at the middle.",
                "Slicing first and averaging then seems to be the same.",
                "Which keys does token n/2 + 1 see?",
                seen=of(lambda x: np.ptp(_one_layer(x[len(x) // 2 :]), axis=0)),
            ),
            Mistake(
                "the spread of all tokens",
                "The early tokens were counted too.",
                "The whole array is at hand.",
                "Tokens n/2 + 1 to n only.",
                seen=of(lambda x: np.ptp(_one_layer(x), axis=0)),
            ),
            Mistake(
                "neighbouring rows",
                "The largest step between neighbours was returned.",
                "Neighbours differ by O(1/i), which is quickly derived.",
                "Many small steps can lead far.",
                seen=of(lambda x: np.abs(np.diff(_one_layer(x)[len(x) // 2 :], axis=0)).max(0)),
            ),
            Mistake(
                "one number for all channels",
                "Channels were pooled.",
                "`np.ptp` without an axis takes them together.",
                "The answer has shape [d].",
                seen=lambda got: got.size == 3,
            ),
        ),
        look="Average first, slice afterwards, then reduce over tokens.",
    )


@functools.cache
def _fitted(kind: str) -> float:
    """The exponent by a fit to runs: 400 sequences of noise a size, or the step."""
    draw = np.random.default_rng(1)
    spreads = []
    for n in _SIZES:
        states = draw.normal(size=(n, 400)) if kind == "noise" else np.repeat([0.0, 1.0], n // 2)[:, None]
        spreads.append(np.ptp(_one_layer(states)[n // 2 :], axis=0).mean())
    return float(np.polyfit(np.log(_SIZES), np.log(spreads), 1)[0])


def _exponent_stage() -> Stage:
    return Stage(
        "how it goes with n",
        lambda exponent: np.array([float(exponent(kind)) for kind in ("noise", "step")]),
        given='the kinds "noise" and "step"',
        expected=np.array([_fitted("noise"), _fitted("step")]),
        rtol=0,
        atol=0.05,
        mistakes=(
            Mistake(
                "1/n taken from neighbouring rows",
                "The spread was said to fall like 1/n.",
                "Two neighbours differ by O(1/n), and a spread is a difference of two rows.",
                "Half of the rows lie between the two that differ most. Measure it at three sizes.",
                seen=lambda got: got[0] == -1,
            ),
            Mistake(
                "a step taken for noise",
                "The step was said to fall as noise does.",
                "The bound on neighbours is the same for both.",
                "What is the running average at n/2, and at n?",
                seen=lambda got: np.allclose(got[0], got[1]),
            ),
            Mistake(
                "the sign of the exponent",
                "The spread was said to grow.",
                "It falls like one over a root, and the one over is lost.",
                "n^a with which sign of a falls?",
                seen=lambda got: got[0] > 0,
            ),
        ),
        look="Run `late` at three sizes and fit the slope on logarithmic axes.",
    )


def _draw(layers: Callable[..., Any]) -> Any:
    """Layers against the token's number."""
    from adatemp import plotting

    tokens = [2**k for k in range(1, 13)]
    found = [float(layers(i, 0.01)) for i in tokens]
    figure, axes = plotting.figure(height=2.6)
    axes.plot(tokens, found, **plotting.role("ours"))
    axes.plot(tokens, np.log2((np.array(tokens) - 1) / 0.01), **plotting.role("bound"))
    axes.set(xscale="log", xlabel="token i", ylabel="layers")
    return plotting.show(
        figure,
        alt=f"Layers until token i is within a hundredth of token 1: {found[0]:g} for 2, {found[-1]:g} for 4,096.",
    )

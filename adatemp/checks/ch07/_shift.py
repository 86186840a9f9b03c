"""Exercise 07.2, what a common shift does: to key differences, to a query, to its spread, with norms and without."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "07.2 What a common shift does"
_BOUNDS = "bounds(states, shift, score, i)"
_FAR = "far(x, y, shift, t)"
_CASES = tuple((norm, shift) for norm in ("none", "rms", "layer") for shift in ("any", "ones"))


def ex2(same: Callable[..., Any], bounds: Callable[..., Any], far: Callable[..., Any]) -> Report:
    """Checks what stays the same when one vector c is added to all tokens before a layer of attention.

    Logits are x_iᵀ A x_j of the states as they enter, with a score matrix A; "rms" and "layer" norms have ε = 0 and no
    gain.

    Args:
        same: `same(norm, shift) -> (keys, query, spread)`: whether the differences of what enters the key map, what
            enters the query map, and the spread of every row stay exactly the same, for every A and all states. `norm`
            is "none", "rms" or "layer"; `shift` is "any" vector, or "ones", a multiple of the vector of ones.
        bounds: `bounds(states, shift, score, i) -> (low, high)`: without a norm, the tightest bounds on the spread of
            row i after the shift that know only its spread before, and the spread of the row of cᵀ A x_j.
        far: `far(x, y, shift, t) -> distance`: of rms(x + t c) and rms(y + t c), to first order in 1/t.

    Returns:
        The report. Mistakes it names: the spread called constant; key differences called changed; the norm ignored;
        layer norm taken for rms norm; a shift that can only widen; the shift counted twice; the whole difference for
        its part across the shift; √D forgotten.
    """
    return in_turn(
        (
            lambda: examine(same, _TITLE, "same(norm, shift)", (_same_stage(),)),
            lambda: examine(bounds, _TITLE, _BOUNDS, (_bounds_stage(),)),
            lambda: examine(far, _TITLE, _FAR, (_far_stage(),)),
        ),
        remark="A residual layer that has dispersed moves all tokens alike. What suffers is the query and, through a "
        "norm, the scale.",
    )


def _norm(x: np.ndarray, kind: str) -> np.ndarray:
    if kind == "layer":
        x = x - x.mean(-1, keepdims=True)
    return x if kind == "none" else x / np.sqrt((x**2).mean(-1, keepdims=True))


@functools.cache
def _measured() -> np.ndarray:
    """[case, 3]: whether keys' differences, query and spread stay the same on random states; run, not argued."""
    draw = np.random.default_rng(4)
    rows = []
    for norm, kind in _CASES:
        changed = np.zeros(3)
        for _ in range(5):
            x, score = draw.normal(size=(6, 5)), draw.normal(size=(5, 5))
            shift = draw.normal(size=5) if kind == "any" else np.full(5, draw.normal())
            before, after = _norm(x, norm), _norm(x + shift, norm)
            spreads = [np.ptp(state @ score @ state.T, axis=1) for state in (before, after)]
            changed = np.maximum(
                changed,
                [
                    np.abs((after - after[0]) - (before - before[0])).max(),
                    np.abs(after - before).max(),
                    np.abs(spreads[1] - spreads[0]).max(),
                ],
            )
        rows.append(changed < 1e-9)
    return np.array(rows, float)


def _same_stage() -> Stage:
    right = _measured()

    def with_rows(changes: dict[tuple[str, str], tuple[int, int, int]]) -> np.ndarray:
        wrong = right.copy()
        for case, answer in changes.items():
            wrong[_CASES.index(case)] = answer
        return wrong

    without = {("none", kind): (1, 0, 1) for kind in ("any", "ones")}
    ignored = {(norm, kind): (1, 0, 0) for norm in ("rms", "layer") for kind in ("any", "ones")}
    return Stage(
        "what stays the same",
        lambda same: np.array([[float(bool(part)) for part in same(*case)] for case in _CASES]),
        given="norm none, rms, layer with a shift of any kind and of ones",
        expected=right,
        mistakes=(
            Mistake(
                "the spread called constant",
                "Without a norm the spread of a row was said to stay.",
                "The differences of the keys stay, and a spread is made of differences of keys.",
                "By what are these differences multiplied, and does that move?",
                seen=lambda got: got.shape == right.shape and (got[:2, 2] == 1).any(),
            ),
            Mistake(
                "key differences called changed",
                "Without a norm the differences of the keys were said to change.",
                "Every key moves.",
                "Subtract two keys, both moved by the same vector.",
                seen=lambda got: got.shape == right.shape and (got[:2, 0] == 0).any(),
            ),
            Mistake(
                "the norm ignored",
                "The answers with a norm are those without.",
                "A norm is a detail of the block, and the shift is added before it.",
                "Write rms(x + c) − rms(y + c) for two x of different length.",
                seen=lambda got: any(
                    np.array_equal(got, with_rows(changes))
                    for changes in (
                        ignored,
                        {**ignored, **without},
                        {k: v for k, v in ignored.items() if k[0] == "rms"},
                    )
                ),
            ),
            Mistake(
                "layer norm taken for rms norm",
                "A layer norm was given no credit for what it takes off.",
                "Both divide by a root mean square.",
                "What does a layer norm do first, and what is left of a multiple of the ones?",
                seen=with_rows({("layer", "ones"): (0, 0, 0)}),
            ),
            Mistake(
                "rms norm taken for layer norm",
                "An rms norm was said to remove a shift.",
                "Both divide by a root mean square.",
                "An rms norm does not take off the mean.",
                seen=lambda got: got.shape == right.shape and (got[2:4] == 1).any(),
            ),
        ),
        look="Take two tokens, write down what enters the maps before and after, and subtract.",
    )


@functools.cache
def _rows() -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray, int], ...]:
    draw = np.random.default_rng(9)
    made = []
    for n, width in ((5, 3), (12, 6), (40, 4)):
        made.append(
            (draw.normal(size=(n, width)), 2 * draw.normal(size=width), draw.normal(size=(width, width)), n // 2)
        )
    return tuple(made)


def _bounds_stage() -> Stage:
    own, common = [], []
    for states, shift, score, i in _rows():
        own.append(np.ptp(states @ (states[i] @ score)))
        common.append(np.ptp(states @ (shift @ score)))
    own, common = np.array(own), np.array(common)
    right = np.stack([np.abs(own - common), own + common], 1)
    # the keys' own shift counted as if it widened the row too
    twice = np.array([np.abs(s @ a @ c).max() for s, c, a, _ in _rows()])
    return Stage(
        "bounds on the new spread",
        lambda bounds: np.array([np.asarray(bounds(*row), np.float64) for row in _rows()]),
        given="three sets of states",
        expected=right,
        rtol=1e-9,
        atol=1e-12,
        mistakes=(
            Mistake(
                "the spread called constant",
                "Both bounds are the spread before.",
                "The differences of the keys have not changed.",
                "The query is x_i + c now. Split the logit into two.",
                seen=np.stack([own, own], 1),
            ),
            Mistake(
                "a shift that can only widen",
                "The lower bound is the spread before, or 0.",
                "Adding something seems to make more of it.",
                "The row of c can run against the row of x_i. How far can it bring the spread down, and no further?",
                seen=lambda got: any(
                    np.allclose(got, np.stack([low, own + common], 1)) for low in (own, 0 * own, own - common)
                ),
            ),
            Mistake(
                "the shift counted twice",
                "The shift of the keys was counted as well.",
                "It enters every logit of the row.",
                "A term that is the same for all keys of a row: what does it do to a difference?",
                seen=lambda got: (got[:, 1] > own + common + 1e-6).all() or np.allclose(got[:, 1], own + twice),
            ),
        ),
        look="The new row is a sum of two rows. What do you know of the spread of a sum?",
    )


def _far_stage() -> Stage:
    draw = np.random.default_rng(11)
    cases = []
    for width, t in ((4, 1e4), (9, 1e5), (30, 1e6)):
        x, y = draw.normal(size=(2, width))
        cases.append((x, y + 0.5 * x, 3 * draw.normal(size=width), t))
    # By normalising: float64 has ten digits left of a difference of 10⁻⁶.
    right = np.array([np.linalg.norm(np.diff(_norm(np.stack([x, y]) + t * c, "rms"), axis=0)) for x, y, c, t in cases])
    width = np.array([len(x) for x, *_ in cases], float)
    whole = np.array(
        [np.sqrt(len(x)) * np.linalg.norm(x - y) / (t * np.linalg.norm(shift)) for x, y, shift, t in cases]
    )
    return Stage(
        "distance after a long shift and an rms norm",
        lambda far: np.array([float(far(*case)) for case in cases]),
        given="widths 4, 9 and 30 with t from 10⁴ to 10⁶",
        expected=right,
        rtol=5e-3,
        atol=0,
        mistakes=(
            Mistake(
                "the whole difference for its part across the shift",
                "The answer has the norm of x − y, all of it.",
                "Dividing by the length t‖c‖ seems to be all that the norm does.",
                "If x − y lies along c, what do the two normalised vectors look like?",
                seen=lambda got: np.allclose(got, whole, rtol=5e-3),
            ),
            Mistake(
                "√D forgotten",
                "The answer is right for vectors of length 1.",
                "Normalised suggests length 1.",
                "How long is a vector after an rms norm?",
                seen=lambda got: np.allclose(got, right / np.sqrt(width), rtol=5e-3),
            ),
            Mistake(
                "t forgotten",
                "The answer does not fall with t.",
                "The shift is t c, and c is what has a name.",
                "What is the length of x + t c for large t?",
                seen=lambda got: (got > 100 * right).all(),
            ),
        ),
        look="Write x + t c as t‖c‖ times a unit vector plus something small, and keep the first order.",
    )

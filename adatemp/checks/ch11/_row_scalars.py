"""Exercise 11.3, row scalars of the backward pass: the gradient through β, tile by tile, from numbers of the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written
from adatemp.checks.ch11._row_gradient import gradient_stages
from adatemp.checks.ch11._row_problem import Problem, problem

_TITLE = "11.3 Row scalars of the backward pass"
_SHARE, _GRADIENT = "beta_share(z, dp, rows)", "logit_gradient(z, dp, rows, d_beta)"
_NEAR = {"rtol": 2e-4, "atol": 2e-5}  # float32 against float64


def ex3(beta_share: Callable[..., Any], logit_gradient: Callable[..., Any]) -> Report:
    """Checks the backward pass of adaptive attention, its logits taken a tile of keys at a time.

    Args:
        beta_share: `beta_share(z, dp, rows) -> [T]`: a tile's share of the cotangent of β. `z` [T, k] are the tile's
            logits, −∞ where a key is hidden; `dp` [T, k] is ⟨dO, v⟩ of each query and key, NaN at hidden keys; `rows`
            is a `checks.ch11.Rows`. The shares of a row's tiles are added up.
        logit_gradient: `logit_gradient(z, dp, rows, d_beta) -> [T, k]`: the tile's cotangent of the logits, of the
            output and of the returned entropy and log-sum-exp, `d_beta` [T] being the sum of the shares. Hidden keys
            get exactly 0, rows without keys as well.

    Compared with the derivative of the dense form in float64, with and without a gradient through the entropy.

    Returns:
        The report. Mistakes it names: plain weights for tempered ones; Δ left out; a factor β left out; a gradient
        that stops at the entropy; dH/dz without its mean, about the wrong mean, or with the wrong sign; cotangents of
        the statistics left out or exchanged; hidden keys that are given a gradient, or make NaN; dead rows; an offset.
    """
    share, gradient = written(beta_share), written(logit_gradient)
    return in_turn(
        (
            lambda: examine(beta_share, _TITLE, _SHARE, _share_stages(share)),
            lambda: examine(logit_gradient, _TITLE, _GRADIENT, gradient_stages(gradient)),
        ),
        remark="Nine numbers a row carry everything that a tile has to know about the other tiles.",
    )


def _share_stages(share: Callable[..., Any]) -> tuple[Stage, ...]:
    def total(given: Problem) -> np.ndarray:
        return sum(np.asarray(share(*tile, given.rows())) for tile in given.tiles())

    plain, hidden = problem(801), problem(802, hidden=True)
    shifted = problem(803, offset=1e4)
    a, z, dp = plain.a, plain.z, plain.dp
    mean = (plain.p * dp).sum(1, keepdims=True)
    return (
        Stage(
            "the cotangent of β, every key visible",
            lambda _: total(plain),
            given="six rows of twenty keys in four tiles",
            expected=plain.d_beta,
            **_NEAR,
            look="β stands in the softmax of βz. What is the derivative of ⟨dO, o⟩ in β, with the logits fixed?",
            mistakes=(
                Mistake(
                    "Δ is left out",
                    "The answer is the sum of z·a·⟨dO, v⟩ alone.",
                    "Raising one weight lowers the others; that is what Δ is for, and it looks like a constant.",
                    "What should the cotangent of β be if all values are alike?",
                    seen=(z * a * dp).sum(1),
                ),
                Mistake(
                    "plain weights for tempered ones",
                    "The weights of the plain row were used.",
                    "Both sets of weights are at hand, and β turns one into the other.",
                    "Which softmax does the output come from?",
                    seen=lambda got: any(
                        np.allclose(got, (z * plain.p * (dp - delta)).sum(1), rtol=1e-3)
                        for delta in (mean, plain.delta[:, None])
                    ),
                ),
                Mistake(
                    "the slope is in it already",
                    "The answer is the cotangent of the entropy, not that of β.",
                    "The chain goes on: from β to H with the rule's slope.",
                    "Which quantity does `d_beta` belong to?",
                    seen=plain.slope * plain.d_beta,
                ),
                Mistake(
                    "a factor β",
                    "The answer is β times too large.",
                    "The derivative in a logit has a factor β.",
                    "In the product β·z, what stands beside β?",
                    seen=plain.beta * plain.d_beta,
                ),
                Mistake(
                    "β for the logits",
                    "The sum is that of w, without z; on paper it is 0.",
                    "w is the cotangent of βz, and it is easily taken for that of β.",
                    "In the product β·z, what stands beside β?",
                    seen=lambda got: np.abs(got).max() < 1e-4,
                ),
            ),
        ),
        Stage(
            "the cotangent of β with hidden keys",
            lambda _: total(hidden),
            given="rows with hidden keys, whose logits are −∞ and whose ⟨dO, v⟩ are NaN",
            expected=hidden.d_beta,
            **_NEAR,
            look="Follow a hidden key through your lines: z is −∞, and dp is NaN.",
            mistakes=(
                Mistake(
                    "hidden keys make NaN",
                    "A hidden key turns the sum of its row to NaN.",
                    "Its weight is 0, and 0 · (−∞) and 0 · NaN are both NaN.",
                    "What has to be replaced, and before which product?",
                    seen=lambda got: np.isnan(got).any(),
                ),
            ),
        ),
        Stage(
            "the cotangent of β with an offset of 10⁴",
            lambda _: total(shifted),
            given="the logits of rows near 10⁴",
            expected=shifted.d_beta,
            rtol=1e-4,
            atol=1e-4,
            look="Which numbers in your sum are as large as the offset, and what are they multiplied by?",
            mistakes=(
                Mistake(
                    "the offset is not taken off",
                    "The answer is off in the third or fourth digit.",
                    "The sum of w over a row is 0 on paper and 10⁻⁸ or so in float32. Times 10⁴ that is no longer "
                    "nothing.",
                    "By which number of the row may z be reduced without changing the sum?",
                    seen=lambda got: np.abs(got - shifted.d_beta).max() < 0.1,
                ),
                Mistake(
                    "exponentials of unshifted logits",
                    "The weights overflow.",
                    "e^z over its sum is the softmax, on paper.",
                    "Which two numbers of the row make a weight out of a logit?",
                    seen=lambda got: not np.isfinite(got).all(),
                ),
            ),
        ),
    )

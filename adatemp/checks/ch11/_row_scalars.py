"""Exercise 11.3, row scalars of the backward pass: the gradient through β, tile by tile, from numbers of the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written
from adatemp.checks.ch11._row_problem import Problem, problem, published

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
            lambda: examine(logit_gradient, _TITLE, _GRADIENT, _gradient_stages(gradient)),
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


def _gradient_stages(gradient: Callable[..., Any]) -> tuple[Stage, ...]:
    def whole(given: Problem) -> np.ndarray:
        rows = given.rows()
        d_beta = np.asarray(given.d_beta, np.float32)
        return np.concatenate([np.asarray(gradient(*tile, rows, d_beta)) for tile in given.tiles()], axis=1)

    return (
        _stopped(whole),
        _flowing(whole),
        _statistics(whole),
        _hidden(whole),
        _dead(whole),
        _clamped(whole),
    )


def _like(*wrong: np.ndarray) -> Callable[[Any], bool]:
    return lambda got: any(np.allclose(got, w, rtol=1e-3, atol=1e-4) for w in wrong)


def _along(rest: np.ndarray, basis: np.ndarray) -> bool:
    """Whether every row of `rest` is a multiple of that of `basis`."""
    factor = (rest * basis).sum(1, keepdims=True) / (basis * basis).sum(1, keepdims=True)
    return np.allclose(rest, factor * basis, rtol=0, atol=1e-4)


def _stopped(whole: Callable[[Problem], np.ndarray]) -> Stage:
    given = problem(811, stop=True)
    right, beta = given.gradient(), given.beta[:, None]
    basis = given.p * (given.z - (given.p * given.z).sum(1, keepdims=True))
    return Stage(
        "the gradient stops at the entropy",
        lambda _: whole(given),
        given="rows whose slope dβ/dH is 0",
        expected=right,
        **_NEAR,
        look="With β a constant, this is plain attention with logits βz.",
        mistakes=(
            Mistake(
                "the factor β is left out",
                "The answer is the cotangent of βz.",
                "It is what plain attention's backward pass returns.",
                "How does z enter βz?",
                seen=given.w,
            ),
            Mistake(
                "plain weights for tempered ones",
                "The weights of the plain row were used.",
                "Both sets of weights are at hand.",
                "Which softmax does the output come from?",
                seen=_like(beta * given.p * (given.dp - given.delta[:, None])),
            ),
            Mistake(
                "Δ is left out",
                "The weights were multiplied by ⟨dO, v⟩ alone.",
                "Raising one weight lowers the others; that is what Δ is for.",
                "What should the gradient be if all values are alike?",
                seen=beta * given.a * given.dp,
            ),
            Mistake(
                "the gradient flows all the same",
                "There is a part that goes through the entropy, where the slope is 0.",
                "A slope that is computed from the published map, and not read, does not know of the stop.",
                "Which number of the row says how β follows the entropy?",
                seen=lambda got: _along(got - right, basis),
            ),
        ),
    )


def _flowing(whole: Callable[[Problem], np.ndarray]) -> Stage:
    given = problem(812)
    stopped = given.beta[:, None] * given.w
    g = (given.slope * given.d_beta)[:, None]
    p, a, z = given.p, given.a, given.z
    mean = (p * z).sum(1, keepdims=True)
    log_p = np.log(p)
    return Stage(
        "the gradient flows through the entropy",
        lambda _: whole(given),
        given="rows whose β follows their entropy",
        expected=given.gradient(),
        **_NEAR,
        look="dz = (through the weights) + (through H): what is ∂H/∂z of one logit, and does it sum to 0 over the row?",
        mistakes=(
            Mistake(
                "a stopped gradient",
                "The answer is that of a constant β.",
                "It trains about as well, and it is all that plain attention has.",
                "If a logit rises, what happens to H, to β, and to every weight?",
                seen=stopped,
            ),
            Mistake(
                "dH/dz without its mean",
                "The part through the entropy does not sum to 0 over a row.",
                "The derivative of −p log p in its own p is −log p − 1; that p is normalised adds the rest.",
                "By how much does the entropy change when 1 is added to every logit of a row?",
                seen=_like(
                    stopped - g * p * log_p,
                    stopped - g * p * (log_p + 1),
                    stopped - g * p * z,
                    stopped - g * p * (z - z.max(1, keepdims=True)),
                    stopped - g * p * (z - np.log(np.exp(z).sum(1, keepdims=True))),
                ),
            ),
            Mistake(
                "the mean of the wrong weights",
                "The part through the entropy is taken about the tempered mean, or about another point.",
                "The tempered weights do everything else in this pass.",
                "Of which row is H the entropy?",
                seen=_like(
                    stopped - g * p * (z - (a * z).sum(1, keepdims=True)),
                    stopped - g * a * (z - (a * z).sum(1, keepdims=True)),
                    stopped - g * a * (z - mean),
                    stopped - g * p * (z - z.mean(1, keepdims=True)),
                ),
            ),
            Mistake(
                "the sign of dH/dz",
                "The part through the entropy has the wrong sign.",
                "Raising a logit above the mean makes the row sharper; a minus sign says so.",
                "Does the entropy rise or fall when the largest logit is raised?",
                seen=stopped + g * p * (z - mean),
            ),
            Mistake(
                "the slope is left out",
                "The cotangent of β was used as that of the entropy.",
                "β and H seem to be one and the same number of the row.",
                "How does β follow H?",
                seen=stopped - given.d_beta[:, None] * p * (z - mean),
            ),
        ),
    )


def _statistics(whole: Callable[[Problem], np.ndarray]) -> Stage:
    given = problem(813, statistics=True)
    p, a, z = given.p, given.a, given.z
    mean = (p * z).sum(1, keepdims=True)
    g = (given.slope * given.d_beta)[:, None]
    d_entropy, d_lse = given.d_entropy[:, None], given.d_lse[:, None]
    base = given.beta[:, None] * given.w - g * p * (z - mean)
    of_entropy = -d_entropy * p * (z - mean)
    return Stage(
        "cotangents of the entropy and of the log-sum-exp",
        lambda _: whole(given),
        given="rows whose entropy and log-sum-exp are returned and used",
        expected=given.gradient(),
        **_NEAR,
        look="Three ways lead from z to what is returned besides o: through H into β, through H itself, through lse.",
        mistakes=(
            Mistake(
                "the statistics' cotangents are left out",
                "The answer is that of a function which returns the output alone.",
                "Statistics are returned for looking at, and then someone puts one into a loss.",
                "Which of the row's numbers have you not used?",
                seen=base,
            ),
            Mistake(
                "the entropy's own cotangent is left out",
                "The part of the returned entropy is missing.",
                "The entropy has a part in the gradient already, through β.",
                "In how many ways does a change of H reach what is returned?",
                seen=base + d_lse * p,
            ),
            Mistake(
                "the cotangent of the log-sum-exp is left out",
                "The part of the returned log-sum-exp is missing.",
                "It is a constant to everything else in the pass.",
                "What is the derivative of log Σ e^z in one logit?",
                seen=base + of_entropy,
            ),
            Mistake(
                "tempered weights for the plain log-sum-exp",
                "The cotangent of the log-sum-exp went to the tempered weights.",
                "Two log-sum-exps belong to a row, and two sets of weights.",
                "Which softmax is the derivative of log Σ e^z, without β?",
                seen=_like(base + of_entropy + d_lse * a, base + of_entropy + d_lse * given.beta[:, None] * a),
            ),
            Mistake(
                "the slope on the entropy's own cotangent",
                "The cotangent of the returned entropy was multiplied by dβ/dH.",
                "Everything else that reaches H has come through β.",
                "What does a loss of H itself have to do with the rule?",
                seen=base + given.slope[:, None] * of_entropy + d_lse * p,
            ),
        ),
    )


def _hidden(whole: Callable[[Problem], np.ndarray]) -> Stage:
    given = problem(814, statistics=True, hidden=True)
    right = given.gradient()
    return Stage(
        "hidden keys",
        lambda _: whole(given),
        given="rows with hidden keys, whose logits are −∞ and whose ⟨dO, v⟩ are NaN",
        accept=lambda got: np.allclose(got, right, **_NEAR) and not got[~given.visible].any(),
        look="Follow a hidden key through your lines: z is −∞, and dp is NaN.",
        mistakes=(
            Mistake(
                "hidden keys make NaN",
                "The gradient holds NaN at hidden keys.",
                "Their weights are 0, and 0 · (−∞) and 0 · NaN are both NaN.",
                "What has to be replaced, and before which product?",
                seen=lambda got: np.isnan(got).any(),
            ),
            Mistake(
                "masked keys given gradient",
                "Hidden keys get a gradient that is not 0.",
                "A logit of 0 put in the place of −∞ keeps NaN away, and has a weight.",
                "Which weight must a hidden key have, in both sets of weights?",
                seen=lambda got: bool(got[~given.visible].any()),
            ),
        ),
    )


def _dead(whole: Callable[[Problem], np.ndarray]) -> Stage:
    given = problem(815, statistics=True, hidden=True, dead=True)
    right = given.gradient()
    alive = given.visible.any(1)
    return Stage(
        "rows without keys",
        lambda _: whole(given),
        given="the same, with two rows in which every key is hidden",
        expected=right,
        **_NEAR,
        look="In such a row log_l and log_total are −∞. What is −∞ − (−∞)?",
        mistakes=(
            Mistake(
                "a dead row",
                "Rows without keys get NaN, or a gradient.",
                "All of their logits are −∞, and so is their log-sum-exp.",
                "Ask whether a key is visible before anything else is asked.",
                seen=lambda got: np.allclose(got[alive], right[alive], rtol=1e-3, atol=1e-4),
            ),
        ),
    )


def _clamped(whole: Callable[[Problem], np.ndarray]) -> Stage:
    given = problem(816, rule=published, statistics=True, offset=1e4)
    return Stage(
        "the published map, logits near 10⁴",
        lambda _: whole(given),
        given="rows of which some have β = 1 and others have not, with an offset of 10⁴",
        expected=given.gradient(),
        rtol=1e-3,
        atol=1e-4,
        look="Which of your numbers are as large as the offset?",
        mistakes=(
            Mistake(
                "the offset is not taken off",
                "The answer has lost its digits, or overflowed.",
                "The mean of z is near 10⁴ too. Rounded to float32, both of them, their difference is off by 0.001.",
                "How do you get z − μ from numbers that are all small?",
                seen=lambda got: True,
            ),
        ),
    )

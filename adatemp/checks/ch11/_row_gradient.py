"""The second half of exercise 11.3: a tile's cotangent of the logits, from a constant β to rows without keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._stages import Mistake, Stage
from adatemp.checks.ch11._row_problem import Problem, problem, published

_NEAR = {"rtol": 2e-4, "atol": 2e-5}  # float32 against float64


def gradient_stages(gradient: Callable[..., Any]) -> tuple[Stage, ...]:
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

"""Exercise 11.3: the right answer passes, its oracle agrees with JAX, and every planted mistake is named."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp._compat import enable_x64
from adatemp.checks import ch11
from adatemp.checks.ch11 import _row_problem


def unwritten(*_):
    raise NotImplementedError


def parts(z, dp, rows):
    """Shifted logits, plain weights, tempered weights and w, all 0 where a key is hidden."""
    seen = z > -jnp.inf
    t = jnp.where(seen, z - rows.m[:, None], 0.0)
    p = jnp.where(seen, jnp.exp(jnp.where(seen, t - rows.log_l[:, None], 0.0)), 0.0)
    a = jnp.where(seen, jnp.exp(jnp.where(seen, rows.beta[:, None] * t - rows.log_total[:, None], 0.0)), 0.0)
    w = a * (jnp.where(seen, dp, 0.0) - rows.delta[:, None])
    return t, p, a, w


def beta_share(z, dp, rows):
    t, _, _, w = parts(z, dp, rows)
    return (t * w).sum(1)


def gradient_with(
    *,
    weights=lambda p, a: a,
    factor=lambda rows: rows.beta,
    entropy_part=lambda g, p, a, t, mean, rows: -g * p * (t - mean),
    g=lambda rows, d_beta: rows.slope * d_beta + rows.d_entropy,
    lse_part=lambda rows, p, a: rows.d_lse[:, None] * p,
    delta=lambda rows: rows.delta,
):
    def logit_gradient(z, dp, rows, d_beta):
        t, p, a, _ = parts(z, dp, rows)
        w = weights(p, a) * (jnp.where(z > -jnp.inf, dp, 0.0) - delta(rows)[:, None])
        mean = jnp.where(rows.log_l > -jnp.inf, rows.log_l - rows.entropy, 0.0)[:, None]
        through = entropy_part(g(rows, d_beta)[:, None], p, a, t, mean, rows)
        return factor(rows)[:, None] * w + through + lse_part(rows, p, a)

    return logit_gradient


logit_gradient = gradient_with()


def test_the_right_answer_passes():
    assert ch11.ex3(beta_share, logit_gradient).require()


@pytest.mark.parametrize("stop", [False, True])
def test_the_complex_step_agrees_with_automatic_differentiation(stop):
    given = _row_problem.problem(1, rule=_row_problem.straight, stop=stop, statistics=True)

    def total(z):
        p = jax.nn.softmax(z)
        entropy = -(p * jnp.log(p)).sum(1)
        beta = 0.4 + 0.6 * (jax.lax.stop_gradient(entropy) if stop else entropy)
        output = jax.nn.softmax(beta[:, None] * z) @ given.value
        lse = jax.nn.logsumexp(z, axis=1)
        return (given.d_output * output).sum() + (given.d_entropy * entropy + given.d_lse * lse).sum()

    with enable_x64(True):
        by_jax = np.asarray(jax.jit(jax.grad(total))(jnp.asarray(given.z)))
    np.testing.assert_allclose(given.gradient(), by_jax, rtol=1e-12, atol=1e-14)  # float64, a dozen operations deep


def share_with(change):
    def answer(z, dp, rows):
        t, p, a, w = parts(z, dp, rows)
        return change(z, jnp.where(z > -jnp.inf, dp, 0.0), rows, t, p, a, w)

    return answer


def bare_share(z, dp, rows):
    t = z - rows.m[:, None]
    a = jnp.exp(rows.beta[:, None] * t - rows.log_total[:, None])
    return (t * a * (dp - rows.delta[:, None])).sum(1)


def overflowing(z, dp, rows):
    t, _, _, w = parts(z, dp, rows)
    return (t * w).sum(1) + 0.0 * jnp.exp(jnp.where(z > -jnp.inf, z, 0.0)).sum(1)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda *_: None, "not written yet"),
        (lambda z, dp, rows: beta_share(z, dp, rows)[:, None], "wrong shape"),
        (share_with(lambda z, dp, rows, t, p, a, w: (z * a * dp).sum(1)), "Δ is left out"),
        (
            share_with(lambda z, dp, rows, t, p, a, w: (t * p * (dp - rows.delta[:, None])).sum(1)
                       + rows.m * (p * (dp - rows.delta[:, None])).sum(1)),
            "plain weights for tempered ones",
        ),
        (share_with(lambda z, dp, rows, t, p, a, w: rows.slope * (t * w).sum(1)), "the slope is in it already"),
        (share_with(lambda z, dp, rows, t, p, a, w: rows.beta * (t * w).sum(1)), "a factor β"),
        (share_with(lambda z, dp, rows, t, p, a, w: w.sum(1)), "β for the logits"),
        (bare_share, "hidden keys make NaN"),
        (
            share_with(lambda z, dp, rows, t, p, a, w: (jnp.where(z > -jnp.inf, z, 0.0) * w).sum(1)),
            "the offset is not taken off",
        ),
        (overflowing, "exponentials of unshifted logits"),
    ],
)  # fmt: skip
def test_mistakes_in_the_share_are_named(answer, mistake):
    assert ch11.ex3(answer, logit_gradient).mistake == mistake


def bare(z, dp, rows, d_beta):
    t = z - rows.m[:, None]
    p = jnp.exp(t - rows.log_l[:, None])
    a = jnp.exp(rows.beta[:, None] * t - rows.log_total[:, None])
    g = rows.slope * d_beta + rows.d_entropy
    w = a * (dp - rows.delta[:, None])
    centred = t - (rows.log_l - rows.entropy)[:, None]
    return rows.beta[:, None] * w + p * (rows.d_lse[:, None] - g[:, None] * centred)


def zero_for_hidden(z, dp, rows, d_beta):
    """A logit of 0 for −∞, and 0 for NaN."""
    seen = z > -jnp.inf
    return bare(jnp.where(seen, z, 0.0), jnp.where(seen, dp, 0.0), rows, d_beta)


def careless_of_dead_rows(z, dp, rows, d_beta):
    right = logit_gradient(z, dp, rows, d_beta)
    return jnp.where((rows.log_l > -jnp.inf)[:, None], right, jnp.nan)


def uncentred(z, dp, rows, d_beta):
    """z less its mean, both near the offset."""
    lse = rows.m + rows.log_l
    mean = (lse - rows.entropy)[:, None]
    return gradient_with(entropy_part=lambda g, p, a, t, _, rows: -g * p * jnp.where(z > -jnp.inf, z - mean, 0.0))(
        z, dp, rows, d_beta
    )


def published_slope(rows, d_beta):
    """The slope of a rule of one's own in the place of the row's."""
    return 0.6 * d_beta + rows.d_entropy


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda *_: None, "not written yet"),
        (lambda *args: logit_gradient(*args).sum(1, keepdims=True), "wrong shape"),
        (gradient_with(factor=lambda rows: jnp.ones_like(rows.beta)), "the factor β is left out"),
        (gradient_with(weights=lambda p, a: p), "plain weights for tempered ones"),
        (gradient_with(delta=lambda rows: 0.0 * rows.delta), "Δ is left out"),
        (gradient_with(g=published_slope), "the gradient flows all the same"),
        (gradient_with(g=lambda rows, d_beta: rows.d_entropy), "a stopped gradient"),
        (
            gradient_with(
                entropy_part=lambda g, p, a, t, mean, rows: -g * p * (t - rows.log_l[:, None])
            ),
            "dH/dz without its mean",
        ),
        (gradient_with(entropy_part=lambda g, p, a, t, mean, rows: -g * p * t), "dH/dz without its mean"),
        (
            gradient_with(entropy_part=lambda g, p, a, t, mean, rows: -g * a * (t - mean)),
            "the mean of the wrong weights",
        ),
        (gradient_with(entropy_part=lambda g, p, a, t, mean, rows: g * p * (t - mean)), "the sign of dH/dz"),
        (
            gradient_with(g=lambda rows, d_beta: jnp.where(rows.slope == 0, 0.0, d_beta) + rows.d_entropy),
            "the slope is left out",
        ),
        (
            gradient_with(g=lambda rows, d_beta: rows.slope * d_beta, lse_part=lambda rows, p, a: 0.0),
            "the statistics' cotangents are left out",
        ),
        (gradient_with(g=lambda rows, d_beta: rows.slope * d_beta), "the entropy's own cotangent is left out"),
        (gradient_with(lse_part=lambda rows, p, a: 0.0), "the cotangent of the log-sum-exp is left out"),
        (
            gradient_with(lse_part=lambda rows, p, a: rows.d_lse[:, None] * a),
            "tempered weights for the plain log-sum-exp",
        ),
        (
            gradient_with(g=lambda rows, d_beta: rows.slope * (d_beta + rows.d_entropy)),
            "the slope on the entropy's own cotangent",
        ),
        (bare, "hidden keys make NaN"),
        (zero_for_hidden, "masked keys given gradient"),
        (careless_of_dead_rows, "a dead row"),
        (uncentred, "the offset is not taken off"),
    ],
)  # fmt: skip
def test_mistakes_in_the_gradient_are_named(answer, mistake):
    assert ch11.ex3(beta_share, answer).mistake == mistake

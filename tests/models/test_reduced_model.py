"""The reduced model against its definition, automatic derivatives, and the limits that are known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp._compat import enable_x64
from adatemp.models.bigram_backcopy import reduced_model

RNG = np.random.default_rng(0)
V, M = 8, 5


def chain(seed=0, contexts=1):
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(10, np.ones(V) / V, contexts)
    return rng.dirichlet(np.ones(V), M), rng.dirichlet(np.ones(M)), counts, rng.uniform(0.5, 2, V)


def by_definition(P, pi, counts, xi, alpha, beta):
    """KL of each row from the softmax of its logits, in jax, one context and token at a time."""
    total = 0.0
    for W in counts:
        for v in range(len(P)):
            m = (jnp.exp(alpha[v]) * beta + xi * W) / (jnp.exp(alpha[v]) + W.sum())
            q = jax.nn.log_softmax(jnp.where(P[v] > 0, jnp.log(jnp.where(P[v] > 0, P[v], 1)) + m, -jnp.inf))
            total += pi[v] * jnp.sum(jnp.where(P[v] > 0, P[v] * (jnp.log(jnp.where(P[v] > 0, P[v], 1)) - q), 0))
    return total / len(counts)


@pytest.mark.parametrize("contexts", [1, 3])
def test_loss_and_derivatives_are_those_of_the_definition(contexts):
    P, pi, counts, xi = chain(1, contexts)
    P[0] = np.eye(V)[3]  # one successor: no loss, no force
    P[1, :4] = 0
    P[1] /= P[1].sum()
    alpha, beta = RNG.normal(size=M) * 2, RNG.normal(size=V)
    loss = reduced_model(P, pi, counts, xi).loss(alpha, beta)
    with enable_x64(True):
        value, slopes = jax.value_and_grad(by_definition, (4, 5))(*map(jnp.asarray, (P, pi, counts, xi, alpha, beta)))
    assert loss.value == pytest.approx(float(value), abs=1e-12)
    np.testing.assert_allclose(loss.alpha, slopes[0], atol=1e-12)
    np.testing.assert_allclose(loss.beta, slopes[1], atol=1e-12)
    assert loss.alpha[0] == pytest.approx(0, abs=1e-15)
    assert loss.beta.sum() == pytest.approx(0, abs=1e-14)


def test_huge_sink_logits_overflow_nowhere():
    P, pi, counts, xi = chain(2)
    loss = reduced_model(P, pi, counts, xi).loss(np.array([1e4, -1e4, 700, -700, 0.0]), np.zeros(V))
    assert np.isfinite(loss.value) and np.isfinite(loss.alpha).all() and np.isfinite(loss.beta).all()


def test_with_a_constant_value_sink_logits_grow_like_half_the_logarithm_of_time():
    """α → ½ log(2 π Var t), Var the variance of ξW under P(· | v), and loss → M / (4 t)."""
    P, pi, counts, xi = chain(3)
    flow = reduced_model(P, pi, counts, xi).flow([1e9, 1e10], learn_beta=False)
    u = xi * counts[0]
    variance = P @ u**2 - (P @ u) ** 2
    np.testing.assert_allclose(flow.alpha[-1], 0.5 * np.log(2 * pi * variance * 1e10), atol=0.01)
    np.testing.assert_allclose(flow.alpha[-1] - flow.alpha[-2], 0.5 * np.log(10), atol=0.01)
    assert 4e10 * flow.loss[-1] / M == pytest.approx(1, abs=0.02)


def test_with_frozen_sink_logits_the_value_ends_at_what_cancels_the_noise():
    P, pi, counts, xi = chain(4)
    alpha, start = 2.0, RNG.normal(size=V)
    flow = reduced_model(P, pi, counts, xi).flow([3e4], alpha, start, learn_alpha=False)
    u = xi * counts[0]
    np.testing.assert_allclose(flow.beta[-1], start.mean() + np.exp(-alpha) * (u.mean() - u), atol=1e-5)
    assert flow.loss[-1] < 1e-9


def test_one_fixed_context_ends_the_sink_and_several_do_not():
    P, pi, counts, xi = chain(5)
    fixed = reduced_model(P, pi, counts, xi).flow([1e4, 1e5])
    assert np.abs(fixed.alpha[-1] - fixed.alpha[0]).max() < 1e-3
    _, _, several, _ = chain(5, contexts=40)
    varying = reduced_model(P, pi, several, xi).flow([1e3, 1e5])
    assert np.ptp(fixed.alpha[-1]) < 1e-3  # and all at the same height
    assert (varying.alpha[-1] - varying.alpha[0]).min() > 0.5
    for flow in (fixed, varying):
        np.testing.assert_allclose(flow.beta.mean(1), 0, atol=1e-6)  # the mean is conserved


def test_the_loss_falls_along_the_flow_and_time_zero_is_the_start():
    P, pi, counts, xi = chain(6, contexts=4)
    model = reduced_model(P, pi, counts, xi)
    flow = model.flow([0, 1, 10, 100], 0.5)
    assert np.all(np.diff(flow.loss) < 0)
    np.testing.assert_allclose(flow.alpha[0], np.full(M, 0.5), rtol=1e-15)
    np.testing.assert_array_equal(model.flow([0.0], 0.5).alpha, np.full((1, M), 0.5))


@pytest.mark.parametrize(
    "changes, match",
    [
        ({0: np.full((M, V), 0.2)}, "rows must add up to 1, and one adds up to 1.6"),
        ({2: np.zeros((1, V))}, "must not all be 0"),
        ({2: -np.ones((1, V))}, "counts must be finite and not negative"),
        ({1: np.full(M, np.nan)}, "weights must be finite"),
        ({1: np.ones(V)}, "must match"),
        ({3: np.ones(3)}, "must match"),
    ],
)
def test_what_is_no_chain_is_refused(changes, match):
    arguments = [changes.get(i, argument) for i, argument in enumerate(chain())]
    with pytest.raises(ValueError, match=match):
        reduced_model(*arguments)


def test_shapes_and_times_are_checked():
    model = reduced_model(*chain())
    with pytest.raises(ValueError, match="alpha and beta must have shapes"):
        model.loss(np.zeros(V), np.zeros(V))
    for times in ([], [2.0, 1.0], [-1.0], [[1.0]]):
        with pytest.raises(ValueError, match="times must be"):
            model.flow(times)

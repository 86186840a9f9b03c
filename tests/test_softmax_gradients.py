"""Derivatives of adaptive_temperature_softmax: the whole formula, finite differences, masks, second order, kinks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from row_oracle import oracle, published_beta

from adatemp import PAPER, adaptive_temperature_softmax, constant, exp_offset, log_ratio, polynomial, target_entropy
from adatemp._compat import enable_x64
from adatemp.temperature import RowStatistics

# Rows [4, 12]: entropies 1.2 to 2.3 nats, away from the kinks of every rule below.
Z = np.random.default_rng(0).normal(size=(4, 12)) * np.array([[0.6], [1.0], [1.5], [2.0]])
KEEP = np.random.default_rng(1).uniform(size=(4, 12)) > 0.2
RNG = np.random.default_rng(2)
ROWS = dict(zip(("entropy", "beta", "lse", "lse_scaled"), RNG.normal(size=(4, 4))))
WEIGHTS = RNG.normal(size=(4, 12))


def objective(z, rule, where=KEEP):
    """A sum that every output enters, each entry with a coefficient of its own."""
    weights, stats = adaptive_temperature_softmax(z, where=where, temperature=rule, return_stats=True)
    total = jnp.sum(WEIGHTS.astype(weights.dtype) * weights)
    for name, coefficient in ROWS.items():
        row = getattr(stats, name)
        total += jnp.sum(coefficient.astype(row.dtype) * row)
    return total


value_and_gradients = jax.jit(jax.value_and_grad(objective, argnums=(0, 1)))


def oracle_objective(z, beta_of):
    rows = oracle(z, KEEP, beta_of)
    return (WEIGHTS * rows.weights).sum() + sum((c * getattr(rows, name)).sum() for name, c in ROWS.items())


def finite_difference(f, x, step=1e-5):
    """Central differences of a numpy function, entry by entry; the error is about step^2 + 1e-16 / step."""
    x = np.asarray(x, np.float64)
    slopes = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        slopes[i] = (f(up) - f(down)) / (2 * step)
    return slopes


def solved_beta(z, target):
    """beta of the target-entropy rule on one row, by halving a bracket 60 times."""
    low, high = 1.0, 1e3
    if oracle(z[None], beta_of=lambda h: 1.0).entropy[0] <= target:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if oracle(middle * z[None]).entropy[0] > target else (low, middle)
    return low


def target_oracle(z, target):
    total = 0.0
    for row in range(len(z)):
        live = z[row][KEEP[row]]
        rows = oracle(live[None], beta_of=lambda h, live=live: solved_beta(live, target))
        total += (WEIGHTS[row][KEEP[row]] * rows.weights[0]).sum()
        total += sum(c[row] * getattr(rows, name)[0] for name, c in ROWS.items())
    return total


# name: (rule, its parameter, the same objective in numpy as a function of logits and parameter)
CASES = {
    "paper": (PAPER, "coefficients", lambda z, p: oracle_objective(z, lambda h: max(1, np.polyval(p, h)))),
    "constant": (constant(1.7), "inverse_temperature", lambda z, p: oracle_objective(z, lambda h: p)),
    "exp offset": (exp_offset(0.8), "offset", lambda z, p: oracle_objective(z, lambda h: np.exp(max(0, h - p)))),
    "target entropy": (target_entropy(0.9), "entropy", target_oracle),
}


@pytest.mark.result("prop-ch01-derivatives")
@pytest.mark.parametrize("name", CASES)
def test_the_gradient_in_logits_and_parameters_is_that_of_finite_differences(name):
    rule, parameter, in_numpy = CASES[name]
    value = np.asarray(getattr(rule, parameter), np.float64)
    with enable_x64(True):
        got_value, (dz, d_rule) = value_and_gradients(Z, rule)
    assert float(got_value) == pytest.approx(in_numpy(Z, value), rel=1e-9)
    np.testing.assert_allclose(dz, finite_difference(lambda z: in_numpy(z, value), Z), atol=1e-7)
    want = finite_difference(lambda p: in_numpy(Z, p), value)
    np.testing.assert_allclose(getattr(d_rule, parameter), want, rtol=1e-6, atol=1e-7)


def test_the_gradient_is_the_documented_formula():
    with enable_x64(True):
        dz = np.asarray(value_and_gradients(Z, PAPER)[1][0])
    for row in range(len(Z)):
        z, da = Z[row][KEEP[row]], WEIGHTS[row][KEEP[row]]
        dH, dB, dL, dL2 = (ROWS[name][row] for name in ("entropy", "beta", "lse", "lse_scaled"))
        plain = oracle(z[None], beta_of=lambda h: 1.0)
        p, a = plain.weights[0], oracle(z[None]).weights[0]
        H, beta, mu = plain.entropy[0], published_beta(plain.entropy[0]), (p * z).sum()
        slope = np.polyval(np.polyder([-0.037, 0.481, -2.3, 4.917, -1.791]), H)
        w = a * (da - (a * da).sum())
        d_beta = (z * w).sum() + dB + dL2 * (a * z).sum()
        want = beta * w + beta * dL2 * a + p * (dL - (dH + slope * d_beta) * (z - mu))
        np.testing.assert_allclose(dz[row][KEEP[row]], want, rtol=1e-9, atol=1e-12)
        assert np.all(dz[row][~KEEP[row]] == 0)


@jax.tree_util.register_static
class ByVariance:
    """A rule of the user's own that reads the variance: beta = 1 + V / 4."""

    needs = frozenset({"variance"})
    differentiate = True
    range = None

    def beta(self, stats):
        return 1 + stats.variance / 4


def test_the_variance_has_its_gradient_too():
    def in_numpy(z):
        variance = oracle(z, KEEP).variance
        rows = [oracle(z[i : i + 1], KEEP[i : i + 1], lambda h, v=v: 1 + v / 4) for i, v in enumerate(variance)]
        return sum(
            (WEIGHTS[i] * row.weights[0]).sum() + sum(c[i] * getattr(row, name)[0] for name, c in ROWS.items())
            for i, row in enumerate(rows)
        )

    with enable_x64(True):
        value, (dz, _) = value_and_gradients(Z, ByVariance())
    assert float(value) == pytest.approx(in_numpy(Z), rel=1e-9)
    np.testing.assert_allclose(dz, finite_difference(in_numpy, Z), atol=1e-7)


def test_a_stopped_rule_is_a_constant_at_the_beta_it_chose():
    stopped = polynomial((-0.037, 0.481, -2.3, 4.917, -1.791), differentiate=False)

    with enable_x64(True):
        beta = oracle(Z, KEEP).beta
        (_, (d_stopped, d_rule)), (_, (d_constant, _)), (_, (d_flowing, _)) = jax.device_get(
            [value_and_gradients(Z, rule) for rule in (stopped, constant(beta), PAPER)]
        )
    np.testing.assert_allclose(d_stopped, d_constant, atol=1e-12)
    assert np.abs(d_stopped - d_flowing).max() > 1e-2
    assert np.abs(d_rule.coefficients).min() > 1e-2  # the rule's own parameters still learn


RULES = {
    "plain": None,
    "paper": PAPER,
    "constant": constant(2.0),
    "log ratio": log_ratio(4),
    "exp offset": exp_offset(1.0, beta_max=8.0),
    "target entropy": target_entropy(0.9),
}


@jax.jit
def every_gradient(z, where):
    return {name: jax.grad(objective)(z, rule, where) for name, rule in RULES.items()}


@pytest.mark.parametrize("name", RULES)
def test_dead_rows_and_masked_keys_get_no_gradient_and_give_no_nan(name):
    z, keep = Z.astype(np.float32), KEEP.copy()
    clean = np.asarray(every_gradient(z, keep)[name])
    assert np.all(np.isfinite(clean)) and np.all(clean[~keep] == 0)

    hidden = np.where(keep, z, np.float32(np.nan))
    np.testing.assert_array_equal(every_gradient(hidden, keep)[name], clean)
    infinite = np.where(keep, z, np.float32(-np.inf))
    np.testing.assert_array_equal(every_gradient(infinite, np.ones_like(keep))[name], clean)

    infinite[1], keep[2] = -np.inf, False
    dead = np.asarray(every_gradient(infinite, keep)[name])
    assert np.all(dead[1:3] == 0)
    np.testing.assert_array_equal(dead[[0, 3]], clean[[0, 3]])


@pytest.mark.parametrize("name", RULES)
def test_nan_in_a_live_logit_spoils_the_gradient_of_its_row_and_no_other(name):
    z = Z.astype(np.float32)
    clean = np.asarray(every_gradient(z, KEEP)[name])
    z[1, np.flatnonzero(KEEP[1])[0]] = np.nan
    spoiled = np.asarray(every_gradient(z, KEEP)[name])
    assert np.all(np.isnan(spoiled[1][KEEP[1]]))
    np.testing.assert_array_equal(spoiled[[0, 2, 3]], clean[[0, 2, 3]])


SECOND_ORDER = {"paper": PAPER, "target entropy": target_entropy(0.9)}


@pytest.mark.parametrize("name", SECOND_ORDER)
def test_jvp_vjp_and_hessian_agree_with_masks_and_infinities(name):
    rule = SECOND_ORDER[name]
    keep = KEEP[1]
    coefficient = WEIGHTS[1]
    z = np.where(np.arange(12) == np.flatnonzero(keep)[0], -np.inf, Z[1])  # one live key is at -inf, others masked
    live = keep & np.isfinite(z)

    def f(z):
        weights, stats = adaptive_temperature_softmax(z, where=keep, temperature=rule, return_stats=True)
        return jnp.sum(coefficient * weights) + stats.entropy + 0.5 * stats.lse_scaled

    with enable_x64(True):
        direction = np.ones(12)

        @jax.jit
        def derivatives(z):
            return jax.jvp(f, (z,), (direction,))[1], jax.grad(f)(z), jax.hessian(f)(z)

        slope, gradient, hessian = jax.device_get(derivatives(z))
        # The second derivative against differences of the first, in two directions.
        for j in np.flatnonzero(live)[:2]:
            bump = 1e-5 * (np.arange(12) == j)
            difference = (derivatives(z + bump)[1] - derivatives(z - bump)[1]) / 2e-5
            np.testing.assert_allclose(hessian[:, j], difference, atol=1e-7)
    assert slope == pytest.approx(gradient.sum(), abs=1e-12)
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-12)
    assert np.all(hessian[~live] == 0) and np.all(gradient[~live] == 0)
    assert np.all(np.isfinite(hessian)) and np.abs(hessian[live][:, live]).max() > 1e-3


def test_the_plain_softmax_has_its_second_derivative_and_a_dead_row_a_zero_one():
    @jax.jit
    def hessian(z):
        return jax.hessian(lambda z: WEIGHTS[0] @ adaptive_temperature_softmax(z, temperature=None))(z)

    with enable_x64(True):
        z = np.where(KEEP[0], Z[0], -np.inf)
        got, dead = hessian(z), hessian(np.full(12, -np.inf))
    p = oracle(z, beta_of=lambda h: 1.0).weights
    # d p_i / d z_j = p_i (d_ij - p_j), twice.
    slope = p * (WEIGHTS[0] - p @ WEIGHTS[0])
    want = np.diag(slope) - np.outer(slope, p) - np.outer(p, slope)
    np.testing.assert_allclose(got, want, atol=1e-14)
    np.testing.assert_array_equal(dead, np.zeros((12, 12)))


def slope_of(rule, entropies):
    slope = jax.vmap(jax.grad(lambda h: rule.beta(RowStatistics(entropy=h))))
    return jax.jit(slope)(np.float32(entropies)).tolist()


def test_at_a_kink_the_slope_is_one_sided():
    # P(H) = H + 0.5 reaches 1 exactly at 0.5, P(H) = 2 H - 1 its clip at 2: an average would give 0.5 and 1.
    rising = polynomial((1.0, 0.5), threshold=0.0)
    assert slope_of(rising, [0.25, 0.5, 0.75]) == [0, 0, 1]
    clipped = polynomial((2.0, -1.0), threshold=0.0, clip=(0.0, 2.0))
    assert slope_of(clipped, [1.5, 2.0, 2.5]) == [2, 2, 0]
    assert slope_of(exp_offset(1.0), [0.5, 1.0, 1.5]) == pytest.approx([0, 0, np.exp(0.5)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_logits_get_the_float32_gradient_rounded(dtype):
    z = jnp.asarray(Z, dtype)
    gradient = jax.jit(jax.grad(lambda z: objective(z, PAPER)))(z)
    assert gradient.dtype == z.dtype
    wide = np.asarray(every_gradient(np.asarray(z, np.float32), KEEP)["paper"])
    # The weights are rounded before the objective and their cotangents with them.
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(gradient, np.float32), wide, atol=4 * eps * np.abs(wide).max())

"""The temperature rules: their values, their ranges, and what their constructors refuse."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import adaptive_temperature_softmax
from adatemp.temperature import (
    PAPER,
    PAPER_COEFFICIENTS,
    PAPER_HELD,
    RowStatistics,
    TemperatureRule,
    constant,
    exp_offset,
    guarded,
    log_ratio,
    newton,
    polynomial,
    target_entropy,
)

EVERY_RULE = [
    PAPER,
    PAPER_HELD,
    constant(2.0),
    log_ratio(16),
    exp_offset(1.0),
    newton(1.0),
    guarded(0.1, 1.0),
    target_entropy(1.0),
]
evaluate = jax.jit(lambda rule, stats: rule.beta(stats))


def beta(rule, **statistics):
    stats = RowStatistics(**{name: np.asarray(value) for name, value in statistics.items()})
    return np.asarray(evaluate(rule, stats), np.float64).tolist()


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: type(rule).__name__)
def test_every_rule_keeps_the_protocol_and_survives_flattening(rule):
    assert isinstance(rule, TemperatureRule)
    leaves, structure = jax.tree.flatten(rule)
    assert all(isinstance(leaf, float) for leaf in leaves)
    rebuilt = jax.tree.unflatten(structure, [None] * len(leaves))  # JAX does this, and nothing may object
    assert type(rebuilt) is type(rule)
    assert rebuilt.needs == rule.needs <= {"count", "entropy", "variance", "row"}
    assert hash(structure) == hash(jax.tree.structure(rule))


def test_polynomial_is_numpys_with_a_floor_and_a_threshold():
    entropy = np.float32([0.0, 0.49, 0.5, 0.51, 1.0, 2.0, 3.0])
    rule = polynomial((0.5, -1.0, 3.0), threshold=0.5)
    want = np.where(entropy <= 0.5, 1, np.maximum(1, np.polyval([0.5, -1.0, 3.0], entropy)))
    np.testing.assert_allclose(beta(rule, entropy=entropy), want, rtol=1e-6)


def test_clip_centre_and_scale_say_where_the_polynomial_is_read():
    rule = polynomial((2.0, 3.0), threshold=0.0, clip=(1.0, 3.0), centre=2.0, scale=0.5)
    got = beta(rule, entropy=np.float32([0.5, 1.0, 2.0, 3.0, 9.0]))
    np.testing.assert_allclose(got, [1, 1, 3, 7, 7], rtol=1e-6)


def test_the_held_map_is_the_published_one_up_to_its_peak():
    entropy = np.linspace(0, 4.4, 60, dtype=np.float32)
    assert beta(PAPER_HELD, entropy=entropy) == beta(PAPER, entropy=entropy)
    peak = max(np.polyval(PAPER_COEFFICIENTS, np.linspace(0, 6, 100_001)))
    np.testing.assert_allclose(beta(PAPER_HELD, entropy=np.float32([4.5, 7.0, 12.0])), peak, rtol=1e-5)


@pytest.mark.parametrize(
    ("coefficients", "settings", "expected"),
    [
        ((1.0, 0.0), {"threshold": 0.0}, (1.0, math.inf)),  # H > 1
        ((1.0, 0.0), {"threshold": 2.0}, (2.0, math.inf)),
        ((1.0, 0.0), {"clip": (0.0, 5.0)}, (1.0, 5.0)),
        ((-1.0, 4.0, -2.0), {}, (1.0, 3.0)),  # 1 - (H - 1)(H - 3)
        ((1.0, -4.0, 4.0), {}, (0.5, math.inf)),  # 1 + (H - 1)(H - 3): above 1 on both sides
        ((0.5,), {}, None),
        ((2.0,), {}, (0.5, math.inf)),
    ],
)
def test_the_range_is_where_the_map_exceeds_one(coefficients, settings, expected):
    got = polynomial(coefficients, **settings).range
    assert got is None if expected is None else got == pytest.approx(expected)


def test_log_ratio_is_one_at_its_reference_and_counts_live_keys():
    got = beta(log_ratio(16), count=np.int32([1, 2, 4, 16, 256, 65536]))
    np.testing.assert_allclose(got, [1, 0.25, 0.5, 1, 2, 4], rtol=1e-6)


def test_exp_offset_starts_at_its_offset_and_stops_at_its_limit():
    entropy = np.float32([0.0, 1.0, 2.0, 3.0, 50.0])
    np.testing.assert_allclose(beta(exp_offset(1.0, beta_max=5.0), entropy=entropy), [1, 1, np.e, 5, 5], rtol=1e-6)
    assert beta(exp_offset(1.0), entropy=np.float32(3.0)) == pytest.approx(np.e**2, rel=1e-6)


def test_exp_offset_keeps_the_sharpened_row_of_evenly_spread_logits():
    # Logits spread evenly over S = 8: with beta = exp(H - h), n / (beta S) = exp(h - 1), whatever n.
    for n in (1_000, 8_000):
        z = np.linspace(-8, 0, n, dtype=np.float32)
        _, stats = adaptive_temperature_softmax(z, temperature=exp_offset(1.5), return_stats=True)
        assert n / (float(stats.beta) * 8) == pytest.approx(math.exp(0.5), rel=0.02)


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        (lambda: constant(0), ValueError, r"beta must be above 0, got 0\.0; it is the inverse temperature"),
        (lambda: constant(-2.0), ValueError, "beta must be above 0"),
        (lambda: constant(np.array([1.0, 0.0])), ValueError, "beta must be above 0"),
        (lambda: constant(float("nan")), ValueError, "beta must be finite, got nan"),
        (lambda: constant(float("inf")), ValueError, "beta must be finite"),
        (lambda: constant("2"), TypeError, "beta must be a number or an array of numbers, got '2'"),
        (lambda: constant(None), TypeError, "beta must be a number"),
        (lambda: constant(True), TypeError, "beta must be real, got dtype bool"),
        (lambda: constant(np.array(1j)), TypeError, "beta must be real, got dtype complex128"),
        (lambda: constant(jnp.array([2.0, -1.0])), ValueError, "beta must be above 0"),
        (lambda: polynomial(()), ValueError, "coefficients must list at least one number"),
        (lambda: polynomial(2.0), TypeError, r"coefficients must be a sequence.* write constant\(beta=\.\.\.\)"),
        (lambda: polynomial(jnp.float32(2.0)), TypeError, "coefficients must be a sequence"),
        (lambda: polynomial((1.0, math.nan)), ValueError, "coefficients must be finite, got nan"),
        (lambda: polynomial(("a",)), TypeError, "coefficients must be a number or an array of numbers, got 'a'"),
        (lambda: polynomial((1.0, 0.0), threshold=math.nan), ValueError, "threshold must be finite"),
        (lambda: polynomial((1.0, 0.0), clip=(3.0, 1.0)), ValueError, r"clip must be two entropies, the lowest first"),
        (lambda: polynomial((1.0, 0.0), clip=(3.0,)), ValueError, "clip must be two entropies"),
        (lambda: polynomial((1.0, 0.0), scale=0.0), ValueError, "scale must be above 0"),
        (lambda: log_ratio(1), ValueError, "reference_count must be above 1"),
        (lambda: log_ratio(math.inf), ValueError, "reference_count must be finite"),
        (lambda: exp_offset(math.nan), ValueError, "offset must be finite"),
        (lambda: exp_offset(1.0, beta_max=0.5), ValueError, "beta_max must be at least 1, got 0.5"),
        (lambda: target_entropy(0.0), ValueError, "entropy must be above 0"),
        (lambda: target_entropy(1.0, beta_min=0.0), ValueError, "0 < beta_min < beta_max"),
        (lambda: target_entropy(1.0, beta_max=1.0), ValueError, "0 < beta_min < beta_max"),
        (lambda: target_entropy(1.0, beta_max=[1.0]), TypeError, "beta_max chooses code"),
    ],
)
def test_constructors_refuse_what_cannot_be_meant(make, error, named):
    with pytest.raises(error, match=named):
        make()


def test_constructors_take_traced_parameters_and_array_lists():
    @jax.jit
    def f(x):
        rules = constant(x), polynomial([x, 0.0]), log_ratio(x), exp_offset(x), target_entropy(x)
        return [jax.tree.leaves(rule)[0] for rule in rules]

    assert f(jnp.float32(3.0)) == [3, 3, 3, 3, 3]
    assert jax.eval_shape(lambda c: polynomial(c).coefficients, jnp.ones((3, 2)))[2].shape == (2,)
    with pytest.raises(TypeError, match="threshold chooses code, so it must be a Python number known at trace time"):
        jax.jit(lambda x: polynomial((1.0, 0.0), threshold=x).coefficients)(1.0)


def test_published_rules_start_no_device_and_hold_every_digit():
    # Python floats: a device array would start a device on import, and hold float32.
    assert PAPER.coefficients == PAPER_COEFFICIENTS
    assert polynomial(np.array(PAPER_COEFFICIENTS)).coefficients == PAPER_COEFFICIENTS

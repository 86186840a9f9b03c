"""Spectral bounds on the spread: no attack breaks them, some inputs attain them, and rotations break the tight form."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import dispersion
from adatemp._compat import enable_x64

D, H, N = 6, 4, 5  # widths of model and head, items


def kernels(seed=0):
    draw = np.random.default_rng(seed)
    return draw.normal(size=(D, H)), draw.normal(size=(D, H)), draw


def spread_of(query_kernel, key_kernel, y, items, scale=0.5):  # 1/√H
    logits = scale * (items @ key_kernel) @ (y @ query_kernel)
    return logits.max() - logits.min()


def ascend(violation, *starts, steps=300, rate=0.05):
    """Gradient ascent in float64 on a function of arrays, from many starts at once; the largest value reached."""
    with enable_x64(True):
        starts = tuple(jnp.asarray(x) for x in starts)
        value = jax.vmap(violation)
        slope = jax.vmap(jax.grad(violation, argnums=tuple(range(len(starts)))))

        @jax.jit
        def climb(points):
            def step(_, carry):
                points, best = carry
                points = tuple(x + rate * d for x, d in zip(points, slope(*points)))
                return points, jnp.maximum(best, value(*points))

            return jax.lax.fori_loop(0, steps, step, (points, value(*points)))[1]

        return float(jnp.max(climb(starts)))


@pytest.mark.result("thm-ch05-tight")
@pytest.mark.parametrize("seed", range(20))
def test_the_tight_form_lies_between_the_spread_and_the_norm_form(seed):
    query_kernel, key_kernel, draw = kernels(seed)
    y, items = draw.normal(size=D), draw.normal(size=(N, D))
    reach = np.linalg.norm(items, axis=1).max()
    tight = dispersion.spread_bound_tight(query_kernel, key_kernel, np.linalg.norm(y), dispersion.diameter(items))
    norms = dispersion.spread_bound_norms(query_kernel, key_kernel, np.linalg.norm(y), reach)
    assert spread_of(query_kernel, key_kernel, y, items) <= tight * (1 + 1e-12) <= norms * (1 + 1e-12)


@pytest.mark.result("thm-ch05-tight")
def test_no_ascent_gets_past_the_tight_form_and_it_gets_there():
    query_kernel, key_kernel, draw = kernels()

    def reached(y, items):
        """Spread over bound; the bound's two factors that depend on the inputs are in the denominator."""
        logits = (items @ key_kernel) @ (y @ query_kernel) / math.sqrt(H)
        gaps = jnp.sqrt(jnp.sum((items[:, None] - items[None]) ** 2, -1) + 1e-30)
        size = dispersion.score_norm(query_kernel, key_kernel) / math.sqrt(H)
        return (logits.max() - logits.min()) / (size * jnp.linalg.norm(y) * gaps.max())

    found = ascend(reached, draw.normal(size=(40, D)), draw.normal(size=(40, N, D)), rate=0.3)
    assert 0.999 < found <= 1 + 1e-12


@pytest.mark.result("thm-ch05-norms")
def test_both_forms_are_attained_by_opposite_items_along_the_top_singular_direction():
    for seed in range(5):
        query_kernel, key_kernel, _ = kernels(seed)
        left, _, right = np.linalg.svd(query_kernel @ key_kernel.T)
        y, x = 3 * left[:, 0], 2 * right[0]
        items = np.array([x, -x, 0 * x])
        tight = dispersion.spread_bound_tight(query_kernel, key_kernel, 3.0, dispersion.diameter(items))
        assert spread_of(query_kernel, key_kernel, y, items) == pytest.approx(tight, rel=1e-12)
    # The norm form too, where the top directions of both kernels meet.
    key_kernel = query_kernel = np.diag([3.0, 1.0, 0.5])
    y = np.array([2.0, 0, 0])
    bound = dispersion.spread_bound_norms(query_kernel, key_kernel, 2.0, 1.5)
    items = np.array([[1.5, 0, 0], [-1.5, 0, 0]])
    assert spread_of(query_kernel, key_kernel, y, items, 1 / math.sqrt(3)) == pytest.approx(bound, rel=1e-12)


def rotate(vector, position, base=100.0):
    half = vector.shape[-1] // 2
    angle = position * base ** (-jnp.arange(half) / half)
    a, b = vector[..., :half], vector[..., half:]
    return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), a * jnp.sin(angle) + b * jnp.cos(angle)], -1)


@pytest.mark.result("prop-ch05-rotations")
def test_with_rotations_two_equal_items_break_the_tight_form_and_the_repair_holds():
    query_kernel, key_kernel, draw = kernels()
    y, x = draw.normal(size=(2, D))
    items = np.array([x, x])
    keys = np.stack([rotate(k, t) for t, k in enumerate(items @ key_kernel)])
    query = np.asarray(rotate(y @ query_kernel, 2.0))
    logits = keys @ query / math.sqrt(H)
    spread = np.ptp(logits)
    assert dispersion.spread_bound_tight(query_kernel, key_kernel, np.linalg.norm(y), dispersion.diameter(items)) == 0
    assert 0.1 < spread <= dispersion.spread_bound_keys(query, keys) * (1 + 1e-6)  # rotated in float32
    assert spread <= dispersion.spread_bound_norms(query_kernel, key_kernel, np.linalg.norm(y), np.linalg.norm(x))


@pytest.mark.result("prop-ch05-rotations")
def test_no_ascent_breaks_the_repaired_form_and_it_is_attained():
    query_kernel, key_kernel, draw = kernels()

    def reached(y, items):
        keys = jax.vmap(rotate)(items @ key_kernel, jnp.arange(N))
        query = rotate(y @ query_kernel, N + 1.0)
        logits = keys @ query / math.sqrt(H)
        return (logits.max() - logits.min()) / dispersion.spread_bound_keys(query, keys)

    found = ascend(reached, draw.normal(size=(30, D)), draw.normal(size=(30, N, D)), rate=0.3)
    assert 0.999 < found <= 1 + 1e-12


@pytest.mark.result("prop-ch05-rotations")
def test_the_norm_form_survives_rotations_under_attack():
    query_kernel, key_kernel, draw = kernels()

    def reached(y, items):
        keys = jax.vmap(rotate)(items @ key_kernel, jnp.arange(N))
        logits = keys @ rotate(y @ query_kernel, N + 1.0) / math.sqrt(H)
        reach = jnp.linalg.norm(items, axis=-1).max()
        bound = dispersion.spread_bound_norms(query_kernel, key_kernel, 1.0, 1.0) * jnp.linalg.norm(y) * reach
        return (logits.max() - logits.min()) / bound

    assert 0.5 < ascend(reached, draw.normal(size=(30, D)), draw.normal(size=(30, N, D)), rate=0.3) <= 1 + 1e-12


def test_score_norm_is_the_largest_singular_value_of_the_product():
    query_kernel, key_kernel, _ = kernels(3)
    expected = np.linalg.svd(query_kernel @ key_kernel.T)[1][0]
    assert dispersion.score_norm(query_kernel, key_kernel) == pytest.approx(expected, rel=1e-13)
    traced = jax.jit(dispersion.score_norm)(jnp.asarray(query_kernel), jnp.asarray(key_kernel))
    np.testing.assert_allclose(traced, expected, rtol=1e-5)


def test_diameter_is_the_largest_distance_of_all_pairs():
    points = np.random.default_rng(0).normal(size=(40, 3))
    expected = max(np.linalg.norm(a - b) for a in points for b in points)
    assert dispersion.diameter(points) == pytest.approx(expected, rel=1e-14)
    np.testing.assert_allclose(jax.jit(dispersion.diameter)(jnp.asarray(points)), expected, rtol=1e-6)


# The ceiling of normalised queries and keys.


def normalised(x, norm):
    if norm == "layer":
        x = x - x.mean(-1, keepdims=True)
    length = jnp.linalg.norm(x, axis=-1, keepdims=True)
    return x / length if norm == "l2" else x / length * math.sqrt(x.shape[-1])


@pytest.mark.result("prop-ch05-ceiling")
@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("norm", ["rms", "layer", "l2"])
def test_no_ascent_gets_past_the_ceiling_of_normalised_queries_and_keys(norm, rotated):
    draw = np.random.default_rng(0)
    query_gain, key_gain = draw.uniform(0.5, 2, (2, H)) * np.array([[1, -1, 1, 1], [1, 1, 1, -1]])
    ceiling = dispersion.qk_norm_ceiling(query_gain, key_gain, norm=norm, rotated=rotated)

    def reached(y, items, positions):
        query, keys = query_gain * normalised(y, norm), key_gain * normalised(items, norm)
        if rotated:
            query, keys = rotate(query, 0.0), jax.vmap(rotate)(keys, positions)
        logits = keys @ query / math.sqrt(H)
        return (logits.max() - logits.min()) / ceiling

    starts = draw.normal(size=(30, H)), draw.normal(size=(30, 2, H)), draw.normal(size=(30, 2))
    found = ascend(reached, *starts, rate=0.2)
    assert (0.75 if rotated else 0.999) < found <= 1 + 1e-12  # a rotation need not bring the two largest gains together


@pytest.mark.result("prop-ch05-ceiling")
def test_the_ceiling_is_not_that_of_the_mean_gain_and_knows_the_width():
    gain = np.array([1.0, 1.0, 1.0, 9.0])
    assert dispersion.qk_norm_ceiling(gain, np.ones(4)) == 2 * math.sqrt(4) * 9
    assert dispersion.qk_norm_ceiling(np.ones(64), np.ones(64)) == 16
    assert dispersion.qk_norm_ceiling(np.ones(64), np.ones(64), norm="l2", scale=10.0) == 20
    with pytest.raises(ValueError, match="norm must be 'rms', 'layer' or 'l2', got 'batch'"):
        dispersion.qk_norm_ceiling(gain, gain, norm="batch")


# The budget.


@pytest.mark.result("cor-ch05-budget")
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_with_the_least_product_the_best_row_holds_just_the_weight(temperature):
    n, w, y, x, scale = 1000, 0.7, 3.0, 2.0, 1 / math.sqrt(H)
    product = dispersion.least_spectral_product(n, w, y, x, temperature, scale=scale)
    spread = 2 * scale * product * y * x  # the norm form, attained
    assert dispersion.weight_bounds(n, spread, temperature)[1] == pytest.approx(w, rel=1e-12)
    assert dispersion.weight_bounds(n, 0.999 * spread, temperature)[1] < w


@pytest.mark.result("cor-ch05-budget")
def test_no_ascent_holds_a_weight_for_less_than_its_price_and_it_gets_there():
    temperature, width, draw = 0.5, 2, np.random.default_rng(0)

    def top(kernel):
        """Largest singular value of a kernel of two columns, from its Gram matrix."""
        a, b, d = kernel[:, 0] @ kernel[:, 0], kernel[:, 0] @ kernel[:, 1], kernel[:, 1] @ kernel[:, 1]
        return jnp.sqrt((a + d) / 2 + jnp.sqrt((a - d) ** 2 / 4 + b**2 + 1e-30))

    def paid_off(query_kernel, key_kernel, y, items):
        """The price of the first item's weight over the product that the head has; above 1 it got it for less."""
        logits = (items @ key_kernel) @ (y @ query_kernel) / math.sqrt(width) / temperature
        log_odds = math.log(N - 1) - jax.nn.logsumexp(logits[1:] - logits[0])  # log((n − 1) w / (1 − w))
        lengths = jnp.linalg.norm(y) * jnp.linalg.norm(items, axis=-1).max()
        return temperature * math.sqrt(width) * log_odds / (2 * lengths * top(query_kernel) * top(key_kernel))

    starts = [draw.normal(size=(40, *shape)) for shape in ((D, width), (D, width), (D,), (N, D))]
    found = ascend(paid_off, *starts, rate=0.3, steps=600)
    assert 0.99 < found <= 1 + 1e-12


def test_the_least_product_is_nothing_for_a_weight_that_any_row_has():
    assert dispersion.least_spectral_product(4, 0.2, 1.0, 1.0, scale=0.5) == 0
    assert dispersion.least_spectral_product(1, 0.9, 1.0, 1.0, scale=0.5) == 0
    sizes = np.array([10.0, 100.0, 1e6])
    products = dispersion.least_spectral_product(sizes, 0.5, 1.0, 1.0, scale=1.0)
    np.testing.assert_allclose(products, np.log(sizes - 1) / 2, rtol=1e-12)
    with pytest.raises(ValueError, match="weight must be a weight in the open interval"):
        dispersion.least_spectral_product(10, 1.0, 1.0, 1.0, scale=0.5)

"""What chapter 07 states about depth: bounds hold under attack, examples attain them, the stored run agrees."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from adatemp import dispersion
from tools.make_results import STORED
from tools.stored_results import depth_by_layer

SEED = st.integers(0, 2**32 - 1)
# Rounding of float64 products of width 8, relative to what is compared.
ROUNDING = 1e-12


def heads(draw, width=4, count=2, size=1.0):
    return size * draw.normal(size=(count, width, width)), draw.normal(size=(count, width, width))


@pytest.mark.result("prop-ch07-equal")
@given(SEED, st.integers(2, 12))
@settings(max_examples=40)
def test_equal_rows_make_tokens_equal_and_equal_they_stay(chapter07, seed, n):
    draw = np.random.default_rng(seed)
    row = draw.dirichlet(np.ones(n), size=3)  # one row a head, for all queries
    states = draw.normal(size=(n, 4))
    after = sum(np.tile(p, (n, 1)) @ states @ value.T for p, value in zip(row, heads(draw, count=3)[1]))
    assert np.ptp(after, axis=0).max() <= ROUNDING * np.abs(states).max() * n * 10
    equal = np.tile(after[:1], (n, 1))
    for residual in (False, True):
        for mask in (None, np.tri(n) > 0):
            scores, maps = heads(draw)
            scores = scores / (1 + np.abs(after).max()) ** 2  # no weight under- or overflows
            later = chapter07.layer(equal, scores, maps, residual=residual, mask=mask)
            assert np.ptp(later, axis=0).max() <= 1e-9 * (1 + np.abs(later).max())
            spreads = np.ptp(equal @ scores[0] @ equal.T, axis=1)
            assert spreads.max() <= 1e-9


@pytest.mark.result("lem-ch07-rows")
@given(SEED, st.floats(0.01, 12.0), st.integers(2, 9))
@settings(max_examples=200)
def test_two_rows_are_no_farther_apart_than_the_tangent_allows_and_two_keys_are_as_far(seed, omega, n):
    draw = np.random.default_rng(seed)
    q = draw.dirichlet(np.full(n, draw.choice([0.1, 1.0, 10.0])))
    tilt = draw.choice([0.0, omega], n) if seed % 2 else draw.uniform(0, omega, n)
    p = q * np.exp(tilt)
    p /= p.sum()
    assert np.maximum(p - q, 0).sum() <= math.tanh(omega / 4) * (1 + ROUNDING) + 1e-15
    share = 1 / (1 + math.exp(omega / 2))
    q = np.array([share, 1 - share])
    p = q * np.exp([omega, 0.0])
    assert (p / p.sum() - q)[0] == pytest.approx(math.tanh(omega / 4), rel=1e-9)


@pytest.mark.result("thm-ch07-contraction")
@given(SEED, st.integers(2, 20), st.floats(0.05, 4.0))
@settings(max_examples=150)
def test_no_layer_without_residual_leaves_a_larger_diameter_than_the_bound(chapter07, seed, n, size):
    draw = np.random.default_rng(seed)
    scores, maps = heads(draw, size=size)
    states = draw.normal(size=(n, 4)) * draw.choice([0.1, 0.5, 2.0]) + draw.normal(size=4)
    before = chapter07.diameter(states)
    s, gain = chapter07.constants(scores, maps)
    after = chapter07.diameter(chapter07.layer(states, scores, maps))
    bound = chapter07.contraction(before, s, gain)
    assert after <= bound * (1 + 1e-9) + 1e-12
    assert bound <= gain * s / 4 * before**3 * (1 + ROUNDING)


@pytest.mark.result("thm-ch07-contraction")
def test_no_ascent_leaves_a_larger_diameter_than_the_bound():
    """Ascent on the share of the bound, over states and the score matrix, in float32, from 64 starts."""

    def share(parts):
        states, score = parts
        score = score / jnp.linalg.norm(score, 2)  # s = 1; the value map is the identity, Λ = 1
        after = jax.nn.softmax(states @ score @ states.T, -1) @ states
        gaps = jnp.sqrt(jnp.sum((states[:, None] - states) ** 2, -1) + 1e-9)
        later = jnp.sqrt(jnp.sum((after[0] - after[1]) ** 2) + 1e-12)
        return later / (gaps.max() * jnp.tanh(gaps.max() ** 2 / 4))

    @jax.jit
    def climb(key):
        one, other = jax.random.split(key)
        parts = jax.random.normal(one, (4, 2)), jax.random.normal(other, (2, 2))

        def step(_, parts):
            slope = jax.grad(share)(parts)
            return jax.tree.map(lambda x, g: x + 0.05 * g / (jnp.linalg.norm(g) + 1e-6), parts, slope)

        return share(jax.lax.fori_loop(0, 400, step, parts))

    reached = np.asarray(jax.vmap(climb)(jax.random.split(jax.random.key(0), 64)))
    assert np.nanmax(reached) <= 1 + 1e-4
    assert np.nanmax(reached) > 0.97  # and it gets there: two groups


@pytest.mark.result("prop-ch07-groups")
@given(st.integers(1, 40), st.floats(0.2, 3.0), st.floats(0.3, 3.0), st.floats(0.5, 2.0))
@settings(max_examples=25)
def test_two_groups_attain_the_bound_and_keep_their_distance_at_every_size_and_depth(chapter07, half, d, s, gain):
    n = 2 * half
    found, top = chapter07.two_groups(n, 1, s, gain, d)
    assert found[1] == pytest.approx(chapter07.contraction(d, s, gain), rel=1e-9)
    assert n * top < 2 * (1 + ROUNDING)
    kept, top = chapter07.two_groups(n, 30, s, 1 / math.tanh(s * d**2 / 4), d)
    if s * d**2 / 4 > 1.2:  # below, the fixed point repels and thirty layers multiply rounding
        np.testing.assert_allclose(kept, d, rtol=1e-6)
    states = np.where(np.arange(n) < half, 1.0, -1.0)[:, None]
    for _ in range(30):
        states = chapter07.layer(states, [[[s]]], [np.array([[gain]])])
        states = states / np.sqrt((states**2).mean(-1, keepdims=True))
    np.testing.assert_allclose(np.abs(states), 1.0, rtol=1e-12)


@pytest.mark.result("prop-ch07-shift")
@given(SEED, st.floats(0.0, 30.0))
@settings(max_examples=100)
def test_a_common_shift_keeps_differences_and_bounds_the_spread(chapter07, seed, size):
    draw = np.random.default_rng(seed)
    states = draw.normal(size=(7, 4))
    scores, maps = heads(draw)
    after = chapter07.layer(states, scores, size * maps, residual=True, flat=True)
    shift = (after - states)[0]
    np.testing.assert_allclose(after - states, np.tile(shift, (7, 1)), atol=1e-12 * (1 + size))
    own, common = (np.ptp(x @ scores[0] @ states.T, axis=-1) for x in (states, shift))
    new = np.ptp(after @ scores[0] @ after.T, axis=-1)
    slack = 1e-10 * (1 + size) ** 2
    assert (np.abs(own - common) <= new + slack).all() and (new <= own + common + slack).all()


@pytest.mark.result("prop-ch07-shift")
@given(SEED, st.floats(0.0, 100.0))
@settings(max_examples=100)
def test_a_norm_keeps_no_more_of_a_distance_than_the_lengths_allow(seed, size):
    draw = np.random.default_rng(seed)
    x, y = draw.normal(size=(2, 5)) + size * draw.normal(size=5)
    a, b = (v / np.sqrt((v**2).mean()) for v in (x, y))
    bound = math.sqrt(5) * np.linalg.norm(x - y) / math.sqrt(np.linalg.norm(x) * np.linalg.norm(y))
    assert np.linalg.norm(a - b) <= bound * (1 + 1e-9)
    along = 3.0 * x  # vectors of one length attain it; along one line nothing is left
    np.testing.assert_allclose(along / np.sqrt((along**2).mean()), a, rtol=1e-12)
    turned = y * np.linalg.norm(x) / np.linalg.norm(y)
    same_length = math.sqrt(5) * np.linalg.norm(x - turned) / np.linalg.norm(x)
    assert np.linalg.norm(a - b) == pytest.approx(same_length, rel=1e-9, abs=1e-12)


@pytest.mark.result("thm-ch07-cesaro")
@pytest.mark.parametrize("layers", [0, 1, 3, 8])
def test_with_a_residual_the_eigenvalues_are_those_of_half_the_average(chapter07, layers):
    states = [Fraction(x) for x in (3, -1, 4, 1, -5, 9, 2)]
    kept = list(states)
    for _ in range(layers):
        average = [sum(kept[:i], Fraction(0)) / i for i in range(1, len(kept) + 1)]
        kept = [(a + b) / 2 for a, b in zip(kept, average)]
    assert chapter07.closed_form(states, layers, residual=True) == kept
    assert chapter07.closed_form(states, layers) == dispersion.cesaro_closed_form(states, layers)


@pytest.mark.result("prop-ch07-walk")
@pytest.mark.parametrize(("i", "layers"), [(2, 1), (6, 2), (6, 4), (30, 3)])
def test_a_walk_to_a_uniform_earlier_place_is_a_binomial_with_a_product_of_uniforms(chapter07, i, layers):
    draw = np.random.default_rng(0)
    count = 200_000
    place = np.full(count, i)
    for _ in range(layers):
        place = draw.integers(1, place + 1)
    binomial = 1 + draw.binomial(i - 1, draw.uniform(size=(layers, count)).prod(0))
    law = chapter07.causal_average(np.eye(i), layers)[-1]
    for drawn in (place, binomial):
        shares = np.bincount(drawn, minlength=i + 1)[1:] / count
        assert np.abs(shares - law).max() < 5 * 0.5 / math.sqrt(count)  # five standard errors at most
    missing = chapter07.not_arrived(i, layers)[-1]
    assert missing == pytest.approx(1 - law[0], abs=1e-12) and missing <= (i - 1) * 2.0**-layers + 1e-15
    late = chapter07.not_arrived(i, 60)[-1]
    assert late == pytest.approx((i - 1) * 2.0**-60, rel=1e-6)  # the others fall like 3^(−60)


@pytest.mark.result("prop-ch07-late")
def test_the_late_half_of_averaged_noise_spreads_like_a_brownian_range_and_a_step_stays(chapter07):
    draw = np.random.default_rng(1)
    n = 2**15
    for noise in (draw.normal(size=(n, 300)), draw.choice([-1.0, 1.0], (n, 300))):
        after = chapter07.causal_average(noise, 1)
        neighbours = np.abs(np.diff(after, axis=0)).max(1)
        reach = np.ptp(noise, axis=0).max()
        assert (neighbours <= reach / np.arange(2, n + 1) * (1 + 1e-9)).all()
        late = np.ptp(after[n // 2 - 1 :], axis=0).mean() * math.sqrt(n)
        # 300 ranges with a deviation of 0.48: 0.028; steps fall short of the path between them by 1% at this size
        assert late == pytest.approx(math.sqrt(8 / math.pi), abs=0.1)
    step = chapter07.causal_average(np.repeat([0.0, 1.0], n // 2)[:, None], 1)
    assert np.ptp(step[n // 2 - 1 :]) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.result("prop-ch07-inducing")
@given(SEED, st.integers(2, 60), st.integers(1, 6))
@settings(max_examples=100)
def test_no_item_passes_inducing_points_with_more_than_the_first_map_gives_it(chapter07, seed, n, m):
    draw = np.random.default_rng(seed)
    items, points = 2 * draw.normal(size=(n, 5)), 2 * draw.normal(size=(m, 5))
    after, into, out = chapter07.inducing_block(items, points)
    c = 1 / math.sqrt(5)
    spread = np.ptp(c * points @ items.T, axis=1).max()
    low, high = dispersion.weight_bounds(n, spread)
    assert low <= into.min() * (1 + 1e-12) and into.max() <= high * (1 + 1e-12)
    assert (out.max(1) >= 1 / m - 1e-12).all()
    assert (out @ into).max() <= high * (1 + 1e-12)
    gathered = into @ items
    d, reach, held = (chapter07.diameter(x) for x in (items, points, gathered))
    assert held <= d * math.tanh(c * reach * d / 4) * (1 + 1e-9) + 1e-9
    assert chapter07.diameter(after) <= held * math.tanh(c * d * held / 4) * (1 + 1e-9) + 1e-9


@pytest.mark.result("prop-ch07-inducing")
def test_what_inducing_points_gather_tends_to_a_limit_that_differs_from_point_to_point(chapter07):
    draw = np.random.default_rng(5)
    points = draw.normal(size=(3, 4))
    held = []
    for _ in range(2):  # two sets of one distribution, whose averages differ by about a hundredth
        items = draw.uniform(-2, 2, size=(40_000, 4))
        held.append(chapter07.rows_of(points @ items.T / 2) @ items)
    assert np.abs(held[0] - held[1]).max() < 0.1 < chapter07.diameter(held[0])


# The stored run.


@pytest.fixture(scope="module")
def stored():
    return json.loads((STORED / "depth_by_layer.json").read_text("utf-8"))


def test_the_stored_run_is_whole(stored):
    assert tuple(stored["provenance"]["cells"]) == depth_by_layer.CELLS
    data = stored["data"]
    assert len(data["cascade"]) == 5 * len(data["kinds"])
    for row in data["rows"]:
        assert len(row["looks"]) == len(data["sizes"]) * len(depth_by_layer.readings(row["layers"]))


def test_only_the_encoder_without_residual_is_uniform_ever_after(stored):
    for row in stored["data"]["cascade"]:
        later = row["uniform"][1:]
        if row["kind"] == "encoder, no residual":
            assert max(later) < 1e-4
        else:
            assert later[0] > 0.5


def learned(stored):
    return [row for row in stored["data"]["rows"] if row["layers"] == 2 and row["two_hops"] > 0.95]


def test_two_hops_need_two_layers_and_most_models_of_two_have_learned_them(stored):
    rows = stored["data"]["rows"]
    assert all(row["one_hop"] > 0.95 for row in learned(stored))
    assert len(learned(stored)) >= 4 and len(learned(stored)) > 0.75 * sum(row["layers"] == 2 for row in rows)
    assert all(row["two_hops"] < 0.5 for row in rows if row["layers"] == 1)


def test_a_hard_first_layer_gives_the_second_more_spread_and_more_weight_at_the_largest_size(stored):
    n = stored["data"]["sizes"][-1]
    for row in learned(stored):
        looks = {tuple(look["reading"]): look for look in row["looks"] if look["n"] == n}
        soft, hard, flat = (looks[how, "soft"] for how in ("soft", "hard", "flat"))
        assert hard["top_weight"][1] > soft["top_weight"][1] + 0.1
        assert hard["spread"][1] > soft["spread"][1] + 2
        assert hard["accuracy"] > soft["accuracy"] + 0.1
        assert flat["accuracy"] < 0.05 and flat["spread"][1] > 5
        # the right item loses the top logit of the second layer, and gets it back
        assert soft["on_path"][1][1] < 0.6 < 0.7 < hard["on_path"][1][1]

"""What chapter 06 states about read-outs, rounding, distractors: it holds, it is attained, no ascent gets past it."""

from __future__ import annotations

import math
from fractions import Fraction

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from adatemp import dispersion
from tools.stored_results import failures

SEED = st.integers(0, 2**32 - 1)
SCALED = st.floats(0.0, 12.0)


@pytest.mark.result("prop-ch06-segment")
@given(st.integers(1, 300), SCALED, st.floats(0.2, 5.0), SEED)
def test_the_pooled_vector_is_the_average_over_the_whole_set(chapter06, n, scaled, temperature, seed):
    value_a, value_b = np.random.default_rng(seed).normal(size=(2, 4))
    logits = np.where(np.arange(n) == 0, scaled * temperature, 0.0)
    powers = np.exp((logits - logits.max()) / temperature)
    average = powers @ np.where(np.arange(n)[:, None] == 0, value_a, value_b) / powers.sum()
    # float64 sums of up to 300 terms
    assert chapter06.pooled(value_a, value_b, n, scaled * temperature, temperature) == pytest.approx(average, abs=1e-12)
    at_most = dispersion.weight_bounds(n, scaled * temperature, temperature)[1]
    assert chapter06.weight_of_a(n, scaled * temperature, temperature) == pytest.approx(at_most, rel=1e-12)


@given(st.floats(0.01, 5.0), st.floats(0.1, 10.0), st.floats(0.1, 10.0), SCALED, st.floats(0.2, 5.0))
def test_the_page_s_certified_size_is_the_library_s(chapter06, margin, slope, distance, scaled, temperature):
    arguments = margin, slope, distance, scaled * temperature, temperature
    page, library = chapter06.certified_size(*arguments), dispersion.log_certified_size(*arguments)
    assert np.log(page) == pytest.approx(library, abs=1e-9)


@pytest.mark.result("thm-ch06-margin")
def test_no_ascent_makes_a_rival_lead_at_the_certified_weight():
    """Gradient ascent on the rival's lead, over weights of the read-out and both values; judged on a finer grid."""
    draw = np.random.default_rng(1)
    starts = [failures._draw(draw) for _ in range(24)]
    stacked = tuple(np.stack(leaves).astype(np.float32) for leaves in zip(*starts, strict=True))
    slope = jax.grad(lambda parameters: failures._lead(jnp, parameters, 65))

    def climb(parameters):
        def step(parameters, _):
            up = slope(parameters)
            length = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in up)) + 1e-9
            return jax.tree.map(lambda leaf, way: leaf + 0.05 * way / length, parameters, up), None

        return jax.lax.scan(step, parameters, length=400)[0]

    climbed = jax.jit(jax.vmap(climb))(stacked)
    ends = [failures._lead_exactly([np.asarray(leaf[i], np.float64) for leaf in climbed]) for i in range(24)]
    before = [failures._lead_exactly(parameters) for parameters in starts]
    # L is read off 4,001 points, so it may be too small by their distance squared
    assert max(ends) <= 1e-6
    assert max(ends) > -0.02 and np.median(ends) > np.median(before) + 0.1  # the search is not a weak one


@pytest.mark.result("cor-ch06-continuous")
@settings(max_examples=60)
@given(SEED, st.sampled_from(["1/n", "(log n)/n", "1/log n", "1/sqrt n"]), st.floats(0.01, 1.0))
def test_continuous_read_outs_end_with_b_however_slowly_the_weight_decays(seed, rate, margin):
    draw = np.random.default_rng(seed)
    inner, outer = draw.normal(size=(3, 8)) * draw.choice([1.0, 5.0]), draw.normal(size=(8, 3))
    value_a, value_b = draw.normal(size=(2, 3))

    def logits(x):
        # continuous, and steep beyond any bound at v_B: a square root of the distance
        return np.tanh(x @ inner) @ outer + np.sqrt(np.linalg.norm(x - value_b)) * np.array([1.0, -1.0, 0.5])

    rivals = np.delete(logits(value_b), 2).max()
    offset = np.array([0.0, 0.0, rivals - logits(value_b)[2] + margin])  # class 2 is B, ahead by the margin
    # At n = e^600, or e^(10^12) where only the logarithm of n counts.
    late = {
        "1/n": math.exp(-600),
        "(log n)/n": 600 * math.exp(-600),
        "1/sqrt n": math.exp(-300),
        "1/log n": 1e-12,
    }[rate]
    assert np.argmax(logits(value_b + late * (value_a - value_b)) + offset) == 2


@pytest.mark.result("prop-ch06-exact")
@given(st.lists(st.integers(0, 10**30), min_size=1, max_size=6).filter(any))
def test_the_largest_class_is_read_from_the_average_of_any_set(chapter06, counts):
    average = [Fraction(count, sum(counts)) for count in counts]
    assert chapter06.largest_class(average) == max(c for c, count in enumerate(counts) if count)


@pytest.mark.result("prop-ch06-slope")
@settings(max_examples=40)
@given(SEED, st.integers(1, 10**6), SCALED)
def test_no_read_out_answers_both_sets_with_less_slope(chapter06, seed, n, scaled):
    """The bound against the steepest secant of random piecewise linear logits that answer both sets rightly."""
    draw, share = np.random.default_rng(seed), float(chapter06.weight_of_a(n, scaled))
    places = np.sort(np.r_[0.0, draw.uniform(0, share, 5), share])
    of_a, of_b = draw.normal(size=(2, 7)) * draw.choice([0.1, 1.0, 10.0])
    of_b[0], of_a[-1] = of_a[0] + draw.uniform(0.1, 2), of_b[-1] + draw.uniform(0.1, 2)
    gamma = min(of_b[0] - of_a[0], of_a[-1] - of_b[-1])
    gaps = np.diff(places)
    assume_wide = gaps > 0
    steepest = max(np.abs(np.diff(line)[assume_wide] / gaps[assume_wide]).max() for line in (of_a, of_b))
    assert steepest >= gamma / share * (1 - 1e-9)  # distance of the two values 1
    straight = gamma / share  # two opposite lines from ∓γ/2 to ±γ/2
    assert straight == pytest.approx(gamma * (1 + (n - 1) / math.exp(scaled)), rel=1e-9)


@given(st.integers(1, 3_000), st.floats(0.0, 8.0))
def test_copies_merged_in_pairs_are_copies_added_up(chapter06, count, spread):
    kind = np.float64
    state = chapter06.copies((0.0, kind(1), kind(1.5)), count, kind)
    assert state[1:] == pytest.approx((count, 1.5 * count))
    mixed = chapter06.merge((spread, kind(1), kind(2)), state, kind)
    weight = 1 / (1 + count * math.exp(-spread))
    # exponentials are float32 here, as on the page
    assert mixed[2] / mixed[1] == pytest.approx(1.5 + 0.5 * weight, rel=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn"])
@pytest.mark.parametrize("spread", [0.0, 3.3, 25.0])
def test_the_page_s_measured_sizes_are_the_predicted_ones(chapter06, dtype, spread):
    predicted = dispersion.collision_size_output(2.0, 1.0, spread, dtype=dtype)
    # one part in a thousand, and one item where that is less
    assert chapter06.measured_size(spread, dtype) == pytest.approx(predicted, rel=2e-3, abs=1)


@pytest.mark.result("prop-ch06-underflow")
@pytest.mark.parametrize("n", [2, 1_000, 200_000])
def test_underflow_gives_a_weight_of_one_at_every_size(n):
    row = jnp.zeros(n).at[0].set(104.5)
    weights = np.asarray(jax.nn.softmax(row))
    assert weights[0] == 1 and not weights[1:].any()
    assert jax.nn.softmax(row.at[0].set(80.0))[1] > 0


@pytest.mark.result("prop-ch06-random")
@settings(max_examples=10, deadline=None)
@given(st.floats(20.0, 300.0), st.sampled_from([3, 5, 10]), st.floats(0.3, 3.0), SEED)
def test_cancelling_distractors_are_survived_in_proportion_to_kappa_squared(contrast, classes, sigma, seed):
    draw = np.random.default_rng(seed)
    normal = draw.normal(size=(40_000, classes))
    q = np.median(normal[:, 1:].max(1) - normal[:, 0])
    m = (contrast / (sigma * q)) ** 2
    sums = draw.normal(size=(40_000, classes)) * sigma * math.sqrt(m)
    sums[:, 0] += contrast
    found = np.mean(sums[:, 0] > sums[:, 1:].max(1))
    t = np.linspace(-9, 9, 4001)
    ahead = t + contrast / (sigma * math.sqrt(m))
    phi = np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    below = np.vectorize(lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2))))(ahead)
    expected = float(np.sum(phi * below ** (classes - 1)) * (t[1] - t[0]))
    # standard errors of 0.0025, and q from as many draws
    assert found == pytest.approx(expected, abs=0.015)
    assert expected == pytest.approx(0.5, abs=0.015)


@pytest.mark.parametrize("u", [2.0**-4, 2.0**-11, 2.0**-24])
def test_the_page_s_slow_size_is_the_larger_root(chapter06, u):
    n = chapter06.slow_size(u)
    assert math.log(n) / n == pytest.approx(u, rel=1e-9) and n > math.e


def test_the_stored_collisions_are_those_of_the_library():
    from adatemp import runtime

    for row in runtime.results("failures").data["formats"]:
        spreads = np.array(row["spreads"])
        library = dispersion.collision_size_output(2.0, 1.0, spreads, dtype=row["format"])
        assert row["predicted"] == pytest.approx(library, rel=1e-4)  # five digits are stored

"""What chapter 09 states about sinks and elementwise maps: a sink is a gate, and a fixed map disperses like softmax."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

ROW = arrays(float, st.integers(1, 40), elements=st.floats(-30, 30))
SINK = st.floats(-40, 40)
SEED = st.integers(0, 2**32 - 1)


def sigmoid(x):
    return 0.5 * (1 + np.tanh(x / 2))


def with_sink(row, sink):
    """Weights of the keys where the sink is one more logit, dropped after the softmax."""
    extended = np.append(row, sink)
    powers = np.exp(extended - extended.max())
    return powers[:-1] / powers.sum()


@pytest.mark.result("thm-ch09-gate")
@given(ROW, SINK)
def test_a_sink_multiplies_the_weights_by_a_sigmoid_of_lse_less_sink(row, sink):
    lse = row.max() + np.log(np.exp(row - row.max()).sum())
    plain = np.exp(row - lse)
    np.testing.assert_allclose(with_sink(row, sink), sigmoid(lse - sink) * plain, rtol=1e-9, atol=1e-15)
    lost = 1 - with_sink(row, sink).sum()
    assert lost <= np.exp(sink - row.min()) / len(row) * (1 + 1e-9) + 1e-12


@pytest.mark.result("thm-ch09-gate")
@given(ROW.filter(lambda row: len(row) > 1), SINK, SEED)
def test_a_sink_joins_merged_splits_once(row, sink, seed):
    draw = np.random.default_rng(seed)
    cut = draw.integers(1, len(row))
    values = draw.normal(size=(len(row), 3))
    states = []
    for z, v in ((row[:cut], values[:cut]), (row[cut:], values[cut:])):
        m = z.max()
        states.append((m, np.exp(z - m).sum(), np.exp(z - m) @ v))
    m = max(state[0] for state in states)
    l = sum(np.exp(state[0] - m) * state[1] for state in states)
    r = sum(np.exp(state[0] - m) * state[2] for state in states)
    once = sigmoid(m + np.log(l) - sink) * r / l
    np.testing.assert_allclose(once, with_sink(row, sink) @ values, rtol=1e-9, atol=1e-12)


MAPS = {
    "exp": np.exp,
    "sigmoid": sigmoid,
    "sigmoid, −log 500": lambda z: sigmoid(z - np.log(500)),
    "softplus": lambda z: np.logaddexp(0, z),
    "square": lambda z: 1 + z**2 * (z > 0),
}


@pytest.mark.result("prop-ch09-fixed")
@pytest.mark.parametrize("name", MAPS)
@given(st.integers(2, 60), st.floats(-6, 3), st.floats(0.01, 6), SEED)
def test_shares_of_a_positive_map_are_below_its_contrast_and_a_leader_attains_it(name, n, low, spread, seed):
    f = MAPS[name]
    contrast = f(low + spread) / f(low)
    bound = contrast / (contrast + n - 1)
    for row in np.random.default_rng(seed).uniform(low, low + spread, (20, n)):
        assert f(row).max() / f(row).sum() <= bound * (1 + 1e-12)
    leader = f(np.where(np.arange(n) == 0, low + spread, low))
    assert leader[0] / leader.sum() == pytest.approx(bound, rel=1e-12)


@pytest.mark.result("prop-ch09-fixed")
@given(st.floats(-20, 20), st.floats(-20, 20), st.floats(0, 20))
def test_no_bias_gives_a_sigmoid_more_contrast_than_the_exponential(level, bias, gap):
    assert sigmoid(level + gap + bias) <= np.exp(gap) * sigmoid(level + bias) * (1 + 1e-9) + 1e-15


RECTIFIED = {"relu": lambda z: np.maximum(z, 0), "rectified exp": lambda z: np.maximum(np.expm1(z), 0)}


@pytest.mark.result("prop-ch09-fixed")
@pytest.mark.parametrize("name", [*MAPS, *RECTIFIED])
def test_the_share_of_the_top_of_a_uniform_crowd_falls_like_one_over_n(name):
    f = (MAPS | RECTIFIED)[name]
    low, high, n = -3.0, 2.0, 300_000
    grid = np.linspace(low, high, 20_001)
    values = f(grid)
    integral = ((values[1:] + values[:-1]) / 2).sum() * (grid[1] - grid[0])
    row = np.random.default_rng(11).uniform(low, high, n)
    # The mean of f over n items is off by a fraction of about 1/√n.
    assert n * f(row).max() / f(row).sum() == pytest.approx(f(np.array(high)) * (high - low) / integral, rel=0.02)


@pytest.mark.result("prop-ch09-fixed")
@pytest.mark.parametrize("name", RECTIFIED)
@given(st.integers(2, 10_000), st.floats(0.01, 5), SEED)
def test_a_rectified_map_gives_a_needle_over_hidden_competitors_everything(name, n, height, seed):
    crowd = -np.random.default_rng(seed).exponential(size=n - 1)
    values = RECTIFIED[name](np.r_[height, crowd])
    assert values[0] / values.sum() == 1.0

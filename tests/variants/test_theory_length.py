"""What chapter 09 states about scales that grow with n: needles have a threshold without n, crowds ask for n itself."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

SCALE = st.floats(0.02, 5.0)
GAP = st.floats(0.05, 30.0)


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def log_odds(log_n, scale, levels, offset=0.0):
    """Log odds of a needle against n^a competitors at each gap, from sums of exponentials in logarithms."""
    terms = [a * log_n - (scale * log_n + offset) * g for g, a in levels]
    return -np.logaddexp.reduce(terms)


@pytest.mark.result("thm-ch09-needle")
@given(SCALE, GAP)
def test_a_needle_under_a_log_scale_tends_to_one_a_half_or_nothing(scale, gap):
    for n in (2, 7, 300):  # the closed form, on rows that can be made
        row = np.log(n) * scale * gap * (np.arange(n) == 0)
        assert softmax(row)[0] == pytest.approx(1 / (1 + (n - 1) * n ** (-scale * gap)), rel=1e-9)
    product = scale * gap
    odds = log_odds(np.array([1e3, 1e4]), scale, [(gap, 1.0)])  # at n = e^1,000 and e^10,000
    assert odds == pytest.approx((product - 1) * np.array([1e3, 1e4]), abs=1e-6)
    assert (np.sign(odds) == np.sign(product - 1)).all() or abs(product - 1) < 1e-9


@pytest.mark.result("thm-ch09-needle")
@given(GAP, st.floats(-3.0, 3.0))
def test_on_the_line_an_offset_decides_and_off_it_an_offset_does_not(gap, offset):
    far = 1e6
    assert log_odds(far, 1 / gap, [(gap, 1.0)], offset) == pytest.approx(offset * gap, abs=1e-6)
    assert log_odds(far, 1.01 / gap, [(gap, 1.0)], offset) > 100
    assert log_odds(far, 0.99 / gap, [(gap, 1.0)], offset) < -100


@pytest.mark.result("thm-ch09-needle")
@given(st.integers(2, 60), SCALE, GAP, st.integers(0, 2**32 - 1))
def test_no_lower_crowd_takes_more_than_one_at_the_gap(n, scale, gap, seed):
    crowd = -gap * (1 + np.random.default_rng(seed).exponential(size=n - 1))
    row = scale * np.log(n) * np.r_[0.0, crowd]
    assert softmax(row)[0] >= 1 / (1 + (n - 1) * n ** (-scale * gap)) * (1 - 1e-12)


LEVELS = st.lists(st.tuples(GAP, st.floats(0.0, 1.0)), min_size=1, max_size=4)


@pytest.mark.result("cor-ch09-levels")
@given(LEVELS)
def test_the_level_with_the_largest_exponent_over_gap_decides(levels):
    critical = max(a / g for g, a in levels)
    nearest = min(g for g, _ in levels)
    far = 1e4 / (0.01 * max(critical * nearest, 1e-3))  # so that one per cent of the scale is 1e4 nats at the nearest
    if critical > 1e-3:
        decided = max(levels, key=lambda level: level[1] / level[0])[0]
        assert log_odds(far, 1.01 * critical, levels) > 0.009 * critical * nearest * far
        assert log_odds(far, 0.99 * critical, levels) < -0.009 * critical * decided * far


def crowd_sums(below, rate, count, rows, seed):
    """Σ e^(−β(M − x)) over `count` competitors uniform below the top, for many rows; `rate` is β and `below` is M."""
    rest = below * np.random.default_rng(seed).uniform(size=(rows, count))
    return np.exp(-rate * (below - rest)).sum(-1)


@pytest.mark.result("thm-ch09-crowd")
@pytest.mark.parametrize(("top", "beta", "n"), [(0.8, 0.5, 5), (3.9, 2.0, 60), (40.0, 0.7, 500), (1.0, 300.0, 200)])
def test_the_mean_of_the_inverse_odds_is_the_closed_form(top, beta, n):
    sums = crowd_sums(top, beta, n - 1, 20_000, n)
    exact = (n - 1) * -np.expm1(-beta * top) / (beta * top)
    assert abs(sums.mean() - exact) < 5 * sums.std() / np.sqrt(len(sums))
    weights = 1 / (1 + sums)
    assert weights.mean() >= beta * top / (beta * top + n - 1)  # Jensen, far from the error of the mean


@pytest.mark.result("thm-ch09-crowd")
def test_uniform_crowds_are_lost_under_log_n_held_under_n_and_won_beyond():
    draw = np.random.default_rng(3)

    def mean_top(n, beta):
        # Near the top, gaps of n uniform numbers are partial sums of exponentials over n; β makes the rest vanish.
        arrivals = np.cumsum(draw.exponential(size=(1_000, min(n, 2_000))), -1)
        return (1 / (1 + np.exp(-beta * arrivals / n).sum(-1))).mean()

    sizes = np.array([2**6, 2**9, 2**12])
    logarithm = [mean_top(n, 5 * np.log(n)) for n in sizes]
    linear = [mean_top(n, 1.0 * n) for n in sizes]
    beyond = [mean_top(n, float(n) ** 1.5) for n in sizes]
    assert logarithm[0] > 4 * logarithm[1] > 16 * logarithm[2]
    assert np.ptp(linear) < 0.05 and 0.5 < linear[0] < 0.7
    assert np.all(np.diff(beyond) > 0) and beyond[-1] > 0.98


@pytest.mark.result("thm-ch09-crowd")
@pytest.mark.parametrize("n", [100, 10_000])
def test_the_top_weight_is_at_most_e_over_the_count_within_a_nat(n):
    draw = np.random.default_rng(n)
    rows = 40 * draw.uniform(size=(200, n))
    tempered = 3.0 * rows
    near = (tempered > tempered.max(-1, keepdims=True) - 1).sum(-1)
    assert (softmax(tempered).max(-1) <= np.e / near * (1 + 1e-12)).all()

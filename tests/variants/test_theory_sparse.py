"""What chapter 09 states about sparse maps: the threshold by sorting, needles they keep, supports that grow."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

ROW = arrays(float, st.integers(1, 30), elements=st.floats(-6, 6).map(lambda x: round(x, 2)))  # ties are common
ALPHA = st.sampled_from([1.2, 1.5, 1.75, 2.0])


def threshold(logits, alpha):
    """τ with Σ [(α − 1)(z − τ)]₊^(1/(α−1)) = 1, by bisection among the logits that can matter."""
    high = logits.max()
    logits = logits[logits >= high - 1 / (alpha - 1)]
    low = high - 1 / (alpha - 1)
    for _ in range(70):
        middle = (low + high) / 2
        if (np.maximum((alpha - 1) * (logits - middle), 0) ** (1 / (alpha - 1))).sum() > 1:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def entmax(logits, alpha):
    return np.maximum((alpha - 1) * (logits - threshold(logits, alpha)), 0) ** (1 / (alpha - 1))


@pytest.mark.result("thm-ch09-entmax")
@given(ROW)
def test_the_count_by_sorting_is_the_support_and_gives_the_threshold(row):
    u = np.sort(row / 2)[::-1]
    count = sum(((u[:j] - u[j]) ** 2).sum() < 1 - 1e-12 for j in range(len(u)))
    mean = u[:count].mean()
    tau = mean - np.sqrt(max(1 - ((u[:count] - mean) ** 2).sum(), 0) / count)
    # At an edge of the support an item has weight 0 to rounding whether it is counted or not.
    np.testing.assert_allclose(np.maximum(row / 2 - tau, 0) ** 2, entmax(row, 1.5), atol=1e-6)
    assert (row[entmax(row, 1.5) > 0] > row.max() - 2).all()


@pytest.mark.result("thm-ch09-entmax")
@given(ROW, st.integers(0, 2**32 - 1))
def test_no_other_weights_have_more_reward_plus_tsallis_entropy(row, seed):
    def objective(p):
        return p @ row + 4 / 3 * (p - p**1.5).sum(-1)

    draw, best = np.random.default_rng(seed), entmax(row, 1.5)
    others = np.concatenate([draw.dirichlet(np.full(len(row), c), 40) for c in (0.05, 1.0, 20.0)])
    for near in (1.0, 0.1, 1e-3):  # also close to the map's own weights, where the objective is flat
        assert (objective(best + near * (others - best)) <= objective(best) + 1e-9).all()


@pytest.mark.result("thm-ch09-entmax")
@given(ROW.filter(lambda row: len(row) > 1), st.integers(0, 2**32 - 1))
def test_the_derivative_is_that_of_the_roots_and_vanishes_outside_the_support(row, seed):
    direction = np.random.default_rng(seed).normal(size=row.shape)
    q = np.sqrt(entmax(row, 1.5))
    exact = q * (direction - (q @ direction) / q.sum())
    ahead, behind = (entmax(row + h * direction, 1.5) for h in (1e-5, -1e-5))
    # The map is once differentiable: at an edge the difference quotient is off by the order of its step.
    np.testing.assert_allclose((ahead - behind) / 2e-5, exact, atol=2e-4)
    assert (exact[q == 0] == 0).all()


@pytest.mark.result("thm-ch09-sparse")
@given(ALPHA, st.floats(0.05, 1.0))
def test_a_needle_keeps_a_weight_that_its_gap_alone_decides(alpha, share):
    gap = share / (alpha - 1)

    def needle(n):
        """Its weight over n − 1 equal logits: the bisection with the crowd counted, not made."""
        low, high = -1 / (alpha - 1), gap
        power = 1 / (alpha - 1)
        for _ in range(200):
            middle = (low + high) / 2
            total = ((alpha - 1) * (gap - middle)) ** power + (n - 1) * ((alpha - 1) * max(-middle, 0)) ** power
            low, high = (middle, high) if total > 1 else (low, middle)
        return ((alpha - 1) * (gap - low)) ** power

    assert needle(40) == pytest.approx(entmax(np.r_[gap, np.zeros(39)], alpha)[0], abs=1e-9)
    limit = share ** (1 / (alpha - 1))
    weights = [needle(n) for n in (10, 1e4, 1e30)]
    assert weights[0] >= weights[1] >= weights[2] >= limit - 1e-9
    assert weights[2] == pytest.approx(limit, abs=1e-4)
    assert entmax(np.r_[gap / share * 1.001, np.zeros(200)], alpha)[0] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.result("thm-ch09-sparse")
@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
def test_on_uniform_priorities_the_top_weight_and_the_support_go_like_powers_of_n(alpha):
    draw, spread = np.random.default_rng(7), 20.0
    ratios = []
    for n, rows in ((5_000, 60), (200_000, 16)):
        weights = [entmax(spread * draw.uniform(size=n), alpha) for _ in range(rows)]
        top = np.mean([p.max() for p in weights]) / (alpha * spread / n) ** (1 / alpha)
        count = np.mean([(p > 0).sum() for p in weights])
        count /= (n / spread) ** (1 / alpha) * alpha ** ((alpha - 1) / alpha) / (alpha - 1)
        ratios.append((top, count))
    # Both tend to 1; what is missing falls with n, as the fluctuations of the count in a shrinking window do.
    assert np.abs(np.array(ratios[1]) - 1).max() < 0.05
    assert np.abs(np.array(ratios[0]) - 1).max() < 0.2

"""fit_inverse_temperature: best beta of each row, the kinds of rows, the fit, and what it refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from row_oracle import oracle

from adatemp import AttentionStats, fit_inverse_temperature
from adatemp.temperature import RowStatistics


def best_beta(z, target):
    """argmax over beta >= 1 of the target's probability, by golden section on its logarithm in log beta."""

    def log_probability(b):
        return np.exp(b) * (z[target] - z.max()) - np.log(np.exp(np.exp(b) * (z - z.max())).sum())

    low, high, ratio = 0.0, 12.0, (5**0.5 - 1) / 2
    for _ in range(80):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, b) if log_probability(a) > log_probability(b) else (a, high)
    return np.exp(low)


def head(rows=300, n=64, seed=0):
    """Logits of rows that disperse more the larger their temperature, targets among the six largest."""
    rng = np.random.default_rng(seed)
    z = (rng.normal(size=(rows, n)) * rng.uniform(1.0, 5.0, size=(rows, 1))).astype(np.float32)
    rank = rng.integers(0, 6, size=rows)
    return z, np.argsort(-z, -1)[np.arange(rows), rank], rank


Z, TARGET, RANK = head()


@pytest.fixture(scope="module")
def fit():
    return fit_inverse_temperature(Z, TARGET, degree=3, allow_non_monotone=True)


def test_each_misordered_row_gets_the_beta_that_makes_its_target_likeliest(fit):
    wrong = RANK > 0
    want = [best_beta(z.astype(np.float64), t) for z, t in zip(Z[wrong], TARGET[wrong])]
    # The section finds a maximum, so it knows its place to the square root of float64's precision, at the flattest.
    np.testing.assert_allclose(fit.beta, want, rtol=1e-4)
    np.testing.assert_allclose(fit.entropy, oracle(Z[wrong]).entropy, atol=1e-5)


def test_rows_are_counted_by_kind():
    z = np.float32(
        [
            [3, 1, 0, 0, 0, 0],  # target on top
            [3, 3, 0, 0, 0, 0],  # tied for the top: still no finite best beta
            [3, 2.9, 0, 0, 0, 0],  # just below the top and above E_1[e] = 2.75
            [3, 2.0, 0, 0, 0, 0],  # above the mean 0.83, below E_1[e] = 2.27
            [3, 0.5, 0, 0, 0, 0],  # below the mean 0.58
            [2, 1.9, 0, 0, 0, 0],
        ]
    )
    fit = fit_inverse_temperature(z, np.ones(6, int) - np.eye(6, dtype=int)[0], degree=1, allow_non_monotone=True)
    assert (fit.on_top, fit.sharper, fit.blunter, fit.inverted) == (2, 2, 1, 1)
    np.testing.assert_array_equal(fit.beta[[1, 2]], 1)  # the best a rule that never blunts may do
    assert np.all(fit.beta[[0, 3]] > 1)


def test_the_rule_is_the_least_squares_polynomial(fit):
    want = np.polyfit(fit.entropy, fit.beta, 3)
    inside = np.linspace(*fit.rule.range, 50)
    got = np.asarray(fit.rule.beta(RowStatistics(entropy=inside.astype(np.float32))))
    np.testing.assert_allclose(got, np.maximum(1, np.polyval(want, inside)), rtol=2e-5)
    assert fit.rms == pytest.approx(np.sqrt(np.mean((fit.beta - np.polyval(want, fit.entropy)) ** 2)), rel=1e-9)


def test_points_on_a_polynomial_are_fitted_exactly_at_a_high_degree():
    # Degree 12 in powers of the entropy would lose all digits of float32; in Chebyshev form it is nothing special.
    fit = fit_inverse_temperature(Z, TARGET, degree=12, allow_non_monotone=True)
    lower = fit_inverse_temperature(Z, TARGET, degree=11, allow_non_monotone=True)
    assert fit.rms <= lower.rms
    centred = (fit.entropy - fit.rule.centre) / fit.rule.scale
    exact = np.polynomial.Chebyshev.fit(fit.entropy, fit.beta, 12)(fit.entropy)
    np.testing.assert_allclose(np.polyval(fit.rule.coefficients, centred), exact, rtol=1e-8)


def test_outside_the_fitted_range_the_rule_holds_its_ends(fit):
    low, high = fit.rule.range
    assert (low, high) == (fit.entropy.min(), fit.entropy.max())

    def at(h):
        return float(fit.rule.beta(RowStatistics(entropy=np.float32(h))))

    assert at(low / 2) == at(np.nextafter(np.float32(low), np.float32(0)))
    assert at(high + 5) == at(np.nextafter(np.float32(high), np.float32(99)))
    flat = jnp.full(3, 8.5)
    assert AttentionStats(flat, flat, flat, flat, fit.rule.range).report().above == 3


def test_a_map_that_falls_is_refused_unless_it_is_allowed():
    # beta* that first rises and then falls with the entropy: spreads are paired with ranks so.
    rng = np.random.default_rng(0)
    z = (rng.normal(size=(300, 64)) * np.linspace(1, 6, 300)[:, None]).astype(np.float32)
    target = np.argsort(-z, -1)[np.arange(300), np.where(np.arange(300) < 150, 6, 1)]
    with pytest.raises(ValueError, match=r"not monotone: beta falls from .* nats to .* allow_non_monotone=True"):
        fit_inverse_temperature(z, target, degree=4)
    assert fit_inverse_temperature(z, target, degree=4, allow_non_monotone=True).sharper > 0


def test_the_order_of_the_rows_changes_nothing(fit):
    order = np.random.default_rng(1).permutation(len(Z))
    shuffled = fit_inverse_temperature(Z[order], TARGET[order], degree=3, allow_non_monotone=True)
    np.testing.assert_allclose(shuffled.rule.coefficients, fit.rule.coefficients, rtol=1e-9)


def test_a_map_that_dips_under_its_floor_is_held_at_one_and_says_how_often():
    # Rows of low entropy are better blunted and those of high entropy sharpened: a line starts below 1.
    gaps = np.linspace(0.3, 3, 40, dtype=np.float32)
    z = np.stack([0 * gaps, -gaps, -2 * gaps, -2 * gaps, -2 * gaps], -1)
    target = np.where(gaps > 1.5, 2, 1)
    fit = fit_inverse_temperature(z, target, degree=1, allow_non_monotone=True)
    line = np.polyfit(fit.entropy, fit.beta, 1)
    under = np.polyval(line, fit.entropy) < 1
    assert 0 < under.mean() < 1 and fit.floored == pytest.approx(under.mean())
    assert f"below 1 and held there in {under.mean():.0%}" in str(fit)
    got = fit.rule.beta(RowStatistics(entropy=fit.entropy[under].astype(np.float32)))
    np.testing.assert_array_equal(got, 1)


def test_it_refuses_rows_that_no_temperature_helps():
    z = np.float32([[3, 0.5, 0, 0, 0], [2, 0.3, 0, 0, 0], [4, 0.6, 0, 0, 0]])
    with pytest.raises(ValueError, match="none of the 3 misordered rows is better sharpened"):
        fit_inverse_temperature(z, np.ones(3, int), degree=1)


def test_a_rising_map_is_returned_without_asking():
    z, target, _ = head(seed=3)
    fit = fit_inverse_temperature(z, target, degree=1)
    assert fit.rule.coefficients[0] > 0


def test_masked_keys_are_no_part_of_the_row(fit):
    wide = np.concatenate([Z, np.full((len(Z), 3), np.float32(50.0))], -1)
    keep = np.arange(67) < 64
    masked = fit_inverse_temperature(wide, TARGET, degree=3, where=keep, allow_non_monotone=True)
    np.testing.assert_allclose(masked.beta, fit.beta, rtol=1e-4)
    np.testing.assert_allclose(masked.entropy, fit.entropy, atol=1e-5)
    infinite = np.where(keep, wide, np.float32(-np.inf))
    np.testing.assert_allclose(
        fit_inverse_temperature(infinite, TARGET, degree=3, allow_non_monotone=True).rule.coefficients,
        masked.rule.coefficients,
        rtol=1e-6,
    )


def test_rows_may_have_several_axes(fit):
    shaped = fit_inverse_temperature(Z.reshape(3, 100, 64), TARGET.reshape(3, 100), degree=3, allow_non_monotone=True)
    np.testing.assert_array_equal(shaped.beta, fit.beta)


def test_it_prints_what_it_used(fit):
    wrong = int((RANK > 0).sum())
    assert f"degree 3 on {wrong} misordered rows of 300" in str(fit)
    assert f"infinite in {300 - wrong} (target on top, not fitted)" in str(fit)


SPOILED = Z.copy()
SPOILED[4, 5] = np.nan


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "named"),
    [
        ((Z, Z.argmax(-1)), {}, ValueError, "in all 300 rows, so sharper is always better"),
        ((Z, TARGET), {"degree": 0}, ValueError, r"degree must be at least 1.*constant\(beta=\.\.\.\)"),
        ((Z, TARGET), {"degree": 2.5}, TypeError, "degree must be an integer, got 2.5"),
        ((Z, TARGET.astype(float)), {}, TypeError, "target must be integer indices of keys, got float64"),
        ((Z, TARGET[:-1]), {}, ValueError, r"target must have one index a row, shape \(300,\), got \(299,\)"),
        ((Z, TARGET + 64), {}, ValueError, "target must be from 0 to 63, got"),
        ((Z, TARGET - 64), {}, ValueError, "target must be from 0 to 63, got"),
        ((Z[:0], TARGET[:0]), {}, ValueError, "no rows to fit"),
        ((SPOILED, TARGET), {}, ValueError, "logits hold NaN in 1 rows"),
        ((Z, np.zeros(300, int)), {"where": np.arange(64) > 0}, ValueError, "target is a masked key .* in 300 rows"),
        ((Z.astype(int), TARGET), {}, TypeError, "logits must have one of the dtypes"),
        ((Z, TARGET), {"where": np.ones(3, bool)}, ValueError, "where of shape"),
    ],
)
def test_it_refuses_what_cannot_be_fitted(arguments, keywords, error, named):
    with pytest.raises(error, match=named):
        fit_inverse_temperature(*arguments, **keywords)


def test_it_refuses_more_degree_than_the_rows_determine():
    few = np.resize(np.flatnonzero(RANK > 0)[:3], 300)
    with pytest.raises(ValueError, match=r"degree 4 needs at least 5 misordered rows of different entropy, got 3"):
        fit_inverse_temperature(Z[few], TARGET[few])


def test_it_refuses_traced_logits():
    with pytest.raises(TypeError, match="call fit_inverse_temperature outside jit"):
        jax.jit(lambda z: fit_inverse_temperature(z, TARGET).rms)(Z)

"""Against the published listing: equal where it is right, different where it is wrong, and that each is so."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from row_oracle import away_from_kinks, listing, oracle

from adatemp import PAPER, PAPER_HELD, adaptive_temperature_softmax
from adatemp._compat import enable_x64
from adatemp.temperature import PAPER_COEFFICIENTS, RowStatistics


def beta(rule, entropy):
    return float(jax.jit(lambda h: rule.beta(RowStatistics(entropy=h)))(np.float32(entropy)))


@pytest.mark.parametrize(
    ("entropy", "expected"), [(1.0, 1.27), (4.4124, 2.4214), (0.5, 1.0), (6.0, 1.0), (0.0, 1.0), (2.0, 2.099)]
)
def test_the_published_map_has_the_published_values(entropy, expected):
    # 1.27 is the sum of the coefficients, and says nothing about their order; 2.099 at 2 does.
    assert beta(PAPER, entropy) == pytest.approx(expected, abs=1e-4)


def test_the_coefficients_are_highest_power_first():
    assert beta(PAPER, 2.0) == pytest.approx(np.polyval(PAPER_COEFFICIENTS, 2.0), rel=1e-6)


def test_the_map_acts_between_its_two_roots_and_the_held_one_goes_on():
    np.testing.assert_allclose(PAPER.range, (0.848582, 5.944521), atol=1e-6)
    np.testing.assert_allclose(PAPER_HELD.range, (0.848582, 4.412402), atol=1e-6)
    for entropy in (0.84, 5.95, 11.78):
        assert beta(PAPER, entropy) == 1
    for entropy in (4.42, 5.95, 11.78):
        assert beta(PAPER_HELD, entropy) == pytest.approx(2.4214, abs=1e-4)


def various_rows(dtype):
    rng = np.random.default_rng(3)
    for n in (16, 1024):
        yield np.concatenate([rng.normal(size=(8, n)) * scale for scale in (0.2, 1.0, 3.0)]).astype(dtype)


def test_in_float64_beta_is_the_listings_up_to_its_epsilon():
    compared = 0
    with enable_x64(True):
        for z in various_rows(np.float64):
            weights, stats = jax.device_get(adaptive_temperature_softmax(z, return_stats=True))
            want_weights, _, want_beta = jax.device_get(jax.jit(listing)(z))
            for row in range(len(z)):
                if away_from_kinks(stats.entropy[row], 1e-5):
                    compared += 1
                    # The epsilon lowers the entropy by up to n * 1e-9, and the map's slope is below 3.
                    tolerance = 1e-6 + 3 * z.shape[-1] * 1e-9
                    assert abs(stats.beta[row] - want_beta[row]) <= tolerance
                    np.testing.assert_allclose(weights[row], want_weights[row], atol=20 * tolerance)
    assert compared >= 40


def test_in_float32_beta_is_the_listings_up_to_rounding_too():
    for z in various_rows(np.float32):
        _, stats = adaptive_temperature_softmax(z, return_stats=True)
        _, _, want = jax.jit(listing)(z)
        # Both evaluate a quartic whose terms reach 100 and cancel to about 2: some tens of float32 units of 100.
        np.testing.assert_allclose(stats.beta, want, atol=1e-6 + 3 * z.shape[-1] * 1e-9 + 1e-4)


def gradient(f, z):
    return np.asarray(jax.jit(jax.grad(lambda z: jnp.sum(f(z).astype(jnp.float32) ** 2)))(z), np.float32)


def test_in_float16_the_listing_loses_its_entropy_and_its_gradient_and_ours_does_not():
    # Probabilities below 6e-8 round to 0 in float16, and so does the 1e-9 that should have kept their logarithm finite.
    z = jnp.asarray(np.r_[np.linspace(0, 1, 60), -20.0], jnp.float16)
    _, entropy, listed_beta = jax.jit(listing)(z)
    assert np.isnan(entropy)
    assert listed_beta == 1  # NaN > 0.5 is false: forward, the failure is silent
    assert np.all(np.isnan(gradient(lambda z: listing(z)[0], z)))

    weights, stats = adaptive_temperature_softmax(z, return_stats=True)
    want = oracle(np.asarray(z, np.float64))
    assert want.beta > 2
    assert stats.beta == pytest.approx(want.beta, abs=1e-4)
    np.testing.assert_allclose(np.asarray(weights, np.float64), want.weights, rtol=1e-3, atol=6e-8)
    in_float32 = gradient(adaptive_temperature_softmax, z.astype(jnp.float32))
    # Two roundings to float16, of the weights and of the gradient.
    np.testing.assert_allclose(
        gradient(adaptive_temperature_softmax, z), in_float32, atol=2**-10 * abs(in_float32).max()
    )


def test_with_an_infinite_mask_the_listing_loses_its_gradient_and_ours_does_not():
    z = jnp.array([1.0, 0.5, -1.0, 0.2, -jnp.inf, -jnp.inf])
    np.testing.assert_allclose(jax.jit(listing)(z)[0], adaptive_temperature_softmax(z), atol=1e-6)
    assert np.all(np.isnan(gradient(lambda z: listing(z)[0], z)))  # d beta takes 0 times -inf

    ours = gradient(adaptive_temperature_softmax, z)
    np.testing.assert_allclose(ours[:4], gradient(adaptive_temperature_softmax, z[:4]), atol=1e-7)
    assert np.all(ours[4:] == 0)
    # A finite mask value is the listing's own cure, and an oracle for the infinite one.
    cured = gradient(lambda z: listing(z)[0], jnp.where(jnp.isinf(z), -1e9, z))
    np.testing.assert_allclose(ours, cured, atol=1e-6)


def test_a_fully_masked_row_is_nan_in_the_listing_and_zero_in_ours():
    z = jnp.full(4, -jnp.inf)
    assert np.all(np.isnan(jax.jit(listing)(z)[0]))
    assert adaptive_temperature_softmax(z).tolist() == [0, 0, 0, 0]
    assert gradient(adaptive_temperature_softmax, z).tolist() == [0, 0, 0, 0]

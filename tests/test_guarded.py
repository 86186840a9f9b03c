"""The guarded rule: what it holds fixed, whom it leaves alone, and what its constructor refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import adaptive_temperature_softmax, exp_offset, guarded
from adatemp._compat import enable_x64
from adatemp.tasks import poisson_limit
from adatemp.temperature import RowStatistics


def beta(rule, entropy, count):
    stats = RowStatistics(entropy=jnp.float32(entropy), count=jnp.int32(count))
    return np.asarray(jax.jit(lambda rule, stats: rule.beta(stats))(rule, stats))


def test_beta_is_the_number_of_keys_beside_one_over_that_of_the_line():
    entropy, count = np.array([0.1, 0.5, 1.0, 3.0]), np.array([4, 16, 64, 256])
    held = 0.2 + 0.1 * np.log(count)
    want = np.maximum(1, (np.exp(entropy) - 1) / (np.exp(held) - 1))
    np.testing.assert_allclose(beta(guarded(0.2, 0.1), entropy, count), want, rtol=1e-5)
    limited = beta(guarded(0.2, 0.1, beta_max=3.0), entropy, count)
    np.testing.assert_allclose(limited, np.minimum(want, 3), rtol=1e-5)


def test_it_gives_the_sharpness_of_training_back_within_the_ratio_of_the_two_constants():
    # Logits linear in uniform priorities: only r = n / S matters, and beta divides it. From the entropy at the training
    # ratio the rule must find r / r0, up to (pi^2 / 6) / e = 0.605 and on the sharper side.
    ratio = np.array([0.05, 0.1, 0.3, 1.0, 10.0, 100.0])
    entropy = poisson_limit.entropy(ratio, sets=4_000)
    got = beta(guarded(entropy[1]), entropy, np.full(6, 1_000))
    relative = got / (ratio / ratio[1])
    assert relative[0] == pytest.approx(2) and got[0] == 1  # below the training ratio: left alone
    assert np.all((relative[1:] > 0.97) & (relative[1:] < np.e / (np.pi**2 / 6) * 1.03))
    assert np.all(np.diff(relative[1:]) > -0.02)


def test_the_two_constants_are_those_of_sparse_and_of_dense_rows():
    # exp(H) - 1 over r: pi^2 / 6 from the one nearest rival, e from evenly spread logits.
    sparse, dense = np.exp(poisson_limit.entropy([0.01, 200.0], sets=40_000)) - 1
    assert sparse / 0.01 == pytest.approx(np.pi**2 / 6, rel=0.06)  # 400 sets of 40,000 have a rival in reach
    assert dense / 200 == pytest.approx(np.e, rel=0.02)


def test_exp_offset_is_the_same_for_dispersed_rows_and_too_weak_by_the_sharpness_of_training():
    h, dispersed = 0.1, np.array([6.0, 8.0])
    strong, weak = beta(guarded(h), dispersed, [4096, 4096]), beta(exp_offset(h), dispersed, [4096, 4096])
    np.testing.assert_allclose(strong / weak, np.exp(h) / (np.exp(h) - 1), rtol=3e-3)


def test_with_slope_one_a_head_whose_entropy_grows_like_log_n_is_left_alone():
    count = np.array([16, 256, 4096, 131_072])
    np.testing.assert_array_equal(beta(guarded(-0.1, 1.0), np.log(count) - 0.1001, count), 1)
    np.testing.assert_array_equal(beta(guarded(-0.1, 1.0), np.log(count) - 2, count), 1)
    assert np.all(beta(guarded(-0.1), np.log(count) - 0.1, count)[1:] > 100)  # without it, it is not


def test_rows_of_one_and_of_no_key_have_beta_one():
    for slope in (0.0, 1.0):
        np.testing.assert_array_equal(beta(guarded(-3.0, slope), [0.0, 0.0], [1, 0]), 1)
    z = jnp.stack([jnp.full(8, -jnp.inf), jnp.where(jnp.arange(8) == 2, 5.0, -jnp.inf)])
    weights, stats = adaptive_temperature_softmax(z, temperature=guarded(0.1), return_stats=True)
    np.testing.assert_array_equal(stats.beta, 1)
    np.testing.assert_array_equal(weights, [np.zeros(8), np.eye(8)[2]])


def test_a_head_sharper_than_a_hundredth_of_a_nat_is_held_at_that():
    np.testing.assert_array_equal(beta(guarded(-5.0), [1.0, 2.0], [9, 9]), beta(guarded(0.01), [1.0, 2.0], [9, 9]))


def test_a_parameter_a_head_acts_on_that_head():
    entropy, count = np.full((2, 3, 2), 2.0), np.full((2, 3, 2), 20)
    got = beta(guarded(np.array([0.1, -0.5]), np.array([0.0, 1.0])), entropy, count)
    np.testing.assert_allclose(got[..., 0], np.expm1(2) / np.expm1(0.1), rtol=1e-5)
    np.testing.assert_array_equal(got[..., 1], 1)


def test_gradients_are_those_of_finite_differences():
    with enable_x64(True):
        rng = np.random.default_rng(0)
        z, w, d = (jnp.asarray(x) for x in rng.normal(size=(3, 30)))

        def f(z, level, slope):
            return jnp.sum(w * adaptive_temperature_softmax(3 * z, temperature=guarded(level, slope)))

        got = jax.grad(f, (0, 1, 2))(z, 0.3, 0.1)
        along = (f(z + 1e-6 * d, 0.3, 0.1) - f(z - 1e-6 * d, 0.3, 0.1)) / 2e-6
        assert float(got[0] @ d) == pytest.approx(float(along), rel=1e-6)
        assert float(got[1]) == pytest.approx(float(f(z, 0.3 + 1e-6, 0.1) - f(z, 0.3 - 1e-6, 0.1)) / 2e-6, rel=1e-6)
        assert float(got[2]) == pytest.approx(float(f(z, 0.3, 0.1 + 1e-6) - f(z, 0.3, 0.1 - 1e-6)) / 2e-6, rel=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        (lambda: guarded(np.nan), ValueError, "level must be finite"),
        (lambda: guarded(0.1, np.inf), ValueError, "slope must be finite"),
        (lambda: guarded(None), TypeError, "level must be a number"),
        (lambda: guarded(0.1, "1"), TypeError, "slope must be a number or an array of numbers, got '1'"),
        (lambda: guarded(0.1, beta_max=0.5), ValueError, "beta_max must be at least 1, got 0.5; this rule only"),
        (lambda: guarded(0.1, beta_max=[2.0]), TypeError, "beta_max chooses code"),
    ],
)
def test_it_refuses_what_cannot_be_meant(make, error, named):
    with pytest.raises(error, match=named):
        make()

"""What chapter 10 says about reading a row in blocks: what is exact, what rounding costs, what one sweep cannot do."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from row_oracle import KINKS, oracle, published_beta

import adatemp
from adatemp import RowState
from adatemp.attention.chunked import ChunkedConfig

SEED = st.integers(0, 2**32 - 1)


def head(seed, queries=6, keys=24, width=8):
    """Arrays [1, n, 1, width] of one head, its queries from flat to sharp."""
    rng = np.random.default_rng(seed)
    query, key, value = (np.float32(rng.normal(size=(1, n, 1, width))) for n in (queries, keys, keys))
    return query * np.float32(np.geomspace(0.1, 8, queries))[None, :, None, None], key, value


def logits_of(query, key):
    return np.float64(query[0, :, 0]) @ np.float64(key[0, :, 0]).T / np.sqrt(query.shape[-1])


@pytest.mark.result("prop-ch10-online")
@pytest.mark.parametrize("block_k", [1, 5, 24])
def test_the_running_average_is_attention_whatever_the_blocks(block_k):
    query, key, value = head(0)
    plain = adatemp.dot_product_attention(
        query, key, value, temperature=None, implementation="chunked", config=ChunkedConfig(4, block_k)
    )
    weights = oracle(logits_of(query, key), beta_of=lambda entropy: 1.0).weights
    # Logits up to some 20 in float32 move a weight by a few 1e-6 of itself, values are of size 3.
    np.testing.assert_allclose(plain[0, :, 0], weights @ np.float64(value[0, :, 0]), atol=1e-5)


@pytest.mark.result("prop-ch10-offset")
@settings(deadline=None)
@given(st.integers(-12_000, 12_000), SEED)
def test_an_offset_that_adds_exactly_changes_no_bit_of_the_shifted_sums(offset, seed):
    row = np.random.default_rng(seed).integers(-2_000, 2_000, 64) / 256  # exact with an offset below 2^15
    states = []
    for z in (np.float32(row), np.float32(row + offset)):
        np.testing.assert_array_equal(np.float64(z) - z[0], row - row[0])
        states.append(merged(z.reshape(4, 16)))
    plain, moved = states
    assert moved.m == plain.m + offset
    assert moved.l == plain.l and moved.s == plain.s
    assert moved.finalise().entropy == plain.finalise().entropy


@jax.jit
def merged(blocks):
    state = RowState.empty()
    for block in blocks:
        state = state.merge(RowState.from_block(block))
    return state


@pytest.mark.result("prop-ch10-offset")
@given(st.integers(8_500, 16_000), SEED)
def test_the_unshifted_entropy_is_a_multiple_of_the_spacing_at_the_offset(offset, seed):
    z = np.float32(np.random.default_rng(seed).normal(size=64) + offset)
    e = np.exp(z - z.max())
    lse = z.max() + np.log(e.sum(dtype=np.float32))
    mean = (e * z).sum(dtype=np.float32) / e.sum(dtype=np.float32)
    assert lse.dtype == mean.dtype == np.float32 and 2**13 <= min(lse, mean) and max(lse, mean) < 2**14
    assert float((lse - mean) * 2**10).is_integer()  # 2^-10 is the spacing of float32 from 2^13 to 2^14


@pytest.mark.result("prop-ch10-second")
@given(st.floats(0.01, 40.0), SEED)
def test_the_second_sweep_stays_below_one_and_gives_the_tempered_average(beta, seed):
    rng = np.random.default_rng(seed)
    z, values = np.float32(rng.normal(size=50) * 4 + 300), rng.normal(size=50)
    e = np.exp(np.float32(beta) * (z - z.max()))
    assert e.dtype == np.float32 and e.max() == 1  # for any positive beta, in floating point too
    exact = np.float64(z) - np.float64(z).max()
    weights = np.exp(beta * exact) / np.exp(beta * exact).sum()
    # A term of weight w carries a relative error of u |log w|; the sum of w |log w| is the entropy, below 4 nats.
    assert (e @ values) / e.sum(dtype=np.float64) == pytest.approx(weights @ values, abs=1e-5)


@pytest.mark.result("prop-ch10-one-pass")
@given(SEED)
def test_the_outputs_after_different_last_keys_give_the_values_away(seed):
    rng = np.random.default_rng(seed)
    z = np.cumsum(rng.uniform(0.4, 0.8, 3))
    values = rng.normal(size=3)
    last = rng.uniform(z[-1] - 3, z[-1] + 2, 3)
    rows = [np.append(z, x) for x in last]
    betas = np.array([published_beta(oracle(row).entropy) for row in rows])
    assume(np.diff(np.sort(betas)).min() > 0.02)
    outputs = np.array([oracle(row).weights[:3] @ values for row in rows])
    # Nothing but the outputs, the logits and the rule enters here.
    top = np.maximum(z[-1], last)
    weights = np.exp(betas[:, None] * (z - top[:, None]))
    normaliser = weights.sum(1) + np.exp(betas * (last - top))
    matrix = weights / normaliser[:, None]
    recovered = np.linalg.solve(matrix, outputs)
    np.testing.assert_allclose(recovered, values, atol=1e-13 * np.linalg.cond(matrix))
    assert np.linalg.matrix_rank(np.exp(np.outer(betas, z - z[-1])), tol=1e-14) == 3


@pytest.mark.result("prop-ch10-keys")
@pytest.mark.parametrize("implementation", ["dense", "chunked"])
def test_the_entropy_is_the_lse_less_the_mean_logit_read_with_keys_as_values(implementation):
    query, key, _ = head(1)
    mean_key, stats = adatemp.dot_product_attention(
        query, key, key, temperature=None, return_stats=True, implementation=implementation
    )
    by_keys = stats.lse - jnp.sum(query * mean_key, -1) / np.sqrt(8)
    # Two numbers of size 20 in float32 are subtracted.
    np.testing.assert_allclose(by_keys, stats.entropy, atol=2e-5)
    np.testing.assert_allclose(by_keys[0, :, 0], oracle(logits_of(query, key)).entropy, atol=2e-5)


def row_gradient(z, values, d_output):
    """Loss <dO, o>, and its gradient in the logits from the six numbers of chapter 11, all in float64."""
    row = oracle(z)
    m = z.max()
    log_l = row.lse - m
    log_total = row.lse_scaled - row.beta * m
    step = 1e-6
    slope = (published_beta(row.entropy + step) - published_beta(row.entropy - step)) / (2 * step)
    output = row.weights @ values
    delta = d_output @ output
    t = z - m
    a, p = np.exp(row.beta * t - log_total), np.exp(t - log_l)
    w = a * (values @ d_output - delta)
    d_beta = z @ w
    return d_output @ output, row.beta * w - slope * d_beta * p * (t - (log_l - row.entropy)), (w, d_beta)


@pytest.mark.result("prop-ch11-gradient")
@given(SEED, st.floats(0.3, 2.5))
def test_the_gradient_of_a_row_follows_from_six_numbers(seed, spread):
    rng = np.random.default_rng(seed)
    z, values, d_output = spread * rng.normal(size=12) + 50, rng.normal(size=(12, 3)), rng.normal(size=3)
    # Away from the kinks of the map, where a difference would see both sides.
    assume(min(abs(oracle(z).entropy - kink) for kink in KINKS) > 1e-3 and abs(oracle(z).entropy - 0.5) > 1e-3)
    _, found, _ = row_gradient(z, values, d_output)
    h = 1e-5
    for j in range(12):
        unit = np.eye(12)[j] * h
        up, down = (row_gradient(z + move, values, d_output)[0] for move in (unit, -unit))
        # Differences of the map's slope, 1e-6 apart, are good to 1e-9; those of the loss to 1e-9 as well.
        assert found[j] == pytest.approx((up - down) / (2 * h), abs=1e-6)


@pytest.mark.result("prop-ch11-dbeta")
@given(SEED)
def test_the_share_of_the_temperature_is_the_query_s_product_with_its_own_sum(seed):
    rng = np.random.default_rng(seed)
    query, key, values = rng.normal(size=5) * 3, rng.normal(size=(12, 5)), rng.normal(size=(12, 3))
    z = key @ query / np.sqrt(5)
    _, _, (w, d_beta) = row_gradient(z, values, rng.normal(size=3))
    assert d_beta == pytest.approx(query @ (w @ key) / np.sqrt(5), abs=1e-12)
    assert w.sum() == pytest.approx(0, abs=1e-13)  # so any offset of the logits drops out

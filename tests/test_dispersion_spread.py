"""The spread of logits: masks, −∞, NaN, half precision and axes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

from adatemp.dispersion import spread


# Multiples of 1/64 below 2¹⁴: their differences are exact in float32, and none is a subnormal, which XLA flushes to 0.
@given(arrays(np.int32, (3, 5), elements={"min_value": -(2**20), "max_value": 2**20}))
def test_spread_is_the_range_of_each_row(sixty_fourths):
    logits = np.float32(1 / 64) * sixty_fourths.astype(np.float32)
    np.testing.assert_array_equal(spread(logits), np.ptp(logits, -1))
    np.testing.assert_array_equal(spread(logits, axis=0), np.ptp(logits, 0))
    np.testing.assert_array_equal(spread(logits, axis=(0, 1)), np.ptp(logits))


def test_masked_and_infinitely_low_keys_do_not_count():
    logits = np.array([[1.0, 9.0, -np.inf, 3.0], [-5.0, np.nan, 2.0, 2.0]], np.float32)
    where = np.array([True, False, True, True])  # broadcasts over the rows, and hides the NaN
    np.testing.assert_array_equal(spread(logits, where=where), [2.0, 7.0])


def test_a_row_without_visible_keys_has_no_spread():
    logits = np.array([[-np.inf, -np.inf], [1.0, 2.0]], np.float32)
    np.testing.assert_array_equal(spread(logits), [0.0, 1.0])
    np.testing.assert_array_equal(spread(logits, where=np.zeros((2, 2), bool)), [0.0, 0.0])


def test_a_visible_nan_is_told_in_its_own_row_only():
    result = spread(np.array([[1.0, np.nan], [1.0, 4.0]], np.float32))
    np.testing.assert_array_equal(result, [np.nan, 3.0])


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_logits_give_a_float32_spread(dtype):
    result = spread(jnp.array([60_000.0, -60_000.0], dtype))
    assert result.dtype == jnp.float32
    # bfloat16 stores 60,000 as 59,904; the range would overflow float16 in either case
    assert result == 2 * float(jnp.array(60_000.0, dtype))


def test_gradient_is_one_at_the_largest_and_minus_one_at_the_smallest():
    slope = jax.grad(lambda z: spread(z, where=jnp.array([True, True, True, False])))(jnp.array([2.0, -1.0, 0.5, 7.0]))
    np.testing.assert_array_equal(slope, [1.0, -1.0, 0.0, 0.0])


def test_spread_is_traceable():
    logits = jnp.array([[1.0, 4.0, 2.0], [0.0, -1.0, -jnp.inf]])
    np.testing.assert_array_equal(jax.jit(jax.vmap(spread))(logits), [3.0, 1.0])


def test_integers_empty_axes_and_mismatched_masks_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"where must broadcast.*\(2, 3\), got shape \(2,\)"):
        spread(np.zeros((2, 3), np.float32), where=np.ones(2, bool))
    with pytest.raises(ValueError, match="axis 4 is out of bounds"):
        spread(np.zeros((2, 3), np.float32), axis=4)
    with pytest.raises(TypeError, match=r"logits must be floating point, got int32.*astype"):
        spread(np.arange(3, dtype=np.int32))
    with pytest.raises(ValueError, match=r"logits must have at least one key along axis -1, got shape \(2, 0\)"):
        spread(np.zeros((2, 0), np.float32))

"""Number formats and collisions, against every number of the small formats and against simulated pipelines."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import dispersion

FORMATS = ["float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"]


def rounded(x, dtype):
    return np.asarray(x, np.float64).astype(jnp.dtype(dtype)).astype(np.float64)


@pytest.mark.parametrize(
    ("dtype", "bits"), [("float32", 24), ("bfloat16", 8), ("float16", 11), ("float8_e4m3fn", 4), ("float8_e5m2", 3)]
)
def test_the_unit_roundoff_is_half_the_spacing_and_the_largest_relative_error(dtype, bits):
    form = dispersion.number_format(dtype)
    assert form.bits == bits and form.unit_roundoff == 2.0**-bits == form.spacing / 2
    assert rounded(1 + form.spacing, dtype) == 1 + form.spacing  # the next number
    assert rounded(1 + 0.99 * form.unit_roundoff, dtype) == 1
    assert rounded(1 + 1.01 * form.unit_roundoff, dtype) == 1 + form.spacing
    x = np.random.default_rng(0).uniform(1, 2, 20_000)
    error = np.max(np.abs(rounded(x, dtype) - x) / x)
    assert 0.8 * form.unit_roundoff < error <= form.unit_roundoff
    assert rounded(form.smallest, dtype) > 0 == rounded(form.smallest / 2, dtype)


@pytest.mark.result("thm-ch06-rounding")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_half_the_spacing_is_right_at_every_number_of_the_format(dtype):
    width = jnp.dtype(dtype).itemsize * 8
    bits = np.arange(2**width, dtype=f"uint{width}")
    numbers = bits.view(jnp.dtype(dtype))
    numbers = np.unique(numbers[jnp.isfinite(numbers)].astype(np.float64))
    gaps = np.diff(numbers)
    np.testing.assert_array_equal(2 * dispersion.half_spacing(numbers[:-1], dtype), gaps)
    np.testing.assert_array_equal(2 * dispersion.half_spacing(numbers[1:], dtype, toward=-np.inf), gaps)


def test_half_the_spacing_is_between_half_the_unit_roundoff_and_all_of_it():
    values = np.random.default_rng(0).uniform(0.01, 100, 1000)
    share = dispersion.half_spacing(values, "bfloat16") / rounded(values, "bfloat16") / 2**-8
    assert share.min() > 0.5 and share.max() <= 1.0 and share.min() < 0.51
    assert dispersion.half_spacing(1.0, "bfloat16") == 2**-8
    assert dispersion.half_spacing(1.0, "bfloat16", toward=0.0) == 2**-9


@pytest.mark.result("prop-ch06-underflow")
@pytest.mark.parametrize("dtype", FORMATS)
def test_exponentials_underflow_at_the_stated_spread(dtype):
    limit = dispersion.underflow_spread(dtype)
    assert rounded(math.exp(-limit * (1 - 1e-6)), dtype) > 0 == rounded(math.exp(-limit * (1 + 1e-6)), dtype)
    assert dispersion.underflow_spread(dtype, 2.0) == 2 * limit
    flushed = dispersion.underflow_spread(dtype, flush=True)
    assert math.exp(-flushed) == pytest.approx(dispersion.number_format(dtype).smallest_normal)


def test_the_known_underflow_spreads():
    assert dispersion.underflow_spread("float16") == pytest.approx(17.33, abs=5e-3)
    assert dispersion.underflow_spread("float32") == pytest.approx(103.97, abs=5e-3)
    assert dispersion.underflow_spread("float32", flush=True) == pytest.approx(87.34, abs=5e-3)


# Pipelines, simulated: A first with a logit δ above n − 1 Bs.


def weights(n, s):
    total = 1 + (n - 1) * math.exp(-s)
    return 1 / total, math.exp(-s) / total


def output_cast(n, s, a, b, dtype):
    alpha, _ = weights(n, s)
    return rounded(b + alpha * (a - b), dtype) == rounded(b, dtype)


def weights_cast(n, s, a, b, dtype):
    (top, other), flat = (rounded(w, dtype) for w in weights(n, s)), rounded(1 / n, dtype)
    return rounded(top * a + (n - 1) * other * b, dtype) == rounded(n * flat * b, dtype)


def running_sum(first, term, n, dtype):
    """first + term + … + term, n numbers, each sum rounded."""
    kind = jnp.dtype(dtype).type
    total, term = kind(first), kind(term)
    for _ in range(n - 1):
        after = kind(total + term)
        if after == total:
            break
        total = after
    return total


PAIRS = [(2.0, 1.0), (0.0, 1.0), (1.5, 1.25), (-1.0, 1.9), (1.0, -3.0), (0.3, 0.31)]


@pytest.mark.result("thm-ch06-rounding")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("s", [0.0, 1.0, 2.28, 5.69])
def test_with_a_cast_output_the_predicted_size_is_the_exact_threshold(dtype, s):
    for a, b in PAIRS:
        a, b = float(rounded(a, dtype)), float(rounded(b, dtype))
        size = dispersion.collision_size_output(a, b, s, dtype=dtype)
        if a == b:
            assert size == 1
            continue
        # To either side by far more than float32, through which the casts go, loses of half a gap: 2^(−24)/u.
        assert not output_cast(1 + (size - 1) * (1 - 1e-3), s, a, b, dtype)
        assert output_cast(1 + (size - 1) * (1 + 1e-3), s, a, b, dtype)


def test_the_published_order_of_magnitude_and_the_factor_around_it():
    for dtype, u in [("float8_e4m3fn", 2**-4), ("bfloat16", 2**-8), ("float16", 2**-11), ("float32", 2**-24)]:
        for s in (2.28, 5.69, 6.5):
            size = dispersion.collision_size_output(2.0, 1.0, s, dtype=dtype)
            assert size == pytest.approx(math.exp(s) / u, rel=0.07)  # e^s(1/u − 1) + 1
            assert dispersion.collision_size_output(0.0, 1.0, s, dtype=dtype) / size == pytest.approx(2, rel=0.07)


def test_a_float32_softmax_of_jax_collides_where_predicted():
    s, dtype = 2.28, jnp.bfloat16
    size = dispersion.collision_size_output(2.0, 1.0, s, dtype=dtype)

    def output(n):
        p = jax.nn.softmax(jnp.zeros(n).at[0].set(s))
        return (p @ jnp.ones(n).at[0].set(2.0)).astype(dtype)

    # A sum of 2,500 terms in float32 errs by some 1e-6 of the output, and 2^(−8)/n is lost a size: 1 in 1,000.
    assert output(int(0.99 * size)) != 1 and output(int(1.01 * size) + 1) == 1


@pytest.mark.result("prop-ch06-underflow")
def test_a_head_whose_others_underflow_never_collides():
    assert dispersion.collision_size_output(2.0, 1.0, 120.0, dtype="float32") == np.inf
    assert np.isfinite(dispersion.collision_size_output(2.0, 1.0, 95.0, dtype="float32"))
    assert dispersion.collision_size_output(2.0, 1.0, 95.0, dtype="float32", flush=True) == np.inf
    assert dispersion.collision_size_output(2.0, 1.0, 17.4, dtype="float16", exp_dtype="float16") == np.inf
    assert dispersion.collision_size_weights(2.0, 1.0, 17.4, dtype="float16") == np.inf
    assert dispersion.collision_size_int8(2.0, 1.0, 120.0, step=0.01) == np.inf


@pytest.mark.parametrize(("dtype", "s"), [("bfloat16", 0.0), ("bfloat16", 2.28), ("bfloat16", 5.0), ("float16", 0.5)])
@pytest.mark.parametrize(("a", "b"), [(2.0, 1.0), (0.0, 1.0), (1.5, 1.25), (1.0, -3.0), (1.25, 1.75)])
def test_with_cast_weights_half_of_the_sizes_near_the_prediction_collide(dtype, s, a, b):
    size = dispersion.collision_size_weights(a, b, s, dtype=dtype)

    def share(around):
        sizes = np.geomspace(around / 1.4, around * 1.4, 300).astype(int)
        return np.mean([weights_cast(n, s, a, b, dtype) for n in sizes])

    # half is reached within a factor of two; small sizes are few, and their luck is not averaged
    assert share(size / 2) < 0.4 and 0.25 < share(size) < 0.75 and share(2 * size) > 0.45
    assert share(size / 8) < 0.05 and share(16 * size) > 0.75


def test_with_subnormal_weights_the_half_is_reached_within_a_factor_of_four():
    a, b, s = 2.0, 1.0, 2.28
    size = dispersion.collision_size_weights(a, b, s, dtype="float16")
    assert size > 2**14
    for factor, low, high in [(1 / 4, 0.0, 0.2), (4, 0.5, 1.0)]:
        sizes = np.geomspace(factor * size / 1.4, factor * size * 1.4, 300).astype(int)
        assert low <= np.mean([weights_cast(n, s, a, b, "float16") for n in sizes]) <= high


def test_with_cast_weights_outputs_may_still_differ_far_beyond():
    size = dispersion.collision_size_weights(2.0, 1.0, 2.28, dtype="bfloat16")
    far = range(int(10 * size), int(11 * size))
    assert not all(weights_cast(n, 2.28, 2.0, 1.0, "bfloat16") for n in far)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("s", [0.0, 2.28, 3.5])
def test_a_running_sum_with_a_first_collides_within_a_factor_of_two_whatever_the_spread(dtype, s):
    size = dispersion.collision_size_accumulator(2.0, 1.0, s, dtype=dtype)

    def collides(n):
        top, other = weights(n, s)
        return running_sum(2.0 * top, other, n, dtype) == running_sum(1 / n, 1 / n, n, dtype)

    before, after = (np.geomspace(low * size, high * size, 40).astype(int) for low, high in [(0.3, 0.5), (2, 4)])
    assert np.mean([collides(n) for n in before]) < 0.5 < 0.8 < np.mean([collides(n) for n in after])
    n = int(8 * size)  # and both sums are wrong
    assert running_sum(1 / n, 1 / n, n, dtype) < 0.5


def test_the_order_of_summation_decides():
    s, dtype, n = 2.28, "bfloat16", 3000
    assert dispersion.collision_size_accumulator(2.0, 1.0, s, dtype=dtype, order="last") == np.inf
    kind = jnp.dtype(dtype).type
    top, other = weights(n, s)
    last = kind(running_sum(other, other, n - 1, dtype) + kind(2.0 * top))
    assert last != running_sum(1 / n, 1 / n, n, dtype)
    # e^s above 1/u: the Bs are invisible beside A, and the sum is A's share alone
    assert dispersion.collision_size_accumulator(2.0, 1.0, 6.0, dtype=dtype) == np.inf
    top, other = weights(n, 6.0)
    assert running_sum(2.0 * top, other, n, dtype) == kind(2.0 * top)


@pytest.mark.result("thm-ch06-rounding")
@pytest.mark.parametrize("s", [0.0, 2.28, 5.69])
def test_int8_steps_are_absolute_so_the_size_of_b_does_not_matter(s):
    step = 4.0 / 127
    for b in (0.0, 5 * step, 100 * step):
        a = b + 20 * step
        size = dispersion.collision_size_int8(a, b, s, step=step)
        assert size == pytest.approx(1 + math.exp(s) * 39)
        for n, same in [(1 + (size - 1) * (1 - 1e-9), False), (1 + (size - 1) * (1 + 1e-9), True)]:
            alpha, _ = weights(n, s)
            assert (np.rint((b + alpha * (a - b)) / step) == np.rint(b / step)) == same
    assert dispersion.collision_size_int8(1.001 * step, step, s, step=step) == 1


def test_arguments_out_of_range_are_named():
    with pytest.raises(TypeError, match="dtype must be floating point, got int8; integers have absolute steps"):
        dispersion.number_format("int8")
    with pytest.raises(ValueError, match="step must be positive and finite"):
        dispersion.collision_size_int8(1.0, 2.0, 1.0, step=0.0)
    with pytest.raises(ValueError, match="order must be 'first' or 'last'"):
        dispersion.collision_size_accumulator(1.0, 2.0, 1.0, dtype="bfloat16", order="random")
    with pytest.raises(ValueError, match="spread must be finite"):
        dispersion.collision_size_output(1.0, 2.0, -1.0, dtype="bfloat16")

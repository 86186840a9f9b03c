"""The smallest size with every weight below ε: an exact integer, tight on both sides."""

from __future__ import annotations

import math
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from adatemp.dispersion import log_size_for_weight_below, size_for_weight_below, upper_extremal_row, weight_bounds


def exponential(s: Fraction) -> tuple[Fraction, Fraction]:
    """e^s between two fractions 10⁻⁶⁰ apart in proportion, by its series: an oracle that uses no decimal arithmetic."""
    terms = 10 * math.ceil(s) + 120
    total = term = Fraction(1)
    for k in range(1, terms):
        term *= s / k
        total += term
    # beyond the last term the series is dominated by a geometric one of ratio s/terms ≤ 1/10
    return total, total + term


@pytest.mark.result("cor-ch03-size")
@given(st.fractions(Fraction(1, 200), Fraction(199, 200)), st.fractions(0, 12, max_denominator=50))
def test_holds_at_the_size_and_fails_just_below_it_in_exact_arithmetic(epsilon, s):
    n = size_for_weight_below(epsilon, s)
    low, high = exponential(s)
    # the largest weight 1/(1 + (n−1)e^(−s)) is below ε exactly if n − 1 > e^s(1/ε − 1)
    assert n - 1 > high * (1 / epsilon - 1) or (s == 0 and n - 1 > 1 / epsilon - 1)
    assert n - 2 <= low * (1 / epsilon - 1)


@pytest.mark.result("cor-ch03-size")
@given(st.floats(0.02, 0.98), st.floats(0.0, 5.0), st.floats(0.5, 3.0))
def test_every_row_passes_at_the_size_and_the_extremal_row_fails_below_it(epsilon, spread, temperature):
    n = size_for_weight_below(epsilon, spread, temperature)

    def largest(size: int) -> float:
        powers = np.exp((upper_extremal_row(size, spread) - spread) / temperature)
        return 1.0 / powers.sum()

    # 1e-12: a float64 sum may land on either side of ε when the exact weight all but equals it
    assert largest(n) < epsilon * (1 + 1e-12) and largest(n - 1) >= epsilon * (1 - 1e-12)
    assert weight_bounds(n + 1, spread, temperature)[1] < epsilon


def test_without_spread_it_is_the_first_size_above_one_over_epsilon():
    assert [size_for_weight_below(epsilon, 0.0) for epsilon in (0.1, 0.3, 0.5, 0.999)] == [11, 4, 3, 2]
    assert size_for_weight_below(Fraction(1, 49), 0) == 50


def test_temperature_divides_the_spread():
    assert size_for_weight_below(0.2, 3.0, 0.5) == size_for_weight_below(0.2, 6.0)


def test_simple_threshold_is_up_to_twice_as_large():
    # e^δ/ε against 1 + e^δ(1/ε − 1): twice as large at ε = 1/2, the same as ε tends to 0
    assert math.exp(6.0) / 0.5 / size_for_weight_below(0.5, 6.0) == pytest.approx(2.0, rel=0.01)
    assert math.exp(6.0) / 1e-6 / size_for_weight_below(1e-6, 6.0) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("spread", [50.0, 700.0, 1500.0])
def test_sizes_beyond_float64_are_exact_integers_of_the_right_logarithm(spread):
    n = size_for_weight_below(0.3, spread)
    assert isinstance(n, int)
    shift = max(n.bit_length() - 900, 0)
    logarithm = math.log(n >> shift) + shift * math.log(2.0)
    assert logarithm == pytest.approx(log_size_for_weight_below(0.3, spread), rel=1e-12)


def test_large_size_is_exact_to_the_last_digit():
    low, high = exponential(Fraction(60))
    odds = Fraction(7, 3)
    assert math.floor(low * odds) == math.floor(high * odds)  # the oracle decides the floor
    assert size_for_weight_below(0.3, 60.0) == math.floor(low * odds) + 2


def test_arrays_broadcast_to_integers():
    sizes = size_for_weight_below(np.array([[0.1], [0.5]]), np.array([0.0, 60.0]))
    assert sizes.shape == (2, 2) and all(isinstance(n, int) for n in sizes.flat)
    assert sizes[0, 0] == 11 and sizes[1, 1] == size_for_weight_below(0.5, 60.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1.0), r"epsilon must be a weight.*got 0"),
        ((1.0, 1.0), r"epsilon must be a weight.*got 1"),
        ((math.nan, 1.0), r"epsilon must be"),
        ((0.5, -1.0), r"spread must be"),
        ((0.5, 1.0, -2.0), r"temperature must be positive.*got -2"),
        ((0.5, 1e6), r"about 434294 digits; use log_size_for_weight_below"),
    ],
)
def test_arguments_out_of_range_are_named_with_the_remedy(arguments, message):
    with pytest.raises(ValueError, match=message):
        size_for_weight_below(*arguments)


def test_logarithm_serves_where_the_integer_is_too_long():
    # log(1 + e^s (1/ε − 1)) = s + log(1/ε − 1) to float64 here
    assert log_size_for_weight_below(0.2, 1e6) == pytest.approx(1e6 + math.log(4.0), rel=1e-15)

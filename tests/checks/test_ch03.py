"""Checks of chapter 03: the right answer passes, the stub is recognised, each planted mistake gets its own name."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import dispersion
from adatemp.checks import ch03
from adatemp.checks.ch03._floor import supremum, two_level
from adatemp.checks.ch03._size import largest_weight, smallest_size


def unwritten(*_, **__):
    raise NotImplementedError


# 03.1 Both ends


def ends(n, k, spread, temperature):
    first = np.where(np.arange(n) < k, spread, 0.0)
    ratio = math.exp(-spread / temperature)
    return first, spread - first, k / (k + (n - k) * ratio), k * ratio / (k * ratio + n - k)


def ends_with_rows(upper, lower):
    """The right masses with other rows."""

    def answer(n, k, spread, temperature):
        first, last, high, low = ends(n, k, spread, temperature)
        return upper(first, last, temperature), lower(first, last, temperature), high, low

    return answer


def ends_with_masses(high, low):
    """The right rows with other masses."""

    def answer(n, k, spread, temperature):
        upper, lower, _, _ = ends(n, k, spread, temperature)
        kappa = math.exp(spread / temperature)
        return upper, lower, high(n, k, kappa), low(n, k, kappa)

    return answer


def at_temperature_one(n, k, spread, temperature):
    return ends(n, k, spread, temperature)[:2] + ends(n, k, spread, 1.0)[2:]


def only_one_high(n, k, spread, temperature):
    _, lower, high, low = ends(n, k, spread, temperature)
    return spread * np.eye(n)[0], lower, high, low


def beside_one_high(n, k, spread, temperature):
    upper, _, high, low = ends(n, k, spread, temperature)
    return upper, spread * np.eye(n)[-1], high, low


def exchanged(n, k, spread, temperature):
    upper, lower, high, low = ends(n, k, spread, temperature)
    return lower, upper, low, high


def test_right_answers_to_exercise_1_pass():
    ch03.ex1(ends).require()
    ch03.ex1(ends_with_rows(lambda a, b, t: a + 7.0, lambda a, b, t: b - 3.0)).require()  # any offset will do


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (ends_with_rows(lambda a, b, t: a, lambda a, b, t: a), "one row offered for both"),
        (beside_one_high, "one row offered for both"),
        (only_one_high, "one item for k"),
        (ends_with_rows(lambda a, b, t: a * t, lambda a, b, t: b * t), "the spread scaled by the temperature"),
        (ends_with_rows(lambda a, b, t: a / t, lambda a, b, t: b / t), "the spread scaled by the temperature"),
        (at_temperature_one, "δ for δ/θ"),
        (ends_with_masses(lambda n, k, c: k / (k + n / c), lambda n, k, c: k / (k + n * c)), "n for n − k"),
        (ends_with_masses(lambda n, k, c: k / (k + (n - 1) / c), lambda n, k, c: k / (k + (n - 1) * c)), "n for n − k"),
        (ends_with_masses(lambda n, k, c: k * c / n, lambda n, k, c: k / c / n), "the simple bound"),
        (
            ends_with_masses(lambda n, k, c: k * c / (c + n - 1), lambda n, k, c: k / (1 + (n - 1) * c)),
            "k times the bound of one weight",
        ),
        (exchanged, "the ends exchanged"),
        (lambda *args: (*ends(*args)[:2], *ends(*args)[:1:-1]), "the ends exchanged"),
    ],
)
def test_mistakes_in_exercise_1_are_named(answer, mistake):
    assert ch03.ex1(answer).mistake == mistake


# 03.2 The smallest n′


def size(epsilon, spread, temperature):
    if epsilon > 1:
        return 1
    return math.floor(1 + math.exp(spread / temperature) * (1 / epsilon - 1)) + 1


def simple_size(epsilon, spread, temperature):
    if spread == 0:
        return size(epsilon, spread, temperature)
    return math.floor(math.exp(spread / temperature) / epsilon) + 1


def search_by_ones(epsilon, spread, temperature):
    n = 1
    while 1 / (1 + (n - 1) * math.exp(-spread / temperature)) >= epsilon:
        n += 1
        if n > 100_000:
            return n
    return n


def test_right_answers_to_exercise_2_pass():
    ch03.ex2(size).require()
    exact = dispersion.size_for_weight_below
    ch03.ex2(lambda e, d, t: np.int64(exact(e, d, t) if e < 1 else 2 if e == 1 else 1)).require()


def test_the_size_expected_is_that_of_the_definition():
    for case in ((0.3, 2.0, 1.0), (0.125, 0.0, 2.0), (0.01, 20.0, 1.0)):
        n = smallest_size(*case)
        assert largest_weight(n, *case[1:]) < case[0] <= largest_weight(n - 1, *case[1:])
    assert smallest_size(1.0, 3.0, 1.0) == 2 and smallest_size(1.5, 3.0, 1.0) == 1


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda *args: float(size(*args)), "a float for an integer"),
        (lambda e, d, t: max(math.ceil(1 + math.exp(d / t) * (1 / e - 1)), 1), "a weight of ε counted as below ε"),
        (simple_size, "the simple sufficient threshold"),
        (lambda e, d, t: simple_size(e, d, t) - (d > 0), "the simple sufficient threshold"),
        (lambda e, d, t: size(e, d, 1.0), "δ for δ/θ"),
        (lambda e, d, t: size(e, d * t, 1.0), "multiplied by the temperature"),
        (lambda e, d, t: size(e, d, t) - (d > 0), "off by one"),
        (lambda e, d, t: size(e, d, t) + 1, "one too large"),
        (lambda e, d, t: size(e, d, t) + (d > 0), "one too large"),
        (search_by_ones, "does not hold"),
        (lambda e, d, t: math.floor(1 + math.exp(d / t) * (1 / e - 1)) + 1, "a size below one"),
    ],
)
def test_mistakes_in_exercise_2_are_named(answer, mistake):
    assert ch03.ex2(answer).mistake == mistake


# 03.3 The exact entropy floor


def deficit(spread, temperature):
    s = spread / temperature
    excess = s / -math.expm1(-s) - 1 if s else 0.0
    return excess - math.log1p(excess)


def ideal(n, spread, temperature):
    s = spread / temperature
    return n * (s / -math.expm1(-s) - 1) / math.expm1(s)


def lost(k, n, spread, temperature):
    return float(two_level(np.float64(k / n), spread / temperature)[0])


def count(n, spread, temperature):
    low = min(max(math.floor(ideal(n, spread, temperature)), 1), n - 1)
    return max(low, min(low + 1, n - 1), key=lambda k: lost(k, n, spread, temperature))


def collision(spread, temperature):
    return math.cosh(spread / (2 * temperature)) ** 2


def deficit_as_written(spread, temperature):
    s = spread / temperature
    if s == 0:
        return 0.0
    x = s / (1 - math.exp(-s))
    return x - 1 - math.log(x)


def deficit_without_limit(spread, temperature):
    s = spread / temperature
    excess = s / -math.expm1(-s) - 1
    return excess - math.log1p(excess)


def deficit_that_overflows(spread, temperature):
    s = spread / temperature
    if s < 1:
        return deficit(spread, temperature)
    with np.errstate(all="ignore"):
        x = s * np.exp(s) / np.expm1(s)
        return x - 1 - np.log(x)


def test_right_answers_to_exercise_3_pass():
    ch03.ex3(deficit, count, collision).require()


def test_the_suprema_expected_are_those_of_a_fine_search():
    for s in (0.5, 3.0, 12.0):
        fractions = np.exp(np.linspace(-s - 2, -1e-9, 400_001))
        for reading in (0, 1):
            assert supremum(reading, s) == pytest.approx(two_level(fractions, s)[reading].max(), rel=1e-9)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, count, collision), "not written yet"),
        ((deficit, unwritten, collision), "not written yet"),
        ((deficit, count, unwritten), "not written yet"),
        ((lambda d, t: min(d / t, (d / t) ** 2 / 8), count, collision), "min(δ, δ²/8) given as sharp"),
        ((lambda d, t: (d / t) ** 2 / 8, count, collision), "min(δ, δ²/8) given as sharp"),
        ((lambda d, t: deficit(d, 1.0), count, collision), "δ for δ/θ"),
        ((lambda d, t: lost(1, 2, d, t), count, collision), "half of the logits at the top"),
        ((lambda d, t: deficit(d, t) / math.log(2), count, collision), "bits for nats"),
        ((lambda d, t: -deficit(d, t), count, collision), "the entropy, or the other sign"),
        ((deficit_without_limit, count, collision), "0/0 without spread"),
        ((deficit_as_written, count, collision), "digits cancelled"),
        ((deficit_that_overflows, count, collision), "an overflow"),
        ((deficit, lambda n, d, t: 1, collision), "one high logit taken for extremal"),
        ((deficit, lambda n, d, t: max(n // 2, 1), collision), "half of the logits at the top"),
        ((deficit, lambda n, d, t: round(ideal(n, d, t)), collision), "no high logit at all"),
        ((deficit, lambda n, d, t: max(ideal(n, d, t), 1.0), collision), "a fraction for a count"),
        ((deficit, lambda n, d, t: max(round(ideal(n, d, t)), 1), collision), "rounded to the nearer integer"),
        ((deficit, lambda n, d, t: max(math.floor(ideal(n, d, t)), 1), collision), "rounded to the nearer integer"),
        ((deficit, count, lambda d, t: two_level(np.float64(ideal(1, d, t)), d / t)[1]),
         "the row of least entropy used again"),
        ((deficit, count, lambda d, t: math.exp(d / t)), "a bound that holds and is not attained"),
        ((deficit, count, lambda d, t: two_level(np.float64(0.5), d / t)[1]), "half of the logits at the top"),
        ((deficit, count, lambda d, t: collision(d, 1.0)), "δ for δ/θ"),
    ],
)  # fmt: skip
def test_mistakes_in_exercise_3_are_named(answer, mistake):
    assert ch03.ex3(*answer).mistake == mistake


# 03.4 Break my bound


@functools.partial(jax.jit, static_argnames="excess")  # compiled once a claim
def climb(excess, rows, spread, temperature, within, steps=200):
    """Projected ascent along the sign of the gradient."""
    slope = jax.vmap(jax.grad(excess), in_axes=(0, None, None))

    def step(i, rows):
        pace = within * 0.1 * (1 - i / steps)
        return jnp.clip(rows + pace * jnp.sign(slope(rows, spread, temperature)), 0.0, within)

    return jax.lax.fori_loop(0, steps, step, rows)


def ascend(excess, n, spread, temperature, starts=24, within=None, threshold=True):
    """Climbs from random rows; the answer is decided in float64."""
    sure, within = 1e-6, spread if within is None else within
    starts = jax.random.uniform(jax.random.key(0), (starts, n), maxval=within)
    rows = np.asarray(climb(excess, starts, spread, temperature, within), np.float64).clip(0.0, within)
    values = [excess(row, spread, temperature) for row in rows]
    best = int(np.argmax(values))
    return rows[best] if values[best] > sure or not threshold else None


def random_search(excess, n, spread, temperature):
    rows = np.random.default_rng(0).uniform(0.0, spread, (2_000, n))
    values = [excess(row, spread, temperature) for row in rows]
    best = int(np.argmax(values))
    return rows[best] if values[best] > 1e-6 else None


def small_steps(excess, n, spread, temperature):
    """Plain gradient steps, not scaled: each entry is of size 1/n."""
    row = jax.random.uniform(jax.random.key(1), (n,), maxval=spread)
    slope = jax.jit(jax.grad(excess))
    for _ in range(50):
        row = (row + 0.1 * slope(row, spread, temperature)).clip(0.0, spread)
    row = np.asarray(row, np.float64)
    return row if excess(row, spread, temperature) > 1e-6 else None


def rounding_reported(excess, n, spread, temperature):
    """Reports whatever comes within a float32 rounding of the bound."""
    row = ascend(excess, n, spread, temperature, threshold=False)
    return row if excess(row, spread, temperature) > -1e-6 else None


def unprojected(excess, n, spread, temperature):
    row = ascend(excess, n, 2 * spread, temperature, threshold=False)
    return row if excess(row, spread, temperature) > 1e-6 else None


def only_the_largest(excess, n, spread, temperature):
    """Tries rows with one high logit only, which break B and not E."""
    row = np.eye(n)[0] * spread
    return row if excess(row, spread, temperature) > 1e-6 else None


def test_the_right_answer_to_exercise_4_passes():
    ch03.ex4(ascend).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (random_search, "random search only"),
        (small_steps, "random search only"),
        (lambda *args: None, "random search only"),
        (rounding_reported, "rounding reported as a violation"),
        (lambda *args: ascend(*args, threshold=False), "a row that breaks nothing"),
        (lambda e, n, d, t: ascend(e, n, d, t, within=d * t), "δ measured after the temperature"),
        (unprojected, "rows that leave the spread"),
        (only_the_largest, "one false claim left standing"),
        (lambda e, n, d, t: np.zeros((2, n)), "does not hold"),
    ],
)
def test_mistakes_in_exercise_4_are_named(answer, mistake):
    assert ch03.ex4(answer).mistake == mistake


def test_claims_agree_between_numpy_and_jax():
    row = np.random.default_rng(3).uniform(0, 2.0, 40)
    for claim in ch03.claims():
        exact = claim.excess(row, 2.0, 0.7)
        assert np.asarray(exact).dtype == np.float64
        # float32 sums of forty terms of order one
        assert float(jax.jit(claim.excess)(jnp.asarray(row, jnp.float32), 2.0, 0.7)) == pytest.approx(exact, abs=1e-5)


# 03.5 Mass is not weight


def row(n, mass):
    return np.where(np.arange(n) < n // 2, math.log(mass / (1 - mass)), 0.0)


def least_spread(share, mass):
    return max(0.0, math.log(mass * (1 - share) / ((1 - mass) * share)))


def as_weights(n, mass):
    return np.where(np.arange(n) < n // 2, 2 * mass / n, 2 * (1 - mass) / n)


def one_carrier(n, mass):
    """One item holds what half of them should."""
    others = n - n // 2
    return np.where(np.arange(n) < 1, math.log(others * mass / (1 - mass)), np.where(np.arange(n) < n // 2, -50.0, 0.0))


def growing(n, mass):
    return row(n, mass) * (1 + math.log(n / 2))


def test_right_answers_to_exercise_5_pass():
    ch03.ex5(row, least_spread).require()
    ch03.ex5(lambda n, mass: row(n, mass).astype(np.float32) + 4, least_spread).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, least_spread), "not written yet"),
        ((row, unwritten), "not written yet"),
        ((as_weights, least_spread), "weights for logits"),
        ((lambda n, mass: np.zeros(n), least_spread), "dispersion taken for uniformity"),
        ((lambda n, mass: row(n, mass) / n, least_spread), "dispersion taken for uniformity"),
        ((lambda n, mass: -row(n, mass), least_spread), "the other half"),
        ((one_carrier, least_spread), "one item carries the mass"),
        ((growing, least_spread), "a spread that grows with n"),
        ((row, lambda share, mass: math.log(mass / (1 - mass))), "the share forgotten"),
        ((row, lambda share, mass: least_spread(share, mass) / math.log(2)), "bits for nats"),
        ((row, lambda share, mass: math.exp(least_spread(share, mass))), "a ratio for a difference"),
        ((row, lambda share, mass: math.log(mass / share)), "the others forgotten"),
        (
            (row, lambda share, mass: math.log(mass * (1 - share) / ((1 - mass) * share))),
            "a negative spread",
        ),
    ],
)
def test_mistakes_in_exercise_5_are_named(answer, mistake):
    assert ch03.ex5(*answer).mistake == mistake


def test_a_spread_that_grows_is_named_also_where_no_mass_shows_it():
    def grows(n, mass):
        z = row(n, mass)
        if n > 1_000:
            z[-1] -= math.log(n)  # one light item lower: the heavy half's mass changes by less than 1/n
        return z

    assert ch03.ex5(grows, least_spread).mistake == "a spread that grows with n"


# 03.6 How fast must δ grow?


def growth(behaviour, n, temperature):
    log_n = math.log(n)
    return temperature * {"1/n": 2.0, "(log n)/n": math.log(log_n), "constant": log_n, "one": 2 * log_n}[behaviour]


def grow_with(**changed):
    """The right growth, with some behaviours replaced by functions of (n, θ)."""
    names = {"inverse": "1/n", "log": "(log n)/n", "constant": "constant", "one": "one"}
    replaced = {names[key]: function for key, function in changed.items()}
    return lambda name, n, theta: replaced[name](n, theta) if name in replaced else growth(name, n, theta)


def crowded(n, top_weight, temperature):
    return -temperature * (n - 1) * math.log(1 - top_weight)


def test_right_answers_to_exercise_6_pass():
    ch03.ex6(growth, crowded).require()
    slower = grow_with(
        inverse=lambda n, t: 0.0, one=lambda n, t: t * (math.log(n) + 2 * math.log(math.log(n)))
    )  # other right answers
    ch03.ex6(slower, crowded).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, crowded), "not written yet"),
        ((growth, unwritten), "not written yet"),
        ((lambda name, n, t: 5.0, crowded), "a constant spread for all"),
        ((grow_with(inverse=lambda n, t: 3 * t * math.log(n)), crowded), "more than the best case needs"),
        ((grow_with(log=lambda n, t: math.log(math.log(n))), crowded), "the temperature forgotten"),
        ((grow_with(constant=lambda n, t: t * math.log(math.log(n))), crowded), "a constant weight with log log n"),
        ((grow_with(constant=lambda n, t: math.log(n)), crowded), "the temperature forgotten"),
        ((grow_with(constant=lambda n, t: t * n**0.5), crowded), "more than the best case needs"),
        ((grow_with(constant=lambda n, t: 2.0), crowded), "a constant spread for all"),
        ((grow_with(one=lambda n, t: t * math.log(n)), crowded), "a threshold reached and not passed"),
        ((grow_with(one=lambda n, t: 2 * math.log(n)), crowded), "the temperature forgotten"),
        (
            (growth, lambda n, w, t: t * math.log((n - 1) * w / (1 - w))),
            "the best case's log n used for a crowd",
        ),
        ((growth, lambda n, w, t: crowded(n, w, t) / (n - 1)), "the spacing given for the spread"),
        ((growth, lambda n, w, t: crowded(n, w, 1.0)), "the temperature forgotten"),
    ],
)
def test_mistakes_in_exercise_6_are_named(answer, mistake):
    assert ch03.ex6(*answer).mistake == mistake


# All of them


@pytest.mark.parametrize(
    "report",
    [
        lambda: ch03.ex1(ends),
        lambda: ch03.ex2(size),
        lambda: ch03.ex3(deficit, count, collision),
        lambda: ch03.ex4(ascend),
        lambda: ch03.ex5(row, least_spread),
        lambda: ch03.ex6(growth, crowded),
    ],
)
def test_a_passed_check_displays_itself_and_draws_what_the_function_does(report):
    shown = report()
    assert str(shown).startswith("Exercise 03.") and "<svg" in shown._repr_html_()

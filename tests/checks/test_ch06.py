"""Checks of chapter 06: the right answer passes, the stub is recognised, each planted mistake gets its own name."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import dispersion
from adatemp.checks import ch06
from adatemp.checks.ch06 import _pipelines, _referee, _repair


def unwritten(*_, **__):
    raise NotImplementedError


# 06.1 The margin theorem, used


def slope_at(read_out, shares):
    return np.linalg.norm(read_out.jacobian(read_out.along(np.asarray(shares))), axis=-1).max()


def certified(read_out, spread, temperature, *, gamma=None, slope=None, distance=None, factor=2.0):
    at_b = np.sort(read_out(read_out.value_b))
    gamma = at_b[-1] - at_b[-2] if gamma is None else gamma(read_out)
    slope = slope_at(read_out, np.linspace(0, 1, 401)) if slope is None else slope(read_out)
    distance = np.linalg.norm(read_out.value_a - read_out.value_b) if distance is None else distance(read_out)
    reach = factor * slope * distance / gamma
    return gamma, slope, max(1.0, 1 + math.exp(spread / temperature) * (reach - 1))


def over_a(read_out):
    at_b = read_out(read_out.value_b)
    return at_b.max() - at_b[read_out(read_out.value_a).argmax()]


def at_a(read_out):
    at = np.sort(read_out(read_out.value_a))
    return at[-1] - at[-2]


def directional(read_out):
    way = (read_out.value_a - read_out.value_b) / np.linalg.norm(read_out.value_a - read_out.value_b)
    return np.abs(read_out.jacobian(read_out.along(np.linspace(0, 1, 401))) @ way).max()


def everywhere(read_out):
    points = read_out.along(np.linspace(-2, 3, 2001))
    return max(
        np.linalg.norm(read_out.jacobian(points), axis=-1).max(), 1.3 * slope_at(read_out, np.linspace(0, 1, 401))
    )


def simple_size(read_out, spread, temperature):
    gamma, slope, _ = certified(read_out, spread, temperature)
    distance = np.linalg.norm(read_out.value_a - read_out.value_b)
    return gamma, slope, max(1.0, math.exp(spread / temperature) * 2 * slope * distance / gamma)


def too_small_for_some(read_out, spread, temperature):
    """Right on the dozen read-outs of the first stages, by recognising how few the check began with."""
    gamma, slope, n = certified(read_out, spread, temperature)
    too_small_for_some.calls += 1
    return gamma, slope, n if too_small_for_some.calls <= 12 else n / 3


def test_right_answers_to_exercise_1_pass():
    ch06.ex1(certified).require()


def test_measured_sizes_come_near_the_certified_ones_for_some_read_outs():
    given = [r for r in ch06.read_outs(60) if r.smallest_share <= 1]
    ratios = [certified(r, 2.0, 1.0)[2] / r.size_from_share(r.smallest_share, 2.0, 1.0) for r in given]
    assert len(given) >= 20 and min(ratios) < 2.0 and min(ratios) >= 0.99


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda *_: (math.nan, 1.0, 1.0), "NaN"),
        (functools.partial(certified, gamma=over_a), "the margin over the wrong rival"),
        (functools.partial(certified, gamma=at_a), "a margin at the value of A"),
        (functools.partial(certified, slope=lambda r: slope_at(r, [0.0])), "L at the value of B only"),
        (functools.partial(certified, slope=everywhere), "L outside the segment"),
        (functools.partial(certified, slope=directional), "the slope along the segment"),
        (functools.partial(certified, factor=1.0), "L for 2L"),
        (lambda r, d, t: certified(r, d, 1.0), "δ for δ/θ"),
        (functools.partial(certified, distance=lambda r: np.linalg.norm(r.value_a)), "a length for a distance"),
        (simple_size, "the simple bound on the weight"),
    ],
)
def test_mistakes_in_exercise_1_are_named(answer, mistake):
    assert ch06.ex1(answer).mistake == mistake


def test_a_size_that_some_read_out_outlives_is_refused():
    too_small_for_some.calls = 0
    assert ch06.ex1(too_small_for_some).mistake == "does not hold"


# 06.2 Where is the rounding?


def size(pipeline, value_a, value_b, spread, temperature, grid):
    if pipeline == "output":
        return dispersion.collision_size_output(value_a, value_b, spread, temperature, dtype=grid)
    if pipeline == "weights":
        return dispersion.collision_size_weights(value_a, value_b, spread, temperature, dtype=grid)
    if pipeline == "int8":
        return dispersion.collision_size_int8(value_a, value_b, spread, temperature, step=grid)
    order = pipeline.split()[1]
    return dispersion.collision_size_accumulator(value_a, value_b, spread, temperature, dtype=grid, order=order)


def roundoff(grid):
    return dispersion.number_format(grid).unit_roundoff


def by_u(pipeline, a, b, spread, temperature, grid, share=1.0):
    """Half the gap taken as u|v_B| for a rounded output."""
    if pipeline != "output":
        return size(pipeline, a, b, spread, temperature, grid)
    return 1 + math.exp(spread / temperature) * (abs(a - b) / (share * roundoff(grid) * abs(b)) - 1)


def no_underflow(pipeline, a, b, spread, temperature, grid):
    if spread / temperature < 15:
        return size(pipeline, a, b, spread, temperature, grid)
    return math.exp(spread / temperature) * 100


def only_in_the_format(pipeline, a, b, spread, temperature, grid):
    if pipeline == "output":
        exact = dispersion.collision_size_output
        return exact(a, b, spread, temperature, dtype=grid, exp_dtype=grid)
    return size(pipeline, a, b, spread, temperature, grid)


def instead(when, then):
    def answer(pipeline, *rest):
        return then(*rest) if pipeline.startswith(when) else size(pipeline, *rest)

    return answer


def relative_int8(a, b, spread, temperature, step):
    return math.inf if b == 0 else 1 + math.exp(spread / temperature) * (abs(a - b) / (2**-8 * abs(b)) - 1)


def int8_in_full_steps(a, b, spread, temperature, step):
    exact = size("int8", a, b, spread, temperature, step)
    return exact if math.isinf(exact) else 1 + math.exp(spread / temperature) * (abs(a - b) / step - 1)


def int8_without_underflow(a, b, spread, temperature, step):
    return 1 + math.exp(spread / temperature) * (2 * abs(a - b) / step - 1)


def stops_first(a, b, spread, temperature, grid):
    return 1.4 / roundoff(grid)


def weights_that_stop(a, b, spread, temperature, grid):
    if spread == 20:  # the stage on underflow comes before that on weights
        return size("weights", a, b, spread, temperature, grid)
    return stops_first(a, b, spread, temperature, grid)


def test_right_answers_to_exercise_2_pass():
    ch06.ex2(size).require()


def test_simulated_thresholds_are_those_of_the_closed_form():
    for case in [(2.0, 1.0, 3.0, "bfloat16"), (0.5, 1.75, 1.0, "float16"), (3.0, 2.0, 4.0, "float8_e4m3fn")]:
        a, b, s, grid = case
        exact = dispersion.collision_size_output(a, b, s, dtype=grid)
        assert _pipelines.output_size(*case) == pytest.approx(exact, rel=2e-3)
    assert _pipelines.int8_size(1.0, 0.25, 2.0, 1 / 32) == pytest.approx(1 + math.exp(2) * 47, rel=2e-3)


@pytest.mark.parametrize("order", ["first", "last"])
def test_running_sums_are_those_of_scalars_added_one_by_one(order):
    kind = jnp.dtype("bfloat16").type
    sizes = np.array([3, 40, 700])
    for n, got in zip(sizes, _pipelines.running_sum(sizes, 2.0, 1.0, 1.5, "bfloat16", order)):
        total = 1 + (n - 1) * math.exp(-1.5)
        own, term = kind(2 * float(kind(1 / total))), kind(math.exp(-1.5) / total)
        terms = [own] + (n - 1) * [term] if order == "first" else (n - 1) * [term] + [own]
        running = terms[0]
        for part in terms[1:]:
            running = kind(running + part)
        assert float(running) == got


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (functools.partial(by_u, share=2.0), "the spacing for the unit round-off"),
        (by_u, "u|v_B| for half the gap"),
        (lambda *c: size(*c[:4], 1.0, c[5]), "δ for δ/θ"),
        (no_underflow, "an underflow of exp ignored"),
        (only_in_the_format, "an underflow where there is none"),
        (instead("weights", lambda a, b, s, t, g: size("weights", a, b, s, t if s == 20 else 1.0, g)), "δ for δ/θ"),
        (instead("weights", weights_that_stop), "a sum that stops"),
        (instead("accumulator", lambda a, b, s, t, g: stops_first(a, b, s, t, g)), "the order of summation ignored"),
        (instead("accumulator", lambda a, b, s, t, g: math.exp(s / t) / roundoff(g)), "the order of summation ignored"),
        (instead("accumulator first", lambda a, b, s, t, g: math.exp(s / t) / roundoff(g)),
         "the formula of a rounded output"),
        (instead("accumulator first", stops_first), "Bs that are invisible beside A"),
        (instead("int8", relative_int8), "a relative error assumed for int8"),
        (instead("int8", int8_in_full_steps), "the step for half of it"),
        (instead("int8", int8_without_underflow), "an underflow of exp ignored"),
    ],
)  # fmt: skip
def test_mistakes_in_exercise_2_are_named(answer, mistake):
    assert ch06.ex2(answer).mistake == mistake


# 06.3 Nothing is lost in exact arithmetic


def largest(average):
    return max(c for c, share in enumerate(average) if share > 0)


def least_slope(n, margin):
    return margin * n / math.sqrt(2)


def ramp_logits(average, n):
    return 2 * np.arange(5) * np.clip(n * np.asarray(average), 0, 1) + np.array([1, 0, 0, 0, 0])


def test_right_answers_to_exercise_3_pass():
    ch06.ex3(largest, least_slope, ramp_logits).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, least_slope, ramp_logits), "not written yet"),
        ((largest, unwritten, ramp_logits), "not written yet"),
        ((largest, least_slope, unwritten), "not written yet"),
        ((lambda x: max(range(5), key=lambda c: x[c]), least_slope, ramp_logits), "the class in the majority"),
        ((lambda x: min(c for c in range(5) if x[c] > 0), least_slope, ramp_logits), "the smallest class present"),
        ((lambda x: max(c for c in range(5) if x[c] > Fraction(1, 60)), least_slope, ramp_logits),
         "finite precision assumed silently"),
        ((lambda x: max(c for c in range(5) if np.float16(float(x[c])) > 0.005), least_slope, ramp_logits),
         "finite precision assumed silently"),
        ((lambda x: max(c for c in range(5) if float(x[c]) > 0), least_slope, ramp_logits),
         "finite precision assumed silently"),
        ((largest, lambda n, g: g * math.sqrt(2), ramp_logits), "a slope that does not grow"),
        ((largest, lambda n, g: least_slope(n, g) / 2, ramp_logits), "the margin used up once"),
        ((largest, lambda n, g: least_slope(n, g) * 2, ramp_logits), "the whole change by one logit"),
        ((largest, lambda n, g: g * n, ramp_logits), "the distance of two one-hot vectors taken for 1"),
        ((largest, least_slope, lambda x, n: 2 * np.arange(5) * (x > 0) + (np.arange(5) == 0)), "a jump"),
        ((largest, least_slope, lambda x, n: ramp_logits(x, 10)), "dispersed, hence impossible"),
        ((largest, least_slope, lambda x, n: ramp_logits(x, n) / 4), "right, and by too little"),
        ((largest, least_slope, lambda x, n: ramp_logits(x, n)[:4]), "raised an exception"),
    ],
)  # fmt: skip
def test_mistakes_in_exercise_3_are_named(answer, mistake):
    assert ch06.ex3(*answer).mistake == mistake


def test_the_many_are_recognised_as_despair():
    def majority_of_large_sets(x):
        return largest(x) if max(x) < Fraction(89, 100) or 1 in x else max(range(5), key=lambda c: x[c])

    assert ch06.ex3(majority_of_large_sets, least_slope, ramp_logits).mistake == "dispersed, hence impossible"


# 06.4 When is the referee right?


def half_size(contrast, distractors, margin, classes):
    q = _referee.median_lead(classes)
    if distractors == "identical":
        return contrast * (1 - margin) / (1 + margin)
    # margin · root² + (q/√C) root − κ(1 − margin) = 0, for root = √m
    linear, constant = q / math.sqrt(classes), contrast * (1 - margin)
    if margin == 0:
        return (constant / linear) ** 2
    return ((-linear + math.sqrt(linear**2 + 4 * margin * constant)) / (2 * margin)) ** 2


def for_kind(kind, then, margined=None):
    def answer(contrast, distractors, margin, classes):
        if distractors == kind and (margined is None or margined == (margin > 0)):
            return then(contrast, margin, classes)
        return half_size(contrast, distractors, margin, classes)

    return answer


def one_draw(contrast, distractors, margin, classes):
    if distractors == "identical":
        return half_size(contrast, distractors, margin, classes)
    draw = np.random.default_rng(int(contrast) + classes)
    g = draw.normal(size=classes)
    lead = abs(g[1:].max() - g[0]) / math.sqrt(classes)
    return (contrast / lead) ** 2


def test_right_answers_to_exercise_4_pass():
    ch06.ex4(half_size).require()


@pytest.mark.parametrize("case", [(20.0, "random", 0.0, 10), (150.0, "random", 0.1, 3), (20.0, "identical", 0.1, 10)])
def test_at_the_half_size_a_simulation_finds_a_in_half_of_the_sets(case):
    contrast, distractors, margin, classes = case
    m = round(_referee.half(*case))
    assert half_size(*case) == pytest.approx(_referee.half(*case), rel=1e-6)
    if distractors == "identical":
        first, second = (np.array([contrast, k]) / (contrast + k) for k in (m - 1, m + 1))
        assert first @ [1, -1] > margin > second @ [1, -1]
        return
    # a sum of m normal vectors of covariance 1/C is one of covariance m/C
    x = np.random.default_rng(0).normal(size=(40_000, classes)) * math.sqrt(m / classes)
    x[:, 0] += contrast
    found = np.mean((x[:, 0] - x[:, 1:].max(1)) / (contrast + m) > margin)
    assert found == pytest.approx(0.5, abs=0.015)  # six standard errors


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda *_: math.inf, "A compared with one B"),
        (lambda k, kind, margin, c: half_size(k, "random", 0.0, c), "normalisation without zero mean"),
        (for_kind("identical", lambda k, t, c: k, margined=True), "the margin forgotten"),
        (for_kind("identical", lambda k, t, c: k * (1 / t - 1), margined=True), "A's own entry for its lead"),
        (lambda k, kind, margin, c: half_size(k, "identical", margin, c), "e^δ for both kinds"),
        (for_kind("random", lambda k, t, c: k**2, margined=False), "the number of classes forgotten"),
        (one_draw, "a single draw"),
        (for_kind("random", lambda k, t, c: half_size(k, "random", 0.0, c)), "normalisation where there is none"),
        (for_kind("random", lambda k, t, c: k * (1 / t - 1), margined=True), "the fluctuation forgotten"),
    ],
)
def test_mistakes_in_exercise_4_are_named(answer, mistake):
    assert ch06.ex4(answer).mistake == mistake


# 06.5 (log n)/n and the machine


def crossing(u, constant):
    n = constant / u * math.log(constant / u + 2)
    for _ in range(300):
        n = constant * math.log(n) / u
    return n


def near_one(u, constant):
    n = 1.0
    for _ in range(200):
        n = math.exp(n * u / constant)
    return n


def test_right_answers_to_exercise_5_pass():
    ch06.ex5(crossing).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (near_one, "the root near 1"),
        (lambda u, c: c / u, "the logarithm dropped"),
        (lambda u, c: math.log(1 / u) / u, "log(1/u) for log n"),
        (lambda u, c: crossing(u, c / math.log(2)), "another logarithm"),
        (lambda u, c: crossing(u, 1.0), "the constant dropped"),
        (lambda u, c: c * crossing(u, 1.0), "the size multiplied by the constant"),
        (lambda u, c: math.nan, "NaN"),
    ],
)
def test_mistakes_in_exercise_5_are_named(answer, mistake):
    assert ch06.ex5(answer).mistake == mistake


# 06.6 Repair the corollary

A, B = np.array([1.0, 0.0]), np.array([0.0, 1.0])


def counterexample(version):
    def toward_a(x):
        return float(x[0])  # how much of A there is

    if version == "tie allowed":
        return A, B, lambda x, n, own: (toward_a(x), 0.0)
    if version == "jump allowed":
        return A, B, lambda x, n, own: (2.0 * (toward_a(x) > 0), 1.0)
    if version == "own position":
        return A, B, lambda x, n, own: (2.0 * toward_a(own), 1.0)
    if version == "sum pooling":
        return A, 0.0 * A, lambda x, n, own: (2.0 * toward_a(x), 1.0)
    return A, B, lambda x, n, own: (2.0 * n * toward_a(x), 1.0)


WEAKEST = (
    "weight of A tends to 0",
    "weights sum to 1",
    "average only",
    "same read-out for all n",
    "same values in both sets",
    "strict margin",
    "continuous at v_B",
)


def but(version, answer):
    return lambda name: answer if name == version else counterexample(name)


def without(name):
    return tuple(other for other in WEAKEST if other != name)


def test_right_answers_to_exercise_6_pass():
    ch06.ex6(counterexample, WEAKEST).require()
    ch06.ex6(but("tie allowed", (2.0, 0.5, lambda x, n, own: (abs(x - 0.5) ** 0.5, 0.0))), list(WEAKEST)).require()


def test_the_version_that_survives_survives_an_attack():
    """Under the seven assumptions, whatever continuous read-out: A's lead ends negative."""
    draw = np.random.default_rng(0)
    for _ in range(200):
        inner, outer = draw.normal(size=(2, 16)) * draw.choice([1.0, 30.0]), draw.normal(size=(16, 2))

        def lead(x, inner=inner, outer=outer):
            of_a, of_b = np.tanh(x @ inner) @ outer
            return of_a - of_b

        offset = -lead(B) - 0.1  # strict margin of 0.1
        mixed, _ = _repair._pooled(A, B, 10**12, "tie allowed")
        assert lead(mixed) + offset < 0


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, WEAKEST), "not written yet"),
        ((counterexample, None), "not written yet"),
        ((but("tie allowed", (A, B, lambda x, n, own: (2.0 * (x[0] > 0), 1.0))), WEAKEST), "a jump"),
        ((but("tie allowed", (A, A, lambda x, n, own: (0.0, 0.0))), WEAKEST), "two equal values"),
        ((but("tie allowed", (A, B, lambda x, n, own: (x[0] - 1e-4, 0.0))), WEAKEST), "an answer that is B after all"),
        ((but("tie allowed", (A, B, lambda x, n, own: (x[0] + 1.0, 0.0))), WEAKEST), "{B, …, B} answered A"),
        ((but("jump allowed", (A, B, lambda x, n, own: (float(x[0]), 0.0))), WEAKEST), "a margin that is a tie"),
        ((but("jump allowed", (A, B, lambda x, n, own: (2.0 * own[0], 1.0))), WEAKEST), "the residual path"),
        ((but("own position", (A, B, lambda x, n, own: (2.0 * n * x[0], 1.0))), WEAKEST), "sees n"),
        ((but("sum pooling", (A, 0 * B, lambda x, n, own: (x[0] / 9, 1.0))), WEAKEST), "an answer that is B after all"),
        ((but("sees n", (A, B, lambda x, n, own: (n * x[0], 1.0 / n))), WEAKEST), "a margin that is a tie"),
        ((counterexample, without("strict margin")), "continuity without strictness"),
        ((counterexample, without("average only")), "the residual path forgotten"),
        ((counterexample, without("same values in both sets")), "values that depend on A forgotten"),
        ((counterexample, without("same read-out for all n")), "a read-out that sees n forgotten"),
        ((counterexample, without("continuous at v_B")), "a jump forgotten"),
        ((counterexample, without("weights sum to 1")), "sum pooling forgotten"),
        ((counterexample, without("weight of A tends to 0")), "dispersion forgotten"),
        ((counterexample, (*WEAKEST, "Lipschitz")), "more assumed than needed"),
        ((counterexample, (*WEAKEST, "finite precision")), "more assumed than needed"),
        ((counterexample, "strict margin and continuity"), "not the names"),
    ],
)
def test_mistakes_in_exercise_6_are_named(answer, mistake):
    assert ch06.ex6(*answer).mistake == mistake


# All of them


@pytest.mark.parametrize(
    "report",
    [
        lambda: ch06.ex1(certified),
        lambda: ch06.ex2(size),
        lambda: ch06.ex3(largest, least_slope, ramp_logits),
        lambda: ch06.ex4(half_size),
        lambda: ch06.ex5(crossing),
        lambda: ch06.ex6(counterexample, WEAKEST),
    ],
)
def test_a_passed_check_displays_itself_and_draws_what_the_function_does(report):
    shown = report()
    assert str(shown).startswith("Exercise 06.") and "<svg" in shown._repr_html_()

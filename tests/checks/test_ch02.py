"""Checks of chapter 02: the right answer passes, the stub is recognised, each planted mistake gets its own name."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from adatemp.checks import ch02


def unwritten(*_, **__):
    raise NotImplementedError


# 02.1 A definition that excludes something


def choose(bits):
    return {0} if sum(bits) % 2 else set()


def decode(values):
    return len(values)


def local_test(f, n, key):
    points = jax.random.normal(key, (64, n))
    count = int((jax.vmap(jax.grad(f))(points) != 0).sum(-1).max())
    return count, count > 0


def choose_matching(bits):
    """Picks a bit that equals the parity: there is none in 1, 1."""
    return {next(i for i, bit in enumerate(bits) if bit == sum(bits) % 2)}


def choose_matching_or_first(bits):
    return {next((i for i, bit in enumerate(bits) if bit == sum(bits) % 2), 0)}


def at_ones(f, n, key):
    count = int((jax.grad(f)(jnp.ones(n)) != 0).sum())
    return count, count > 0


def at_one_point(f, n, key):
    count = int((jax.grad(f)(jax.random.normal(key, (n,))) != 0).sum())
    return count, count > 0


def with_threshold(f, n, key):
    count = int((abs(jax.vmap(jax.grad(f))(jax.random.normal(key, (64, n)))) > 5e-3).sum(-1).max())
    return count, count > 0


def always_speaks(f, n, key):
    return local_test(f, n, key)[0], True


def test_the_right_answer_to_exercise_1_passes():
    assert ch02.ex1(choose, decode, local_test).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, decode, local_test), "not written yet"),
        ((choose, unwritten, local_test), "not written yet"),
        ((choose, decode, unwritten), "not written yet"),
        ((lambda bits: set(range(len(bits))), lambda values: sum(values) % 2, local_test), "the choice grows with n"),
        ((choose_matching, lambda values: values[0], local_test), "the value is taken for the parity"),
        ((choose_matching_or_first, lambda values: values[0], local_test), "the value is taken for the parity"),
        ((choose, lambda values: 1 - len(values), local_test), "the parity the other way round"),
        ((choose, decode, at_ones), "evaluated where inputs tie"),
        ((choose, decode, at_one_point), "one point only"),
        ((choose, decode, with_threshold), "a threshold that hides 1/n"),
        ((choose, decode, always_speaks), "a class output taken for evidence of sharpness"),
    ],
)
def test_mistakes_in_exercise_1_are_named(answer, mistake):
    assert ch02.ex1(*answer).mistake == mistake


# 02.2 Did n really grow?


def grow(key, n, length):
    for_priority, for_label = jax.random.split(key)
    priority = jax.random.uniform(for_priority, (length,))
    label = jax.random.randint(for_label, (length,), 0, 10)
    where = jnp.arange(length) < n
    target = label[jnp.where(where, priority, -1).argmax()]
    return priority, label, where, n, int(target)


def retarget(priority, label, where, position):
    return priority, label, where, position, int(label[jnp.where(where, priority, -1).argmax()])


def padded_on_the_right(key, n, length):
    priority, label, _, _, _ = grow(key, n, length)
    few = min(n, 16)
    return retarget(priority, label, jnp.arange(length) < few, length - 1)


def query_first(key, n, length):
    priority, label, _, _, _ = grow(key, n, length)
    index = jnp.arange(length)
    return retarget(priority, label, (index >= 1) & (index <= n), 0)


def only_the_answer_unmasked(key, n, length):
    priority, label, where, position, target = grow(key, n, length)
    return priority, label, jnp.arange(length) == jnp.where(where, priority, -1).argmax(), position, target


def query_in_the_middle(key, n, length):
    priority, label, _, _, _ = grow(key, n, length)
    index = jnp.arange(length)
    return retarget(priority, label, (index <= n) & (index != n // 2), n // 2)


def query_unmasked(key, n, length):
    priority, label, where, position, target = grow(key, n, length)
    return priority, label, where.at[position].set(True), position, target


def nothing_masked(key, n, length):
    priority, label, _, _, target = grow(key, n, length)
    return priority, label, jnp.ones(length, bool), length - 1, target


def target_over_everything(key, n, length):
    priority, label, where, position, _ = grow(key, n, length)
    return priority, label, where, position, int(label[priority.argmax()])


def target_is_an_index(key, n, length):
    priority, label, where, position, _ = grow(key, n, length)
    return priority, label, where, position, int(jnp.where(where, priority, -1).argmax())


def tiled(key, n, length):
    priority, label, where, position, _ = grow(key, n, length)
    return retarget(jnp.resize(priority[:8], length), label, where, position)


def feeble_distractors(key, n, length):
    priority, label, where, position, _ = grow(key, n, length)
    return retarget(jnp.where(jnp.arange(length) < 16, priority, 0.3 * priority), label, where, position)


def always_the_same(key, n, length):
    return grow(jax.random.key(0), n, length)


def test_the_right_answer_to_exercise_2_passes():
    assert ch02.ex2(grow).require()


def test_padding_is_no_mistake_where_the_items_are_all_there():
    def left_padded(key, n, length):
        priority, label, _, _, _ = grow(key, n, length)
        index = jnp.arange(length)
        return retarget(priority, label, (index >= length - 1 - n) & (index < length - 1), length - 1)

    assert ch02.ex2(left_padded).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (padded_on_the_right, "the array grew, the problem did not"),
        (query_first, "the query is placed before the items"),
        (only_the_answer_unmasked, "the distractors are masked"),
        (query_in_the_middle, "items after the answer"),
        (query_unmasked, "the query is counted as an item"),
        (nothing_masked, "the padding is visible"),
        (target_over_everything, "the target is looked up among what is not there"),
        (target_is_an_index, "the target is a position"),
        (tiled, "copies of a small set"),
        (feeble_distractors, "distractors that are no rivals"),
    ],
)
def test_mistakes_in_exercise_2_are_named(answer, mistake):
    assert ch02.ex2(answer).mistake == mistake


def test_a_generator_that_ignores_its_key_does_not_pass():
    report = ch02.ex2(always_the_same)
    assert not report and report.findings[-1].outcome == "failed"


# 02.3 Two kinds of error


def readings(logits, labels, top, classes):
    """Per set: is the soft reading right, is the hard one, is the largest logit on the right item."""
    weights = jax.nn.softmax(jnp.asarray(logits), axis=-1)
    mass = (weights[..., None] * jax.nn.one_hot(labels, classes)).sum(-2)
    target = np.take_along_axis(labels, top[..., None], -1)[..., 0]
    first = np.asarray(logits).argmax(-1)
    hard = np.take_along_axis(labels, first[..., None], -1)[..., 0]
    return np.asarray(mass).argmax(-1) == target, hard == target, first == top


def split(logits, labels, top, classes):
    soft, hard, ranked = readings(logits, labels, top, classes)
    return {
        "accuracy": soft.mean(-1),
        "ranking": 1 - ranked.mean(-1),
        "lucky": (hard & ~ranked).mean(-1),
        "dispersion": hard.mean(-1) - soft.mean(-1),
    }


def wrong_split(change):
    """The right split with some parts replaced by those of a mistake."""

    def answer(logits, labels, top, classes):
        return split(logits, labels, top, classes) | change(*readings(logits, labels, top, classes))

    return answer


def averaged_over_seeds(*args):
    return {name: part.mean() for name, part in split(*args).items()}


def averaged_over_seeds_kept_as_arrays(*args):
    return {name: np.full(3, part.mean()) for name, part in split(*args).items()}


def lucky_dropped(*args):
    soft, hard, ranked = readings(*args)
    kept = ~(hard & ~ranked)
    return split(*args) | {"accuracy": (soft & kept).sum(-1) / kept.sum(-1)}


def mean_weight(logits, labels, top, classes):
    weights = np.asarray(jax.nn.softmax(jnp.asarray(logits), axis=-1))
    target = np.take_along_axis(labels, top[..., None], -1)
    return split(logits, labels, top, classes) | {"accuracy": np.where(labels == target, weights, 0).sum(-1).mean(-1)}


def test_the_right_answer_to_exercise_3_passes():
    assert ch02.ex3(split).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (averaged_over_seeds, "seeds averaged before subtracting"),
        (averaged_over_seeds_kept_as_arrays, "seeds averaged before subtracting"),
        (lucky_dropped, "lucky rows dropped"),
        (mean_weight, "mean weight taken for accuracy"),
        (wrong_split(lambda soft, hard, ranked: {"ranking": 1 - hard.mean(-1)}), "luck counted twice"),
        (wrong_split(lambda soft, hard, ranked: {"lucky": ((hard | soft) & ~ranked).mean(-1)}),
         "right by the soft reading taken for lucky"),
        (wrong_split(lambda soft, hard, ranked: {"dispersion": ranked.mean(-1) - soft.mean(-1)}),
         "class mass compared with item argmax"),
        (wrong_split(lambda soft, hard, ranked: {"dispersion": np.maximum(hard.mean(-1) - soft.mean(-1), 0)}),
         "a negative part clipped"),
        (wrong_split(lambda soft, hard, ranked: {"dispersion": soft.mean(-1) - hard.mean(-1)}),
         "the sign turned round"),
    ],
)  # fmt: skip
def test_mistakes_in_exercise_3_are_named(answer, mistake):
    assert ch02.ex3(answer).mistake == mistake


def test_an_exponential_that_overflows_is_reported_as_nan():
    def unshifted(logits, labels, top, classes):
        weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        return split(logits, labels, top, classes) | {"accuracy": weights.max(-1).mean(-1)}

    assert ch02.ex3(unshifted).mistake == "NaN"


# 02.4 One number for a head


def slope(priority, logits):
    largest = np.argsort(priority, axis=1)[:, -12:]
    p, e = np.take_along_axis(priority, largest, 1), np.take_along_axis(logits, largest, 1)
    p, e = p - p.mean(1, keepdims=True), e - e.mean(1, keepdims=True)
    return (p * e).sum() / (p * p).sum()


def accuracy(n_over_s, classes, sets=8000):
    rng = np.random.default_rng(5)
    gaps = np.cumsum(rng.exponential(size=(sets, 20 + math.ceil(9 * n_over_s))), axis=1)
    weights, labels = np.exp(-gaps / n_over_s), rng.integers(0, classes, gaps.shape)
    mass = np.stack([np.where(labels == c, weights, 0).sum(1) for c in range(classes)], axis=1)
    mass[:, 0] += 1
    return (mass.argmax(1) == 0).mean()


def slope_of_everything(priority, logits):
    p, e = priority - priority.mean(1, keepdims=True), logits - logits.mean(1, keepdims=True)
    return (p * e).sum() / (p * p).sum()


def top_weight(n_over_s, classes):
    gaps = np.cumsum(np.random.default_rng(0).exponential(size=(2000, 24 + math.ceil(12 * n_over_s))), axis=1)
    return (1 / (1 + np.exp(-gaps / n_over_s).sum(1))).mean()


def test_the_right_answer_to_exercise_4_passes():
    assert ch02.ex4(slope, accuracy).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, accuracy), "not written yet"),
        ((slope, unwritten), "not written yet"),
        ((slope_of_everything, accuracy), "the slope is fitted over the whole range"),
        ((lambda p, e: np.ptp(e, axis=1).mean(), accuracy), "the range of the logits is taken for S"),
        (
            (lambda p, e: np.polyfit(p.ravel(), e.ravel(), 1)[0], accuracy),
            "one line through sets with different offsets",
        ),
        ((lambda p, e: slope(p, e) / math.log(2), accuracy), "the base of the logarithm"),
        ((lambda p, e: slope(p, e) / math.log(10), accuracy), "the base of the logarithm"),
        ((slope, lambda ratio, classes: accuracy(1 / ratio, classes)), "n/S turned round"),
        ((slope, top_weight), "the top weight is taken for the accuracy"),
        ((slope, lambda ratio, classes: (accuracy(ratio, classes) - 0.1) / 0.9), "chance level forgotten"),
        ((slope, lambda ratio, classes: 100 * accuracy(ratio, classes)), "percent for shares"),
        ((slope, lambda ratio, classes: accuracy(ratio, 10)), "the number of classes is ignored"),
    ],
)
def test_mistakes_in_exercise_4_are_named(answer, mistake):
    assert ch02.ex4(*answer).mistake == mistake


# 02.5 What is added?

ORDER = ("random", "identical", "mixed", "near-maximal")


def append(base, kind, n, key):
    top, spread, added = base.max(), np.ptp(base), n - len(base)
    third = added // 3
    uniform = jax.random.uniform(key, (added,))
    drawn = {
        "identical": jnp.full(added, top - 1.5),
        "random": top - spread * uniform,
        "near-maximal": top - 0.05 * uniform,
    }
    drawn["mixed"] = jnp.concatenate(
        [drawn["identical"][:third], drawn["near-maximal"][third : 2 * third], drawn["random"][2 * third :]]
    )
    return jnp.concatenate([jnp.asarray(base), drawn[kind]])


def bounds(base, kind, n):
    top, spread, added = base.max(), np.ptp(base), n - len(base)
    third = added // 3
    gaps = {  # (how many, smallest gap, largest gap) of the added items
        "identical": [(added, 1.5, 1.5)],
        "random": [(added, 0.0, spread)],
        "near-maximal": [(added, 0.0, 0.05)],
        "mixed": [(third, 1.5, 1.5), (third, 0.0, 0.05), (added - 2 * third, 0.0, spread)],
    }[kind]
    own = np.exp(np.asarray(base, float) - top).sum()
    most = own + sum(count * math.exp(-near) for count, near, _ in gaps)
    least = own + sum(count * math.exp(-far) for count, _, far in gaps)
    return 1 / most, 1 / least


def append_n(base, kind, n, key):
    return append(base, kind, n + len(base), key)


def append_near_both_sides(base, kind, n, key):
    row = append(base, kind, n, key)
    if kind != "near-maximal":
        return row
    return row.at[len(base) :].set(base.max() + 0.05 * jax.random.normal(key, (n - len(base),)))


def append_normal(base, kind, n, key):
    row = append(base, kind, n, key)
    if kind != "random":
        return row
    return row.at[len(base) :].set(base.min() - jnp.abs(jax.random.normal(key, (n - len(base),))))


def append_sorted(base, kind, n, key):
    return jnp.sort(append(base, kind, n, key))


def bounds_of_the_base(base, kind, n):
    """Identical items are thought to change nothing."""
    return bounds(base, kind, len(base)) if kind == "identical" else bounds(base, kind, n)


def bounds_in_general(base, kind, n):
    spread = np.ptp(base)
    return 1 / (1 + (n - 1) * math.exp(spread)), 1 / (1 + (n - 1) * math.exp(-spread))


def bounds_without_base(base, kind, n):
    top, spread, added = 0.0, np.ptp(base), n - len(base)
    third = added // 3
    terms = {
        "identical": (added * math.exp(-1.5), added * math.exp(-1.5)),
        "random": (added, added * math.exp(-spread)),
        "near-maximal": (added, added * math.exp(-0.05)),
        "mixed": (
            third * math.exp(-1.5) + added - third,
            third * (math.exp(-1.5) + math.exp(-0.05)) + (added - 2 * third) * math.exp(-spread),
        ),
    }[kind]
    return 1 / (1 + terms[0] + top), 1 / (1 + terms[1] + top)


def test_the_right_answer_to_exercise_5_passes():
    assert ch02.ex5(append, bounds, ORDER).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, bounds, ORDER), "not written yet"),
        ((append, unwritten, ORDER), "not written yet"),
        ((append, bounds, ...), "raised an exception"),
        ((append_n, bounds, ORDER), "compared at unequal n"),
        ((append_sorted, bounds, ORDER), "the base row is not kept"),
        ((append_near_both_sides, bounds, ORDER), "near-maximal items above the maximum"),
        ((append_normal, bounds, ORDER), "the spread grew"),
        ((append, bounds_of_the_base, ORDER), "harmless items believed not to disperse"),
        ((append, bounds_without_base, ORDER), "the base row left out of the sum"),
        ((append, lambda *args: bounds(*args)[::-1], ORDER), "low and high exchanged"),
        ((append, lambda *args: (0.0, 1.0), ORDER), "bounds that say nothing"),
        ((append, bounds_in_general, ORDER), "one bound for all kinds"),
        ((append, bounds, ("identical", "random", "mixed", "near-maximal")), "harmless items believed not to disperse"),
        ((append, bounds, ORDER[::-1]), "fastest first"),
        ((append, bounds, ("random", "identical", "mixed")), "four names are needed"),
    ],
)
def test_mistakes_in_exercise_5_are_named(answer, mistake):
    assert ch02.ex5(*answer).mistake == mistake


# 02.6 How sure are you?


def holm(p, level):
    """Which hypotheses Holm's procedure rejects."""
    order = np.argsort(p)
    passed = p[order] <= (1 - level) / (len(p) - np.arange(len(p)))
    rejected = np.zeros(len(p), bool)
    rejected[order] = np.cumprod(passed).astype(bool)
    return rejected


def intervals(plain, adaptive, sets, level=0.95, quantile=None, correct=holm):
    gain = adaptive - plain
    seeds = len(gain)
    mean, error = gain.mean(0), gain.std(0, ddof=1) / math.sqrt(seeds)
    p = 2 * stats.t.sf(abs(mean / error), seeds - 1)
    half = (quantile or stats.t.ppf((1 + level) / 2, seeds - 1)) * error
    return mean - half, mean + half, correct(p, level)


def binomial(plain, adaptive, sets, level=0.95):
    mean = (adaptive - plain).mean(0)
    p, q = plain.mean(0), adaptive.mean(0)
    half = stats.norm.ppf((1 + level) / 2) * np.sqrt((p * (1 - p) + q * (1 - q)) / (sets * len(plain)))
    return mean - half, mean + half, abs(mean) > half


def unpaired(plain, adaptive, sets, level=0.95):
    seeds = len(plain)
    mean = (adaptive - plain).mean(0)
    error = np.sqrt((plain.var(0, ddof=1) + adaptive.var(0, ddof=1)) / seeds)
    half = stats.t.ppf((1 + level) / 2, 2 * seeds - 2) * error
    return mean - half, mean + half, abs(mean) > half


def bonferroni_everywhere(plain, adaptive, sets, level=0.95):
    return intervals(plain, adaptive, sets, level=1 - (1 - level) / plain.shape[1])


def uncorrected(p, level):
    return p <= 1 - level


def percentile_bootstrap(plain, adaptive, sets, level=0.95):
    gain = adaptive - plain
    rng = np.random.default_rng(0)
    means = gain[rng.integers(0, len(gain), (400, len(gain)))].mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high, (low > 0) | (high < 0)


def test_the_right_answer_to_exercise_6_passes():
    assert ch02.ex6(intervals).require()


def test_bonferroni_is_as_right_as_holm():
    def bonferroni(p, level):
        return p <= (1 - level) / len(p)

    assert ch02.ex6(lambda *args, level=0.95: intervals(*args, level, correct=bonferroni)).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (binomial, "a binomial error where seeds vary more"),
        (unpaired, "an unpaired test on shared sets"),
        (bonferroni_everywhere, "corrected intervals where pointwise ones are asked"),
        (lambda *args, level=0.95: intervals(*args, level, quantile=1.96), "a normal quantile for ten seeds"),
        (percentile_bootstrap, "a normal quantile for ten seeds"),
        (lambda *args, level=0.95: intervals(*args), "the level is written into the code"),
        (
            lambda plain, adaptive, sets, level=0.95: intervals(
                plain, adaptive, sets, level, quantile=stats.t.ppf((1 + level) / 2, 9)
            ),
            "the number of seeds is written into the code",
        ),
        (lambda *args, level=0.95: intervals(*args, level, correct=uncorrected), "eleven tests, no correction"),
        (
            lambda *args, level=0.95: intervals(*args, level, correct=lambda p, level: np.zeros(len(p), bool)),
            "nothing is ever resolved",
        ),
    ],
)
def test_mistakes_in_exercise_6_are_named(answer, mistake):
    assert ch02.ex6(answer).mistake == mistake


# All of them


@pytest.mark.parametrize(
    "report",
    [
        lambda: ch02.ex1(choose, decode, local_test),
        lambda: ch02.ex3(split),
        lambda: ch02.ex4(slope, accuracy),
        lambda: ch02.ex5(append, bounds, ORDER),
        lambda: ch02.ex6(intervals),
        lambda: ch02.ex6(unwritten),
    ],
)
def test_a_report_displays_itself(report):
    shown = report()
    assert shown._repr_html_().startswith("<div")
    assert str(shown).startswith("Exercise 02.")


@pytest.mark.parametrize(
    "report",
    [
        lambda: ch02.ex3(split),
        lambda: ch02.ex4(slope, accuracy),
        lambda: ch02.ex5(append, bounds, ORDER),
        lambda: ch02.ex6(intervals),
    ],
)
def test_a_passed_check_draws_what_the_function_does(report):
    assert "<svg" in report()._repr_html_()

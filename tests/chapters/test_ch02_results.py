"""Results of chapter 02: the vacuous definition, sharpness of families, the split of the error, n/S, added items."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adatemp.tasks import poisson_limit

SEED = st.integers(0, 2**32 - 1)


@pytest.mark.result("prop-ch02-vacuous")
@given(st.integers(1, 6), st.integers(1, 12), SEED)
def test_one_chosen_position_carries_any_function_with_at_most_n_values(symbols, n, seed):
    rng = np.random.default_rng(seed)
    values = rng.choice(1000, size=rng.integers(1, n + 1), replace=False)
    points = np.unique(rng.integers(0, symbols, (20, n)), axis=0)
    function = {tuple(x): rng.choice(values) for x in points}
    number = {value: i for i, value in enumerate(values)}
    chosen = {x: frozenset({number[value]}) for x, value in function.items()}  # S(x), as in the proof
    seen: dict[tuple, int] = {}  # g: what (S, x_S) has been answered with
    for x, value in function.items():
        (position,) = chosen[x]
        assert 0 <= position < n
        assert seen.setdefault((chosen[x], x[position]), value) == value


@pytest.mark.result("prop-ch02-vacuous")
@given(st.lists(st.integers(0, 1), min_size=2, max_size=60))
def test_the_page_s_choice_gives_the_majority_of_any_string(chapter02, bits):
    positions = chapter02.choose(tuple(bits))
    assert len(positions) == 1 and positions <= set(range(len(bits)))
    assert chapter02.read(positions) == (np.mean(bits) > 0.5)


def active(f, x, step=1e-7):
    """How many coordinates move f when they move by a step, in float64, up to rounding."""
    moved = np.array([f(x + step * unit) for unit in np.eye(x.size)]) - f(x)
    return int((np.abs(moved) > 1e-6 * step / x.size).sum())


@pytest.mark.result("prop-ch02-families")
@settings(max_examples=40)
@given(st.integers(4, 300), SEED)
def test_order_statistics_have_sharpness_one_means_of_k_have_k_labels_none(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.permutation(n) + rng.uniform(0, 0.5, n)  # at least 0.5 apart: no step crosses a tie
    k = rng.integers(1, n + 1)
    assert active(np.max, x) == 1
    assert active(lambda v: np.sort(v)[-k], x) == 1
    assert active(lambda v: np.sort(v)[-3:].mean(), x) == 3
    assert active(np.mean, x) == n
    assert active(lambda v: float(np.argmax(v) % 10), x) == 0
    assert active(lambda v: float((v > n / 2 + 0.25).sum() % 2), x + 1e-3) == 0


@pytest.mark.result("prop-ch02-families")
def test_the_page_s_count_agrees_with_differences(chapter02):
    import jax
    import jax.numpy as jnp

    key = jax.random.key(3)
    cases = ((jnp.max, 1), (lambda x: jnp.sort(x)[-4:].mean(), 4), (jnp.mean, 9), (lambda x: 0.0 * x[0] + 1.0, 0))
    assert [chapter02.count_active(f, 9, key) for f, _ in cases] == [count for _, count in cases]


def readings(logits, labels, classes):
    """Class with most softmax mass and item ranked first, in float64."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    mass = np.stack([np.where(labels == c, weights, 0).sum(-1) for c in range(classes)], axis=-1)
    return mass.argmax(-1), logits.argmax(-1)


@pytest.mark.result("prop-ch02-split")
@given(st.integers(1, 9), st.integers(1, 4), st.floats(0.1, 30.0), SEED)
def test_error_is_ranking_less_luck_plus_dispersion_and_temperature_moves_the_last_only(n, classes, beta, seed):
    rng = np.random.default_rng(seed)
    logits, labels, top = rng.normal(size=(50, n)), rng.integers(0, classes, (50, n)), rng.integers(0, n, 50)
    target = np.take_along_axis(labels, top[:, None], -1)[:, 0]

    def parts(scale):
        soft, first = readings(scale * logits, labels, classes)
        hard = np.take_along_axis(labels, first[:, None], -1)[:, 0]
        ranking, luck = (first != top).mean(), ((first != top) & (hard == target)).mean()
        return (soft != target).mean(), ranking, luck, (hard == target).mean() - (soft == target).mean()

    for error, ranking, luck, dispersion in (parts(1.0), parts(beta)):
        assert error == pytest.approx(ranking - luck + dispersion, abs=1e-12)
    assert parts(1.0)[1:3] == parts(beta)[1:3]


@pytest.mark.result("prop-ch02-split")
def test_averaging_can_rescue_a_misranked_set():
    logits = np.array([[1.0, 1.2, 0.9, 0.9]])
    labels = np.array([[0, 1, 0, 0]])
    mass, first = readings(logits, labels, 2)
    assert first[0] == 1 and mass[0] == 0  # item 0 has the highest priority: hard is wrong, soft is right


@pytest.mark.parametrize(("ratio", "classes"), [(0.5, 10), (2.0, 3), (12.0, 10)])
def test_the_page_s_masses_give_the_library_s_accuracy(chapter02, ratio, classes):
    page = chapter02.accuracy_from_ratio(ratio, classes)
    library = poisson_limit.accuracy(ratio, classes=classes, sets=20_000)
    assert page == pytest.approx(library, abs=0.02)  # four standard errors of a difference of two means of 20,000


@pytest.mark.result("prop-ch02-ratio")
@pytest.mark.parametrize("ratio", [4.0, 30.0])
def test_class_masses_have_mean_s_over_c_and_variance_s_over_2c(ratio):
    classes, draws = 10, 4000
    rng = np.random.default_rng(0)
    reach = 16 * ratio * classes  # a class's points come at rate 1/C
    points = np.cumsum(rng.exponential(classes, (draws, int(1.5 * reach / classes) + 40)), axis=1)
    mass = np.exp(-points / ratio).sum(1)
    # Five standard errors: of a mean, and of a variance whose fourth moment is near a normal one's.
    variance = ratio / (2 * classes)
    assert mass.mean() == pytest.approx(ratio / classes, abs=5 * np.sqrt(variance / draws))
    assert mass.var() == pytest.approx(variance, rel=5 * np.sqrt(4 / draws))


@pytest.mark.result("prop-ch02-added")
@given(st.integers(1, 40), st.integers(0, 2000), st.floats(0.01, 8.0), SEED)
def test_the_top_weight_is_bounded_whatever_is_added_and_exact_in_the_mean(m, added, delta, seed):
    rng = np.random.default_rng(seed)
    base = -rng.uniform(0, delta, m)
    base[rng.integers(m)] = 0.0  # the maximum
    gaps = rng.uniform(0, delta, added) ** rng.choice([0.2, 1.0, 3.0])
    gaps = np.minimum(gaps, delta)
    logits = np.concatenate([base, -gaps])
    weight = 1 / np.exp(logits).sum()
    n = m + added
    assert weight <= 1 / (1 + (n - 1) * np.exp(-delta)) * (1 + 1e-12)
    mean = np.exp(-gaps).mean() if added else 0.0
    assert weight == pytest.approx(1 / (np.exp(base).sum() + (n - m) * mean), rel=1e-12)

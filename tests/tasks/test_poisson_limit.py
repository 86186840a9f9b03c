"""The one-parameter model against sets of finite size, an independent form of the limit, and planted slopes."""

from __future__ import annotations

import numpy as np
import pytest

from adatemp.tasks import poisson_limit


def finite_sets(n, slope, sets, seed=0, classes=10):
    """Accuracy by class mass and mean entropy of n uniform priorities with logits slope·priority, in float64."""
    rng = np.random.default_rng(seed)
    priority, label = rng.uniform(size=(sets, n)), rng.integers(classes, size=(sets, n))
    weights = np.exp(slope * (priority - priority.max(-1, keepdims=True)))
    mass = np.stack([np.where(label == c, weights, 0).sum(-1) for c in range(classes)], -1)
    share = weights / weights.sum(-1, keepdims=True)
    entropy = -(share * np.log(np.maximum(share, 1e-300))).sum(-1)
    top = np.take_along_axis(label, priority.argmax(-1, keepdims=True), -1)[:, 0]
    return (mass.argmax(-1) == top).mean(), entropy.mean()


@pytest.mark.result("prop-ch02-ratio")
@pytest.mark.parametrize("n_and_slope", [(64, 200.0), (400, 100.0), (1000, 50.0)])
def test_accuracy_and_entropy_are_those_of_large_sets(n_and_slope):
    """4,000 sets and 10,000 arrivals: standard errors 0.8 and 0.5 points, so four of their sum of squares is 3.8."""
    n, slope = n_and_slope
    accuracy, entropy = finite_sets(n, slope, 4000)
    assert abs(poisson_limit.accuracy(n / slope) - accuracy) < 0.038
    # The standard deviation of a row's entropy is below 0.6 nats: 0.01 and 0.013 by chance.
    assert abs(poisson_limit.entropy(n / slope) - entropy) < 0.07


def test_accuracy_depends_on_the_ratio_alone():
    (a, entropy_a), (b, entropy_b) = finite_sets(200, 50.0, 6000, seed=1), finite_sets(800, 200.0, 6000, seed=2)
    assert abs(a - b) < 4 * np.sqrt(2 * 0.25 / 6000) and abs(entropy_a - entropy_b) < 0.05


@pytest.mark.result("prop-ch02-ratio")
@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("ratio", [0.5, 3.0, 20.0])
def test_accuracy_agrees_with_masses_that_solve_their_own_equation(ratio, classes):
    """Without positions: a class's mass besides the top item solves M = U^(C/r)(1 + M) in law, independent by class."""
    rng = np.random.default_rng(3)
    mass = np.zeros((20_000, classes))
    for _ in range(60):  # the mean contracts by r/(C + r) at each step: 20/22 for the worst case here, 0.3% after 60
        mass = rng.uniform(size=mass.shape) ** (classes / ratio) * (1 + mass)
    mass[:, 0] += 1
    expected = (mass.argmax(-1) == 0).mean()
    assert abs(poisson_limit.accuracy(ratio, classes=classes) - expected) < 0.025  # four standard errors


@pytest.mark.result("prop-ch02-ratio")
def test_entropy_tends_to_one_plus_the_logarithm():
    """The next term is of order 1/r²-small in the mean; what is left at 5,000 sets is chance, 0.6/√(5,000·r/10)."""
    for ratio in (20.0, 80.0):
        assert abs(poisson_limit.entropy(ratio) - (1 + np.log(ratio))) < 0.02


def test_one_class_is_always_right_and_a_sharp_head_nearly():
    assert poisson_limit.accuracy(5.0, classes=1) == 1
    # The runner-up in a set of r = 0.01 holds a tenth of the weight only if its gap is below 0.023: 2% of sets.
    assert poisson_limit.accuracy(0.01) > 0.99


def test_a_curve_falls_smoothly_and_keeps_its_shape():
    ratios = np.geomspace(0.1, 100, 12).reshape(3, 4)
    curve = poisson_limit.accuracy(ratios, sets=1000)
    assert curve.shape == (3, 4) and (np.diff(curve.ravel()) <= 0.01).all()
    assert 0.1 < curve.ravel()[-1] < 0.3 and poisson_limit.accuracy(1.0, sets=10).shape == ()


@pytest.mark.parametrize("ratio", [0.0, -1.0, np.inf, np.nan, [1.0, 0.0]])
def test_impossible_ratios_are_refused(ratio):
    with pytest.raises(ValueError, match="ratio="):
        poisson_limit.accuracy(ratio)


def planted(slope=150.0, sets=100, n=500):
    """Logits with the slope asked for within 0.05 of the top, another below, and an offset for every set."""
    rng = np.random.default_rng(4)
    priority = rng.uniform(size=(sets, n))
    below = priority.max(-1, keepdims=True) - priority
    logits = -slope * np.minimum(below, 0.05) - 10 * np.maximum(below - 0.05, 0)
    return priority, logits + 100 * rng.normal(size=(sets, 1))


def test_sharpness_is_the_slope_near_the_top_whatever_the_offsets():
    priority, logits = planted()
    assert abs(poisson_limit.sharpness(priority, logits) - 150) < 1e-6
    whole = poisson_limit.sharpness(priority, logits, window=1.0)
    assert whole < 40  # what a line through all items would say


def test_sharpness_does_not_see_items_that_do_not_exist():
    priority, logits = planted()
    where = np.arange(500) < 300
    where = np.broadcast_to(where, priority.shape)
    spoiled = np.where(where, priority, 5.0), np.where(where, logits, 1e6)
    inside = poisson_limit.sharpness(priority[:, :300], logits[:, :300])
    assert abs(poisson_limit.sharpness(*spoiled, where=where) - inside) < 1e-9


def test_sharpness_refuses_what_it_cannot_measure():
    with pytest.raises(ValueError, match="window="):
        poisson_limit.sharpness([[0.1, 0.9]], [[0.0, 1.0]])
    with pytest.raises(ValueError, match=r"\[sets, n\]"):
        poisson_limit.sharpness([0.1, 0.9], [0.0, 1.0])

"""What chapter 04 states about Transformers and their escapes, and the stored numbers that its text leans on."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given, settings

from adatemp import dispersion, runtime
from adatemp.tasks import token_maximum

SEED = st.integers(0, 2**32 - 1)


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def network(seed, sharp=False):
    """Two layers of two heads on four symbols in three dimensions; a jump in the MLP if asked for."""
    draw = np.random.default_rng(seed)
    table = draw.normal(size=(4, 3))
    layers = [
        {name: draw.normal(size=(2, 3, 3)) for name in ("query", "key", "value")} | {"mlp": draw.normal(size=(3, 3))}
        for _ in range(2)
    ]

    def run(tokens):
        """The largest weight and the largest spread of each head, [2, 2] each."""
        x, tops, spreads = table[tokens], [], []
        for layer in layers:
            y = x / np.sqrt((x * x).mean(-1, keepdims=True) + (0.0 if sharp else 1e-5))
            query, key = (np.einsum("td,nde->nte", y, layer[name]) for name in ("query", "key"))
            logits = query @ key.swapaxes(1, 2)
            weights = softmax(logits)
            tops.append(weights.max((1, 2)))
            spreads.append(np.ptp(logits, axis=-1).max(1))
            x = x + np.einsum("nts,sd,nde->te", weights, y, layer["value"])
            x = x + (np.sign if sharp else np.tanh)(x @ layer["mlp"])
        return np.array(tops), np.array(spreads)

    return run


@pytest.mark.result("thm-ch04-paper")
@pytest.mark.parametrize("seed", range(3))
def test_the_largest_weight_of_every_head_of_a_random_network_falls_like_one_over_n(seed):
    run, draw = network(seed), np.random.default_rng(seed)
    pattern = draw.integers(0, 4, 60)
    tops = np.array([run(np.tile(pattern, k))[0] for k in (1, 4, 16)])
    # a sequence repeated k times divides every weight by k, exactly
    np.testing.assert_allclose(tops * np.array([1, 4, 16])[:, None, None], np.broadcast_to(tops[0], tops.shape))
    for n in (20, 200):
        found, spreads = run(draw.integers(0, 4, n))
        assert (found <= dispersion.weight_bounds(n, spreads)[1] * (1 + 1e-9)).all()


@pytest.mark.result("cor-ch04-escapes")
@given(st.floats(0.01, 0.99), st.floats(0.0, 40.0), st.floats(0.2, 5.0))
def test_a_weight_that_is_held_needs_a_spread_that_outgrows_every_certificate(weight, certified, temperature):
    """From the size of the corollary on, the weight needs more spread than is certified, and just before it less."""
    log_size = dispersion.log_size_for_weight_below(weight, certified, temperature)
    if 1 < log_size < 30:
        for shift, sign in ((0.01, 1), (-0.01, -1)):
            n = math.exp(log_size + shift)
            if (n - 1) * weight / (1 - weight) > 1:
                needed = temperature * math.log((n - 1) * weight / (1 - weight))
                assert sign * (needed - certified) > 0
                assert dispersion.spread_for_weight(n, weight, temperature) == pytest.approx(needed, abs=1e-6)


@pytest.mark.result("prop-ch04-temperature")
@given(st.floats(0.2, 3.0), st.floats(0.1, 4.0), SEED)
def test_at_one_over_log_n_a_gap_above_one_over_c_wins_and_a_spread_below_it_loses(c, gap, seed):
    for n in (10, 1_000, 30_000):
        below = gap + np.random.default_rng(seed).exponential(size=n - 1)
        row = np.concatenate([[0.0], -below])
        top = softmax(c * math.log(n) * row)[0]
        bound = 1 / (1 + (n - 1) * n ** (-c * gap))
        assert top >= bound * (1 - 1e-9)
        crowd = np.random.default_rng(seed).uniform(0, gap, n)
        assert softmax(c * math.log(n) * crowd).max() <= bound * (1 + 1e-9)
    bounds = [1 / (1 + (n - 1.0) * n ** (-c * gap)) for n in (1e3, 1e6, 1e12)]
    if c * gap > 1.05:
        assert bounds == sorted(bounds) and bounds[-1] > 0.7
    if c * gap < 0.95:
        assert bounds == sorted(bounds, reverse=True) and bounds[-1] < 0.25


@pytest.mark.result("prop-ch04-unbounded")
@pytest.mark.parametrize("n", [2, 10, 1_000, 100_000])
def test_a_map_unbounded_near_zero_lets_a_head_hold_its_weight(chapter04, n):
    for item_map, spread in ((chapter04.reciprocal, n), (chapter04.logarithmic, math.log(n))):
        found, top = chapter04.through(item_map, n)
        assert found == pytest.approx(spread, rel=1e-9)
        assert top == pytest.approx(1 / (1 + (n - 1) * math.exp(-spread)), rel=1e-9)
    assert chapter04.through(chapter04.logarithmic, n)[1] > 0.5


@pytest.mark.result("prop-ch04-unnormalised")
@given(st.integers(2, 300), st.floats(-3.0, 3.0), st.floats(0.0, 4.0), SEED)
def test_an_unnormalised_coefficient_stays_and_its_share_falls_like_one_over_n(n, low, spread, seed):
    logits = low + spread * np.random.default_rng(seed).uniform(size=n)
    logits[0] = low + spread
    for weigh in (lambda z: 1 / (1 + np.exp(-z)), np.exp, lambda z: np.log1p(np.exp(z))):
        ends = weigh(np.array([low, low + spread]))
        coefficients = weigh(logits)
        assert (coefficients >= ends[0] * (1 - 1e-12)).all() and (coefficients <= ends[1] * (1 + 1e-12)).all()
        ratio = ends[1] / ends[0]
        assert (coefficients / coefficients.sum()).max() <= ratio / (ratio + n - 1) * (1 + 1e-12)
        leader = weigh(np.where(np.arange(n) == 0, low + spread, low))
        assert leader[0] / leader.sum() == pytest.approx(ratio / (ratio + n - 1), rel=1e-12)
        assert abs(weigh(np.full(n, low + spread)).sum()) == pytest.approx(n * ends[1])


@pytest.mark.result("prop-ch04-jumps")
@settings(max_examples=20)
@given(SEED)
def test_norms_without_epsilon_and_signs_keep_their_spread_under_attack(seed):
    """Two layers with a norm without epsilon and a sign in the MLP, by a certificate of their own, at every n."""
    run, draw = network(seed, sharp=True), np.random.default_rng(seed)
    weights = np.random.default_rng(seed)
    weights.normal(size=(4, 3))
    certified = []
    for _ in range(2):
        query, key, _ = (weights.normal(size=(2, 3, 3)) for _ in range(3))
        weights.normal(size=(3, 3))
        # a normed vector has a length of √3, whatever came before
        certified.append([2 * 3 * np.linalg.norm(q, 2) * np.linalg.norm(k, 2) for q, k in zip(query, key, strict=True)])
    for n in (3, 30, 300):
        tokens = draw.choice(draw.integers(0, 4, 2), n)
        assert (run(tokens)[1] <= np.array(certified) * (1 + 1e-9)).all()


@pytest.mark.parametrize("n", [2, 20])
def test_the_page_s_histograms_are_those_of_the_task(chapter04, n):
    """Counts of each symbol given the largest: the same first two moments as the task's own sampler."""
    counts, target = chapter04.draw_counts(n, 20_000)
    batch = token_maximum.sample(jax.random.key(0), 20_000, n)
    drawn = np.asarray(token_maximum.histogram(batch.tokens), np.float64)
    assert (counts.sum(1) == n + 1).all() and (counts[:, token_maximum.QUERY] == 1).all()
    assert (counts[np.arange(20_000), target] == 1).all()
    assert (np.where(np.arange(token_maximum.SYMBOLS + 1) > target[:, None], counts, 0).sum(1) == 1).all()
    for power in (1, 2):
        mean, spread = (drawn**power).mean(0), (drawn**power).std(0)
        assert np.abs((counts**power).mean(0) - mean).max() <= 7 * np.max(spread) / np.sqrt(20_000) + 1e-9


# What the text says of the stored run


@pytest.fixture(scope="module")
def stored():
    return runtime.results("transformer_spread").data


def test_no_attack_and_no_size_gets_past_a_certificate(stored):
    for row in stored["attacks"]:
        assert row["rows"] > 50_000 and row["ascents"] >= 100
        assert max(row["random"], row["ascent"]) < 0 and max(row["own"], row["certified"]) < 1e-5
    for row in stored["toys"]:
        certified = np.array(row["certified_spread"])
        assert (np.array(row["spread_at"]) <= certified).all()
        assert (np.array(row["radius_at"]) <= np.array(row["certified_radius"]) * (1 + 1e-6)).all()
        if row["kind"] == "set":
            assert (np.array(row["worst"]) <= certified).all()
            assert max(one[by] for one in row["excess_at"] for by in ("own", "certified")) < 1e-4


def test_every_toy_is_trained_and_every_head_of_it_disperses(stored):
    for row in stored["toys"]:
        assert row["final_accuracy"] > 0.95
        entropy = np.array(row["query_entropy_at"])
        assert (entropy[-1] > entropy[0] + 1).all()  # of every head
        accuracy = dict(zip(row["sizes"], row["accuracy_at"], strict=True))
        assert accuracy[16] > 0.9 and accuracy[256] < 0.5
        if row["kind"] == "set":
            tops = np.array(row["query_top_at"])
            assert (tops[-1] < 0.05).all() and (tops[0] > 0.1).all()


def test_a_certificate_is_above_what_was_found_by_a_factor_that_stands_in_an_exponent(stored):
    for row in stored["toys"]:
        if row["kind"] == "set":
            assert (np.array(row["certified_spread"]) > 2 * np.array(row["worst"])).all()

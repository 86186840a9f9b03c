"""Checks of chapter 09, exercises 4 to 6: top-k, visible counts and a fair table; each planted mistake is named."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from adatemp.checks import ch09


def unwritten(*_, **__):
    raise NotImplementedError


# 09.4 When top-k helps


def top_weight(family, n, k, strength):
    from scipy.stats import norm

    if family == "uniform":
        gaps = strength * np.arange(k) / n
    else:
        level = norm.ppf(1 - (np.arange(1, k) - 0.5) / n)
        gaps = np.r_[0.0, strength - level]
    return 1 / np.exp(-gaps).sum()


def sampled(family, n, k, strength, cut=lambda z, k: -np.sort(-z)[:, :k], total=None):
    rng = np.random.default_rng(5)
    z = strength * rng.uniform(size=(200, n)) if family == "uniform" else rng.normal(size=(200, n))
    if family == "needle":
        z[:, 0] = strength
    target = z.max(-1) if family == "uniform" else z[:, 0]
    kept = cut(z, k)
    inside = (kept == target[:, None]).any(-1)
    return (inside / np.exp((kept if total is None else total(z)) - target[:, None]).sum(-1)).mean()


def plainly(family, n, k, strength):
    return top_weight(family, n, n, strength)


def tail_blamed(family, n, k, strength):
    """Plain weight over the mass of k items of n, as if the tail held the rest."""
    return (
        top_weight(family, n, k, strength) if family == "needle" else min(1.0, plainly(family, n, k, strength) * n / k)
    )


def typical(family, n, k, strength):
    return top_weight(family, n, k, strength) if family == "uniform" else 1 / (1 + (k - 1) * np.exp(-strength))


def one_too_many(family, n, k, strength):
    return top_weight(family, n, min(k + 1, n), strength)


def test_right_answers_to_exercise_4_pass():
    ch09.ex4(top_weight, sampled).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, sampled), "not written yet"),
        ((top_weight, unwritten), "not written yet"),
        ((tail_blamed, sampled), "the far tail blamed"),
        ((typical, sampled), "the k largest taken for typical"),
        ((one_too_many, sampled), "a needle outside the k"),
        ((lambda family, n, k, strength: 0.001 * k, sampled), "does not hold"),
        ((top_weight, lambda *cell: sampled(*cell, cut=lambda z, k: z[:, :k])), "the first k for the largest"),
        ((top_weight, lambda *cell: sampled(*cell, total=lambda z: z)), "weights that do not sum to one"),
    ],
)
def test_mistakes_in_exercise_4_are_named(answer, mistake):
    assert ch09.ex4(*answer).mistake == mistake


# 09.5 The visible count


def same(query_segments, key_segments):
    return (query_segments[..., None] == key_segments[:, None, :]) & (query_segments[..., None] > 0)


def past(query_index, key_segments):
    return np.arange(key_segments.shape[1]) <= query_index[..., None]


def visible_count(query_index, query_segments, key_segments):
    return (same(query_segments, key_segments) & past(query_index, key_segments)).sum(-1)


def scaled(query, count, rule, guard=True):
    beta = jnp.where(count > 1, rule(jnp.maximum(count, 2)), 1.0) if guard else rule(jnp.asarray(count))
    return (query * beta[..., None, None].astype(query.dtype)).astype(query.dtype)


def in_numpy(query_index, query_segments, key_segments):
    """The same by a loop over rows and queries."""
    counts = np.zeros(query_index.shape, int)
    for b, t in np.ndindex(query_index.shape):
        if query_segments[b, t]:
            counts[b, t] = (key_segments[b, : query_index[b, t] + 1] == query_segments[b, t]).sum()
    return counts


def with_empty_slots(query_index, query_segments, key_segments):
    alike = query_segments[..., None] == key_segments[:, None, :]
    return (alike & past(query_index, key_segments)).sum(-1)


def of_last(query, count, rule):
    return scaled(query, np.broadcast_to(count[:, -1:], count.shape), rule)


def roundabout(query, count, rule):
    once = scaled(query * 1.1, count, rule)
    return (once / 1.1).astype(query.dtype)


def test_right_answers_to_exercise_5_pass():
    ch09.ex5(visible_count, scaled).require()
    ch09.ex5(in_numpy, scaled).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, scaled), "not written yet"),
        ((visible_count, unwritten), "not written yet"),
        ((lambda i, q, k: i + 1, scaled), "the place in the cache"),
        ((lambda i, q, k: i, scaled), "the place in the cache"),
        ((lambda i, q, k: np.broadcast_to((k > 0).sum(-1)[:, None], i.shape), scaled), "one factor per batch"),
        ((lambda i, q, k: same(q, k).sum(-1), scaled), "one factor per batch"),
        ((lambda i, q, k: np.ones_like(i), scaled), "right at the first position only"),
        ((lambda i, q, k: (past(i, k) & (k > 0)[:, None]).sum(-1), scaled), "other documents counted"),
        ((lambda i, q, k: visible_count(i - 1, q, k), scaled), "the query itself left out"),
        ((with_empty_slots, scaled), "empty slots counted"),
        ((visible_count, lambda q, c, r: scaled(q, c, r, guard=False)), "β of one key"),
        ((visible_count, of_last), "one factor per batch"),
        ((visible_count, lambda q, c, r: q), "never applied"),
        ((visible_count, lambda q, c, r: scaled(q, c, lambda n: 1 / r(n))), "divided by β"),
        ((visible_count, lambda q, c, r: scaled(q.astype(jnp.float32), c, r)), "a changed dtype"),
        ((visible_count, roundabout), "an identity that is not one"),
        ((visible_count, lambda q, c, r: scaled(q, c, r) * jnp.nan), "NaN"),
    ],
)
def test_mistakes_in_exercise_5_are_named(answer, mistake):
    assert ch09.ex5(*answer).mistake == mistake


# 09.6 A fair table


def faults(runs, train_sizes, leave=(), oracle=True, every=True):
    found = set()
    tasks = {run["task"] for run in runs}
    rules = {run["rule"] for run in runs}
    for task in tasks:
        there = {run["rule"] for run in runs if run["task"] == task}
        found |= {("no argmax row", task)} if "argmax" not in there else set()
        found |= {("no best constant row", task)} if "best constant" not in there else set()
    budget = {run["steps"] for run in runs if run["rule"] == "plain"}
    for rule in rules:
        own = [run for run in runs if run["rule"] == rule]
        if not any(run["task"] == "averaging" for run in own):
            found.add(("no averaging control", rule))
        if {run["steps"] for run in (own if every else own[:1])} - budget:
            found.add(("other budget", rule))
        if any(set(run["knob_sizes"]) - set(train_sizes) and not (oracle and run["oracle"]) for run in own):
            found.add(("knob from test sizes", rule))
    return {fault for fault in found if fault[0] not in leave}


def gain(runs, task, rule, n, by=lambda run: (run["model"], run["sets"]), ddof=1, always=None, quantile=None):
    from scipy import stats

    part = {
        name: [run for run in runs if (run["task"], run["rule"], run["n"]) == (task, name, n)]
        for name in (rule, "plain")
    }
    ours, plain = ({by(run): run["accuracy"] for run in part[name]} for name in (rule, "plain"))
    paired = ours.keys() == plain.keys()
    a, b = (np.array(list(x.values())) for x in (ours, plain))
    middle = a.mean() - b.mean()
    if paired if always is None else always:
        if paired:
            b = np.array([plain[name] for name in ours])
        error, freedom = (a - b).std(ddof=ddof) / np.sqrt(len(a)), len(a) - 1
        reach = error * (quantile or stats.t.ppf(0.975, freedom))
        return middle - reach, middle + reach, paired
    interval = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    return interval.low, interval.high, paired


def by_seed(run):
    return run["model"].split(", ")[-1]


def test_right_answers_to_exercise_6_pass():
    ch09.ex6(faults, gain).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, gain), "not written yet"),
        ((faults, unwritten), "not written yet"),
        ((lambda r, t: faults(r, t, leave=("no argmax row",)), gain), "a missing argmax row let pass"),
        ((lambda r, t: faults(r, t, leave=("no best constant row",)), gain), "a missing constant let pass"),
        ((lambda r, t: faults(r, t, leave=("no averaging control",)), gain), "a missing control let pass"),
        ((lambda r, t: faults(r, t, every=False), gain), "another budget let pass"),
        ((lambda r, t: faults(r, t, leave=("knob from test sizes",)), gain), "a knob from test sizes let pass"),
        ((lambda r, t: faults(r, t, oracle=False), gain), "a declared oracle accused"),
        ((lambda r, t: faults(r, t) | {("no argmax row", "averaging")}, gain), "a false alarm"),
        ((faults, lambda *cell: gain(*cell, always=False)), "pairing thrown away"),
        ((faults, lambda *cell: gain(*cell, by=id, always=True)), "runs paired by their order"),
        ((faults, lambda *cell: gain(*cell, quantile=1.959964)), "normal quantiles"),
        ((faults, lambda *cell: gain(*cell, ddof=0)), "a variance divided by n"),
        ((faults, lambda *cell: (-gain(*cell)[1], -gain(*cell)[0], gain(*cell)[2])), "the sign"),
        ((faults, lambda *cell: gain(*cell, by=by_seed)), "a gap between models read from a paired test"),
        ((faults, lambda *cell: (*gain(*cell)[:2], True)), "does not hold"),
    ],
)
def test_mistakes_in_exercise_6_are_named(answer, mistake):
    assert ch09.ex6(*answer).mistake == mistake

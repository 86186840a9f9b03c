"""Checks of chapter 04: the right answer passes, the stub is recognised, each planted mistake gets its own name."""

from __future__ import annotations

import functools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import dispersion
from adatemp.checks import ch04
from adatemp.checks.ch04 import _certificate, _measured
from adatemp.checks.ch04._repair import SIZES
from adatemp.checks.ch04._which import TRUTH, extremes


def unwritten(*_, **__):
    raise NotImplementedError


# 04.1 A certificate that does not know n


def sigma(matrix):
    return np.linalg.norm(matrix, 2)


def certificate(layers, radius, n, *, average=1.0, residual=True, lipschitz=False, skip_norm=False, size=sigma,
                factor=2.0, width=lambda w: w**-0.5, gain=lambda g: np.abs(g).max()):  # fmt: skip
    radii, spreads = [radius], []

    def norm(radius, layer):
        if skip_norm:
            return radius
        if lipschitz:
            with np.errstate(divide="ignore"):
                return gain(layer["gain"]) * radius / np.sqrt(layer["epsilon"])
        width = layer["gain"].size
        return gain(layer["gain"]) * math.sqrt(width) * radius / math.sqrt(radius**2 + width * layer["epsilon"])

    for layer in layers:
        read = norm(radius, layer)
        spreads.append(factor * width(layer["query"].shape[1]) * size(layer["query"]) * size(layer["key"]) * read**2)
        radius = residual * radius + size(layer["value"]) * size(layer["out"]) * read * (n if average == "n" else 1)
        read = norm(radius, layer)
        radius = residual * radius + size(layer["up"]) * size(layer["down"]) * read
        radii.append(radius)
    return radii, spreads


def certificate_with(**how):
    return functools.partial(certificate, **how)


def by_products(layers, radius, n):
    """The library's radii, with the norm of a product in place of the product of norms."""
    radii, spreads = [radius], []
    for layer in layers:
        read = dispersion.rms_norm_radius(radius, layer["gain"], epsilon=layer["epsilon"])
        spreads.append(dispersion.spread_bound_norms(layer["query"], layer["key"], read, read))
        value, out = layer["value"][:, None], layer["out"][None]
        radius = dispersion.residual_radius(radius, dispersion.attention_radius(read, value, out))
        read = dispersion.rms_norm_radius(radius, layer["gain"], epsilon=layer["epsilon"])
        branch = dispersion.mlp_radius(read, [layer["up"], layer["down"]], activation="relu")
        radius = dispersion.residual_radius(radius, branch)
        radii.append(radius)
    return np.array(radii), np.array(spreads)


def test_right_answers_to_exercise_1_pass():
    ch04.ex1(certificate).require()
    ch04.ex1(by_products).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (certificate_with(average="n"), "an attention output bounded by a sum"),
        (certificate_with(residual=False), "a residual forgotten"),
        (certificate_with(lipschitz=True), "a Lipschitz constant for a bound on bounded sets"),
        (certificate_with(skip_norm=True), "a norm left out"),
        (certificate_with(factor=1.0), "the factor 2 forgotten"),
        (certificate_with(width=lambda w: 1.0), "√H forgotten"),
        (certificate_with(gain=lambda g: np.abs(g).mean()), "the mean of the gains"),
        (certificate_with(size=lambda m: np.linalg.norm(m) / math.sqrt(min(m.shape))), "below what was reached"),
        (lambda *a: certificate(*a)[0], "does not hold"),
        (lambda *a: (certificate(*a)[0], [np.nan, np.nan]), "NaN"),
    ],
)
def test_mistakes_in_exercise_1_are_named(answer, mistake):
    if mistake == "NaN":  # an answer that is not finite is first suspected of dividing by epsilon
        assert ch04.ex1(answer).mistake == "a Lipschitz constant for a bound on bounded sets"
        return
    assert ch04.ex1(answer).mistake == mistake


def test_a_frobenius_norm_is_named_where_the_orthogonal_maps_do_not_show_it():
    def frobenius(layers, *rest):
        return certificate(layers, *rest, size=np.linalg.norm if layers[0]["gain"].size == 8 else sigma)

    assert ch04.ex1(frobenius).mistake == "a Frobenius norm for the largest singular value"


def test_the_search_that_the_certificate_is_held_against_gets_a_good_way():
    """To nine tenths of the certified spread of the first layer, and never above."""
    layers = _certificate._drawn()
    found, bound = _certificate._reached(layers), _certificate._certify(layers)
    assert (found <= bound * (1 + 1e-6)).all() and found[4] > 0.9 * bound[4]


# 04.2 Which hypothesis broke?


def judge(attend):
    """One key best and all others worst, near and 1,000 back."""
    near, far = extremes(attend, 0), extremes(attend, 1_000)
    return bool(np.abs(near).max() > 0.01), bool(abs(far[-1_001]) > 0.5 * np.abs(far).sum())


def reason(letter):
    return TRUTH[letter][2]


def judge_with(**wrong):
    """Right but for some letters; A is told by its values on equal keys, and so on."""
    functions = dict(ch04.suspects())

    def answer(attend):
        letter = next(name for name, function in functions.items() if function is attend)
        return wrong.get(letter, judge(attend))

    return answer


def reason_with(**wrong):
    return lambda letter: wrong.get(letter, reason(letter))


def test_right_answers_to_exercise_2_pass():
    ch04.ex2(judge, reason).require()


def test_no_keys_of_the_allowed_length_change_the_judgement_of_a_covered_suspect():
    """The tight bound at a spread of 2 · 1.5², or twice that for the difference of two rows."""
    bound = dispersion.weight_bounds(100_000, 2 * 1.5**2)[1]
    draw = np.random.default_rng(0)
    for letter in "ABH":
        attend = ch04.suspects()[letter]
        for _ in range(3):
            keys = draw.normal(size=(100_000, 8))
            keys *= 1.5 / np.linalg.norm(keys, axis=1, keepdims=True)
            assert np.abs(attend(1.5 * np.eye(8)[2], keys)).max() <= 1.5 * bound < 0.01


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, reason), "not written yet"),
        ((judge, unwritten), "not written yet"),
        ((lambda attend: judge(attend)[0], reason), "does not hold"),
        ((lambda attend: (False, judge(attend)[1]), reason), "everything called covered"),
        ((lambda attend: (True, judge(attend)[1]), reason), "everything called an escape"),
        ((judge_with(B=(True, False)), reason), "rotary positions called an escape"),
        ((judge_with(E=(False, False)), reason), "a window judged on the wrong n"),
        ((judge_with(C=(False, False)), reason), "a near key not tried"),
        ((judge_with(C=(True, True)), reason), "ALiBi called a cure for retrieval"),
        ((judge_with(E=(True, True)), reason), "a window judged on the wrong n"),
        ((judge_with(G=(True, True)), reason), "a coefficient taken for a share"),
        ((judge, reason_with(B="bias")), "rotary positions called an escape"),
        ((judge, reason_with(H="not normalised")), "a difference of two softmaxes called an escape"),
        ((judge, reason_with(E="hard")), "does not hold"),
        ((judge, reason_with(E="because")), "does not hold"),
    ],
)
def test_mistakes_in_exercise_2_are_named(answer, mistake):
    assert ch04.ex2(*answer).mistake == mistake


# 04.3 Discontinuous is not enough


def rows_of(n):
    """Means from short to long: opposite pairs of unit vectors, one item let go a little."""
    draw = np.random.default_rng(n)
    for scale in (0.0, 1 / n, 1e-3, 0.5, 1.0):
        for _ in range(6):
            a = draw.normal(size=4)
            a /= np.linalg.norm(a)
            items = np.zeros((n, 4))
            items[0], items[1] = a, -(1 - scale) * a
            yield items
    yield np.repeat([[0.5] * 4], n, 0) * np.where(np.arange(n) == 0, -1, 1)[:, None]
    yield np.eye(1, 4) * np.eye(n, 1)


def worst_spread(item_map, n, *, rows=rows_of, nan=False, argue=False):
    worst = 0.0
    for items in rows(n):
        query = np.asarray(item_map(items.mean(axis=0)))
        if argue and np.unique(np.abs(query)).size <= 2 and item_map is np.sign:
            return math.inf
        if not nan and not np.isfinite(query).all():
            continue
        worst = float(np.maximum(worst, np.ptp(items @ query)))  # keeps NaN
    return worst


def search_with(**how):
    return functools.partial(worst_spread, **how)


def escape(x):
    square = x @ x
    return x / square if square > 0 else 0 * x


def long_rows(n):
    return (3 * items for items in rows_of(n))


def random_rows(n):
    draw = np.random.default_rng(n)
    for _ in range(20):
        items = draw.normal(size=(n, 4))
        yield items / np.linalg.norm(items, axis=1, keepdims=True)


def only_long_means(n):
    draw = np.random.default_rng(n)
    for _ in range(20):
        a = draw.normal(size=4)
        yield np.where(np.arange(n) == 0, -1, 1)[:, None] * a / np.linalg.norm(a)
    yield np.where(np.arange(n) == 0, -1, 1)[:, None] * 0.5 * np.ones(4)


def logarithm(x):
    length = np.linalg.norm(x)
    return -math.log(length) * x / length if length > 0 else 0 * x


def noisy(x):
    return escape(x) + np.random.default_rng().normal(size=4)


def test_right_answers_to_exercise_3_pass():
    ch04.ex3(worst_spread, escape).require()
    ch04.ex3(worst_spread, logarithm).require()


def with_nan(n):
    yield np.zeros((n, 4))
    yield from rows_of(n)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, escape), "not written yet"),
        ((worst_spread, unwritten), "not written yet"),
        ((search_with(rows=random_rows), escape), "random items only"),
        ((search_with(rows=long_rows), escape), "items outside the ball"),
        ((search_with(rows=with_nan, nan=True), escape), "NaN counted as an escape"),
        ((search_with(argue=True), escape), "the proof argued in place of the claim"),
        ((search_with(rows=only_long_means), escape), "items that do not cancel"),
        ((worst_spread, lambda x: x / np.where(x @ x == 0, np.nan, x @ x)), "a value that is not finite"),
        ((worst_spread, np.sign), "a jump offered as an escape"),
        ((worst_spread, lambda x: np.where(x > 0, 5.0, -5.0)), "a jump offered as an escape"),
        ((worst_spread, lambda x: x * (x @ x)), "unbounded only far away"),
        ((worst_spread, lambda x: np.array([1.0, 2.0])), "does not hold"),
        ((worst_spread, noisy), "does not hold"),
    ],
)
def test_mistakes_in_exercise_3_are_named(answer, mistake):
    assert ch04.ex3(*answer).mistake == mistake


# 04.4 The ALiBi floor


def alibi(slope, spread, k, n, temperature):
    floor = dispersion.alibi_floor(slope, spread, temperature, n)
    return floor, dispersion.alibi_ceiling(k, slope, spread, temperature, n)


def alibi_by_sums(slope, spread, k, n, temperature, *, sign=1.0, start=1, far="ceiling"):
    ratio, contrast = math.exp(-sign * slope / temperature), math.exp(spread / temperature)
    j = np.arange(n)
    floor = 1 / (1 + contrast * (ratio ** j[start:].astype(float)).sum())
    with np.errstate(over="ignore"):
        others = np.delete(ratio ** (j - k).astype(float), k).sum()
        behind = (ratio ** (j[k + 1 :] - k).astype(float)).sum()
    of_far = {
        "ceiling": 1 / (1 + others / contrast),
        "floor": floor,
        "least": 1 / (1 + others * contrast),
        "behind": 1 / (1 + behind / contrast),
    }
    return floor, of_far[far]


def alibi_with(**how):
    return functools.partial(alibi_by_sums, **how)


def test_right_answers_to_exercise_4_pass():
    ch04.ex4(alibi).require()


def test_the_floor_of_the_plan():
    assert alibi(0.25, 2.0, 1, 10**6, 1.0)[0] == pytest.approx(0.0370, abs=5e-5)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda *a: alibi(*a)[::-1], "the ends exchanged"),
        (alibi_with(sign=-1.0), "the sign of the slope"),
        (alibi_with(start=0), "the geometric sum started at 0"),
        (alibi_with(far="floor"), "a floor claimed for the far key"),
        (alibi_with(far="least"), "a floor claimed for the far key"),
        (alibi_with(far="behind"), "newer keys forgotten"),
        (lambda s, d, k, n, t: alibi(s, d / t, k, n, 1.0), "the temperature on the spread alone"),
        (lambda s, d, k, n, t: alibi(s / t, d, k, n, 1.0), "the temperature on the slope alone"),
        (lambda s, d, k, n, t: alibi(s, d, k, n, 1.0), "a temperature of 1"),
        (lambda s, d, k, n, t: alibi(s, d, k, 10**9, t), "infinitely many keys for n"),
        (lambda *a: (np.nan, np.nan), "NaN"),
        (lambda *a: alibi(*a)[0], "wrong shape"),
    ],
)
def test_mistakes_in_exercise_4_are_named(answer, mistake):
    assert ch04.ex4(answer).mistake == mistake


# 04.5 Measuring spread


def spread(query, key, where, *, dtype=jnp.float32, causal=True, padding=True, hidden=None, over=-1, turns=False,
           scale=None, dead=True):  # fmt: skip
    B, T, N, H = query.shape
    query, key = query.astype(dtype), key.astype(dtype)
    group = N // key.shape[2]
    key = jnp.tile(key, (1, 1, group, 1)) if turns else jnp.repeat(key, group, axis=2)
    scale = H**-0.5 if scale is None else scale
    logits = (jnp.einsum("btnh,bsnh->btns", query, key) * jnp.asarray(scale, dtype)).astype(jnp.float32)
    seen = jnp.ones((B, T, 1, T), bool)
    if causal:
        seen = seen & (jnp.arange(T) <= jnp.arange(T)[:, None])[None, :, None]
    if padding:
        seen = seen & where[:, None, None, :]
    if hidden is not None:
        logits = jnp.where(seen, logits, hidden)
        return logits.max(-1) - logits.min(-1)
    axes = (1, 3) if over != -1 else -1
    high = jnp.where(seen, logits, -jnp.inf).max(axes)
    low = jnp.where(seen, logits, jnp.inf).min(axes)
    found = jnp.broadcast_to((high - low)[:, None], (B, T, N)) if over != -1 else high - low
    return jnp.where(jnp.isfinite(found), found, 0.0) if dead else found


def spread_with(**how):
    return functools.partial(spread, **how)


def test_right_answers_to_exercise_5_pass():
    ch04.ex5(spread).require()
    ch04.ex5(
        lambda query, key, where: dispersion.attention_spread(query, key, mask=where[:, None, None, :], is_causal=True)
    ).require()


def test_the_spreads_expected_are_the_library_s_too():
    query, key, where = _measured._planted()
    library = dispersion.attention_spread(query, key, mask=jnp.asarray(where)[:, None, None, :], is_causal=True)
    np.testing.assert_allclose(library, _measured._spread(query, key, where), atol=1e-5)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (spread_with(hidden=-jnp.inf), "hidden keys counted"),
        (spread_with(hidden=-1e9), "hidden keys counted"),
        (spread_with(over=1), "one spread for all queries together"),
        (spread_with(causal=False), "the causal mask left out"),
        (spread_with(padding=False), "padding counted"),
        (spread_with(turns=True), "the wrong key head"),
        (spread_with(scale=1.0), "no scale"),
        (spread_with(dead=False), "a dead row"),
        (spread_with(dtype=jnp.bfloat16), "products rounded to bfloat16"),
        (lambda *a: spread(*a).astype(jnp.bfloat16), "products rounded to bfloat16"),
        (lambda *a: spread(*a)[0], "wrong shape"),
        (lambda *a: spread(*a) * jnp.nan, "NaN"),
    ],
)
def test_mistakes_in_exercise_5_are_named(answer, mistake):
    got = ch04.ex5(answer).mistake
    if got == "float32 comes back":
        got = "does not hold"
    assert got == mistake


# 04.6 Repair the statement


def leader(n, deltas=(2.0, 4.0)):
    """Each row's newest key leads."""
    return np.stack([delta * np.eye(n) for delta in deltas])


def halves(n):
    """In each row the first half of its keys is high."""
    row = np.arange(n)
    high = row[None, :] < (row[:, None] + 1) * 0.12
    return np.stack([2.0 * high, 4.0 * high])


def refute(letter):
    answers = {"A": leader(300), "C": leader(60), "D": leader(40), "E": halves(300)}
    return answers.get(letter)


def refute_with(**wrong):
    return lambda letter: wrong[letter] if letter in wrong else refute(letter)


def test_right_answers_to_exercise_6_pass():
    ch04.ex6(refute).require()


def test_the_true_versions_hold_in_rows_that_are_made_to_break_them():
    """B and F on the extremal rows of both heads, at every size."""
    for spread, size in zip((2.0, 4.0), SIZES, strict=True):
        for i in range(2, 400):
            weights = np.exp(spread * np.eye(i)[0] - spread)
            top = weights.max() / weights.sum()
            assert top == pytest.approx(dispersion.weight_bounds(i, spread)[1])  # F is attained
            assert (top < 0.2) == (i > size)  # B


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda letter: None, "not written yet"),
        (refute_with(A=None), "every coefficient"),
        (refute_with(C=None), "one head for all heads"),
        (refute_with(D=None), "n of the sequence for n of the query"),
        (refute_with(E=None), "dispersion taken for uniformity"),
        (refute_with(B=leader(60)), "a true version refuted"),
        (refute_with(F=leader(60)), "a true version refuted"),
        (refute_with(C=leader(60, (4.0, 4.0))), "spreads exceeded"),
        (refute_with(A=leader(100)), "a counter-example that breaks nothing"),
        (refute_with(C=leader(20)), "a counter-example that breaks nothing"),
        (refute_with(E=leader(300)), "a counter-example that breaks nothing"),
        (refute_with(A=np.zeros(300)), "does not hold"),
        (refute_with(A=np.full((2, 300, 300), np.nan)), "spreads exceeded"),
    ],
)
def test_mistakes_in_exercise_6_are_named(answer, mistake):
    assert ch04.ex6(answer).mistake == mistake

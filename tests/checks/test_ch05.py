"""Checks of chapter 05: the right answer passes, the stub is recognised, each planted mistake gets its own name."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import dispersion
from adatemp.checks import ch05


def unwritten(*_, **__):
    raise NotImplementedError


# 05.1 Attain it


def rms(x, gain):
    return gain * x / np.sqrt((x * x).mean(-1, keepdims=True))


def reach(points):
    return np.linalg.norm(points[:, None] - points[None], axis=-1).max()


def bounds_with(norm=rms, kernels=lambda k, h: k[:, h], width=lambda k: k.shape[-1], tight=None, factor=2.0):
    def bounds(query_kernels, key_kernels, gain, y, items, head):
        y, items = norm(y, gain), norm(items, gain)
        q, k = kernels(query_kernels, head), kernels(key_kernels, head)
        c = width(query_kernels) ** -0.5
        lengths = np.linalg.norm(y), np.linalg.norm(items, axis=-1).max()
        product = np.linalg.norm(q, 2) * np.linalg.norm(k, 2)
        sigma = np.linalg.norm(q @ k.T, 2) if tight is None else tight(q, k)
        return factor * c * product * lengths[0] * lengths[1], c * sigma * lengths[0] * reach(items)

    return bounds


bounds = bounds_with()


def attain(query_kernel, key_kernel, query_norm, item_norm):
    left, _, right = np.linalg.svd(query_kernel @ key_kernel.T)
    x = item_norm * right[0]
    return query_norm * left[:, 0], np.stack([x, -x])


def attain_exchanged(query_kernel, key_kernel, query_norm, item_norm):
    left, _, right = np.linalg.svd(query_kernel @ key_kernel.T)
    x = item_norm * left[:, 0]
    return query_norm * right[0], np.stack([x, -x])


def attain_kernel_by_kernel(query_kernel, key_kernel, query_norm, item_norm):
    x = item_norm * np.linalg.svd(key_kernel)[0][:, 0]
    return query_norm * np.linalg.svd(query_kernel)[0][:, 0], np.stack([x, -x])


def attain_one_side(*arguments):
    y, items = attain(*arguments)
    return y, items * np.array([[1], [0]])


def test_right_answers_to_exercise_1_pass():
    ch05.ex1(bounds, attain).require()

    def by_library(query_kernels, key_kernels, gain, y, items, head):
        y, items = rms(y, gain), rms(items, gain)
        pair = query_kernels[:, head], key_kernels[:, head]
        norms = dispersion.spread_bound_norms(*pair, np.linalg.norm(y), np.linalg.norm(items, axis=1).max())
        return norms, dispersion.spread_bound_tight(*pair, np.linalg.norm(y), dispersion.diameter(items))

    ch05.ex1(by_library, lambda *a: (-attain(*a)[0], np.concatenate([attain(*a)[1], 0 * attain(*a)[1]]))).require()


def all_heads(kernel, head):
    return kernel.reshape(len(kernel), -1)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, attain), "not written yet"),
        ((bounds, unwritten), "not written yet"),
        ((bounds_with(width=lambda k: 1), attain), "√d dropped"),
        ((bounds_with(width=lambda k: k.shape[0]), attain), "the width of the model for that of the head"),
        ((bounds_with(kernels=all_heads), attain), "the kernels of all heads for one"),
        ((bounds_with(norm=lambda x, gain: x), attain), "norms before the normalisation"),
        (
            (bounds_with(tight=lambda q, k: np.linalg.norm(q, 2) * np.linalg.norm(k, 2)), attain),
            "the product of two norms for the norm of the product",
        ),
        ((bounds_with(factor=1.0), attain), "the factor 2 missing"),
        ((lambda *a: bounds(*a)[::-1], attain), "the two forms exchanged"),
        ((lambda *a: (np.nan, np.nan), attain), "NaN"),
        ((bounds, attain_exchanged), "right for left"),
        ((bounds, attain_kernel_by_kernel), "the top direction of one kernel for that of the product"),
        ((bounds, attain_one_side), "items on one side"),
        ((bounds, lambda *a: (attain(*a)[0], attain(*a)[1] ** 0 * attain(*a)[1][:1])), "no spread at all"),
        ((bounds, lambda *a: (attain(*a)[0] * 2, attain(*a)[1])), "not recognised"),
        ((bounds, lambda *a: (attain(*a)[0], attain(*a)[1].T)), "does not hold"),
    ],
)
def test_mistakes_in_exercise_1_are_named(answer, mistake):
    assert ch05.ex1(*answer).mistake == mistake


# 05.2 Rotations break the tight form


def broken(query_kernel, key_kernel, rotate):
    x = np.linalg.svd(key_kernel)[0][:, 0]
    keys = rotate(np.stack([x, x]) @ key_kernel, np.array([0.0, 3.0]))
    y = np.linalg.lstsq(query_kernel.T, rotate(keys[0] - keys[1], -4.0), rcond=None)[0]
    return y, x, 4, 0, 3


def repaired(query_kernel, key_kernel, y, items, query_position, positions, rotate):
    query, keys = y @ query_kernel, rotate(items @ key_kernel, positions)
    return np.linalg.norm(query) * reach(keys) / np.sqrt(len(query))


def repaired_with(length=lambda w_q, w_k, y, x, keys: reach(keys), query=None, power=0.5):
    def answer(query_kernel, key_kernel, y, items, query_position, positions, rotate):
        keys = rotate(items @ key_kernel, positions)
        size = np.linalg.norm(y @ query_kernel) if query is None else query(query_kernel, key_kernel, y)
        return size * length(query_kernel, key_kernel, y, items, keys) * query_kernel.shape[1] ** -power

    return answer


def across(query_kernel, key_kernel, rotate):
    y, x, *places = broken(query_kernel, key_kernel, rotate)
    keys = rotate(np.stack([x, x]) @ key_kernel, np.array(places[1:], float))
    gap = rotate(keys[0] - keys[1], -float(places[0]))
    other = np.ones(gap.size) - gap * gap.sum() / (gap @ gap)
    return np.linalg.lstsq(query_kernel.T, other, rcond=None)[0], x, *places


def norm_form(w_q, w_k, y, x, keys):
    return 2 * np.linalg.norm(w_k, 2) * np.linalg.norm(x, axis=1).max()


def test_right_answers_to_exercise_2_pass():
    ch05.ex2(broken, repaired).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, repaired), "not written yet"),
        ((broken, unwritten), "not written yet"),
        ((lambda *a: (*broken(*a)[:4], 0), repaired), "only equal offsets tried"),
        ((across, repaired), "a query that sees no difference"),
        ((lambda *a: (np.full(3, np.nan), *broken(*a)[1:]), repaired), "does not hold"),
        (
            (broken, repaired_with(lambda w_q, w_k, y, x, keys: reach(x @ w_k))),
            "a difference moved through two different rotations",
        ),
        (
            (
                broken,
                repaired_with(
                    lambda w_q, w_k, y, x, keys: reach(x),
                    query=lambda w_q, w_k, y: np.linalg.norm(w_q @ w_k.T, 2) * np.linalg.norm(y),
                ),
            ),
            "the tight form of the items",
        ),
        ((broken, repaired_with(power=1.0)), "divided once too often"),
        ((broken, repaired_with(power=0.0)), "√d dropped"),
        (
            (broken, repaired_with(norm_form, query=lambda w_q, w_k, y: np.linalg.norm(w_q, 2) * np.linalg.norm(y))),
            "the norm form",
        ),
        (
            (broken, repaired_with(lambda w_q, w_k, y, x, keys: 2 * np.linalg.norm(keys, axis=1).max())),
            "the lengths of the keys for their distance",
        ),
        (
            (broken, repaired_with(query=lambda w_q, w_k, y: np.linalg.norm(w_q, 2) * np.linalg.norm(y))),
            "σ(W_Q)‖y‖ for the length of the query",
        ),
    ],
)
def test_mistakes_in_exercise_2_are_named(answer, mistake):
    assert ch05.ex2(*answer).mistake == mistake


# 05.3 The budget


def budget(n, weight, query_norm, item_norm, width, temperature):
    spread = temperature * math.log((n - 1) * weight / (1 - weight))
    return max(spread, 0.0) * math.sqrt(width) / (2 * query_norm * item_norm)


def flat(n, weight, product):
    """Half of the items at one end: all of the spread, and no leader."""
    side = np.where(np.arange(n) % 2, 1.0, -1.0)
    return product * np.eye(3, 2), np.eye(4, 2), np.eye(3)[0], side[:, None] * np.eye(4)[0]


def leader(n, weight, product):
    w_q, w_k, y, _ = flat(n, weight, product)
    return w_q, w_k, y, np.where(np.arange(n) == 0, 1.0, -1.0)[:, None] * np.eye(4)[0]


def of_spread(spread):
    return lambda n, w, y, x, d, t: spread(n, w, t) * math.sqrt(d) / (2 * y * x)


def test_right_answers_to_exercise_3_pass():
    ch05.ex3(budget, flat).require()
    library = dispersion.least_spectral_product
    ch05.ex3(lambda n, w, y, x, d, t: library(n, w, y, x, t, scale=d**-0.5), flat).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, flat), "not written yet"),
        ((budget, unwritten), "not written yet"),
        ((of_spread(lambda n, w, t: t * math.log(n)), flat), "log n alone"),
        ((of_spread(lambda n, w, t: t * math.log(n - 1)), flat), "log n alone"),
        ((lambda *a: 2 * budget(*a), flat), "the factor 2"),
        ((lambda *a: budget(*a) / 2, flat), "the factor 2"),
        ((lambda *a: budget(*a) / a[-1], flat), "θ missing"),
        ((lambda *a: budget(*a) / math.sqrt(a[-2]), flat), "√d missing"),
        ((of_spread(lambda n, w, t: t * math.log(n * w / (1 - w))), flat), "n for n − 1"),
        ((of_spread(lambda n, w, t: t * math.log(n * w)), flat), "log(nw), without the odds"),
        ((of_spread(lambda n, w, t: t * math.log((n - 1) * w / (1 - w))), flat), "a negative budget"),
        ((lambda *a: math.nan, flat), "NaN"),
        ((budget, leader), "the budget read as sufficient"),
        ((budget, lambda *a: (*flat(*a)[:3], abs(flat(*a)[3]))), "no spread at all"),
        ((budget, lambda n, w, p: flat(n, w, p / 2)), "does not hold"),
        ((budget, lambda n, w, p: flat(n + 1, w, p)), "does not hold"),
    ],
)
def test_mistakes_in_exercise_3_are_named(answer, mistake):
    assert ch05.ex3(*answer).mistake == mistake


# 05.4 The QK-norm ceiling


def ceiling(query_gain, key_gain):
    return 2 * math.sqrt(len(query_gain)) * np.abs(query_gain * key_gain).max()


def size_with(spread=ceiling, epsilon=lambda kappa, e: 1 + kappa * (1 / e - 1), theta=lambda t: t, add=1):
    return lambda q, k, e, t: math.floor(epsilon(math.exp(spread(q, k) / theta(t)), e)) + add


size = size_with()


def stretched(stretch):
    return lambda q, k: 2 * math.sqrt(len(q)) * stretch(q, k)


def test_right_answers_to_exercise_4_pass():
    ch05.ex4(ceiling, size).require()
    library = dispersion.size_for_weight_below
    ch05.ex4(dispersion.qk_norm_ceiling, lambda q, k, e, t: library(e, dispersion.qk_norm_ceiling(q, k), t)).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        ((unwritten, size), "not written yet"),
        ((ceiling, unwritten), "not written yet"),
        ((lambda q, k: ceiling(q, k) / 2, size), "the range of the cosine taken as 1"),
        ((lambda q, k: ceiling(q, k) / len(q), size), "the length of a normalised vector taken as 1"),
        ((lambda q, k: ceiling(q, k) * math.sqrt(len(q)), size), "√d dropped"),
        ((stretched(lambda q, k: abs(q.mean() * k.mean())), size), "gains reduced to their mean"),
        ((stretched(lambda q, k: abs(q).mean() * abs(k).mean()), size), "gains reduced to their mean"),
        ((stretched(lambda q, k: np.max((q * k) ** 2)), size), "the gain applied twice"),
        ((stretched(lambda q, k: abs(q).max() * abs(k).max()), size), "the largest gains of different channels"),
        ((stretched(lambda q, k: np.max(q * k)), size), "the sign of a gain"),
        ((lambda q, k: math.nan, size), "NaN"),
        ((ceiling, size_with(theta=lambda t: 1.0)), "δ for δ/θ"),
        ((ceiling, size_with(epsilon=lambda kappa, e: kappa / e)), "the simple threshold"),
        ((ceiling, size_with(spread=lambda q, k: ceiling(q, k) / 2)), "half the ceiling"),
        ((ceiling, size_with(add=0)), "off by one"),
        ((ceiling, size_with(add=2)), "off by one"),
    ],
)
def test_mistakes_in_exercise_4_are_named(answer, mistake):
    assert ch05.ex4(*answer).mistake == mistake


# 05.5 Track σ cheaply


def unit(v):
    return v / jnp.linalg.norm(v)


def track(query_kernel, key_kernel, v):
    u = query_kernel @ (key_kernel.T @ v)
    return jnp.linalg.norm(u), unit(key_kernel @ (query_kernel.T @ u))


def track_with(sigma=None, following=None):
    def answer(query_kernel, key_kernel, v):
        right_sigma, right_v = track(query_kernel, key_kernel, v)
        return (
            right_sigma if sigma is None else sigma(query_kernel, key_kernel, v),
            right_v if following is None else following(query_kernel, key_kernel, v),
        )

    return answer


def settled_elsewhere(query_kernel, key_kernel, v):
    """Right for the vector given, and forgets what it found: each call starts from the same place again."""
    sigma, following = track(query_kernel, key_kernel, v)
    return sigma, jnp.where(jnp.abs(key_kernel).max() > 1.2, unit(jnp.arange(1.0, v.size + 1)), following)


def by_svd(query_kernel, key_kernel, v):
    return jnp.linalg.svd(query_kernel @ key_kernel.T, compute_uv=False)[0], track(query_kernel, key_kernel, v)[1]


def with_the_product(query_kernel, key_kernel, v):
    product = query_kernel @ key_kernel.T
    u = product @ v
    return jnp.linalg.norm(u), unit(product.T @ u)


def in_numpy(query_kernel, key_kernel, v):
    query_kernel, key_kernel, v = (np.asarray(x) for x in (query_kernel, key_kernel, v))
    u = query_kernel @ (key_kernel.T @ v)
    v = key_kernel @ (query_kernel.T @ u)
    return np.linalg.norm(u), v / np.linalg.norm(v)


def test_right_answers_to_exercise_5_pass():
    ch05.ex5(track).require()
    ch05.ex5(jax.jit(track)).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (track_with(sigma=lambda q, k, v: track(q, k, v)[0] ** 2), "returned σ²"),
        (
            track_with(sigma=lambda q, k, v: jnp.linalg.norm(q, 2) * jnp.linalg.norm(k, 2)),
            "the product of two norms",
        ),
        (track_with(sigma=lambda q, k, v: jnp.linalg.norm(k, 2)), "the estimate of one kernel"),
        (track_with(following=lambda q, k, v: unit(q @ (k.T @ v))), "iterated M and not MᵀM"),
        (track_with(following=lambda q, k, v: unit(q @ (k.T @ (k @ (q.T @ v))))), "the wrong side"),
        (track_with(following=lambda q, k, v: v), "no warm start"),
        (settled_elsewhere, "no warm start"),
        (track_with(following=lambda q, k, v: k @ (q.T @ (q @ (k.T @ v)))), "forgot to renormalise"),
        (by_svd, "a decomposition every step"),
        (with_the_product, "the D × D product formed"),
        (in_numpy, "NumPy inside a training step"),
        (lambda q, k, v: (jnp.nan * v.sum(), v * jnp.nan), "does not hold"),
        (lambda q, k, v: (track(q, k, v)[0], track(q, k, v)[1][:, None]), "does not hold"),
    ],
)
def test_mistakes_in_exercise_5_are_named(answer, mistake):
    assert ch05.ex5(answer).mistake == mistake

"""Exercise 01.4: right attentions pass in JAX and in NumPy, and every planted mistake is named."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp.checks import ch01


def attention(
    query,
    key,
    value,
    is_causal=False,
    *,
    scale=None,
    logits="btnh,bsnh->bnts",
    out="bnts,bsnh->btnh",
    mask=None,
    softmax=jax.nn.softmax,
):
    """Attention with each of its parts exchangeable."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale(query, key)
    z = scale * jnp.einsum(logits, query, key)
    if is_causal:
        mask = jnp.tril if mask is None else mask
        z = jnp.where(mask(jnp.ones(z.shape[-2:], bool)), z, -jnp.inf)
    return jnp.einsum(out, softmax(z), value)


def right_in_numpy(query, key, value, is_causal=False):
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    z = np.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(query.shape[-1])
    if is_causal:
        z = np.where(np.tril(np.ones(z.shape[-2:], bool)), z, -np.inf)
    powers = np.exp(z - z.max(-1, keepdims=True))
    return np.einsum("bnts,bsnh->btnh", powers / powers.sum(-1, keepdims=True), value)


def with_part(name, **parts):
    def student(query, key, value, is_causal=False):
        return attention(query, key, value, is_causal, **parts)

    student.__name__ = name
    return student


def stub(query, key, value, is_causal=False):
    raise NotImplementedError


def heads_first_inside(query, key, value, is_causal=False):
    swapped = (x.swapaxes(1, 2) for x in (query, key, value))
    if query.shape[1] != key.shape[1]:
        return attention(query, key, value, is_causal)
    return attention(*swapped, is_causal).swapaxes(1, 2)


def _late(combine):
    def student(query, key, value, is_causal=False):
        weights = jax.nn.softmax(jnp.einsum("btnh,bsnh->bnts", query, key) / jnp.sqrt(query.shape[-1]))
        if is_causal:
            weights = combine(weights, jnp.tril(jnp.ones(weights.shape[-2:], bool)))
        return jnp.einsum("bnts,bsnh->btnh", weights, value)

    return student


def multiplied_late(query, key, value, is_causal=False):
    return _late(lambda weights, mask: weights * mask)(query, key, value, is_causal)


def added_late(query, key, value, is_causal=False):
    return _late(lambda weights, mask: weights + jnp.where(mask, 0.0, -jnp.inf))(query, key, value, is_causal)


def large_added_late(query, key, value, is_causal=False):
    return _late(lambda weights, mask: weights + jnp.where(mask, 0.0, -1e9))(query, key, value, is_causal)


def mask_ignored(query, key, value, is_causal=False):
    return attention(query, key, value)


def _naive(z):
    return jnp.exp(z) / jnp.exp(z).sum(-1, keepdims=True)


def _from_the_end(square):
    return jnp.tril(square, square.shape[1] - square.shape[0])


MISTAKES = {
    stub: "not written yet",
    with_part("heads_added", out="bnts,bsmh->bth"): "wrong shape",
    with_part("heads_summed", out="bnts,bsnh->btnh", softmax=lambda z: jax.nn.softmax(z) * 0 + 1.0): "not recognised",
    with_part("unscaled", scale=lambda q, k: 1.0): "scale left out",
    with_part("by_width", scale=lambda q, k: 1 / q.shape[-1]): "scaled by d, not √d",
    with_part("by_heads", scale=lambda q, k: q.shape[2] ** -0.5): "scaled by the wrong axis",
    with_part("by_keys", scale=lambda q, k: k.shape[1] ** -0.5): "scaled by the wrong axis",
    with_part("over_queries", softmax=lambda z: jax.nn.softmax(z, -2) if z.shape[-1] > 1 else 0 * z + 1): (
        "normalised over the queries"
    ),
    with_part("heads_first", out="bnts,bsnh->bnth"): "time and head axes swapped",
    heads_first_inside: "time and head axes swapped",
    mask_ignored: "mask ignored",
    multiplied_late: "mask added after softmax",
    added_late: "mask added after softmax",
    large_added_late: "mask added after softmax",
    with_part("future", mask=jnp.triu): "future and past exchanged",
    with_part("strict", mask=lambda square: jnp.tril(square, -1)): "strict mask",
    with_part("other_corner", mask=_from_the_end): "diagonal from the other corner",
    with_part("naive", softmax=_naive): "no maximum subtracted",
}


def test_right_attentions_pass():
    ch01.ex4(attention).require()
    ch01.ex4(right_in_numpy).require()


def test_the_library_function_that_the_exercise_rebuilds_passes():
    ch01.ex4(jax.nn.dot_product_attention).require()


@pytest.mark.parametrize(("student", "name"), MISTAKES.items(), ids=lambda x: getattr(x, "__name__", None))
def test_planted_mistakes_are_named(student, name):
    assert ch01.ex4(student).mistake == name


def test_summing_over_heads_is_named():
    def student(query, key, value, is_causal=False):
        out = attention(query, key, value, is_causal).sum(2, keepdims=True)
        return jnp.broadcast_to(out, query.shape)

    assert ch01.ex4(student).mistake == "heads added up"


def test_the_report_draws_the_causal_weights():
    shown = ch01.ex4(multiplied_late)._repr_html_()
    assert "<svg" in shown and "yours beside float64" in shown

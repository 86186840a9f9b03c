"""Exercise 10.4: the right answer passes, the stub is recognised, each planted mistake gets its own name."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from adatemp.checks import ch10

HOLDS = {
    "causal mask": True,
    "bias": False,
    "soft cap": False,
    "offset": False,
    "bfloat16 output": False,
    "shared keys": True,
}


def unwritten(*_):
    raise NotImplementedError


def entropy(attention, query, key, scale):
    query, key = query.astype(jnp.float32), key.astype(jnp.float32)
    mean_key, lse = attention(query, key, key, scale)
    return lse - scale * (query * mean_key).sum(-1)


def changed(combine):
    def answer(attention, query, key, scale):
        query, key = query.astype(jnp.float32), key.astype(jnp.float32)
        mean_key, lse = attention(query, key, key, scale)
        return combine(lse, (query * mean_key).sum(-1), scale)

    return answer


def dense(attention, query, key, scale):
    attention(query, key, key, scale)
    logits = scale * jnp.einsum("btnh,bsnh->btns", query, key)
    p = jax.nn.softmax(logits)
    return -(p * jnp.log(p)).sum(-1)


def twice(attention, query, key, scale):
    lse = attention(query.astype(jnp.float32), key.astype(jnp.float32), key, scale)[1]
    return entropy(attention, query, key, scale) + 0.0 * lse


def as_it_comes(attention, query, key, scale):
    mean_key, lse = attention(query, key, key, scale)
    return lse - scale * (query * mean_key).sum(-1)


def query_as_value(attention, query, key, scale):
    mean, lse = attention(query, key, query, scale)
    return lse - scale * (query * mean).sum(-1)


def test_the_right_answer_passes():
    assert ch10.ex4(entropy, HOLDS).require()


def test_the_cases_are_those_that_the_exercise_names():
    assert set(ch10.CASES) == set(HOLDS)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda *_: None, "not written yet"),
        (lambda *args: entropy(*args)[0], "wrong shape"),
        (lambda *args: entropy(*args) * jnp.nan, "NaN"),
        (lambda *args: entropy(*args) / jnp.log(2.0), "bits for nats"),
        (changed(lambda lse, product, scale: lse - product), "the scale is missing"),
        (changed(lambda lse, product, scale: lse - scale**2 * product), "the scale is applied twice"),
        (changed(lambda lse, product, scale: lse + scale * product), "the mean logit is added"),
        (changed(lambda lse, product, scale: scale * product), "the mean logit alone"),
        (changed(lambda lse, product, scale: lse), "log-sum-exp alone"),
        (query_as_value, "the query for the value"),
        (changed(lambda lse, product, scale: lse - 0.5 * product), "the usual scale assumed"),
        (lambda attention, query, key, scale: entropy(attention, query, key, 0.5), "the usual scale assumed"),
        (dense, "the logits computed by hand"),
        (twice, "more than one call"),
        (as_it_comes, "low-precision output"),
    ],
)
def test_mistakes_in_the_entropy_are_named(answer, mistake):
    assert ch10.ex4(answer, HOLDS).mistake == mistake


@pytest.mark.parametrize(
    ("holds", "mistake"),
    [
        (None, "not written yet"),
        (dict.fromkeys(HOLDS), "not written yet"),
        ({"causal mask": True}, "a verdict is missing"),
        (HOLDS | {"causal mask": False}, "a mask taken for a bias"),
        (HOLDS | {"bias": True}, "the bias is overlooked"),
        (HOLDS | {"soft cap": True}, "the soft cap is overlooked"),
        (HOLDS | {"offset": True}, "the offset is overlooked"),
        (HOLDS | {"bfloat16 output": True}, "a rounded output trusted"),
        (HOLDS | {"shared keys": False}, "shared keys distrusted"),
    ],
)
def test_mistakes_in_the_verdicts_are_named(holds, mistake):
    assert ch10.ex4(entropy, holds).mistake == mistake

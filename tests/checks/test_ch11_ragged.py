"""Exercise 11.1: right kernels pass, and every planted mistake is named."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from adatemp.checks import ch11

BLOCK = 16
LOWEST = -1e30


def stub(*refs):
    raise NotImplementedError


def kernel_with(
    *,
    tiles=lambda count: (count + BLOCK - 1) // BLOCK,
    see=lambda keys, count: keys[None, :] < count[:, None],
    hide="select",
    clean_values=True,
    clean_keys=False,
    scale=8**-0.5,
    rescale=True,
    mask_exp=True,
    guard=True,
    divide=True,
    unit=1.0,
    shift=True,
    lowest=LOWEST,
):
    """A right kernel, of which single parts may be replaced by a mistake."""

    def kernel(count_ref, query_ref, key_ref, value_ref, output_ref, entropy_ref):
        count, query = count_ref[...], query_ref[...]

        def step(tile, carry):
            m, l, s, u = carry
            here = pl.ds(tile * BLOCK, BLOCK)
            keys = tile * BLOCK + jnp.arange(BLOCK)
            seen = see(keys, count)
            exists = (keys < count.max())[:, None]
            key, value = key_ref[here, :], value_ref[here, :]
            if clean_values:
                value = jnp.where(exists, value, 0.0)
            if clean_keys:
                key = jnp.where(exists, key, 0.0)
            z = query @ key.T * scale
            if hide == "select":
                z = jnp.where(seen, z, lowest)
            elif hide == "add":
                z = z + jnp.where(seen, 0.0, lowest)
            new = jnp.maximum(m, z.max(axis=1)) if shift else jnp.zeros_like(m)
            d = jnp.where(m > lowest, m - new, 0.0) if rescale else jnp.zeros_like(m)
            t = z - new[:, None]
            e = jnp.exp(t)
            if mask_exp:
                t, e = jnp.where(seen, t, 0.0), jnp.where(seen, e, 0.0)
            a = jnp.exp(d)
            s = a * (s + d * l) + (e * t).sum(axis=1)
            return new, a * l + e.sum(axis=1), s, a[:, None] * u + e @ value

        rows = jnp.zeros(16)
        start = jnp.full(16, lowest), rows, rows, jnp.zeros((16, 4))
        m, l, s, u = jax.lax.fori_loop(0, tiles(count.max()), step, start)
        safe = jnp.where(l > 0, l, 1.0) if guard else l
        output_ref[...] = u / safe[:, None] if divide else u
        entropy_ref[...] = (jnp.log(safe) - s / safe) / unit

    return kernel


right = kernel_with()


def nothing_written(*refs):
    pass


def half_written(count_ref, query_ref, key_ref, value_ref, output_ref, entropy_ref):
    entropy_ref[...] = jnp.zeros(16)


def spoiled(count_ref, query_ref, key_ref, value_ref, output_ref, entropy_ref):
    """Visits as many tiles as the row that sees fewest keys needs."""
    first = kernel_with(tiles=lambda _: jnp.where(count_ref[...].min() == 0, 1, 3))
    first(count_ref, query_ref, key_ref, value_ref, output_ref, entropy_ref)


def test_the_right_answer_passes():
    assert ch11.ex1(right).require()


def test_an_unrolled_loop_passes():
    def unrolled(count_ref, query_ref, key_ref, value_ref, output_ref, entropy_ref):
        exists = (jnp.arange(48) < count_ref[...].max())[:, None]
        seen = jnp.arange(48)[None, :] < count_ref[...][:, None]
        z = jnp.where(seen, query_ref[...] @ key_ref[...].T / jnp.sqrt(8.0), LOWEST)
        m = z.max(axis=1, keepdims=True)
        e = jnp.where(seen, jnp.exp(z - m), 0.0)
        l = jnp.where(seen[:, 0], e.sum(axis=1), 1.0)
        output_ref[...] = e @ jnp.where(exists, value_ref[...], 0.0) / l[:, None]
        entropy_ref[...] = jnp.log(l) - (e * (z - m)).sum(axis=1) / l

    assert ch11.ex1(unrolled).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (stub, "not written yet"),
        (nothing_written, "nothing is written"),
        (half_written, "nothing is written"),
        (kernel_with(unit=math.log(2.0)), "bits for nats"),
        (kernel_with(scale=1.0), "the scale is missing"),
        (kernel_with(rescale=False), "the sums are not rescaled"),
        (kernel_with(divide=False), "the output is not divided"),
        (kernel_with(tiles=lambda count: count // BLOCK), "the ragged tail is dropped"),
        (
            kernel_with(hide="no", mask_exp=False, clean_keys=True, see=lambda keys, count: keys[None, :] < 48),
            "padding counted as e⁰",
        ),
        (kernel_with(hide="add", mask_exp=False), "a mask that is added"),
        (kernel_with(clean_values=False), "0 · NaN through the values"),
        (kernel_with(see=lambda keys, count: keys[None, :] < count.max()), "one length for all queries"),
        (
            kernel_with(see=lambda keys, count: (keys[None, :] <= count[:, None]) & (keys[None, :] < count.max())),
            "one key too many",
        ),
        (kernel_with(guard=False), "0/0 in a dead row"),
        (kernel_with(mask_exp=False), "a finite sentinel in a dead row"),
        (spoiled, "a dead row spoils others"),
        (kernel_with(shift=False), "no maximum subtracted"),
        (kernel_with(lowest=-1e3), "the stand-in is above the logits"),
    ],
)
def test_mistakes_are_named(answer, mistake):
    assert ch11.ex1(answer).mistake == mistake

"""Exercise 11.2: right kernels pass, and every planted mistake is named."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from adatemp.checks import ch11

BLOCK = 16


def stub(*refs):
    raise NotImplementedError


def nothing_written(*refs):
    pass


def kernel_with(
    *,
    exponent=lambda z, m, beta: beta * (z - m),
    finish=lambda u, l, beta, m: (u / l[:, None], jnp.log(l)),
):
    """A right kernel, whose exponent or end may be replaced by a mistake."""

    def kernel(beta_ref, m_ref, query_ref, key_ref, value_ref, output_ref, total_ref):
        beta, m, query = beta_ref[...], m_ref[...], query_ref[...]

        def step(tile, sums):
            l, u = sums
            here = pl.ds(tile * BLOCK, BLOCK)
            z = query @ key_ref[here, :].T / math.sqrt(8)
            e = jnp.exp(exponent(z, m[:, None], beta[:, None]))
            return l + e.sum(axis=1), u + e @ value_ref[here, :]

        l, u = jax.lax.fori_loop(0, 3, step, (jnp.zeros(16), jnp.zeros((16, 4))))
        output_ref[...], total_ref[...] = finish(u, l, beta, m)

    return kernel


right = kernel_with()


def running(beta_ref, m_ref, query_ref, key_ref, value_ref, output_ref, total_ref):
    """Plain attention's loop on the tempered row."""
    beta, query = beta_ref[...], query_ref[...]

    def step(tile, carry):
        top, l, u = carry
        here = pl.ds(tile * BLOCK, BLOCK)
        z = beta[:, None] * (query @ key_ref[here, :].T / math.sqrt(8))
        new = jnp.maximum(top, z.max(axis=1))
        e, a = jnp.exp(z - new[:, None]), jnp.exp(top - new)
        return new, a * l + e.sum(axis=1), a[:, None] * u + e @ value_ref[here, :]

    start = jnp.full(16, -1e30), jnp.zeros(16), jnp.zeros((16, 4))
    top, l, u = jax.lax.fori_loop(0, 3, step, start)
    output_ref[...] = u / l[:, None]
    total_ref[...] = jnp.log(l) + top - beta * m_ref[...]


def rescaling(beta_ref, m_ref, query_ref, key_ref, value_ref, output_ref, total_ref):
    """Knows the maximum and multiplies the sums by e⁰ all the same."""
    beta, m, query = beta_ref[...], m_ref[...], query_ref[...]

    def step(tile, carry):
        top, l, u = carry
        here = pl.ds(tile * BLOCK, BLOCK)
        z = query @ key_ref[here, :].T / math.sqrt(8)
        e, a = jnp.exp(beta[:, None] * (z - m[:, None])), jnp.exp(top - m)
        return m, a * l + e.sum(axis=1), a[:, None] * u + e @ value_ref[here, :]

    _, l, u = jax.lax.fori_loop(0, 3, step, (m, jnp.zeros(16), jnp.zeros((16, 4))))
    output_ref[...], total_ref[...] = u / l[:, None], jnp.log(l)


def at_once(beta_ref, m_ref, query_ref, key_ref, value_ref, output_ref, total_ref):
    z = query_ref[...] @ key_ref[...].T / math.sqrt(8)
    e = jnp.exp(beta_ref[...][:, None] * (z - m_ref[...][:, None]))
    output_ref[...] = e @ value_ref[...] / e.sum(axis=1)[:, None]
    total_ref[...] = jnp.log(e.sum(axis=1))


def test_the_right_answer_passes():
    assert ch11.ex2(right).require()


def test_exponentials_to_base_two_pass():
    def in_twos(beta_ref, m_ref, query_ref, key_ref, value_ref, output_ref, total_ref):
        beta, m, query = beta_ref[...], m_ref[...], query_ref[...]
        l, u = jnp.zeros(16), jnp.zeros((16, 4))
        for tile in range(3):
            here = pl.ds(tile * BLOCK, BLOCK)
            z = query @ key_ref[here, :].T / math.sqrt(8)
            e = jnp.exp2(jnp.minimum(beta[:, None] * (z - m[:, None]), 0.0) / math.log(2))
            l, u = l + e.sum(axis=1), u + e @ value_ref[here, :]
        output_ref[...], total_ref[...] = u / l[:, None], jnp.log(l)

    assert ch11.ex2(in_twos).require()


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (stub, "not written yet"),
        (nothing_written, "nothing is written"),
        (kernel_with(exponent=lambda z, m, beta: z - m), "the temperature is left out"),
        (kernel_with(exponent=lambda z, m, beta: (z - m) / beta), "θ for β"),
        (kernel_with(exponent=lambda z, m, beta: beta * z - m), "the maximum is not multiplied by β"),
        (kernel_with(exponent=lambda z, m, beta: jnp.maximum(beta, 1.0) * (z - m)), "β below 1 taken for 1"),
        (
            kernel_with(
                exponent=lambda z, m, beta: beta * z - m,
                finish=lambda u, l, beta, m: (u / l[:, None], jnp.log(l) - (beta - 1) * m),
            ),
            "exponentials that are not shifted",
        ),
        (
            kernel_with(finish=lambda u, l, beta, m: (u / l[:, None], jnp.log(l) / math.log(2))),
            "bits for nats",
        ),
        (
            kernel_with(finish=lambda u, l, beta, m: (u / l[:, None], jnp.log(l) + beta * m)),
            "log-sum-exp for the total",
        ),
        (kernel_with(finish=lambda u, l, beta, m: (u / l[:, None], l)), "the total without its logarithm"),
        (kernel_with(finish=lambda u, l, beta, m: (u, jnp.log(l))), "the output is not divided"),
        (running, "the maximum of the tempered tile is computed again"),
        (rescaling, "the sums are rescaled"),
        (at_once, "all keys at once"),
    ],
)
def test_mistakes_are_named(answer, mistake):
    assert ch11.ex2(answer).mistake == mistake

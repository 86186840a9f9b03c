"""Exercise 10.6: right answers pass on a mapped axis and on eight devices, and every planted mistake is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from adatemp.checks import ch10

LOWEST = -1e30


def unwritten(*_):
    raise NotImplementedError


def state(z):
    live = z > -jnp.inf
    m = jnp.maximum(z.max(-1), LOWEST)
    t = jnp.where(live, z - m[:, None], 0.0)
    e = jnp.where(live, jnp.exp(t), 0.0)
    return m, e.sum(-1), (e * t).sum(-1)


def finalise(m, l, s):
    return m + jnp.log(l), jnp.log(l) - s / l


def merged(m, l, s):
    """One state of eight, stacked on the first axis."""
    top = m.max(0)
    d = m - top
    return top, (jnp.exp(d) * l).sum(0), (jnp.exp(d) * (s + d * l)).sum(0)


def across(z, axis_name):
    m, l, s = jnp.moveaxis(jax.lax.all_gather(jnp.stack(state(z)), axis_name), 1, 0)
    return finalise(*merged(m, l, s))


def test_the_right_answer_passes():
    assert ch10.ex6(across).require()


def test_the_right_answer_passes_and_a_mistake_is_named_on_eight_devices():
    program = (
        "import jax, test_ch10_devices as t\n"
        "assert len(jax.devices()) == 8 and 'eight devices' in str(t.ch10.ex6(lambda *_: 1 / 0))\n"
        "assert t.ch10.ex6(t.across).require()\n"
        "print(t.ch10.ex6(t.added).mistake)\n"
    )
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == "sums added before a common maximum", run.stderr


# Mistakes


def own(z, axis_name):
    return finalise(*state(z))


def in_bits(z, axis_name):
    lse, entropy = across(z, axis_name)
    return lse, entropy / jnp.log(2.0)


def averaged(z, axis_name):
    return across(z, axis_name)[0], jax.lax.pmean(own(z, axis_name)[1], axis_name)


def averaged_by_mass(z, axis_name):
    lse, entropy = own(z, axis_name)
    whole = across(z, axis_name)[0]
    return whole, jax.lax.psum(jnp.exp(lse - whole) * entropy, axis_name)


def lse_summed(z, axis_name):
    return jax.lax.psum(own(z, axis_name)[0], axis_name), across(z, axis_name)[1]


def added(z, axis_name):
    m, l, s = state(z)
    return finalise(jax.lax.pmax(m, axis_name), jax.lax.psum(l, axis_name), jax.lax.psum(s, axis_name))


def moment_left(z, axis_name):
    m, l, s = state(z)
    top = jax.lax.pmax(m, axis_name)
    a = jnp.exp(m - top)
    return finalise(top, jax.lax.psum(a * l, axis_name), jax.lax.psum(a * s, axis_name))


def of_shares(z, axis_name):
    lse = jax.lax.all_gather(own(z, axis_name)[0], axis_name)
    p = jax.nn.softmax(lse, axis=0)
    return jax.nn.logsumexp(lse, axis=0), -(p * jnp.log(p)).sum(0)


def first_device(z, axis_name):
    """Relative to the first device's maximum."""
    m, l, s = jnp.moveaxis(jax.lax.all_gather(jnp.stack(state(z)), axis_name), 1, 0)
    d = m - m[0]
    return finalise(m[0], (jnp.exp(d) * l).sum(0), (jnp.exp(d) * (s + d * l)).sum(0))


def infinite_maximum(z, axis_name):
    m, l, s = state(z)
    m = jnp.where(m == LOWEST, -jnp.inf, m)
    m, l, s = jnp.moveaxis(jax.lax.all_gather(jnp.stack([m, l, s]), axis_name), 1, 0)
    return finalise(*merged(m, l, s))


def counted(z, axis_name):
    """A logit of −∞ stands at the maximum, and the maximum of nothing at 0."""
    m = jnp.where(jnp.isfinite(z).any(-1), z.max(-1), 0.0)
    t = jnp.where(z > -jnp.inf, z - m[:, None], 0.0)
    parts = jnp.stack([m, jnp.exp(t).sum(-1), (jnp.exp(t) * t).sum(-1)])
    return finalise(*merged(*jnp.moveaxis(jax.lax.all_gather(parts, axis_name), 1, 0)))


def unshifted(z, axis_name):
    m, l, _ = state(z)
    lse = m + jnp.log(l)
    mean = (jnp.exp(z - lse[:, None]) * jnp.where(z > -jnp.inf, z, 0.0)).sum(-1)
    mean = jnp.where(l > 0, mean, 0.0)
    lses, means = jnp.moveaxis(jax.lax.all_gather(jnp.stack([lse, mean]), axis_name), 1, 0)
    whole = jax.nn.logsumexp(lses, axis=0)
    return whole, whole - (jnp.exp(lses - whole) * means).sum(0)


def row_collected(z, axis_name):
    return finalise(*state(jax.lax.all_gather(z, axis_name, axis=1, tiled=True)))


def three_collectives(z, axis_name):
    m, l, s = state(z)
    top = jax.lax.pmax(m, axis_name)
    d = m - top
    l, s = jax.lax.psum(jnp.exp(d) * l, axis_name), jax.lax.psum(jnp.exp(d) * (s + d * l), axis_name)
    return finalise(top, l, s)


def gathered_one_by_one(z, axis_name):
    return finalise(*merged(*(jax.lax.all_gather(part, axis_name) for part in state(z))))


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda z, axis_name: None, "not written yet"),
        (lambda z, axis_name: tuple(x[:2] for x in across(z, axis_name)), "wrong shape"),
        (lambda z, axis_name: tuple(x * jnp.nan for x in across(z, axis_name)), "NaN"),
        (own, "no collective"),
        (in_bits, "bits for nats"),
        (lambda z, axis_name: tuple(x / jnp.log(2.0) for x in across(z, axis_name)), "bits for nats"),
        (lambda z, axis_name: across(z, axis_name)[::-1], "the results exchanged"),
        (averaged, "entropies averaged"),
        (averaged_by_mass, "entropies averaged"),
        (lse_summed, "normalisers added"),
        (added, "sums added before a common maximum"),
        (moment_left, "the first moment is not moved"),
        (of_shares, "the entropy of the shares"),
        (first_device, "one device's maximum for all"),
        (infinite_maximum, "−∞ − (−∞), or 0 · (−∞)"),
        (counted, "hidden keys counted as e⁰"),
        (unshifted, "two large numbers subtracted"),
        (row_collected, "the logits are sent"),
        (three_collectives, "more than one collective"),
        (gathered_one_by_one, "more than one collective"),
    ],
)
def test_mistakes_are_named(answer, mistake):
    assert ch10.ex6(answer).mistake == mistake

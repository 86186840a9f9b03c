"""decreasing_root finds the root of each row, or the end nearest to it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from adatemp._compat import enable_x64
from adatemp._monotone_root import decreasing_root


def test_each_row_gets_its_own_root_to_a_few_units_in_the_last_place():
    roots = np.array([-3.0, -0.1, 0.0, 1e-9, 2.5, 7.0])
    with enable_x64(True):
        # Steep, flat and cubic in turn: where Newton is right at once, crawls, and has slope 0 at the root.
        for f in (lambda y: (jnp.tanh(-9 * y), -9 / jnp.cosh(9 * y) ** 2), lambda y: (-(y**3), -3 * y**2)):
            solve = jax.jit(lambda low, high, f=f: decreasing_root(lambda x: f(x - roots), low, high))
            got = np.asarray(solve(np.full(6, -10.0), np.full(6, 11.0)))
            np.testing.assert_allclose(got, roots, atol=1e-13)


def test_without_a_root_it_is_the_nearer_end_and_nan_stays_nan():
    level = np.float32([-5.0, 0.5, 5.0, np.nan])

    def line(x):
        return (level - x, -jnp.ones_like(x))

    got = np.asarray(decreasing_root(line, jnp.zeros(4), jnp.ones(4)))
    np.testing.assert_array_equal(got, np.float32([0, 0.5, 1, np.nan]))

"""The two references of attention agree: the definitions row by row, and the plain function with its derivative."""

from __future__ import annotations

import cases
import jax
import numpy as np
import oracle
import pytest
from compare import CASES, beta_of_row, plain_function, reference

from adatemp._compat import enable_x64


@pytest.mark.parametrize("name", CASES)
def test_the_plain_function_is_the_definition(name):
    case, want, _, _ = reference(name, "float64")
    with enable_x64(True):
        got = plain_function(case, case.options)(case.arrays)
    for a, b, field in zip(got, want, oracle.Rows._fields):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=field)


@pytest.mark.parametrize("name", ["rule-solved", *(f"mixed-{i}" for i in range(0, len(cases.MIXED), 3))])
def test_the_derivative_of_the_plain_function_is_that_of_central_differences_of_the_definition(name):
    case, want, cotangents, gradients = reference(name, "float64")
    live = ~np.isneginf(want.lse)

    def loss(arrays):
        options = case.options | {name: arrays[name] for name in ("bias", "sink") if name in arrays}
        rows = oracle.attention(
            arrays["query"], arrays["key"], arrays["value"], beta_of=beta_of_row(case, arrays), **options
        )
        return sum(np.sum((x * ct)[live]) for x, ct in zip(rows, cotangents))

    rng = np.random.default_rng(0)
    leaves, tree = jax.tree.flatten(case.arrays)
    for i, (leaf, gradient) in enumerate(zip(leaves, jax.tree.leaves(gradients))):
        leaf = np.asarray(leaf)
        # Two coordinates of each array; a bias of -inf has none.
        places = [np.unravel_index(j, leaf.shape) for j in rng.permutation(np.flatnonzero(np.isfinite(leaf)))[:2]]
        for place in places:
            moved = []
            for step in (1e-5, -1e-5):
                changed = leaf.astype(np.float64, copy=True)
                changed[place] += step
                moved.append(loss(jax.tree.unflatten(tree, [changed if k == i else x for k, x in enumerate(leaves)])))
            # Differences of a sum of some thousands, divided by 2e-5.
            np.testing.assert_allclose((moved[0] - moved[1]) / 2e-5, gradient[place], rtol=1e-5, atol=2e-6)

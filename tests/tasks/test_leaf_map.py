"""A fitted map with its numbers as leaves is the same map, and maps of two heads share a program."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from adatemp import polynomial
from adatemp.tasks._leaf_map import leaf_map
from adatemp.temperature import RowStatistics


@pytest.mark.parametrize("coefficients", [(0.5, 1.2), (-0.2, 0.4, 1.5), (0.1, -0.3, 0.2, 0.9, 1.1)])
def test_it_is_the_fitted_map(coefficients):
    rule = polynomial(coefficients, threshold=0.0, clip=(0.5, 3.5), centre=2.0, scale=1.5)
    stats = RowStatistics(entropy=np.linspace(0, 6, 61, dtype=np.float32))
    np.testing.assert_allclose(leaf_map(rule).beta(stats), rule.beta(stats), rtol=2e-6)


def test_maps_of_different_degree_and_range_have_one_structure():
    one = polynomial((0.5, 1.2), threshold=0.0, clip=(0.5, 3.5))
    two = polynomial((0.1, 0.5, 1.2), threshold=0.0, clip=(0.1, 2.0), centre=1.0)
    assert jax.tree.structure(leaf_map(one)) == jax.tree.structure(leaf_map(two))

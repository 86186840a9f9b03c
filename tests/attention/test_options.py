"""One test for every option and every implementation: values, statistics and all gradients against float64.

Cotangents reach the output and every statistic at once, dead rows too, so nothing can hide in what is not asked for.

Float32 has absolute gates. Logits are exact to a few units of 1e-7 times their size, about 8; the weights are a
further exponential away, and a temperature that reads the entropy multiplies its error by up to 2.5. Float16 and
bfloat16 are held against the naive form in the same dtype: output twice its error, gradients three times. Their
statistics have the gates of float32, for they are functions of inputs that are exact.
"""

from __future__ import annotations

import functools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import plain
import pytest
from compare import CASES, GATES, assert_statistics, measured, plain_function, reference, relative_errors
from implementations import EXACT, IMPLEMENTATIONS
from row_oracle import KINKS

from adatemp._compat import enable_x64

LOW_PRECISION = ("rule-paper", "mixed-2")


MIXED = [f"mixed-{i}" for i in range(len(cases.MIXED))]
# Programs take far longer to compile than to run, so the forms with blocks have an option alone only where no mixed
# case has it.
NOT_MIXED = [
    name
    for name, levels in cases.ALONE.items()
    if any(level not in cases.MIXED_FACTORS.get(factor, ()) for factor, level in levels.items()) or not levels
]


def servable(implementation: str, name: str) -> bool:
    case = cases.build(name, CASES[name])
    return case.rule is None or case.rule.streams or implementation in ("dense", "queries")


EVERY = [
    (implementation, name)
    for implementation in IMPLEMENTATIONS
    for name in (CASES if implementation == "dense" else [*NOT_MIXED, *MIXED])
    if servable(implementation, name)
]


@pytest.mark.parametrize(("implementation", "name"), EVERY)
def test_values_statistics_and_gradients_in_float32(implementation, name):
    _, want, _, want_gradients = reference(name, "float32")
    got, gradients = measured(name, implementation, "float32")
    assert np.max(np.abs(got.output - want.output)) <= GATES["output"]
    assert np.all(got.output[np.isneginf(want.lse)] == 0)
    assert_statistics(got, want)
    errors = relative_errors(gradients, want_gradients)
    assert all(error <= 1e-5 for error in errors.values()), errors


@pytest.mark.parametrize(
    ("implementation", "name"), [(i, name) for i in EXACT for name in (MIXED if i == "dense" else MIXED[::4])]
)
def test_values_statistics_and_gradients_in_float64(implementation, name):
    _, want, _, want_gradients = reference(name, "float64")
    with enable_x64(True):
        got, gradients = measured(name, implementation, "float64")
    assert np.max(np.abs(got.output - want.output)) <= 1e-12
    assert_statistics(got, want, dict.fromkeys(GATES, 1e-12))
    errors = relative_errors(gradients, want_gradients)
    assert all(error <= 1e-12 for error in errors.values()), errors


@functools.cache
def naive_errors(name: str, dtype: str):
    """The largest error of the output and of each gradient when every step is taken in the dtype itself."""
    case, want, cotangents, want_gradients = reference(name, dtype)
    low = functools.partial(jax.tree.map, lambda x: jnp.asarray(x, dtype))
    got, gradients = plain.values_and_gradients(
        plain_function(case, case.options), low(case.arrays), oracle.Rows(*low(tuple(cotangents)))
    )
    got, gradients = jax.tree.map(lambda x: np.asarray(x, np.float64), (got, gradients))
    return np.max(np.abs(got.output - want.output)), relative_errors(gradients, want_gradients)


@pytest.mark.parametrize("name", LOW_PRECISION)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_low_precision_is_no_worse_than_the_naive_form_and_its_statistics_are_exact(implementation, dtype, name):
    _, want, _, want_gradients = reference(name, dtype)
    got, gradients = measured(name, implementation, dtype)
    of_output, of_gradients = naive_errors(name, dtype)
    assert np.max(np.abs(got.output - want.output)) <= 2 * of_output
    assert_statistics(got, want)
    errors = relative_errors(gradients, want_gradients)
    assert all(errors[array] <= 3 * of_gradients[array] for array in errors), (errors, of_gradients)


def test_every_pair_of_options_meets_in_a_mixed_case():
    met = set().union(*(cases.pairs(levels) for levels in cases.MIXED))
    assert cases.all_pairs() <= met


def test_every_option_is_alone_in_a_case():
    used = {(factor, level) for levels in cases.ALONE.values() for factor, level in levels.items()}
    assert used == {(factor, level) for factor, levels in cases.FACTORS.items() for level in levels}


@pytest.mark.parametrize("name", CASES)
def test_the_cases_have_rows_to_speak_of(name):
    """Live rows with several keys, in every sequence that has any, and entropies that beta(H) is smooth at."""
    _, want, _, _ = reference(name, "float32")
    live = ~np.isneginf(want.lse)
    assert live.mean() > 0.3
    assert np.mean(want.entropy[live] > 0.1) > 0.5
    assert min(np.min(np.abs(want.entropy[live] - kink)) for kink in (0.5, *KINKS)) > 1e-5

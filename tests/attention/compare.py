"""A case of the matrix run by the references and by the library, and how far the two are apart."""

from __future__ import annotations

import functools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import plain
from implementations import IMPLEMENTATIONS, compiled

from adatemp import dot_product_attention
from adatemp._compat import enable_x64

CASES = cases.ALONE | {f"mixed-{i}": levels for i, levels in enumerate(cases.MIXED)}
GATES = {"output": 5e-6, "entropy": 2e-5, "beta": 5e-5, "lse": 1e-5, "lse_scaled": 1e-5}


@functools.cache
def reference(name: str, dtype: str):
    """The case with its arrays rounded to a dtype, the oracle's rows, cotangents, and the float64 gradients."""
    case = cases.build(name, CASES[name])
    round_ = functools.partial(jax.tree.map, lambda x: np.asarray(jnp.asarray(x, dtype), np.float64))
    with enable_x64(True):
        arrays = {name: x if name == "rule" else round_(x) for name, x in case.arrays.items()}
        if dtype != "float64" and "rule" in arrays:
            arrays["rule"] = jax.tree.map(lambda x: np.float64(np.float32(x)), arrays["rule"])
        options = case.options | {name: arrays[name] for name in ("bias", "sink") if name in arrays}
        want = oracle.attention(
            arrays["query"], arrays["key"], arrays["value"], beta_of=beta_of_row(case, arrays), **options
        )
        rng = np.random.default_rng(1)
        cotangents = oracle.Rows(*(round_(rng.normal(size=x.shape)) for x in want))
        _, gradients = plain.values_and_gradients(plain_function(case, options), arrays, cotangents)
        gradients = jax.tree.map(np.asarray, gradients)
    return case._replace(arrays=arrays, options=options), want, cotangents, gradients


def beta_of_row(case, arrays):
    """The rule as a function of one row; a parameter a head is read at the row's head."""
    if case.rule is None:
        return None

    def beta(row):
        own = jax.tree.map(lambda x: x[row.head] if np.ndim(x) else x, arrays["rule"])
        return float(case.rule.formula(row, own, np))

    return beta


def plain_function(case, options):
    def beta(rows, parameters):
        return case.rule.formula(jax.lax.stop_gradient(rows) if case.rule.stopped else rows, parameters, jnp)

    return lambda arrays: plain.attention(arrays, options, None if case.rule is None else beta)


def library_function(case, implementation: str):
    options = {name: option for name, option in case.options.items() if name not in ("bias", "sink")}

    def attend(arrays):
        output, stats = dot_product_attention(
            arrays["query"],
            arrays["key"],
            arrays["value"],
            arrays.get("bias"),
            sink=arrays.get("sink"),
            temperature=None if case.rule is None else case.rule.make(arrays["rule"]),
            return_stats=True,
            **options,
            **IMPLEMENTATIONS[implementation],
        )
        return oracle.Rows(output, stats.entropy, stats.beta, stats.lse, stats.lse_scaled)

    return attend


def measured(name: str, implementation: str, dtype: str):
    """Values and gradients of the library, as float64 numpy, each result's dtype checked."""
    case, _, cotangents, _ = reference(name, dtype)
    of_stats = "float64" if dtype == "float64" else "float32"
    arrays = {
        name: jax.tree.map(lambda x, to=of_stats if name == "rule" else dtype: jnp.asarray(x, to), x)
        for name, x in case.arrays.items()
    }
    cotangents = oracle.Rows(*(jnp.asarray(x, of_stats if i else dtype) for i, x in enumerate(cotangents)))
    function = functools.partial(plain.values_and_gradients, library_function(case, implementation))
    got, gradients = jax.device_get(compiled(function, arrays, cotangents)(arrays, cotangents))
    assert [x.dtype for x in got] == [dtype, *[of_stats] * 4]
    jax.tree.map(lambda x, g: _assert_same_kind(x, g), arrays, gradients)
    return jax.tree.map(lambda x: np.asarray(x, np.float64), (got, gradients))


def _assert_same_kind(array, gradient):
    assert (array.shape, array.dtype) == (gradient.shape, gradient.dtype)


def assert_statistics(got, want, gates=GATES):
    for name in ("entropy", "beta", "lse", "lse_scaled"):
        a, b = getattr(got, name), getattr(want, name)
        dead = np.isneginf(want.lse)
        np.testing.assert_array_equal(a[dead], b[dead], err_msg=name)
        scale = {"entropy": 1, "beta": np.maximum(1, b[~dead])}.get(name, 1 + np.abs(b[~dead]))
        assert np.max(np.abs(a[~dead] - b[~dead]) / scale, initial=0) <= gates[name], name


def relative_errors(got, want) -> dict:
    """Of each gradient, the largest error over the largest entry."""
    pairs = {name: (jax.tree.leaves(got[name]), jax.tree.leaves(want[name])) for name in want}
    return {
        name: max((np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-3) for a, b in zip(*pair)), default=0)
        for name, pair in pairs.items()
    }

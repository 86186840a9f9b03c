"""Attention under JAX's transformations: vmap, jvp, hessian, remat, scan, donation and the debugging switches."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from calls import assert_equal_bits, attend, draw, published_rows
from implementations import IMPLEMENTATIONS, compiled
from plain import attention as plain_attention

from adatemp import constant, exp_offset
from adatemp._compat import enable_x64

every_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
any_order = pytest.mark.parametrize("implementation", ["dense", "queries", "keys"])  # forward mode too
AXES = [axes for axes in itertools.product((0, None), repeat=3) if any(axis == 0 for axis in axes)]


@pytest.mark.parametrize(
    ("implementation", "axes"),
    [(i, axes) for i in IMPLEMENTATIONS for axes in (AXES if i == "dense" else [(0, None, None), (None, 0, 0)])],
)
def test_vmap_over_any_of_the_arrays_is_a_loop(implementation, axes):
    """jax 38495: operands without the mapped axis failed."""
    several = [draw(17, 33, seed=seed) for seed in range(3)]
    names = ("query", "key", "value")
    stacked = [
        jnp.stack([arrays[name] for arrays in several]) if axis == 0 else several[0][name]
        for name, axis in zip(names, axes)
    ]

    def call(*arrays):
        return attend(implementation, is_causal=True)(dict(zip(names, arrays)))

    got = compiled(jax.vmap(call, axes), *stacked)(*stacked)
    one = compiled(call, *several[0].values())
    for i in range(3):
        want = one(*(several[i if axis == 0 else 0][name] for name, axis in zip(names, axes)))
        for a, b in zip(got, want):
            # Another program: logits of up to 10 whose sums are taken in another order.
            np.testing.assert_allclose(a[i], b, rtol=2e-6, atol=5e-6)


@every_implementation
def test_nested_vmap_with_gradients_inside_and_another_axis(implementation):
    """Queries mapped twice, once along their last axis but one; lengths and a sink mapped too; the gradient within."""
    rng = np.random.default_rng(0)
    arrays = draw(17, 33)
    query = jnp.asarray(rng.normal(size=(2, 1, 17, 2, 3, 8)), jnp.float32)
    lengths, sink = jnp.array([[[33], [12], [0]]] * 2), jnp.asarray(rng.normal(size=(2, 2)), jnp.float32)

    def loss(query, lengths, sink):
        rows = attend(implementation, key_value_seq_lengths=lengths)(arrays | {"query": query, "sink": sink})
        return jnp.sum(rows.output) + jnp.sum(rows.entropy)

    gradient = jax.grad(loss, (0, 2))
    mapped = jax.vmap(jax.vmap(gradient, (3, 0, None)), (0, 0, 0))
    got = compiled(mapped, query, lengths, sink)(query, lengths, sink)
    one = compiled(gradient, query[0, ..., 0, :], lengths[0, 0], sink[0])
    for i, j in itertools.product(range(2), range(3)):
        want = one(query[i, ..., j, :], lengths[i, j], sink[i])
        for a, b in zip(got, want):
            np.testing.assert_allclose(a[i, j], b, atol=5e-6)


@any_order
def test_forward_mode_agrees_with_reverse_mode_and_with_the_plain_function(implementation):
    with enable_x64(True):
        arrays = draw(9, 17, dtype="float64")
        direction = draw(9, 17, seed=5, dtype="float64")
        function = attend(implementation, is_causal=True)
        _, got = compiled(lambda a, d: jax.jvp(function, (a,), (d,)), arrays, direction)(arrays, direction)
        _, want = jax.jvp(lambda a: plain_attention(a, {"is_causal": True}, published_rows), (arrays,), (direction,))
        for a, b in zip(got, want):
            np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("transform", [lambda f: lambda x: jax.jvp(f, (x,), (x,)), jax.jacfwd])
def test_forward_mode_of_the_kernels_is_refused_and_dense_named(transform):
    arrays = draw(17, 33)
    with pytest.raises(TypeError, match="'pallas' has first derivatives in reverse mode.*implementation='dense'"):
        transform(lambda query: attend("pallas")(arrays | {"query": query}).output)(arrays["query"])


@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("jit", [jax.jit, lambda f: f])
def test_second_derivatives_of_the_kernels_are_refused_and_dense_named(outer, jit):
    arrays = draw(17, 33)

    def loss(query):
        return jnp.sum(attend("pallas")(arrays | {"query": query}).output)

    with pytest.raises(TypeError, match="'pallas'.*nor second ones.*implementation='dense'"):
        jit(outer(jax.grad(loss)))(arrays["query"])


@any_order
def test_the_hessian_is_that_of_the_plain_function_and_symmetric(implementation):
    with enable_x64(True):
        arrays = draw(2, 5, N=1, H=2, V=2, dtype="float64")

        def loss(rows):
            return sum(jnp.sum(jnp.sin(field)) for field in rows)

        def own(query):
            return loss(attend(implementation)(arrays | {"query": query}))

        def plain(query):
            return loss(plain_attention(arrays | {"query": query}, {}, published_rows))

        got = compiled(jax.hessian(own), arrays["query"])(arrays["query"]).reshape(4, 4)
        want = jax.jit(jax.hessian(plain))(arrays["query"]).reshape(4, 4)
        np.testing.assert_allclose(got, want, atol=1e-12)
        np.testing.assert_allclose(got, got.T, atol=1e-12)


@every_implementation
def test_the_jacobian_row_by_row_is_the_gradient_of_each_entry(implementation):
    arrays = draw(2, 17, N=1, H=4, V=3)

    def output(value):
        return attend(implementation)(arrays | {"value": value}).output

    jacobian = compiled(jax.jacrev(output), arrays["value"])(arrays["value"])
    # Linear in the values: the Jacobian is the weights, and times the values the output.
    again = jnp.einsum("btnvxskw,xskw->btnv", jacobian, arrays["value"])
    np.testing.assert_allclose(again, output(arrays["value"]), atol=2e-6)
    np.testing.assert_allclose(jacobian.sum((4, 5, 6, 7)), 1, atol=2e-6)


@every_implementation
def test_the_gradient_of_one_argument_is_its_part_of_the_gradient_of_all(implementation):
    arrays = draw(17, 33) | {"sink": jnp.ones(2)}
    function = attend(implementation, is_causal=True, temperature=exp_offset(0.5, 3.0))

    def loss(arrays):
        rows = function(arrays)
        return jnp.sum(jnp.sin(rows.output)) + jnp.sum(rows.beta)

    every = compiled(jax.grad(loss), arrays)(arrays)
    for name in ("query", "value") if implementation == "pallas" else arrays:
        alone = compiled(jax.grad(lambda x, name=name: loss(arrays | {name: x})), arrays[name])(arrays[name])
        np.testing.assert_allclose(alone, every[name], atol=5e-6, err_msg=name)


@every_implementation
def test_the_gradient_of_the_rule_alone(implementation):
    """Nothing else is differentiated: the rule's parameter must not be lost with the arrays' tangents."""
    arrays = draw(17, 33)

    def loss(beta):
        rows = attend(implementation, temperature=constant(beta))(arrays)
        return jnp.sum(jnp.sin(rows.output))

    beta, step = jnp.float32(1.3), 0.01
    got = compiled(jax.grad(loss), beta)(beta)
    difference = (loss(beta + step) - loss(beta - step)) / (2 * step)
    assert float(got) == pytest.approx(float(difference), rel=5e-3)


@every_implementation
def test_remat_and_scan_change_no_gradient(implementation):
    """A stack of layers with shared arrays, as models run it: scan over layers, each remembered by its input alone."""
    arrays = draw(17, 17)
    layers = jnp.stack([jnp.eye(8) * x for x in (0.9, 1.1)])

    def layer(query, weights):
        output = attend(implementation, is_causal=True)(arrays | {"query": query @ weights}).output
        return query + output, None

    def scanned(query):
        return jnp.sum(jax.lax.scan(jax.checkpoint(layer), query, layers)[0] ** 2)

    def unrolled(query):
        for weights in layers:
            query, _ = layer(query, weights)
        return jnp.sum(query**2)

    got = compiled(jax.grad(scanned), arrays["query"])(arrays["query"])
    want = compiled(jax.grad(unrolled), arrays["query"])(arrays["query"])
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@every_implementation
def test_a_donated_query_is_read_before_it_is_gone(implementation):
    arrays = draw(17, 33)
    arrays["value"] = arrays["key"]  # so that the output has the query's shape
    want = attend(implementation)(arrays).output
    call = jax.jit(lambda query: attend(implementation)(arrays | {"query": query}).output, donate_argnums=0)
    np.testing.assert_allclose(call(jnp.array(arrays["query"], copy=True)), want, atol=1e-6)


@pytest.mark.parametrize("implementation", ["dense", "queries", "keys"])
def test_no_nan_is_made_on_the_way_where_rows_are_dead(implementation):
    """jax_debug_nans stops at the first NaN of any operation's result, forwards and backwards."""
    arrays = draw(9, 17)
    lengths = jnp.array([5])

    def loss(arrays):
        rows = attend(implementation, is_causal=True, query_seq_lengths=lengths)(arrays)
        return jnp.sum(rows.output) + jnp.sum(jnp.where(jnp.isfinite(rows.lse), rows.lse + rows.entropy, 0))

    with jax.debug_nans(True):
        gradients = jax.grad(loss)(arrays)
        if implementation == "dense":  # and operation by operation
            with jax.disable_jit():
                of_each = jax.grad(loss)(arrays)
                jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=5e-6), of_each, gradients)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(gradients))


@every_implementation
def test_no_tracer_leaks(implementation):
    arrays = draw(17, 33)
    with jax.checking_leaks():
        jax.make_jaxpr(jax.grad(lambda a: jnp.sum(attend(implementation, is_causal=True)(a).output)))(arrays)


@every_implementation
def test_a_second_call_of_the_same_shapes_is_not_compiled_again(implementation):
    arrays = draw(17, 33)
    traced = []

    @jax.jit
    def call(arrays, beta):
        traced.append(None)
        return attend(implementation, temperature=constant(beta))(arrays).output

    outputs = [call(arrays, beta) for beta in (1.2, 1.3, 1.2)]
    assert len(traced) == 1
    assert_equal_bits(outputs[0], outputs[2])
    assert np.any(outputs[0] != outputs[1])

"""The kernels as programs, traced and not run: what each loop holds, how products are taken, what is left out."""

from __future__ import annotations

import contextlib
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from adatemp.attention import pallas
from adatemp.attention._problem import Problem
from adatemp.attention.configs import PallasConfig
from adatemp.temperature import PAPER, PAPER_COEFFICIENTS, polynomial

FROZEN = polynomial(PAPER_COEFFICIENTS, differentiate=False)


def traced(function, dtype=jnp.bfloat16, **static):
    """Our kernels' programs in the order they run; nothing needs a GPU."""
    query = jax.ShapeDtypeStruct((2, 256, 4, 64), dtype)
    key = jax.ShapeDtypeStruct((2, 256, 2, 64), dtype)
    problem = functools.partial(Problem, scale=0.125, is_causal=True, **static)
    program = jax.make_jaxpr(functools.partial(function, problem))(query, key, key)
    calls = [equation for equation in equations(program.jaxpr) if equation.primitive.name == "pallas_call"]
    return [call.params["jaxpr"] for call in calls]


def equations(jaxpr):
    """Every equation of a program, those of loops and calls within included; of kernels not."""
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive.name != "pallas_call":
            for value in equation.params.values():
                for inner in value if isinstance(value, tuple) else (value,):
                    inner = getattr(inner, "jaxpr", inner)
                    if hasattr(inner, "eqns"):
                        yield from equations(inner)


def loops(jaxpr) -> list[list]:
    """The equations of each loop of a kernel."""
    return [list(equations(SimpleNamespace(eqns=[e]))) for e in jaxpr.eqns if e.primitive.name in ("while", "scan")]


def count(found, primitive: str) -> int:
    return sum(equation.primitive.name == primitive for equation in found)


def forward(problem, query, key, value, rule=PAPER, stats=False):
    return pallas.attend(problem(query, key, value), rule, with_output=True, with_stats=stats)[0]


def backward(problem, query, key, value, rule=PAPER):
    loss = lambda *x: jnp.sum(forward(problem, *x, rule=rule).astype(jnp.float32))  # noqa: E731
    return jax.grad(loss, argnums=(0, 1, 2))(query, key, value)


def test_the_second_loop_has_no_running_maximum():
    [kernel] = traced(forward)
    # Full tiles and edge tiles of the statistics, then full and edge tiles of the output.
    assert [count(loop, "dot_general") for loop in loops(kernel)] == [1, 1, 2, 2]
    maxima = [[e for e in loop if e.primitive.name == "reduce_max"] for loop in loops(kernel)]
    assert [sum(e.invars[0].aval.dtype == jnp.float32 for e in loop) for loop in maxima] == [1, 1, 0, 0]


def test_plain_attention_is_one_loop():
    [kernel] = traced(functools.partial(forward, rule=None))
    assert [count(loop, "dot_general") for loop in loops(kernel)] == [2, 2]


@pytest.mark.parametrize("rule, exponentials", [(None, 1), (FROZEN, 1), (PAPER, 2)])
def test_the_backward_pass_computes_plain_weights_only_where_something_reads_them(rule, exponentials):
    _, *kernels = traced(functools.partial(backward, rule=rule))
    assert len(kernels) == 2
    for kernel in kernels:  # once for full tiles, once for those at the diagonal
        assert count(equations(kernel), "exp2") == 2 * exponentials


def test_kernels_are_traced_and_differentiated_on_a_machine_without_a_gpu():
    assert len(traced(backward)) == 3


def products(kernels):
    return [e for kernel in kernels for e in equations(kernel) if e.primitive.name == "dot_general"]


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_every_product_adds_up_in_float32(dtype):
    found = products(traced(backward, dtype))
    assert found and all(e.params["preferred_element_type"] == jnp.float32 for e in found)
    assert all(e.invars[0].aval.dtype == e.invars[1].aval.dtype == dtype for e in found)


@pytest.mark.parametrize(
    "asked, taken",
    [
        (None, jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3),
        ("highest", (jax.lax.Precision.HIGHEST,) * 2),
        ("default", jax.lax.DotAlgorithmPreset.TF32_TF32_F32),
    ],
)
def test_no_product_of_float32_is_silently_tensor_float(asked, taken):
    found = products(traced(backward, jnp.float32, precision=asked))
    assert found and all(e.params["precision"] == taken for e in found)


def test_a_bias_without_a_gradient_costs_nothing_more():
    # A gradient of the bias takes the chunked form, which has no kernel of its own: count equations outside kernels.
    shape = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    arrays = shape((1, 64, 2, 16)), shape((1, 64, 2, 16)), shape((1, 64, 2, 16)), shape((1, 2, 64, 64))

    def loss(query, key, value, bias):
        problem = Problem(query, key, value, bias, scale=0.25)
        config = PallasConfig(interpret=True)
        return jnp.sum(pallas.attend(problem, PAPER, with_output=True, with_stats=False, config=config)[0])

    dots = {}
    for argnums in ((0, 1, 2), (0, 1, 2, 3)):
        program = jax.make_jaxpr(jax.grad(loss, argnums=argnums))(*arrays).jaxpr
        dots[argnums] = sum(e.primitive.name == "dot_general" for e in equations(program))
    assert dots[0, 1, 2] == 0 < dots[0, 1, 2, 3]


def pretended_gpu():
    """From JAX 0.11 on, lowering has to be told of a GPU; before, there is nothing to tell."""
    try:
        device = jax.sharding.AbstractDevice("NVIDIA A100-SXM4-40GB", None, "gpu")
        axes = (jax.sharding.AxisType.Auto,)
        mesh = jax.sharding.AbstractMesh((1,), ("device",), axes, abstract_device=device)
    except (AttributeError, TypeError):
        return contextlib.nullcontext()
    return jax.sharding.use_abstract_mesh(mesh)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_kernels_with_every_option_are_translated_to_triton_in_silence(dtype):
    # Warnings are errors here. What Triton has no word for fails now, and not on the first GPU it meets.
    shape = jax.ShapeDtypeStruct
    B, T, S, N, K = 2, 100, 75, 4, 2
    query, key, value = shape((B, T, N, 40), dtype), shape((B, S, K, 40), dtype), shape((B, S, K, 24), dtype)
    options = dict(
        bias=shape((1, N, T, S), dtype),
        mask=shape((B, 1, 1, S), bool),
        sink=shape((N,), jnp.float32),
        query_lengths=shape((B,), jnp.int32),
        key_lengths=shape((B,), jnp.int32),
        query_offset=shape((B,), jnp.int32),
        query_segments=shape((B, T), jnp.int32),
        key_segments=shape((B, S), jnp.int32),
    )

    def gradient(query, key, value, options):
        def loss(query, key, value):
            problem = Problem(query, key, value, scale=0.2, is_causal=True, window=(30, 4), soft_cap=20.0, **options)
            output, stats = pallas.attend(problem, PAPER, with_output=True, with_stats=True)
            return jnp.sum(output.astype(jnp.float32)) + jnp.sum(stats.entropy + stats.lse_scaled)

        return jax.grad(loss, argnums=(0, 1, 2))(query, key, value)

    with pretended_gpu():
        lowered = jax.jit(gradient).trace(query, key, value, options).lower(lowering_platforms=("cuda",))
    assert lowered.as_text().count("triton") >= 3

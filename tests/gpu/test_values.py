"""On a GPU: values, statistics and gradients of every implementation, dtype and class of head width."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import PAPER, constant, dot_product_attention
from adatemp.attention._arguments import build_problem
from adatemp.attention._choice import choose
from adatemp.attention.sharding import sharded_attention
from benchmarks import _attention_checks as checks


def right(found: dict) -> None:
    assert checks.failures(found) == []


@pytest.mark.parametrize("width", [16, 64, 72, 128, 256])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_kernels_agree_with_float64_for_every_dtype_and_width(dtype, width):
    right(checks.agrees_with_float64(dtype, width, is_causal=True))


@pytest.mark.parametrize("width", [64, 128])
def test_float32_at_full_precision_holds_no_tensor_float(width):
    right(checks.agrees_with_float64("float32", width, precision="highest"))


@pytest.mark.older
@pytest.mark.parametrize("implementation", ["dense", "chunked"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_xla_compiles_holds_no_tensor_float_by_default_either(implementation, dtype):
    right(checks.agrees_with_float64(dtype, 64, implementation=implementation))


@pytest.mark.parametrize("T, S", [(1, 1), (1, 1000), (2, 17), (63, 65), (127, 129), (191, 64), (1000, 1000)])
def test_lengths_that_are_no_multiple_of_a_tile(T, S):
    right(checks.agrees_with_float64("bfloat16", 64, T=T, S=S))


@pytest.mark.parametrize(
    "options",
    [
        {"is_causal": True, "query_offset": 131},
        {"local_window_size": (100, 7)},
        {"is_causal": True, "local_window_size": 70},
        {"logits_soft_cap": 3.0},
        {"query_seq_lengths": np.array([0, 201]), "key_value_seq_lengths": np.array([77, 381])},
        {"mask": np.random.default_rng(0).random((2, 1, 250, 381)) > 0.4},
        {"bias": np.random.default_rng(0).normal(size=(1, 4, 1, 381)).astype("float32")},
        {"sink": np.array([0.5, -3.0, 6.0, 1.0], "float32")},
        {"temperature": None},
        {"temperature": constant(np.array([0.5, 1.5, 2.0, 3.0], "float32"))},
    ],
    ids=["offset", "window", "causal window", "cap", "lengths", "mask", "bias", "sink", "plain", "beta a head"],
)
def test_every_option(options):
    right(checks.agrees_with_float64("bfloat16", 64, **options))


def test_sums_of_float16_are_not_kept_in_float16():
    width, n = 128, 4096
    query = jnp.ones((1, 16, 1, width), jnp.float16)
    key = jnp.full((1, 1, 1, width), 0.5, jnp.float16).at[..., 0].set(2048)  # float16 has no 2048.5
    value = jnp.ones_like(key)
    _, stats = dot_product_attention(query, key, value, scale=1.0, return_stats=True, implementation="pallas")
    np.testing.assert_allclose(stats.lse, 2048 + 127 * 0.5, rtol=1e-6)
    # 4,096 equal weights on 1 and 3: a float16 sum of them stops growing at 2,048.
    key = jnp.zeros((1, n, 1, width), jnp.float16)
    value = jnp.where(jnp.arange(n)[None, :, None, None] % 2, 3, 1).astype(jnp.float16) * jnp.ones_like(key)
    output = dot_product_attention(query, key, value, implementation="pallas")
    np.testing.assert_allclose(np.float32(output), 2, rtol=1e-3)


def test_eager_jit_and_the_value_inside_a_gradient_are_the_same_bits():
    arrays = checks.draw("bfloat16", 300, 300, 4, 2, 64, B=2)
    attend = functools.partial(dot_product_attention, is_causal=True, implementation="pallas")
    eager, jitted = attend(*arrays), jax.jit(attend)(*arrays)

    def loss(*arrays):
        output = attend(*arrays)
        return jnp.sum(output.astype(jnp.float32)), output

    (_, inside), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(*arrays)
    outside, _ = jax.grad(loss, has_aux=True)(*arrays)
    for other in (jitted, inside):
        np.testing.assert_array_equal(np.float32(eager), np.float32(other))
    np.testing.assert_array_equal(np.float32(gradient), np.float32(outside))


def test_fifty_runs_give_the_same_bits():
    right(checks.repeats(50))
    right(checks.repeats(50, "float32", 128))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_what_is_hidden_is_never_read(dtype):
    right(checks.hidden_is_never_read(dtype, 128))


@pytest.mark.older
def test_the_device_decides_what_runs():
    capability = float(jax.devices()[0].compute_capability)
    arrays = checks.draw("float16", 2048, 2048, 4, 4, 64)
    problem, _ = build_problem(*arrays)
    name, _, otherwise = choose(problem, PAPER, None, None)
    if capability < 8.0:  # a T4
        assert name == "chunked"
        with pytest.raises(NotImplementedError, match=r"compute capability 7\.5"):
            choose(problem, PAPER, "pallas", None)
    else:
        assert (name, otherwise) == ("pallas", "chunked")
    output = dot_product_attention(*arrays)
    by_hand = dot_product_attention(*arrays, implementation="chunked")
    np.testing.assert_allclose(np.float32(output), np.float32(by_hand), atol=4e-3)


def test_a_call_placed_on_the_processor_of_the_host_runs_there():
    arrays = checks.draw("float32", 512, 512, 4, 4, 64)
    with jax.default_device(jax.devices("cpu")[0]):
        on_host = dot_product_attention(*jax.device_put(arrays, jax.devices("cpu")[0]), implementation="pallas")
    assert {device.platform for device in on_host.devices()} == {"cpu"}
    np.testing.assert_allclose(on_host, dot_product_attention(*arrays, implementation="pallas"), atol=6e-5)


def test_all_devices_together_give_what_one_gives():
    count = len(jax.devices())
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    arrays = checks.draw("bfloat16", 300, 300, 2 * count, count, 64, B=count)

    def results(attend):
        output, pull_back = jax.vjp(attend, *arrays)
        return jax.device_get((output, *pull_back(output)))

    one = results(jax.jit(functools.partial(dot_product_attention, is_causal=True, implementation="pallas")))
    for axis in ("batch_axis", "head_axis"):
        attend = functools.partial(sharded_attention, mesh=mesh, is_causal=True, implementation="pallas")
        many = results(jax.jit(functools.partial(attend, **{axis: "data"})))
        for a, b in zip(one, many):
            np.testing.assert_array_equal(np.float32(a), np.float32(b))

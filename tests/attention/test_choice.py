"""Which implementation serves a call is decided while it is traced, from sizes, the rule and the devices in sight."""

from __future__ import annotations

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from implementations import PallasConfig

from adatemp import dot_product_attention, target_entropy
from adatemp.attention import ChunkedConfig, _choice, api
from adatemp.attention._arguments import build_problem

T4, L4, A100, H200, NOT_CUDA = 7.5, 8.9, 8.0, 9.0, 0.0


def devices(monkeypatch, *capabilities):
    monkeypatch.setattr(_choice, "compute_capabilities", lambda: capabilities)


def arrays(n: int, heads: int = 2, dtype=jnp.bfloat16, queries: int | None = None):
    return (
        jax.ShapeDtypeStruct((1, queries or n, heads, 64), dtype),
        *[jax.ShapeDtypeStruct((1, n, heads, 64), dtype)] * 2,
    )


def choose(n: int, rule=None, implementation=None, config=None, **options):
    """(implementation, its config, what runs if the call is placed on the host's processor)."""
    chosen = []

    def trace(query, key, value):
        problem, _ = build_problem(query, key, value)
        chosen.append(_choice.choose(problem, rule, implementation, config))

    jax.eval_shape(trace, *arrays(n, **options))
    return chosen[0]


LONG, SHORT = 4096, 64


@pytest.mark.parametrize("capability", [A100, L4, H200, 12.0])
def test_a_long_call_on_ampere_and_later_runs_the_kernels_and_has_a_form_for_the_host(monkeypatch, capability):
    devices(monkeypatch, capability)
    assert choose(LONG) == ("pallas", None, "chunked")


@pytest.mark.parametrize("capabilities", [(T4,), (NOT_CUDA,), (A100, T4), (A100, NOT_CUDA), ()])
def test_a_long_call_where_any_device_cannot_run_the_kernels_is_chunked(monkeypatch, capabilities):
    devices(monkeypatch, *capabilities)
    assert choose(LONG) == ("chunked", None, None)


@pytest.mark.parametrize("capability", [T4, A100, NOT_CUDA])
def test_a_short_call_is_dense_anywhere(monkeypatch, capability):
    devices(monkeypatch, capability)
    assert choose(SHORT) == ("dense", None, None)


def test_one_query_against_a_long_cache_is_chunked_even_where_the_kernels_run(monkeypatch):
    devices(monkeypatch, H200)
    assert choose(2**20, queries=1)[0] == "chunked"


@pytest.mark.parametrize(
    ("reason", "options"),
    [
        ("float64", dict(dtype=jnp.float64)),
        ("reads the whole row", dict(rule=target_entropy(1.0))),
    ],
)
def test_what_the_kernels_do_not_serve_is_chunked_and_refused_with_the_reason_when_asked_for(
    monkeypatch, reason, options
):
    from adatemp._compat import enable_x64

    devices(monkeypatch, H200)
    with enable_x64(True):
        assert choose(LONG, **options)[0] == "chunked"
        with pytest.raises(NotImplementedError, match=f"pallas: .*{reason}"):
            choose(LONG, implementation="pallas", **options)


def test_a_rule_that_reads_rows_too_long_for_blocks_of_queries_is_dense(monkeypatch):
    devices(monkeypatch, H200)
    assert choose(2**25, rule=target_entropy(1.0), heads=1, queries=16)[0] == "dense"


def test_the_kernels_asked_for_by_name_are_refused_on_a_t4_by_name(monkeypatch):
    devices(monkeypatch, T4)
    with pytest.raises(NotImplementedError, match="pallas: .*7.5.*T4"):
        choose(LONG, implementation="pallas")


def test_the_kernels_asked_for_by_name_are_refused_without_a_cuda_device(monkeypatch):
    devices(monkeypatch, NOT_CUDA)
    with pytest.raises(NotImplementedError, match="pallas: no CUDA device.*interpret=True"):
        choose(LONG, implementation="pallas")


def test_a_sequence_falls_through_to_the_first_that_can_serve(monkeypatch):
    devices(monkeypatch, T4)
    assert choose(LONG, implementation=("pallas", "chunked", "dense"))[0] == "chunked"
    assert choose(LONG, implementation=["pallas", "xla"])[0] == "dense"
    devices(monkeypatch, A100)
    assert choose(LONG, implementation=("pallas", "chunked"))[0] == "pallas"
    assert choose(SHORT, implementation=("pallas", "chunked"))[0] == "pallas"


def test_an_exhausted_sequence_is_one_error_with_every_reason(monkeypatch):
    devices(monkeypatch, T4)
    with pytest.raises(NotImplementedError) as refused:
        choose(
            LONG,
            rule=target_entropy(1.0),
            implementation=("pallas", "chunked"),
            config=ChunkedConfig(block_q=8, block_k=16),
        )
    message = str(refused.value)
    assert all(part in message for part in ("pallas: ", "7.5", "chunked: ", "whole row", "implementation=None"))


def test_a_config_that_nothing_serves_is_told_to_go(monkeypatch):
    devices(monkeypatch, NOT_CUDA)
    with pytest.raises(NotImplementedError, match="always works without config"):
        choose(LONG, config=PallasConfig(block_q=32))


def test_amd_gpus_whose_capability_is_a_name_are_no_cuda_devices(monkeypatch):
    device = types.SimpleNamespace
    seen = [
        device(platform="gpu", compute_capability="8.9"),
        device(platform="gpu", compute_capability="gfx942:sramecc+:xnack-"),
        device(platform="gpu"),
        device(platform="cpu"),
    ]
    monkeypatch.setattr(jax, "devices", lambda: seen)
    assert _choice.compute_capabilities() == (8.9, 0.0, 0.0, 0.0)


def test_a_config_chooses_its_implementation_and_goes_to_no_other(monkeypatch):
    devices(monkeypatch, A100)
    assert choose(SHORT, config=ChunkedConfig(block_q=8)) == ("chunked", ChunkedConfig(block_q=8), None)
    tiles = PallasConfig(block_q=32, block_k=32)
    assert choose(SHORT, config=tiles) == ("pallas", tiles, "chunked")
    assert choose(LONG, implementation=("chunked", "pallas"), config=tiles) == ("chunked", None, None)


def test_the_interpreter_needs_no_device_and_no_other_form(monkeypatch):
    devices(monkeypatch, NOT_CUDA)
    config = PallasConfig(block_q=16, block_k=16, interpret=True)
    assert choose(SHORT, implementation="pallas", config=config) == ("pallas", config, None)


def test_the_other_name_of_dense_is_xla(monkeypatch):
    devices(monkeypatch, A100)
    assert choose(LONG, implementation="xla")[0] == "dense"


def test_on_a_gpu_host_the_program_holds_the_kernels_and_a_form_for_the_processor(monkeypatch):
    """Traced here, without a GPU: both branches are there, forward and gradient; run here, the chunked one runs."""
    devices(monkeypatch, A100)

    def loss(query, key, value):
        return jnp.sum(dot_product_attention(query, key, value, implementation="pallas"))

    query, key, value = (jnp.asarray(x, jnp.float32) for x in np.random.default_rng(0).normal(size=(3, 1, 40, 2, 16)))
    with_kernels = str(jax.make_jaxpr(jax.grad(loss, (0, 1, 2)))(query, key, value))
    assert "platform_index" in with_kernels
    assert "pallas_call" in with_kernels
    got = jax.jit(jax.grad(loss, (0, 1, 2)))(query, key, value)
    want = jax.grad(lambda *a: jnp.sum(dot_product_attention(*a, implementation="dense")), (0, 1, 2))(query, key, value)
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, atol=2e-6)


@pytest.mark.parametrize("capabilities", [(T4,), (A100,), (H200,), (NOT_CUDA,)])
@pytest.mark.parametrize("implementation", [None, "dense", "chunked", "pallas"])
def test_the_gradient_can_be_traced_for_every_implementation_and_device(monkeypatch, implementation, capabilities):
    """marin 3043: a backward pass that differentiated the kernel itself died while it was traced."""
    devices(monkeypatch, *capabilities)

    def loss(query, key, value):
        return jnp.sum(dot_product_attention(query, key, value, implementation=implementation).astype(jnp.float32))

    def trace():
        return jax.make_jaxpr(jax.grad(loss, (0, 1, 2)))(*arrays(2048))

    if implementation == "pallas" and capabilities[0] < 8:
        with pytest.raises(NotImplementedError, match="pallas"):
            trace()
    else:
        assert len(trace().out_avals) == 3


def test_the_real_devices_are_read_and_a_processor_counts_as_none():
    assert api.choose is _choice.choose
    kinds = [device.platform for device in jax.devices()]
    assert len(_choice.compute_capabilities()) == len(kinds)
    assert all((c == 0) == (kind != "gpu") for c, kind in zip(_choice.compute_capabilities(), kinds))

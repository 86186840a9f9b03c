"""The kernels' configs: what is refused before a compiler sees it, and by which words."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import dot_product_attention
from adatemp.attention import configs, pallas
from adatemp.attention._problem import Problem
from adatemp.attention.configs import PallasConfig
from adatemp.temperature import PAPER, target_entropy

H200, L4, A100, T4 = 9.0, 8.9, 8.0, 7.5


def problem(width=64, value_width=64, dtype=jnp.bfloat16, **arrays):
    shape = jax.ShapeDtypeStruct
    return Problem(
        shape((1, 256, 2, width), dtype),
        shape((1, 256, 2, width), dtype),
        shape((1, 256, 2, value_width), dtype),
        **arrays,
    )


@pytest.mark.parametrize(
    "name, value, says",
    [
        ("block_q", 48, "block_q must be a power of two from 16 to 512, or None for the default, got 48"),
        ("block_k_backward", 8, "block_k_backward must be a power of two from 16"),
        ("num_warps", 3, "num_warps must be 1, 2, 4, 8 or 16"),
        ("num_stages_backward", 0, "num_stages_backward must be from 1 to 8"),
        ("block_k", True, "got True"),
    ],
)
def test_sizes_that_no_kernel_can_have_are_refused_by_name(name, value, says):
    with pytest.raises(ValueError, match=says):
        PallasConfig(**{name: value})


def test_a_tile_too_large_for_one_gpu_is_refused_there_and_taken_on_another():
    config = PallasConfig(block_q=128, block_k=128)
    with pytest.raises(ValueError, match=r"forward kernel with block_q=128, block_k=128, .*101,376; halve a block"):
        pallas.refusal(problem(128, 128), PAPER, config, [L4])
    assert pallas.refusal(problem(128, 128), PAPER, config, [H200]) is None


def test_a_tile_too_large_backwards_is_named_by_its_own_fields():
    config = PallasConfig(block_q_backward=256, block_k_backward=128)
    with pytest.raises(ValueError, match="block_q_backward=256, block_k_backward=128"):
        pallas.refusal(problem(), PAPER, config, [L4])


def test_the_least_able_gpu_decides():
    config = PallasConfig(block_q=128, block_k=128)
    with pytest.raises(ValueError, match="compute capability 8.9"):
        pallas.refusal(problem(128, 128), PAPER, config, [H200, L4])


@pytest.mark.parametrize("capability", [A100, 8.6, L4, H200, 10.0, 12.0])
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("width, value_width", [(16, 16), (64, 64), (80, 128), (256, 256), (256, 0)])
def test_default_tiles_fit_every_gpu_by_the_estimate(capability, dtype, width, value_width):
    kernels = configs.tiles(PallasConfig(), dtype, width, value_width, capability)
    needed = configs.shared_memory(kernels, dtype, width, value_width, capability)
    assert max(needed.values()) <= configs.limit(capability)


def test_a_gpu_between_those_tuned_takes_defaults_that_fit_it():
    assert configs.architecture(8.6) == configs.architecture(12.0) == 8.9
    assert configs.architecture(8.7) == 8.0
    assert configs.architecture(10.3) == 9.0
    assert configs.limit(10.3) == configs.limit(10.0)


@pytest.mark.parametrize(
    "capabilities, says",
    [
        ([T4], "compute capability 7.5.*T4"),
        ([H200, T4], "compute capability 7.5"),
        ([0.0], "no CUDA device"),
        ([], "no CUDA"),
    ],
)
def test_devices_that_cannot_run_the_kernels_are_named(capabilities, says):
    reason = pallas.refusal(problem(), PAPER, None, capabilities)
    assert reason is not None
    with pytest.raises(NotImplementedError, match=says):
        raise NotImplementedError(reason)


@pytest.mark.parametrize(
    "made, rule, says",
    [
        (problem(dtype=jnp.float64), PAPER, "dtype float64"),
        (problem(width=257), PAPER, "head width 257 of query"),
        (problem(value_width=300), PAPER, "head width 300 of value"),
        (problem(), target_entropy(2.0), "TargetEntropy reads the whole row"),
        (problem(mask=jax.ShapeDtypeStruct((1, 1, 2**16, 2**15), bool)), None, "mask of 2,147,483,648 elements"),
    ],
)
def test_what_the_kernels_do_not_serve_is_named(made, rule, says):
    assert says in pallas.refusal(made, rule, None, [H200])
    assert says in pallas.refusal(made, rule, PallasConfig(interpret=True), [0.0])


def test_the_public_function_gives_the_reason():
    x = np.zeros((1, 32, 2, 16), np.float32)
    with pytest.raises(NotImplementedError, match="pallas: no CUDA device"):
        dot_product_attention(x, x, x, implementation="pallas")


@pytest.mark.parametrize(
    "dtype, asked, given",
    [
        (jnp.float32, None, jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3),
        (jnp.float32, "high", jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3),
        (jnp.float32, jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST),
        (jnp.float32, "default", jax.lax.DotAlgorithmPreset.TF32_TF32_F32),
        (jnp.bfloat16, "highest", jax.lax.Precision.DEFAULT),
    ],
)
def test_one_pass_of_tensor_float_has_to_be_asked_for(dtype, asked, given):
    assert configs.products_precision(dtype, asked, interpret=False) == given

"""On a GPU: long rows, large arrays and large grids, where indices and sums have gone wrong in other kernels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import dot_product_attention
from benchmarks import _attention_checks as checks


def right(found: dict) -> None:
    assert checks.failures(found) == []


@pytest.mark.parametrize("n", [32_768, 131_072])
@pytest.mark.parametrize("dtype, width", [("bfloat16", 128), ("bfloat16", 64), ("float16", 64), ("float32", 64)])
def test_long_rows_against_float64_and_against_the_values_oracle(n, dtype, width):
    right(checks.long_rows(dtype, n, width))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_an_early_spike_keeps_its_compensation_on_the_device(dtype):
    right(checks.early_spike(dtype))


def test_without_compensation_the_early_spike_is_off():
    """So that the test above shows something: the compiler may not reorder what compensates."""
    assert checks.failures(checks.early_spike(compensated=False)) != []


@pytest.mark.parametrize("batch", [3, 4, 5])
def test_arrays_around_two_to_the_31_elements(batch, gigabytes):
    """Elements: below 2^31, exactly 2^31 (2^32 bytes, where offsets become 64 bits wide), and above."""
    n, heads, width = 131_072, 32, 128
    gigabytes(2.5 * batch * n * heads * width * 2 / 1e9)
    keys = jax.random.split(jax.random.key(batch), 4)
    base = jax.random.normal(keys[0], (batch, n, 1, width), jnp.bfloat16)
    of_head = 1 + jnp.arange(heads, dtype=jnp.bfloat16)[:, None] / 32
    query = jax.jit(lambda base, of_head: base * of_head)(base, of_head)
    key, value = (jax.random.normal(k, (batch, 64, 1, width), jnp.bfloat16) for k in keys[1:3])
    output, stats = dot_product_attention(query, key, value, return_stats=True, implementation="pallas")
    for b in (0, batch - 1):
        for rows in (slice(0, 128), slice(n - 128, n)):
            for head in (slice(0, 1), slice(heads - 1, heads)):
                part, part_stats = dot_product_attention(
                    query[b : b + 1, rows, head],
                    key[b : b + 1],
                    value[b : b + 1],
                    return_stats=True,
                    implementation="pallas",
                )
                np.testing.assert_array_equal(
                    np.float32(output[b : b + 1, rows, head]), np.float32(part), err_msg=f"item {b}, {rows}, {head}"
                )
                np.testing.assert_array_equal(stats.entropy[b : b + 1, rows, head], part_stats.entropy)


def test_a_mask_just_below_two_to_the_31_elements(gigabytes):
    gigabytes(12)
    T, S = 65_536, 32_767  # 2^31 - 65,536 elements of one byte
    arrays = checks.draw("bfloat16", T, S, 1, 1, 64)
    mask = jax.jit(lambda: (jnp.arange(T)[:, None] + jnp.arange(S)) % 3 == 0)()[None, None]
    output = dot_product_attention(*arrays, mask=mask, implementation="pallas")
    last = slice(T - 64, T)
    want = dot_product_attention(arrays[0][:, last], *arrays[1:], mask=mask[:, :, last], implementation="dense")
    np.testing.assert_allclose(np.float32(output[:, last]), np.float32(want), atol=1.5e-2)


def test_a_mask_of_two_to_the_31_elements_is_refused():
    arrays = [jax.ShapeDtypeStruct((1, n, 1, 64), jnp.bfloat16) for n in (65_536, 32_768, 32_768)]
    mask = jax.ShapeDtypeStruct((1, 1, 65_536, 32_768), jnp.bool_)
    with pytest.raises(NotImplementedError, match="mask of 2,147,483,648 elements"):
        jax.eval_shape(
            lambda q, k, v, m: dot_product_attention(q, k, v, mask=m, implementation="pallas"), *arrays, mask
        )


def test_more_heads_and_items_than_a_grid_axis_has():
    """70,000 of batch times heads, and the same through vmap; CUDA's second and third axis end at 65,535."""
    arrays = checks.draw("bfloat16", 16, 16, 700, 700, 16, B=100)

    def attend(*arrays):
        return dot_product_attention(*arrays, implementation="pallas")

    output = attend(*arrays)
    by_dense = dot_product_attention(*arrays, implementation="dense")
    np.testing.assert_allclose(np.float32(output), np.float32(by_dense), atol=1.5e-2)
    mapped = jax.vmap(jax.vmap(attend))(*(x.reshape(10, 10, 1, *x.shape[1:]) for x in arrays))
    np.testing.assert_array_equal(np.float32(mapped.reshape(output.shape)), np.float32(output))


def test_gradients_of_a_long_causal_row_are_finite_and_those_of_chunked():
    arrays = checks.draw("bfloat16", 32_768, 32_768, 1, 1, 64)

    def gradients(implementation):
        def loss(*arrays):
            output = dot_product_attention(*arrays, is_causal=True, implementation=implementation)
            return jnp.sum(jnp.square(output.astype(jnp.float32)))

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*arrays)

    for a, b in zip(gradients("pallas"), gradients("chunked")):
        a, b = np.float32(a), np.float32(b)
        assert np.max(np.abs(a - b)) <= 3e-2 * np.max(np.abs(b))

"""A drop-in for `jax.nn.dot_product_attention`: the same arguments give the same numbers where the rows have keys."""

from __future__ import annotations

import inspect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from implementations import IMPLEMENTATIONS

from adatemp import PAPER, constant, dot_product_attention
from adatemp.attention import ChunkedConfig

B, T, S, N, K, H = 2, 12, 12, 4, 2, 8
RNG = np.random.default_rng(0)
QUERY, KEY, VALUE = (RNG.normal(size=shape).astype("f") for shape in [(B, T, N, H), (B, S, K, H), (B, S, K, H)])
OPTIONS = {
    "bias": RNG.normal(size=(B, N, T, S)).astype("f"),
    "mask": RNG.random((B, 1, T, S)) < 0.8,
    "scale": 0.7,
    "is_causal": True,
    "query_seq_lengths": np.array([12, 5], "i"),
    "key_value_seq_lengths": np.array([7, 12], "i"),
    "local_window_size": (5, 2),
}


def subsets():
    for size in range(len(OPTIONS) + 1):
        yield from itertools.combinations(OPTIONS, size)


def test_every_combination_of_the_options_of_jax_nn_gives_its_numbers():
    """All 128, op by op without a compiler: programs for 128 combinations would take minutes and show the same."""
    for names in subsets():
        options = {name: OPTIONS[name] for name in names}
        # JAX 0.7.2 forgets a window that comes without a mask; a mask of all keys changes nothing else.
        of_theirs = {"mask": np.ones((1, 1, T, S), bool)} | options
        want = np.asarray(jax.nn.dot_product_attention(QUERY, KEY, VALUE, **of_theirs))
        output, stats = ours(options)
        live = ~np.isneginf(stats.lse)
        # Logits of about 3, sums of 12 values of about 1: a few units of float32.
        np.testing.assert_allclose(output[live], want[live], atol=2e-6, err_msg=str(names))
        assert np.all(output[~live] == 0)
        assert live.mean() > 0.5


def ours(options):
    with jax.disable_jit():
        output, stats = dot_product_attention(QUERY, KEY, VALUE, temperature=None, return_stats=True, **options)
    return np.asarray(output), jax.tree.map(np.asarray, stats)


def test_the_names_and_defaults_are_those_of_jax_nn():
    own = inspect.signature(dot_product_attention).parameters
    for name, parameter in inspect.signature(jax.nn.dot_product_attention).parameters.items():
        if name == "return_residual":  # the one that is not taken over: return_stats says more
            continue
        assert own[name].kind == parameter.kind, name
        assert own[name].default == parameter.default, name
    assert list(own)[:5] == ["query", "key", "value", "bias", "mask"]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_arrays_without_a_batch_are_a_batch_of_one(implementation):
    options = {"is_causal": True, "bias": OPTIONS["bias"][0], "mask": OPTIONS["mask"][:1]}
    where = IMPLEMENTATIONS[implementation]
    single, stats = dot_product_attention(QUERY[0], KEY[0], VALUE[0], return_stats=True, **options, **where)
    options["bias"] = options["bias"][None]
    batch, of_batch = dot_product_attention(QUERY[:1], KEY[:1], VALUE[:1], return_stats=True, **options, **where)
    assert single.shape == (T, N, H) and stats.beta.shape == (T, N)
    np.testing.assert_array_equal(single, batch[0])
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[0]), stats, of_batch)
    plain = dot_product_attention(QUERY[0], KEY[0], VALUE[0], temperature=None, **options, **where)
    want = jax.nn.dot_product_attention(QUERY[0], KEY[0], VALUE[0], **options)
    np.testing.assert_allclose(plain, want, atol=2e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_output_has_the_dtype_of_the_values_and_the_statistics_are_float32(implementation, dtype):
    arrays = (jnp.asarray(x, dtype) for x in (QUERY, KEY, VALUE))
    output, stats = jax.eval_shape(
        lambda *a: dot_product_attention(*a, return_stats=True, **IMPLEMENTATIONS[implementation]), *arrays
    )
    assert (output.shape, output.dtype) == (QUERY.shape, dtype)
    assert all(x.dtype == jnp.float32 and x.shape == (B, T, N) for x in jax.tree.leaves(stats))
    assert not output.weak_type


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_constant_one_is_no_temperature_to_the_bit(implementation):
    where = IMPLEMENTATIONS[implementation]
    pair = [
        dot_product_attention(QUERY, KEY, VALUE, is_causal=True, temperature=rule, return_stats=True, **where)
        for rule in (None, constant(1.0))
    ]
    jax.tree.map(np.testing.assert_array_equal, *pair)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_rows_that_the_published_map_leaves_alone_are_those_of_no_temperature(implementation):
    """Above 5.9445 nats and below 0.8486 beta is 1. The output is then plain attention within four units."""
    n, where = 640, IMPLEMENTATIONS[implementation] | {}
    if implementation in ("queries", "keys"):
        where["config"] = ChunkedConfig(block_q=4, block_k=None if implementation == "queries" else 128)
    rng = np.random.default_rng(1)
    query = rng.normal(size=(1, 8, 2, H)).astype("f") * np.where(np.arange(8) < 4, 0.3, 30)[:, None, None].astype("f")
    key, value = (rng.normal(size=(1, n, 1, H)).astype("f") for _ in range(2))
    tempered, stats = dot_product_attention(query, key, np.abs(value), temperature=PAPER, return_stats=True, **where)
    plain = dot_product_attention(query, key, np.abs(value), temperature=None, **where)
    alone = np.asarray(stats.beta) == 1
    assert alone[:, :4].all() and alone[:, 4:].any()
    tempered, plain = np.asarray(tempered)[alone], np.asarray(plain)[alone]
    assert np.max(np.abs(tempered - plain) / np.spacing(plain)) <= 4


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_gradients_without_a_temperature_are_those_of_jax_nn(implementation):
    def gradients(function, **options):
        loss = jax.jit(
            jax.grad(lambda q, k, v: jnp.sum(jnp.sin(function(q, k, v, is_causal=True, **options))), (0, 1, 2))
        )
        return loss(QUERY, KEY, VALUE)

    got = gradients(dot_product_attention, temperature=None, **IMPLEMENTATIONS[implementation])
    for a, b in zip(got, gradients(jax.nn.dot_product_attention)):
        np.testing.assert_allclose(a, b, atol=5e-6)

"""What holds on eight devices. Not collected: test_sharding.py runs it in a process that has eight of them."""

from __future__ import annotations

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from adatemp import PAPER, dot_product_attention, exp_offset, polynomial
from adatemp.attention import PallasConfig, sharded_attention
from adatemp.temperature import PAPER_COEFFICIENTS, log_ratio, target_entropy

B, T, S, N, K, H, V = 4, 11, 24, 8, 4, 8, 6
RNG = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


QUERY, KEY, VALUE = 2 * normal(B, T, N, H), normal(B, S, K, H), normal(B, S, K, V)
OPTIONS = {
    "plain call": {},
    "causal with an offset": dict(is_causal=True, query_offset=jnp.array([13, 5, 0, 7], jnp.int32)),
    "lengths and window": dict(
        query_seq_lengths=jnp.array([11, 4, 0, 9], jnp.int32),
        key_value_seq_lengths=jnp.array([24, 3, 17, 0], jnp.int32),
        local_window_size=(6, 9),
    ),
    "bias, mask, cap, sink": dict(
        bias=normal(1, N, T, S), mask=jnp.asarray(RNG.random((B, 1, 1, S)) > 0.3), logits_soft_cap=4.0, sink=normal(N)
    ),
    "segments": dict(segment_ids=(jnp.asarray(RNG.integers(0, 2, (B, T))), jnp.asarray(RNG.integers(0, 2, (B, S))))),
}
RULES = {
    "plain": None,
    "published": PAPER,
    "a map a head": polynomial([jnp.asarray(RNG.uniform(0.9, 1.1, N), jnp.float32) * c for c in PAPER_COEFFICIENTS]),
    "an offset a row": exp_offset(jnp.asarray(RNG.uniform(0.5, 2, (B, T, N)), jnp.float32)),
    "by count": log_ratio(4),
}
LAYOUTS = {
    "batch": ((8,), ("a",), dict(batch_axis="a")),
    "batch and heads": ((2, 4), ("a", "b"), dict(batch_axis="a", head_axis="b")),
    "keys": ((8,), ("a",), dict(key_axis="a")),
    "batch, heads and keys": ((2, 2, 2), ("a", "b", "c"), dict(batch_axis="a", head_axis="b", key_axis="c")),
}


def mesh_of(layout: str):
    shape, names, axes = LAYOUTS[layout]
    size = dict(zip(names, shape))
    if "batch_axis" in axes and size[axes["batch_axis"]] > B:
        shape = (B,)
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return jax.sharding.Mesh(devices, names), axes


def loss(attention, arrays, rule, options):
    """A number that every output and statistic enters, each with its own weight."""
    output, stats = attention(*arrays, **options, temperature=rule, return_stats=True)
    total = 0
    for i, x in enumerate([output, stats.entropy, stats.beta, stats.lse, stats.lse_scaled]):
        weight = jnp.cos(jnp.arange(x.size, dtype=jnp.float32) + i).reshape(x.shape)
        total += jnp.sum(weight * jnp.where(jnp.isfinite(x), x, 0))
    return total, (output, stats)


def gradients(attention, rule, options):
    """Gradients to the arrays and to the rule's parameters, output and statistics."""
    f = jax.grad(lambda arrays, rule: loss(attention, arrays, rule, options), (0, 1), has_aux=True)
    return jax.jit(f)((QUERY, KEY, VALUE), rule)


def assert_close(got, wanted):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        if jnp.issubdtype(b.dtype, jnp.floating):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("layout", "name"),
    [*((layout, "plain call") for layout in LAYOUTS), *(("batch, heads and keys", name) for name in list(OPTIONS)[1:])],
)
def test_values_statistics_and_gradients_are_those_of_one_device(layout, name):
    mesh, axes = mesh_of(layout)
    for rule in RULES.values() if (layout, name) == ("batch, heads and keys", "plain call") else [PAPER]:
        one = gradients(partial(dot_product_attention, implementation="dense"), rule, OPTIONS[name])
        many = gradients(partial(sharded_attention, mesh=mesh, **axes), rule, OPTIONS[name])
        assert_close(many, one)


def collectives(function, *arguments) -> dict[str, int]:
    text = jax.jit(function).lower(*arguments).compile().as_text()
    kinds = re.findall(r"= \S+ (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(", text)
    return {kind: kinds.count(kind) for kind in set(kinds)}


def placed(mesh, axes):
    spec = PartitionSpec(axes.get("batch_axis"), None, axes.get("head_axis"))
    keys = PartitionSpec(axes.get("batch_axis"), axes.get("key_axis"), axes.get("head_axis"))
    return [jax.device_put(x, NamedSharding(mesh, s)) for x, s in ((QUERY, spec), (KEY, keys), (VALUE, keys))]


def test_batch_and_heads_need_no_collective_forwards_or_backwards():
    mesh, axes = mesh_of("batch and heads")

    def f(q, k, v):
        return sharded_attention(q, k, v, mesh=mesh, **axes, is_causal=True)

    arrays = placed(mesh, axes)
    assert collectives(f, *arrays) == {}
    assert collectives(lambda *a: jax.vjp(f, *a[:3])[1](a[3]), *arrays, f(*arrays)) == {}


def test_divided_keys_need_one_gather_of_states_and_one_sum():
    mesh, axes = mesh_of("keys")

    def f(q, k, v):
        return sharded_attention(q, k, v, mesh=mesh, **axes, is_causal=True, query_offset=13)

    assert collectives(f, *placed(mesh, axes)) == {"all-gather": 1, "all-reduce": 1}


def test_the_kernel_runs_on_every_device():
    mesh, axes = mesh_of("batch and heads")
    config = PallasConfig(block_q=16, block_k=16, block_q_backward=16, block_k_backward=16, interpret=True)

    def f(q, k, v, **options):
        return jnp.sum(sharded_attention(q, k, v, mesh=mesh, **axes, is_causal=True, **options) ** 2)

    arrays = placed(mesh, axes)
    kernel = jax.jit(jax.value_and_grad(lambda *a: f(*a, implementation="pallas", config=config), (0, 1, 2)))
    assert_close(kernel(*arrays), jax.jit(jax.value_and_grad(f, (0, 1, 2)))(*arrays))


@pytest.mark.parametrize("placing", ["placed", "anyhow"])
def test_an_explicit_mesh_serves_too(placing):
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    axes = dict(batch_axis="a", head_axis="b")
    arrays = placed(mesh, axes) if placing == "placed" else (QUERY, KEY, VALUE)

    def f(*arrays):
        return sharded_attention(*arrays, mesh=mesh, **axes)

    wanted = dot_product_attention(QUERY, KEY, VALUE)
    np.testing.assert_allclose(f(*arrays), wanted, rtol=2e-5, atol=2e-6)
    with jax.set_mesh(mesh):
        np.testing.assert_allclose(jax.jit(f)(*arrays), wanted, rtol=2e-5, atol=2e-6)


def test_an_early_spike_on_one_device_is_seen_by_all():
    """n = 131,072 over eight devices; float64 of the whole row is the oracle."""
    n = 131_072
    row = RNG.normal(size=n).astype(np.float32)
    row[5] += 12.5
    mesh, axes = mesh_of("keys")
    query, key = jnp.ones((1, 1, 1, 1)), jnp.asarray(row).reshape(1, n, 1, 1)
    _, stats = sharded_attention(query, key, key, mesh=mesh, **axes, scale=1.0, return_stats=True)
    z = row.astype(np.float64)
    p = np.exp(z - z.max())
    lse = z.max() + np.log(p.sum())
    entropy = lse - (p / p.sum() * z).sum()
    assert abs(float(stats.entropy.item()) - entropy) < 2e-5
    assert abs(float(stats.lse.item()) - lse) < 1e-5 * (1 + abs(lse))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (dict(batch_axis="z"), "batch_axis 'z' is not an axis of the mesh"),
        (dict(head_axis="a"), "head_axis 'a' has 8 devices, which do not divide the 4 key heads"),
        (dict(), "name at least one"),
        (dict(key_axis="a", batch_axis="a"), "do not divide the 4 batch"),
    ],
)
def test_bad_axes_are_named(axes, message):
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("a",))
    with pytest.raises(ValueError, match=re.escape(message)):
        sharded_attention(QUERY, KEY, VALUE, mesh=mesh, **axes)


def test_what_divided_keys_cannot_serve_is_refused_by_name():
    mesh, axes = mesh_of("keys")
    with pytest.raises(NotImplementedError, match="TargetEntropy reads the whole row"):
        sharded_attention(QUERY, KEY, VALUE, mesh=mesh, **axes, temperature=target_entropy(1.0))
    with pytest.raises(NotImplementedError, match="implementation"):
        sharded_attention(QUERY, KEY, VALUE, mesh=mesh, **axes, implementation="dense")


def test_plain_jit_of_the_dense_form_keeps_a_batch_divided():
    """XLA partitions its own operations: without our wrapper the dense form needs none of the other items either."""
    mesh, axes = mesh_of("batch and heads")
    arrays = placed(mesh, axes)
    output = jax.jit(lambda *a: dot_product_attention(*a, implementation="dense"))(*arrays)
    assert output.sharding.spec[0] == "a"

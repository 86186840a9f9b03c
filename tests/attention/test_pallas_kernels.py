"""The GPU kernels in the interpreter: what the option matrix does not reach. The matrix itself is `test_options`."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from implementations import IMPLEMENTATIONS, compiled

from adatemp import attention_entropy, dot_product_attention
from adatemp._compat import enable_x64
from adatemp._rule import rule
from adatemp.attention import configs
from adatemp.attention.configs import PallasConfig
from adatemp.temperature import PAPER, PAPER_COEFFICIENTS, constant, polynomial

PALLAS = IMPLEMENTATIONS["pallas"]
B, T, S, N, K, H, V = 2, 35, 50, 4, 2, 8, 5


def draw(seed=0, std=2.0):
    rng = np.random.default_rng(seed)
    shapes = (B, T, N, H), (B, S, K, H), (B, S, K, V)
    return [np.float32(std * rng.normal(size=shapes[0])), *(np.float32(rng.normal(size=s)) for s in shapes[1:])]


def prepared(query, key, value, how=PALLAS, **options):
    """A compiled function to output, statistics and the gradients of its arguments under fixed cotangents."""
    rng = np.random.default_rng(1)

    def run(query, key, value):
        output, stats = dot_product_attention(query, key, value, return_stats=True, **options, **how)
        return oracle.Rows(output, stats.entropy, stats.beta, stats.lse, stats.lse_scaled)

    shapes = jax.eval_shape(run, query, key, value)
    cotangents = oracle.Rows(*(np.asarray(rng.normal(size=x.shape), x.dtype) for x in shapes))

    def both(*arrays):
        result, pull = jax.vjp(run, *arrays)
        return result, pull(cotangents)

    program = compiled(both, query, key, value)
    return lambda *arrays: jax.device_get(program(*arrays))


def everything(query, key, value, **options):
    return prepared(query, key, value, **options)(query, key, value)


def assert_equal(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)


def assert_close(got, want, tolerance):
    """Within a share of the largest entry of each array, infinities in the same places."""

    def check(a, b):
        np.testing.assert_array_equal(np.isneginf(a), np.isneginf(b))
        a, b = (np.where(np.isneginf(x), 0, x).astype(np.float64) for x in (a, b))
        assert np.max(np.abs(a - b)) <= tolerance * max(1, np.max(np.abs(b)))

    jax.tree.map(check, got, want)


@pytest.mark.parametrize("hidden_by", ["lengths", "mask"])
def test_what_stands_in_hidden_keys_and_dead_queries_changes_nothing(hidden_by):
    # Not a tolerance: the same bits, for nothing hidden may enter any sum, forwards or backwards.
    query, key, value = draw()
    keys, queries = np.array([41, 7]), np.array([30, 35])
    options = {"is_causal": True, "query_offset": 20}
    hidden = np.arange(S) >= keys[:, None]
    dead = np.arange(T) >= queries[:, None]
    if hidden_by == "lengths":
        options |= {"key_value_seq_lengths": keys, "query_seq_lengths": queries}
    else:
        options["mask"] = ~hidden[:, None, None, :] & ~dead[:, None, :, None]
    run = prepared(query, key, value, **options)
    clean = run(query, key, value)
    for bad, infinite in ((np.nan, np.inf), (-np.inf, np.nan)):
        query[dead], key[hidden], value[hidden] = bad, infinite, bad
        assert_equal(run(query, key, value), clean)
    assert all(np.isfinite(x).all() for x in clean[1])
    assert not clean[1][1][hidden].any() and not clean[1][0][dead].any()


def test_a_value_that_is_not_finite_reaches_the_queries_that_see_it_and_no_other():
    query, key, value = draw()
    value[0, 20, 1, 2] = np.nan  # amid a block of keys that the diagonal cuts
    output = everything(query, key, value, is_causal=True)[0].output
    sees = np.zeros((B, T, N), bool)
    sees[0, 20:, 2:] = True  # query heads 2 and 3 read key head 1
    np.testing.assert_array_equal(np.isnan(output).any(-1), sees)


def test_a_nan_in_a_live_logit_stays_in_its_rows():
    query, key, value = draw()
    query[1, 3, 2, 0] = np.nan
    result, gradients = everything(query, key, value, is_causal=True)
    row = np.zeros((B, T, N), bool)
    row[1, 3, 2] = True
    for rows in (result.entropy, result.lse, result.lse_scaled, result.output.sum(-1), gradients[0].sum(-1)):
        np.testing.assert_array_equal(np.isnan(rows), row)


def test_dead_rows_anywhere_are_zero_and_leave_the_others_alone():
    query, key, value = draw()
    mask = np.random.default_rng(2).random((B, N, T, S)) < 0.6
    dead = np.zeros((B, N, T), bool)
    dead[0, :, [0, 9, -1]] = True  # first, middle, last
    dead[0, 1, 16:32] = True  # a whole block
    dead[1, 2] = True  # a whole head
    mask[dead] = False
    result, gradients = everything(query, key, value, mask=mask)
    want = oracle.attention(query, key, value, mask=mask)
    dead = np.swapaxes(dead, 1, 2)
    for name, expected in (("output", 0), ("entropy", 0), ("beta", 1), ("lse", -np.inf), ("lse_scaled", -np.inf)):
        np.testing.assert_array_equal(getattr(result, name)[dead], expected)
    assert_close(result, want, 2e-6)  # a few float32 roundings of sums of 50 terms
    assert not gradients[0][dead].any() and all(np.isfinite(x).all() for x in gradients)


@rule("coefficients")
class Foreign:
    """The published map as a reader might write it: the library does not know the class."""

    coefficients: object
    differentiate: bool = True
    range = None
    needs = frozenset({"entropy"})

    def beta(self, stats):
        value = jnp.polyval(jnp.asarray(self.coefficients, stats.entropy.dtype), stats.entropy)
        return jnp.where((stats.entropy <= 0.5) | (value <= 1), 1, value)


def test_a_rule_between_two_kernels_gives_what_it_gives_inside_one():
    arrays = draw()
    inside = everything(*arrays, is_causal=True)
    between = everything(*arrays, is_causal=True, temperature=Foreign(coefficients=np.array(PAPER_COEFFICIENTS)))
    assert_close(between, inside, 1e-5)  # the kernels add dbeta up in another order


@rule("slope")
class MeanOverHeads:
    """A rule whose rows depend on each other: beta of all heads from their mean entropy."""

    slope: float
    differentiate: bool = True
    range = None
    needs = frozenset({"entropy"})

    def beta(self, stats):
        mean = jnp.mean(stats.entropy, -1, keepdims=True)
        return jnp.broadcast_to(1 + self.slope * mean, stats.entropy.shape)


def test_the_gradient_of_a_rule_that_mixes_rows_is_exact():
    arrays, options = draw(), {"is_causal": True, "temperature": MeanOverHeads(slope=0.3)}
    got = everything(*arrays, **options)
    with enable_x64(True):
        want = everything(*(np.float64(x) for x in arrays), how={"implementation": "dense"}, **options)
    assert_close(got, want, 1e-5)


def test_tiles_of_the_key_kernel_give_the_same_lying_down_and_upright(monkeypatch):
    arrays, bias = draw(), np.float32(np.random.default_rng(3).normal(size=(1, N, T, S)))
    options = {"bias": bias, "local_window_size": 20}
    lying = everything(*arrays, **options)
    monkeypatch.setattr(configs, "compute_capabilities", lambda: (9.0,))
    jax.clear_caches()  # the choice is made when a call is traced
    upright = everything(*arrays, **options)
    jax.clear_caches()
    assert_close(upright, lying, 1e-6)


def test_a_beta_of_one_is_plain_attention():
    # A few roundings apart and not the same bits: on a processor the multiplication by beta changes what is fused.
    arrays = draw()
    plain = everything(*arrays, is_causal=True, temperature=None)
    below_one_everywhere = polynomial([0.5])
    assert_close(everything(*arrays, is_causal=True, temperature=below_one_everywhere), plain, 1e-6)
    online = functools.partial(dot_product_attention, is_causal=True, temperature=constant(jnp.ones(N)), **PALLAS)
    assert_close(jax.device_get(compiled(online, *arrays)(*arrays)), plain[0].output, 1e-6)


def test_two_runs_give_the_same_bits():
    arrays = draw()
    run = prepared(*arrays, local_window_size=(9, 4), sink=np.float32([0, 1, 2, 3]))
    assert_equal(run(*arrays), run(*arrays))


def test_the_entropy_of_a_long_row_keeps_its_digits_only_with_compensated_sums():
    # One logit 12.5 above 131,071 equal ones: tiles of tiny equal terms are added to a sum of 1. In closed form
    # H = log l - s / l with l = 1 + r and s = -12.5 r.
    n, height = 131_072, 12.5
    r = (n - 1) * np.exp(-height)
    exact = np.log1p(r) + height * r / (1 + r)
    key = np.zeros((1, n, 1, 16), np.float32)
    key[0, 0, 0, 0] = height
    query = np.zeros((1, 1, 1, 16), np.float32)
    query[..., 0] = 1
    errors = {}
    for compensated in (True, False):
        config = PallasConfig(block_q=16, block_k=128, compensated=compensated, interpret=True)
        run = functools.partial(attention_entropy, scale=1.0, implementation="pallas", config=config)
        errors[compensated] = abs(float(compiled(run, query, key)(query, key)[0, 0, 0]) - exact)
    assert errors[True] < 5e-6 < 2e-5 < errors[False]  # nats; 5e-7 is one rounding of the result


@pytest.mark.parametrize("by_bias", [False, True])
def test_a_common_offset_of_the_logits_costs_nothing(by_bias):
    # Logits of a few sixteenths next to 2^14: exact in float32, so whatever is lost is lost by the kernel. Their
    # statistics are those of the logits without the offset; 2e-5 nats is the gate for logits of any size.
    rng = np.random.default_rng(4)
    query, key, value = draw()
    query[:], key[:] = rng.integers(-8, 8, query.shape) / 8, rng.integers(-8, 8, key.shape) / 2
    plain = oracle.attention(query, key, value, scale=1.0)
    options = {"scale": 1.0}
    if by_bias:
        options["bias"] = np.full((1, 1, 1, 1), 2.0**14, np.float32)
    else:
        query, key = (np.concatenate([x, np.full_like(x[..., :1], 128)], -1) for x in (query, key))
    result, gradients = everything(query, key, value, **options)
    np.testing.assert_allclose(result.entropy, plain.entropy, atol=2e-5, rtol=0)
    np.testing.assert_allclose(result.beta, plain.beta, atol=5e-5, rtol=0)
    np.testing.assert_allclose(result.output, plain.output, atol=5e-5, rtol=0)
    assert all(np.isfinite(x).all() for x in gradients)


@pytest.mark.parametrize("lengths", [(1, 1), (2, 65), (33, 17)])
def test_any_number_of_queries_and_keys(lengths):
    rng = np.random.default_rng(5)
    t, s = lengths
    query, key, value = (np.float32(rng.normal(size=(1, n, 2, 16))) for n in (t, s, s))
    result, gradients = everything(query, key, value, is_causal=True)
    assert_close(result, oracle.attention(query, key, value, is_causal=True), 2e-6)
    assert all(np.isfinite(x).all() for x in gradients)


def test_the_entropy_alone_has_the_gradient_of_the_entropy():
    query, key, _ = draw()
    cotangent = np.random.default_rng(6).normal(size=(B, T, N))

    def gradient(query, key, how):
        entropy = functools.partial(attention_entropy, is_causal=True, **how)
        result, pull = jax.vjp(entropy, query, key)
        return result, pull(jnp.asarray(cotangent, query.dtype))

    got = compiled(functools.partial(gradient, how=PALLAS), query, key)(query, key)
    with enable_x64(True):
        want = gradient(*(jnp.asarray(x, jnp.float64) for x in (query, key)), how={"implementation": "dense"})
    assert_close(jax.device_get(got), jax.device_get(want), 1e-5)


def test_vmap_with_some_arguments_shared():
    query, key, value = draw()
    run = functools.partial(dot_product_attention, is_causal=True, **PALLAS)
    loss = lambda query, key, value: jnp.sum(run(query, key, value) ** 2)  # noqa: E731
    mapped = jax.vmap(jax.grad(loss, argnums=(0, 1)), in_axes=(0, None, 0))
    queries, values = np.stack([query, query[::-1]]), np.stack([value, 2 * value])
    got = compiled(mapped, queries, key, values)(queries, key, values)
    one = compiled(jax.grad(loss, argnums=(0, 1)), query, key, value)
    for i in range(2):
        assert_close(tuple(jax.device_get([x[i] for x in got])), jax.device_get(one(queries[i], key, values[i])), 1e-6)


def test_float32_is_the_same_where_float64_is_enabled():
    arrays = draw()
    want = everything(*arrays, is_causal=True, key_value_seq_lengths=np.array([41, 7]))
    with enable_x64(True):
        got = everything(*arrays, is_causal=True, key_value_seq_lengths=np.array([41, 7]))
    assert all(x.dtype == np.float32 for x in jax.tree.leaves(got))
    assert_equal(got, want)


def test_the_paper_map_runs_inside_the_kernel():
    # Two kernels forwards would mean that the rule was not recognised.
    arrays = draw()
    forward = jax.make_jaxpr(functools.partial(dot_product_attention, temperature=PAPER, **PALLAS))(*arrays)
    assert str(forward).count("pallas_call[") == 1

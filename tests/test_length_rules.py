"""Rules by length: their values, what they refuse, and that they count what a query sees, wherever it is stored."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_temperature import beta

from adatemp import adaptive_temperature_softmax, dot_product_attention
from adatemp._compat import enable_x64
from adatemp.attention import ChunkedConfig, PallasConfig
from adatemp.attention._pallas_rule import fits
from adatemp.temperature import TemperatureRule, llama4, log_ratio, scalable, yarn

COUNTS = np.int32([1, 2, 3, 16, 8191, 8192, 131_071, 2**24 + 1])
RULES = {
    "log ratio": log_ratio(5),
    "scalable": scalable(0.43),
    "scalable with offset": scalable(0.4, 0.3),
    "llama4": llama4(0.7, floor_scale=3),
}
IMPLEMENTATIONS = {
    "dense": {"implementation": "dense"},
    "chunked": {"implementation": "chunked", "config": ChunkedConfig(block_q=4, block_k=4)},
    "pallas": {"implementation": "pallas", "config": PallasConfig(interpret=True, block_q=16, block_k=16)},
}


def test_scalable_is_affine_in_the_logarithm_of_the_count_and_one_for_a_single_key():
    want = np.where(COUNTS > 1, 0.43 * np.log(COUNTS) + 0.1, 1)
    np.testing.assert_allclose(beta(scalable(0.43, 0.1), count=COUNTS), want, rtol=1e-6)


def test_scalable_weights_are_powers_of_the_count():
    z = np.random.default_rng(0).normal(size=(3, 50))
    with enable_x64(True):
        got = adaptive_temperature_softmax(jnp.asarray(z), temperature=scalable(0.8))
    powers = 50.0 ** (0.8 * z)
    np.testing.assert_allclose(got, powers / powers.sum(-1, keepdims=True), rtol=1e-12)


def test_scalable_with_reference_slope_is_the_log_ratio():
    np.testing.assert_allclose(
        beta(scalable(1 / math.log(16)), count=COUNTS), beta(log_ratio(16), count=COUNTS), rtol=1e-6
    )


def test_llama4_is_the_published_code_at_the_position_of_the_last_key_seen():
    # Read in models/llama4/model.py: log(floor((position + 1) / floor_scale) + 1) * attn_scale + 1, in float32.
    position = COUNTS - 1
    want = [math.log(math.floor((int(p) + 1) / 8192) + 1) * 0.1 + 1 for p in position]
    np.testing.assert_allclose(beta(llama4(), count=COUNTS), want, rtol=1e-7)
    assert beta(llama4(), count=np.int32([8191, 8192])) == pytest.approx([1, 1 + 0.1 * math.log(2)])
    assert beta(llama4(), count=np.int32(131_071)) == pytest.approx(1.277, abs=5e-4)


@pytest.mark.parametrize("floor_scale", [3, 7, 1000, 8192])
def test_llama4_steps_exactly_at_the_multiples(floor_scale):
    multiples = floor_scale * np.arange(1, 200)
    rule = llama4(floor_scale=floor_scale)
    at, before = (np.array(beta(rule, count=np.int32(n))) for n in (multiples, multiples - 1))
    np.testing.assert_allclose(at, 1 + 0.1 * np.log1p(np.arange(1, 200)), rtol=1e-6)
    np.testing.assert_allclose(before, 1 + 0.1 * np.log1p(np.arange(199)), rtol=1e-6)


def test_yarn_multiplies_query_and_key_by_its_root_each():
    # Published: each of query and key times 0.1 log s + 1.
    for factor, mscale in ((1.0, 1.0), (4.0, 1.0), (40.0, 1.0), (40.0, 0.707)):
        each = 0.1 * mscale * math.log(factor) + 1
        assert yarn(factor, 0.1 * mscale).inverse_temperature == pytest.approx(each**2, rel=1e-12)
    per_head = jax.jit(lambda s: yarn(s).inverse_temperature)(jnp.array([0.5, 1.0, 40.0]))
    np.testing.assert_allclose(per_head, [1, 1, (0.1 * math.log(40) + 1) ** 2], rtol=1e-6)


@pytest.mark.parametrize("rule", [scalable(1.0), llama4(), yarn(8.0)], ids=lambda rule: type(rule).__name__)
def test_they_keep_the_protocol_and_fit_into_the_kernel(rule):
    assert isinstance(rule, TemperatureRule)
    leaves, structure = jax.tree.flatten(rule)
    assert type(jax.tree.unflatten(structure, [None] * len(leaves))) is type(rule)
    assert rule.needs <= {"count"}
    assert fits(rule, heads=4)


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        (lambda: scalable(-0.1), ValueError, r"scale must be at least 0, got -0\.1; a negative scale would turn"),
        (lambda: scalable(np.array([0.5, -1.0])), ValueError, "scale must be at least 0"),
        (lambda: scalable(jnp.bfloat16(-1)), ValueError, "scale must be at least 0"),
        (lambda: scalable(0), ValueError, "scale 0 with offset 0.0 makes beta at most 0 for every row"),
        (lambda: scalable(math.nan), ValueError, "scale must be finite"),
        (lambda: scalable(1.0, math.inf), ValueError, "offset must be finite"),
        (lambda: scalable("1"), TypeError, "scale must be a number or an array of numbers"),
        (lambda: yarn(0.5), ValueError, r"factor must be at least 1, got 0\.5; .*not the other way round"),
        (lambda: yarn(2.0, -0.1), ValueError, "coefficient must be at least 0"),
        (lambda: yarn(True), TypeError, "factor must be real, got dtype bool"),
        (lambda: llama4(-0.1), ValueError, "coefficient must be at least 0"),
        (lambda: llama4(floor_scale=0), ValueError, r"floor_scale must be from 1 to 2\*\*31 - 1, got 0"),
        (lambda: llama4(floor_scale=8192.0), TypeError, "floor_scale counts keys.*Python integer, got 8192.0"),
    ],
)
def test_constructors_refuse_what_cannot_be_meant(make, error, named):
    with pytest.raises(error, match=named):
        make()


def test_a_learned_scale_that_turns_negative_gives_nearly_uniform_weights_and_no_gradient():
    z = jnp.linspace(-3, 3, 20).at[4].set(-jnp.inf)

    def first(scale):
        return adaptive_temperature_softmax(z, temperature=scalable(scale))[0]

    value, slope = jax.jit(jax.value_and_grad(first))(-2.0)
    assert value == pytest.approx(1 / 19, rel=1e-4)
    assert slope == 0
    assert adaptive_temperature_softmax(z, temperature=scalable(0.0, 1.0))[4] == 0


def test_a_count_beyond_the_digits_of_a_bfloat16_parameter_is_read_exactly():
    got = beta(scalable(jnp.bfloat16(0.5)), count=np.int32([131_071, 100_003]))
    np.testing.assert_allclose(got, 0.5 * np.log([131_071, 100_003]), rtol=1e-6)


def test_the_gradient_of_scale_and_offset_is_that_of_finite_differences():
    z = np.random.default_rng(3).normal(size=(2, 9))
    keep = np.arange(9) < np.array([[9], [5]])
    coefficient = np.random.default_rng(4).normal(size=(2, 9))

    def f(s, b):
        weights = adaptive_temperature_softmax(jnp.asarray(z), where=jnp.asarray(keep), temperature=scalable(s, b))
        return jnp.sum(coefficient * weights)

    with enable_x64(True):
        got = jax.grad(f, argnums=(0, 1))(0.7, 0.2)
        h = 1e-6
        want = (f(0.7 + h, 0.2) - f(0.7 - h, 0.2)) / (2 * h), (f(0.7, 0.2 + h) - f(0.7, 0.2 - h)) / (2 * h)
    np.testing.assert_allclose(got, want, rtol=1e-7)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_identity_setting_is_plain_attention_to_the_bit(implementation):
    query, key, value = jax.random.normal(jax.random.key(0), (3, 1, 16, 2, 8))
    options = dict(is_causal=True, **IMPLEMENTATIONS[implementation])
    plain = dot_product_attention(query, key, value, temperature=None, **options)
    identities = [yarn(1.0), llama4(floor_scale=100), scalable(0.0, 1.0)]
    for rule in identities[: 2 if implementation == "pallas" else 3]:
        np.testing.assert_array_equal(dot_product_attention(query, key, value, temperature=rule, **options), plain)


@pytest.mark.parametrize(
    ("name", "implementation"),
    [(name, "dense") for name in RULES]
    + [("scalable with offset", "chunked"), ("llama4", "chunked"), ("llama4", "pallas")],
)
def test_padding_packing_chunks_and_decoding_agree_at_every_query(name, implementation):
    """One causal sequence of 11 tokens, stored in five ways; the count of each query is its own, not the array's."""
    T, N, H = 11, 2, 8
    query, key, value = 2 * jax.random.normal(jax.random.key(1), (3, 1, T, N, H))
    options = dict(temperature=RULES[name], **IMPLEMENTATIONS[implementation])

    attend = partial(dot_product_attention, **options)
    other = jax.random.normal(jax.random.key(2), (3, 1, 7, N, H))

    def padded(x, before, after):
        return jnp.pad(x, ((0, 0), (before, after), (0, 0), (0, 0)), constant_values=jnp.nan)

    def every_way(query, key, value):
        own = (query, key, value)
        left, right = ([padded(x, *room) for x in own] for room in ((5, 0), (0, 5)))
        packed = [jnp.concatenate([o, x], 1) for o, x in zip(other, own)]
        segments = jnp.repeat(jnp.array([0, 1]), jnp.array([7, T]), total_repeat_length=7 + T)[None]
        chunks = [attend(query[:, i : i + 4], key, value, is_causal=True, query_offset=i) for i in (0, 4, 8)]
        cache = [jnp.repeat(padded(x, 0, 9), T, 0) for x in (key, value)]  # a sequence for each length it has had
        steps = attend(query[0][:, None], *cache, key_value_seq_lengths=jnp.arange(1, T + 1))
        return {
            "alone": attend(*own, is_causal=True),
            "left padding": attend(*left, mask=(jnp.arange(T + 5) >= 5)[None, None, None], is_causal=True)[:, 5:],
            "right padding": attend(*right, key_value_seq_lengths=jnp.array([T]), is_causal=True)[:, :T],
            "packing": attend(*packed, segment_ids=segments, is_causal=True)[:, 7:],
            "chunked prefill": jnp.concatenate(chunks, 1),
            "decoding": steps[:, 0][None],
            "plain": dot_product_attention(*own, is_causal=True, temperature=None),
        }

    program = jax.jit(every_way).lower(query, key, value).compile({"xla_backend_optimization_level": 0})
    stored = jax.device_get(program(query, key, value))
    alone, plain = stored.pop("alone"), stored.pop("plain")
    # The rule was applied, and not at one key alone.
    assert np.abs(alone - plain)[:, 2:].max() > 0.05
    for how, output in stored.items():
        np.testing.assert_allclose(output, alone, atol=2e-5, err_msg=how)


def test_queries_of_one_batch_have_each_their_own_count():
    query, key, value = jax.random.normal(jax.random.key(5), (3, 3, 6, 1, 4))
    lengths = jnp.array([2, 4, 6])
    _, stats = dot_product_attention(
        query, key, value, key_value_seq_lengths=lengths, temperature=scalable(1.0), return_stats=True
    )
    np.testing.assert_allclose(stats.beta[..., 0], np.log([[2] * 6, [4] * 6, [6] * 6]), rtol=1e-6)


def test_the_kernel_has_the_gradient_of_a_scale_and_an_offset_a_head():
    query, key, value = 2 * jax.random.normal(jax.random.key(6), (3, 1, 16, 2, 8))
    cotangent = jax.random.normal(jax.random.key(7), value.shape)

    def loss(scale, offset, **implementation):
        rule = scalable(scale, offset)
        output = dot_product_attention(query, key, value, is_causal=True, temperature=rule, **implementation)
        return jnp.sum(cotangent * output)

    arguments = jnp.array([0.4, 0.9]), jnp.array([0.1, -0.2])
    kernel, dense = (
        jax.jit(jax.grad(partial(loss, **IMPLEMENTATIONS[name]), argnums=(0, 1)))(*arguments)
        for name in ("pallas", "dense")
    )
    for a, b in zip(kernel, dense):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

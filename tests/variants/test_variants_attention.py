"""Attention with a variant's weights: softmax attention's logits, and the same numbers where it also streams."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from variant_oracle import VARIANTS, compiled, definition

from adatemp import adaptive_temperature_softmax, dot_product_attention, variants
from adatemp._compat import enable_x64
from adatemp.attention import ChunkedConfig, PallasConfig
from adatemp.models import Cache, Transformer, presets
from adatemp.temperature import llama4, log_ratio, scalable, yarn

B, T, S, N, K, H, V = 2, 6, 11, 4, 2, 8, 5
SOFTMAX = partial(adaptive_temperature_softmax, temperature=None)
CHUNKED = {"implementation": "chunked", "config": ChunkedConfig(block_q=4, block_k=4)}
PALLAS = {"implementation": "pallas", "config": PallasConfig(interpret=True, block_q=16, block_k=16)}


def arrays(seed=0, T=T, S=S):
    keys = jax.random.split(jax.random.key(seed), 4)
    shapes = (B, T, N, H), (B, S, K, H), (B, S, K, V), (B, T, N, V)
    return [2 * jax.random.normal(key, shape) for key, shape in zip(keys, shapes)]


OPTIONS = {
    "causal": dict(
        is_causal=True, query_offset=5, logits_soft_cap=3.0, local_window_size=4, query_seq_lengths=jnp.array([6, 4])
    ),
    "masked": dict(
        bias=jax.random.normal(jax.random.key(7), (N, T, S)),
        mask=jax.random.uniform(jax.random.key(8), (B, 1, T, S)) < 0.5,
        scale=0.3,
        key_value_seq_lengths=jnp.array([11, 7]),
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_with_softmax_it_is_softmax_attention_in_values_and_gradients(name):
    *inputs, cotangent = arrays()

    def run(attend, query, key, value):
        output = attend(query, key, value, **OPTIONS[name])
        return jnp.sum(cotangent * output), output

    def both(*inputs):
        plain = partial(dot_product_attention, temperature=None, implementation="dense")
        return [
            jax.value_and_grad(partial(run, attend), argnums=(0, 1, 2), has_aux=True)(*inputs)
            for attend in (plain, variants.attention_fn(SOFTMAX))
        ]

    want, got = compiled(both, *inputs)(*inputs)
    for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(got)):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=2e-5)


def test_what_streams_is_its_dense_form_in_values_and_gradients():
    """Each by `dot_product_attention` in blocks, against `attention_fn` of the function; a parameter a head."""
    *inputs, cotangent = arrays()
    options = dict(is_causal=True, query_offset=S - T)
    per_head = jnp.linspace(0.3, 1.2, N)
    pairs = {
        "sink": (lambda x: dict(sink=x, temperature=None), lambda x: partial(variants.sink_softmax, sink=x[:, None])),
        "scalable": (
            lambda x: dict(temperature=scalable(x, 0.3)),
            lambda x: partial(variants.scalable_softmax, scale=x[:, None], offset=0.3),
        ),
        "log length": (
            lambda x: dict(temperature=log_ratio(3 + x)),
            lambda x: partial(variants.log_length_softmax, reference_count=3 + x[:, None]),
        ),
        "yarn": (
            lambda x: dict(temperature=yarn(2 + x)),
            lambda x: partial(variants.yarn_softmax, factor=2 + x[:, None]),
        ),
        "llama4": (
            lambda x: dict(temperature=llama4(x, floor_scale=4)),
            lambda x: partial(variants.llama4_softmax, coefficient=x[:, None], floor_scale=4),
        ),
    }

    def program(query, key, value, x):
        found = {}
        for name, (streamed, dense) in pairs.items():

            def by_blocks(*a, streamed=streamed):
                return jnp.sum(cotangent * dot_product_attention(*a[:3], **options, **streamed(a[3]), **CHUNKED))

            def at_once(*a, dense=dense):
                return jnp.sum(cotangent * variants.attention_fn(dense(a[3]))(*a[:3], **options))

            slopes = (0, 1, 2, 3) if name in ("sink", "scalable") else (3,)
            run = partial(jax.value_and_grad, argnums=slopes)
            found[name] = [run(f)(query, key, value, x) for f in (by_blocks, at_once)]
        return found

    found = compiled(program, *inputs, per_head)(*inputs, per_head)
    for name, (streamed, dense) in found.items():
        assert np.abs(dense[1][-1]).min() > 1e-3, name
        for a, b in zip(jax.tree.leaves(streamed), jax.tree.leaves(dense)):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-4, err_msg=name)


def test_the_sink_of_the_kernel_is_the_sink_of_the_function():
    query, key, value, _ = arrays()
    sink = jnp.array([-1.0, 0.0, 1.0, 4.0])
    got = dot_product_attention(query, key, value, sink=sink, temperature=None, **PALLAS)
    want = variants.attention_fn(partial(variants.sink_softmax, sink=sink[:, None]))(query, key, value)
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_every_variant_attends_by_its_definition_over_grouped_heads_and_masks():
    query, key, value, _ = (np.asarray(x, np.float64) for x in arrays(3))
    mask = np.random.default_rng(0).uniform(size=(B, N, T, S)) < 0.7
    mask[0, 1, 2] = False
    z = np.einsum("btnh,bsnh->bnts", query, np.repeat(key, N // K, 2)) / np.sqrt(H)
    with enable_x64(True):  # so that no choice of keys is in doubt

        def program(query, key, value):
            return {
                name: variants.attention_fn(function)(query, key, value, mask=jnp.asarray(mask))
                for name, (function, _) in VARIANTS.items()
            }

        found = jax.device_get(compiled(program, query, key, value)(query, key, value))
    for name, output in found.items():
        weights = definition(name, z, mask)
        want = np.einsum("bnts,bsnv->btnv", weights, np.repeat(value, N // K, 2))
        np.testing.assert_allclose(output, want, atol=1e-11, err_msg=name)
        assert np.all(output[0, 2, 1] == 0), name  # a query without keys


def test_a_temperature_multiplies_the_logits_before_the_variant_and_has_its_gradient():
    query, key, value, cotangent = arrays(4)
    lengths = jnp.array([11, 5])

    def ruled(reference):
        attend = variants.attention_fn(variants.entmax15)
        output = attend(query, key, value, key_value_seq_lengths=lengths, temperature=log_ratio(reference))
        return jnp.sum(cotangent * output), output

    def by_hand(reference):
        beta = jnp.log(lengths) / jnp.log(reference)
        attend = variants.attention_fn(variants.entmax15)
        output = attend(query * beta[:, None, None, None], key, value, key_value_seq_lengths=lengths)
        return jnp.sum(cotangent * output), output

    program = jax.jit(lambda x: [jax.value_and_grad(f, has_aux=True)(x) for f in (ruled, by_hand)])
    for a, b in zip(*map(jax.tree.leaves, program(4.0))):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


def test_statistics_are_those_of_softmax_and_no_batch_is_needed():
    query, key, value, _ = arrays()
    output, stats = variants.attention_fn(variants.sparsemax)(query[0], key[0], value[0], return_stats=True)
    _, want = dot_product_attention(query[0], key[0], value[0], temperature=None, return_stats=True)
    assert output.shape == (T, N, V)
    np.testing.assert_allclose(stats.entropy, want.entropy, atol=1e-6)
    np.testing.assert_array_equal(stats.beta, 1)


def test_what_a_query_does_not_see_cannot_spoil_it():
    query, key, value, cotangent = arrays()
    bad_key, bad_value = key.at[:, 8:].set(jnp.nan), value.at[:, 8:].set(jnp.inf)

    def f(query, key, value):
        output = variants.attention_fn(variants.entmax15)(
            query, key, value, key_value_seq_lengths=jnp.array([8, 8]), logits_soft_cap=2.0
        )
        return jnp.sum(cotangent * output)

    gradient = jax.jit(jax.value_and_grad(f, argnums=(0, 1, 2)))
    spoilt, clean = gradient(query, bad_key, bad_value), gradient(query, key, value)
    for a, b in zip(jax.tree.leaves(spoilt), jax.tree.leaves(clean)):
        np.testing.assert_array_equal(a, b)


def test_a_transformer_takes_any_variant_trains_and_decodes_with_it():
    model = Transformer(presets.toy(vocabulary=11, context=16), rngs=nnx.Rngs(0))
    tokens = jnp.arange(8)[None] * 3 % 11
    attend = variants.attention_fn(partial(variants.top_k, k=3))

    @nnx.jit
    def loss_and_slopes(model, tokens):
        def loss(model):
            logits, captured = model(tokens, attention=attend, capture=True)
            return -jnp.mean(jax.nn.log_softmax(logits)[..., 0]), (logits, captured)

        return nnx.value_and_grad(loss, has_aux=True)(model)

    (_, (logits, captured)), slopes = loss_and_slopes(model, tokens)
    assert captured.stats.entropy.shape == (2, 1, 8, 4)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(slopes))
    plain = nnx.jit(lambda model, tokens: model(tokens))(model, tokens)
    assert np.abs(logits - plain)[:, 4:].max() > 1e-3  # and it was applied

    step = nnx.jit(lambda model, token, cache: model(token, attention=attend, cache=cache))
    cache, steps = Cache.empty(model.config, 1, 12), []
    for t in range(8):
        one, cache = step(model, tokens[:, t : t + 1], cache)
        steps.append(one)
    np.testing.assert_allclose(jnp.concatenate(steps, 1), logits, atol=2e-5)


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        (dict(sink=jnp.zeros(N)), TypeError, r"give attention_fn\(partial\(variants.sink_softmax, sink=...\)\)"),
        (
            dict(implementation="chunked"),
            NotImplementedError,
            "implementation 'chunked': a variant's weights are dense",
        ),
        (dict(config=ChunkedConfig()), ValueError, "config belongs to an implementation with blocks"),
        (dict(temperature=2.0), TypeError, "temperature must be a rule"),
        (dict(window=3), TypeError, "window"),
        (dict(return_stats="yes"), TypeError, "return_stats"),
    ],
)
def test_it_refuses_what_it_cannot_do(options, error, named):
    query, key, value, _ = arrays()
    with pytest.raises(error, match=named):
        variants.attention_fn(variants.entmax15)(query, key, value, **options)


def test_weights_of_another_shape_are_refused_and_a_list_with_dense_is_taken():
    query, key, value, _ = arrays()
    with pytest.raises(ValueError, match=r"weights must return an array of the logits' shape \(2, 4, 6, 11\), got"):
        variants.attention_fn(lambda z, axis, where: z.sum(axis))(query, key, value)
    with pytest.raises(TypeError, match="value must be an array, got None"):
        variants.attention_fn(variants.entmax15)(query, key, None)
    attend = variants.attention_fn(variants.entmax15)
    np.testing.assert_array_equal(
        attend(query, key, value, implementation=("pallas", "xla")), attend(query, key, value)
    )

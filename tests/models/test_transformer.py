"""The Transformer against a NumPy forward pass written from the definitions, for every preset and every option."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpy_transformer
import optax
import pytest
from flax import nnx

from adatemp import PAPER, dot_product_attention
from adatemp._compat import enable_x64
from adatemp.models import Cache, Transformer, presets
from adatemp.temperature import PAPER_COEFFICIENTS, constant
from adatemp.training import train

SMALL = dict(vocabulary=13, layers=2, width=12, heads=4, head_width=6, key_heads=2, mlp_width=10)
CONFIGS = {
    "toy": presets.toy(**SMALL, context=9),
    "gpt": presets.gpt(**SMALL, context=9),
    "llama": presets.llama(**SMALL),
    "bert": presets.bert(**SMALL, context=9),
    "gemma 1": presets.gemma(1, **SMALL),
    "gemma 2": presets.gemma(2, **SMALL, windows=(3, None), attention_soft_cap=2.0, logits_soft_cap=3.0),
    "gemma 3": presets.gemma(3, **SMALL, windows=(3, None)),
    "alibi, parallel, rms, gated": presets.toy(
        **SMALL, positions="alibi", parallel=True, norm="rms", mlp="gated", activation="silu", bias=True
    ),
    "sinusoidal, no norm, relu, attention soft cap": presets.toy(
        **SMALL, positions="sinusoidal", norm="none", activation="relu", attention_soft_cap=1.0, scale=0.9
    ),
    "no residual, post-norm, no epsilon, layer qk norm": presets.toy(
        **SMALL, positions="none", residual=False, norm_place="post", norm_epsilon=0.0, qk_norm="layer", causal=False
    ),
    "no mlp, norms on both sides, windows of an encoder": presets.toy(
        **SMALL, positions="rotary", mlp="none", norm_place="both", causal=False, windows=(2, 4)
    ),
    "parallel, norms on both sides, tanh": presets.toy(
        **SMALL, context=9, parallel=True, norm_place="both", activation="tanh"
    ),
}
TOKENS = np.random.default_rng(0).integers(0, 13, (2, 7))
WHERE = np.array([[True] * 7, [True, True, False, True, True, True, False]])


@functools.cache
def model_of(name, dtype=np.float32):
    """Parameters that are all random, gains and biases too, so that no term can hide; sharp heads."""
    model = Transformer(CONFIGS[name], rngs=nnx.Rngs(0))
    draw = np.random.default_rng(1)
    state = nnx.state(model)
    nnx.update(model, jax.tree.map(lambda x: jnp.asarray(x + 0.3 * draw.normal(size=x.shape), dtype), state))
    return model


def run(model, tokens, **options):
    """The model as one compiled program: eagerly every small operation would be compiled by itself."""
    return jax.jit(lambda tokens: model(tokens, **options))(jnp.asarray(tokens))


def parameters(model):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), nnx.to_pure_dict(nnx.state(model)))


def published(entropy):
    return max(1.0, np.polyval([-0.037, 0.481, -2.3, 4.917, -1.791], entropy)) if entropy > 0.5 else 1.0


def test_the_published_map_of_the_oracle_is_the_librarys():
    np.testing.assert_allclose(PAPER_COEFFICIENTS, [-0.037, 0.481, -2.3, 4.917, -1.791])


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_hidden_states_and_statistics_are_those_of_the_definitions(name):
    """float64 on both sides; a few dozen roundings through two layers, so 1e-11 of values of order 1 to 10."""
    with enable_x64(True):
        model = model_of(name, np.float64)
        logits, captured = run(model, TOKENS, where=jnp.asarray(WHERE), temperature=PAPER, capture=True)
        close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)
        for b in range(2):
            expected, hidden, reports = numpy_transformer.forward(
                parameters(model), model.config, TOKENS[b], WHERE[b], beta_of=published
            )
            close(logits[b], expected)
            close(captured.hidden[:, b], hidden)
            close(captured.inputs[:, b], [report["inputs"] for report in reports])
            for name_, got in [
                ("entropy", captured.stats.entropy),
                ("beta", captured.stats.beta),
                ("spread", captured.spread),
            ]:
                close(got[:, b], [report[name_] for report in reports])


def test_float32_is_as_close_as_its_rounding():
    model = model_of("llama")
    logits = run(model, TOKENS)
    expected, *_ = numpy_transformer.forward(parameters(model), model.config, TOKENS[0])
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits[0], expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_capturing_changes_no_value():
    model = model_of("gemma 2")
    plain = run(model, TOKENS)
    captured, _ = run(model, TOKENS, capture=True)
    np.testing.assert_array_equal(plain, captured)


@pytest.mark.parametrize("name", ["llama", "bert", "gemma 2", "alibi, parallel, rms, gated"])
def test_the_jacobian_shows_who_sees_whom(name):
    """Of the logits of token t in the embedding of token s, to the last layer."""
    model = model_of(name)
    config = model.config
    x = model.embed(jnp.asarray(TOKENS[:1]))

    def through(x):
        return model.run(x, attend=functools.partial(dot_product_attention, temperature=PAPER))[0][0]

    influence = np.abs(jax.jit(jax.jacrev(through))(x)[:, :, 0]).max((1, 3))  # [T, S]
    t, s = np.mgrid[:7, :7]
    reach = 0
    for layer in range(config.layers):
        window = config.window(layer)
        reach += 7 if window is None else window - 1
    sees = np.abs(t - s) <= reach
    if config.causal:
        sees &= s <= t
    assert (influence[~sees] == 0).all() and (influence[sees] > 0).all()


def test_a_causal_window_of_w_tokens_reaches_w_minus_one_back_in_a_layer():
    config = presets.toy(**SMALL, positions="none", windows=(3,))
    model = Transformer(config, rngs=nnx.Rngs(0))
    x = model.embed(jnp.asarray(TOKENS[:1]))

    def through(x):
        return model.blocks[0](x, None, jnp.arange(7), None, dot_product_attention, False)[0][0]

    influence = np.abs(jax.jit(jax.jacrev(through))(x)[:, :, 0]).max((1, 3))
    t, s = np.mgrid[:7, :7]
    np.testing.assert_array_equal(influence > 0, (s <= t) & (t - s < 3))


def test_without_positions_and_masks_permuted_tokens_give_permuted_logits():
    model = model_of("no residual, post-norm, no epsilon, layer qk norm")
    order = np.random.default_rng(2).permutation(7)
    straight, turned = (run(model, tokens) for tokens in (TOKENS, TOKENS[:, order]))
    np.testing.assert_allclose(turned, straight[:, order], rtol=1e-4, atol=1e-4)
    other = model_of("bert")  # learned positions break it
    assert not np.allclose(run(other, TOKENS[:, order]), run(other, TOKENS)[:, order], atol=1e-2)


@pytest.mark.parametrize("name", ["llama", "alibi, parallel, rms, gated", "gemma 3"])
def test_relative_positions_do_not_care_where_the_sequence_begins(name):
    model = model_of(name)
    placed = jax.jit(lambda at: model(jnp.asarray(TOKENS), at=at))
    straight = np.arange(7) * np.ones((2, 1), int)
    here, there = placed(straight), placed(straight + 100)
    # float32 angles at position 100 are off by 1e-5
    np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-3)
    assert not np.allclose(here, placed(np.array([[0, 5, 1, 9, 2, 3, 4]] * 2)), atol=1e-2)


def test_positions_of_each_sequence_are_its_own():
    model = model_of("llama")
    at = np.array([np.arange(7), 3 * np.arange(7)])
    logits = run(model, TOKENS, at=jnp.asarray(at))
    for b in range(2):
        expected, *_ = numpy_transformer.forward(parameters(model), model.config, TOKENS[b], at=at[b])
        np.testing.assert_allclose(logits[b], expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


# Decoding.


@pytest.mark.parametrize("name", ["gpt", "llama", "gemma 2", "gemma 3", "alibi, parallel, rms, gated"])
def test_prefill_and_decoding_equal_the_whole_forward_pass(name):
    model = model_of(name)
    tokens = jnp.asarray(TOKENS)
    whole = jax.jit(lambda tokens: model(tokens, temperature=PAPER))(tokens)
    step = jax.jit(lambda tokens, cache: model(tokens, cache=cache, temperature=PAPER))
    cache = Cache.empty(model.config, batch=2, length=9)  # more room than tokens
    parts = []
    for start, end in [(0, 5), (5, 6), (6, 7)]:
        logits, cache = step(tokens[:, start:end], cache)
        parts.append(logits)
    assert int(cache.length) == 7
    # float32 sums in another order
    np.testing.assert_allclose(jnp.concatenate(parts, 1), whole, rtol=1e-4, atol=1e-4 * np.abs(whole).max())


def test_prefill_in_two_chunks_captures_like_the_whole():
    model = model_of("gemma 2")
    tokens = jnp.asarray(TOKENS)[:, :6]
    _, whole = jax.jit(lambda tokens: model(tokens, capture=True))(tokens)
    cache = Cache.empty(model.config, batch=2, length=6)
    chunk = jax.jit(lambda tokens, cache: model(tokens, cache=cache, capture=True))
    _, cache, first = chunk(tokens[:, :3], cache)
    _, cache, second = chunk(tokens[:, 3:], cache)
    for of in (lambda c: c.spread, lambda c: c.stats.entropy, lambda c: c.hidden):
        joined = jnp.concatenate([of(first), of(second)], 2)
        np.testing.assert_allclose(joined, of(whole), rtol=1e-4, atol=1e-4)


def test_a_cache_in_half_precision_stays_in_it():
    model = model_of("llama")
    cache = Cache.empty(model.config, 2, 7, jnp.bfloat16)
    logits, cache = run(model, TOKENS, cache=cache)
    assert cache.key.dtype == jnp.bfloat16 and logits.dtype == jnp.float32


# Attention and temperature from outside.


def test_any_function_with_the_signature_attends():
    model = model_of("gpt")
    seen = []

    def sharper(query, key, value, bias=None, mask=None, *, temperature=None, **options):
        seen.append(temperature)
        return dot_product_attention(2.0 * query, key, value, bias, mask, temperature=temperature, **options)

    got = run(model, TOKENS, attention=sharper)
    assert seen == [None, None]  # once a layer, and the rule is passed on
    np.testing.assert_allclose(got, run(model, TOKENS, temperature=constant(2.0)), rtol=1e-4, atol=1e-4)


def test_implementations_agree():
    model = model_of("gemma 2")
    dense, chunked = (
        run(model, TOKENS, attention=functools.partial(dot_product_attention, implementation=which))
        for which in ("dense", "chunked")
    )
    np.testing.assert_allclose(dense, chunked, rtol=1e-4, atol=1e-4)


# Transformations.


def loss(model, tokens, temperature=None):
    logits = model(tokens[:, :-1], temperature=temperature)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1))


def test_gradients_are_finite_differences():
    with enable_x64(True):
        model = model_of("gemma 3", np.float64)
        tokens = jnp.asarray(TOKENS)
        graph, state = nnx.split(model)

        @jax.jit
        def along(step, direction):
            moved = jax.tree.map(lambda x, d: x + step * d, state, direction)
            return loss(nnx.merge(graph, moved), tokens, PAPER)

        draw = np.random.default_rng(3)
        direction = jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)), state)
        slope = jax.jit(jax.grad(along))(0.0, direction)
        # central difference: error of order step² = 1e-10
        difference = (along(1e-5, direction) - along(-1e-5, direction)) / 2e-5
        np.testing.assert_allclose(slope, difference, rtol=1e-6)


def test_the_training_loop_teaches_it_to_look_one_token_back():
    model = Transformer(presets.toy(vocabulary=8, layers=1, width=32, context=12), rngs=nnx.Rngs(0))

    def previous(model, key):
        tokens = jax.random.randint(key, (32, 12), 0, 8)
        found = -jnp.take_along_axis(jax.nn.log_softmax(model(tokens))[:, 1:], tokens[:, :-1, None], -1)
        return jnp.mean(found), {}

    history = train(model, previous, optimizer=optax.adam(1e-2), steps=150, seed=0, progress=False)
    losses = history.metrics["loss"]
    assert losses[0] > 1.8 and losses[-1] < 0.2  # guessing costs log 8 = 2.08


def test_vmap_over_sequences_equals_the_batch():
    model = model_of("llama")
    one_by_one = jax.jit(jax.vmap(lambda tokens: model(tokens[None])[0]))(jnp.asarray(TOKENS))
    np.testing.assert_allclose(one_by_one, run(model, TOKENS), rtol=1e-4, atol=1e-4)


def test_half_precision_parameters_run_in_half_precision():
    model = Transformer(CONFIGS["llama"], rngs=nnx.Rngs(0))
    nnx.update(model, jax.tree.map(lambda x: x.astype(jnp.bfloat16), nnx.state(model)))
    logits = run(model, TOKENS)
    assert logits.dtype == jnp.bfloat16 and bool(jnp.all(jnp.isfinite(logits)))


# Sizes.


@pytest.mark.parametrize("name", CONFIGS)
def test_the_number_of_parameters_is_the_closed_form(name):
    state = nnx.state(model_of(name))
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) == presets.parameter_count(CONFIGS[name])


@pytest.mark.parametrize(
    ("config", "known"),
    [
        (presets.gpt(), 124_439_808),  # GPT-2
        (presets.llama(), 134_515_008),  # SmolLM2-135M
        # BERT base's encoder is 108,891,648 with two embeddings of 768 for sentences A and B
        (presets.bert(), 108_891_648 - 2 * 768),
    ],
)
def test_presets_have_the_published_number_of_parameters(config, known):
    assert presets.parameter_count(config) == known
    shapes = nnx.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0)))
    assert sum(leaf.size for leaf in jax.tree.leaves(nnx.state(shapes))) == known


def test_gemmas_have_their_published_sizes_to_three_digits():
    sizes = [presets.parameter_count(presets.gemma(version)) for version in (1, 2, 3)]
    assert [round(size / 1e9, 2) for size in sizes] == [2.51, 2.61, 0.27]


# Errors.


def test_wrong_configs_and_calls_are_named_with_the_remedy():
    with pytest.raises(ValueError, match="positions must be one of none, learned.*got 'rope'"):
        presets.toy(positions="rope")
    with pytest.raises(ValueError, match="heads must be a multiple of key_heads, got 9 and 2"):
        presets.llama(key_heads=2)
    with pytest.raises(ValueError, match="width 64 is no multiple of heads 5: give head_width"):
        presets.toy(heads=5)
    with pytest.raises(ValueError, match="context must be given with learned positions"):
        presets.toy(context=None)
    with pytest.raises(ValueError, match="version must be 1, 2 or 3, got 4"):
        presets.gemma(4)
    with pytest.raises(ValueError, match=r"windows must be None or at least 1.*\(0,\)"):
        presets.toy(windows=(0,))
    model = model_of("toy")
    with pytest.raises(ValueError, match="tokens: 10 in a sequence, and the model has learned 9 positions"):
        model(jnp.zeros((1, 10), jnp.int32))
    with pytest.raises(ValueError, match=r"tokens must be integers \[batch, tokens\], got float32"):
        model(jnp.zeros((1, 3)))
    cache = Cache.empty(model.config, 2, 5)
    with pytest.raises(ValueError, match="cache has room for 5 tokens, got 7 more than the 0 in it"):
        model(jnp.asarray(TOKENS), cache=cache)
    with pytest.raises(ValueError, match="where cannot be given with a cache"):
        model(jnp.asarray(TOKENS[:, :3]), jnp.asarray(WHERE[:, :3]), cache=cache)
    with pytest.raises(ValueError, match="cache has room for 12 tokens, and the model has learned 9"):
        model(jnp.asarray(TOKENS), cache=Cache.empty(model.config, 2, 12))
    encoder = model_of("bert")
    with pytest.raises(ValueError, match="cache needs causal attention"):
        encoder(jnp.asarray(TOKENS[:, :3]), cache=Cache.empty(encoder.config, 2, 5))


def test_a_token_beyond_the_vocabulary_is_not_passed_over_in_silence():
    assert jnp.isnan(model_of("toy")(jnp.array([[1, 13]]))).any()

"""`models.attention_fn` inside `flax.nnx.MultiHeadAttention`: Flax's numbers without a rule, the formula's with one."""

from __future__ import annotations

import dataclasses
import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from adatemp import PAPER, models
from adatemp.attention import ChunkedConfig
from adatemp.temperature import constant, exp_offset, log_ratio

PLAIN = models.attention_fn(temperature=None)
GROUPED = "num_kv_heads" in inspect.signature(nnx.MultiHeadAttention.__init__).parameters
# float32 with a dozen products of width 4 and a softmax of 6 keys: 1e-5 is some hundred units in the last place.
CLOSE = dict(rtol=1e-5, atol=1e-5)
# Newer Flax asks for nnx.capture around a sow, which the oldest supported one does not have.
sows = pytest.mark.filterwarnings("ignore:Using 'Module.sow:DeprecationWarning")


@functools.cache
def vectors(*batch, T=6, S=6, N=4, K=4, H=4, scale=1.5):
    draw = np.random.default_rng(0)
    shapes = [(*batch, T, N, H), (*batch, S, K, H), (*batch, S, K, H)]
    return tuple(jnp.asarray(scale * draw.normal(size=shape), jnp.float32) for shape in shapes)


def layer(attend=PLAIN, **options):
    """A layer of large weights, so that its attention is far from uniform."""
    options = dict(num_heads=4, in_features=8, decode=False, rngs=nnx.Rngs(0)) | options
    made = nnx.MultiHeadAttention(attention_fn=attend, **options)
    made.query.kernel[...] = 4 * made.query.kernel[...]
    return made


def published(weights):
    """The published map on rows of weights."""
    h = -np.sum(np.where(weights > 0, weights * np.log(np.where(weights > 0, weights, 1)), 0), -1)
    return np.where(h > 0.5, np.maximum(np.polyval([-0.037, 0.481, -2.3, 4.917, -1.791], h), 1), 1)


def direct(query, key, value, mask, bias=0.0):
    """Attention with the published map in float64; one batch axis, as many key heads as query heads."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    z = np.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(query.shape[-1]) + np.asarray(bias, np.float64)
    z = np.where(mask, z, -np.inf)

    def softmax(z):
        e = np.exp(z - z.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    beta = published(softmax(z))
    weights = softmax(beta[..., None] * z)
    return np.einsum("bnts,bsnv->btnv", weights, value), weights, beta


# Flax's own numbers.


@pytest.mark.parametrize(
    ("batch", "masked"),
    [((), "not"), ((), "causal"), ((3,), "ragged"), ((2, 3), "causal"), ((2, 3), "ragged"), ((2, 3), "same for all")],
)
def test_without_a_rule_it_is_the_attention_of_flax_for_any_batch_axes(batch, masked):
    q, k, v = vectors(*batch)
    mask = {
        "not": None,
        "causal": nnx.make_causal_mask(jnp.ones((*batch, 6))),  # zeros and ones in float32, as Flax makes them
        "ragged": jnp.broadcast_to(jnp.arange(6) < 4, (*batch, 1, 1, 6)),
        "same for all": jnp.ones((1,) * len(batch) + (1, 6, 6), bool).at[..., 3].set(False),
    }[masked]
    # Flax's path with dropout, which takes a mask of any dtype and broadcasts it; all of it kept
    expected = nnx.dot_product_attention(q, k, v, mask=mask, deterministic=True, dropout_rate=0.5)
    np.testing.assert_allclose(PLAIN(q, k, v, mask=mask), expected, **CLOSE)


@pytest.mark.parametrize("shape", [(2, 3, 4, 6, 6), (2, 1, 1, 1, 6), (4, 1, 6), ()])
def test_a_bias_broadcasts_against_all_batch_axes(shape):
    q, k, v = vectors(2, 3)
    bias = jax.random.normal(jax.random.key(0), shape)
    expected = nnx.dot_product_attention(q, k, v, bias=bias, deterministic=True, dropout_rate=0.5)
    np.testing.assert_allclose(PLAIN(q, k, v, bias=bias), expected, **CLOSE)


def test_every_keyword_of_the_installed_flax_is_taken():
    ours = set(inspect.signature(PLAIN).parameters)
    assert set(inspect.signature(nnx.dot_product_attention).parameters) <= ours
    # The layer of newer Flax forwards one more.
    if "input_positions" in inspect.signature(nnx.MultiHeadAttention.__call__).parameters:
        made = layer(attend=models.attention_fn(temperature=exp_offset(0.1)))
        made(jnp.ones((2, 5, 8)), input_positions=jnp.arange(5))


@pytest.mark.parametrize("broadcast", [True, False])
def test_dropout_drops_what_flax_drops(broadcast):
    x = jax.random.normal(jax.random.key(1), (3, 6, 8))
    options = dict(dropout_rate=0.4, broadcast_dropout=broadcast, deterministic=False)
    ours, theirs = layer(**options), layer(nnx.dot_product_attention, **options)
    np.testing.assert_allclose(ours(x, rngs=nnx.Rngs(7)), theirs(x, rngs=nnx.Rngs(7)), **CLOSE)
    assert not np.allclose(ours(x, rngs=nnx.Rngs(7)), ours(x, deterministic=True), rtol=0.1)


def test_dropout_without_a_generator_is_refused_by_name():
    with pytest.raises(ValueError, match="dropout_rng must be given.*rngs=nnx.Rngs"):
        PLAIN(*vectors(3), dropout_rate=0.1)


@sows
def test_sown_weights_are_those_of_flax():
    x = jax.random.normal(jax.random.key(1), (2, 3, 6, 8))
    mask = nnx.make_causal_mask(jnp.ones((2, 3, 6)))
    sown = []
    for attend in (PLAIN, nnx.dot_product_attention):
        made = layer(attend)
        made(x, mask=mask, sow_weights=True)
        sown.append(nnx.to_pure_dict(nnx.state(made, nnx.Intermediate))["attention_weights"][0])
    np.testing.assert_allclose(*sown, **CLOSE)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_comes_out_as_it_went_in_and_close(dtype):
    q, k, v = vectors(3)
    got = PLAIN(*(x.astype(dtype) for x in (q, k, v)))
    assert got.dtype == dtype
    # inputs rounded to 2**-9 and logits up to about 10: their weights move by a few per cent at most
    np.testing.assert_allclose(got.astype(jnp.float32), PLAIN(q, k, v), atol=0.1)
    assert layer(dtype=dtype)(jnp.ones((2, 5, 8))).dtype == dtype
    assert PLAIN(q.astype(dtype), k, v).dtype == jnp.float32  # promoted, as Flax does
    assert PLAIN(q, k, v, dtype=dtype).dtype == dtype


# With a rule.


@sows
def test_the_published_map_acts_in_the_layer_as_in_the_formula():
    q, k, v = vectors(3, S=9)
    mask = np.random.default_rng(1).random((3, 1, 6, 9)) < 0.8
    bias = np.random.default_rng(2).normal(size=(4, 1, 9))
    attend = models.attention_fn()
    expected, weights, beta = direct(q, k, v, mask, bias)
    assert (beta > 1).mean() > 0.5  # else the map would not be seen to act
    np.testing.assert_allclose(attend(q, k, v, bias=jnp.asarray(bias), mask=jnp.asarray(mask)), expected, **CLOSE)

    module = nnx.Module()
    attend(q, k, v, bias=jnp.asarray(bias), mask=jnp.asarray(mask), module=module)
    np.testing.assert_allclose(module.attention_weights[0], weights, **CLOSE)
    np.testing.assert_allclose(jnp.moveaxis(module.attention_stats[0].beta, 1, 2), beta, rtol=1e-4)


@sows
def test_values_are_the_same_whether_or_not_weights_are_sown():
    x = jax.random.normal(jax.random.key(1), (3, 6, 8))
    made = layer(models.attention_fn())
    np.testing.assert_allclose(made(x, sow_weights=True), made(x), **CLOSE)


@pytest.mark.parametrize("implementation", ["dense", "chunked"])
def test_the_implementation_and_its_config_are_passed_on(implementation):
    q, k, v = vectors(3)
    config = ChunkedConfig(block_q=2) if implementation == "chunked" else None
    attend = models.attention_fn(implementation=implementation, config=config)
    np.testing.assert_allclose(attend(q, k, v), models.attention_fn()(q, k, v), **CLOSE)
    refused = models.attention_fn(implementation="dense", config=ChunkedConfig())
    with pytest.raises(ValueError, match="config is a ChunkedConfig"):
        refused(q, k, v)


def test_a_query_whose_mask_hides_every_key_gets_zero():
    q, k, v = vectors(3)
    mask = jnp.ones((3, 1, 6, 6), bool).at[1, 0, 2].set(False)
    got = PLAIN(q, k, v, mask=mask)
    assert (got[1, 2] == 0).all() and (got[1, 1] != 0).all()


# Decoding.


@pytest.mark.parametrize(("rule", "causal"), [(None, False), (PAPER, True), (log_ratio(4.0), False)])
def test_decoding_token_by_token_equals_the_causal_forward(rule, causal):
    x = 2 * jax.random.normal(jax.random.key(1), (3, 6, 8))
    made = layer(models.attention_fn(temperature=rule))
    whole = made(x, mask=nnx.make_causal_mask(jnp.ones((3, 6))))
    made.init_cache(x.shape)
    options = {"is_causal": True} if causal else {}
    if causal and "is_causal" not in inspect.signature(nnx.MultiHeadAttention.__call__).parameters:
        pytest.skip("this Flax has no is_causal")
    steps = [made(x[:, t : t + 1], decode=True, **options) for t in range(6)]
    np.testing.assert_allclose(jnp.concatenate(steps, 1), whole, **CLOSE)


@pytest.mark.skipif(not GROUPED, reason="this Flax has no grouped heads")
def test_grouped_heads_train_decode_and_drop():
    x = 2 * jax.random.normal(jax.random.key(1), (3, 6, 8))
    made, theirs = (layer(attend, num_kv_heads=2, dropout_rate=0.3) for attend in (PLAIN, nnx.dot_product_attention))
    np.testing.assert_allclose(made(x, deterministic=True), theirs(x, deterministic=True), **CLOSE)
    dropped = [m(x, deterministic=False, rngs=nnx.Rngs(3)) for m in (made, theirs)]
    np.testing.assert_allclose(*dropped, **CLOSE)
    whole = made(x, mask=nnx.make_causal_mask(jnp.ones((3, 6))), deterministic=True)
    made.init_cache(x.shape)
    steps = [made(x[:, t : t + 1], decode=True, deterministic=True) for t in range(6)]
    np.testing.assert_allclose(jnp.concatenate(steps, 1), whole, **CLOSE)


@sows
def test_grouped_heads_called_directly():
    q, k, v = vectors(2, 3, N=6, K=2)
    repeated = [jnp.repeat(x, 3, -2) for x in (k, v)]
    expected = models.attention_fn()(q, *repeated)
    np.testing.assert_allclose(models.attention_fn()(q, k, v), expected, **CLOSE)
    module = nnx.Module()  # the path through the weights
    np.testing.assert_allclose(models.attention_fn()(q, k, v, module=module), expected, **CLOSE)


# Transformations and errors.


def test_a_layer_is_jitted_and_differentiated():
    x = jax.random.normal(jax.random.key(1), (3, 6, 8))
    made = layer(models.attention_fn())
    np.testing.assert_allclose(nnx.jit(lambda m, x: m(x))(made, x), made(x), **CLOSE)

    def loss(made, x):
        return jnp.sum(made(x) ** 2)

    slope = nnx.grad(loss)(made, x)["query"]["kernel"][...]
    step = jnp.zeros_like(made.query.kernel[...]).at[2, 1, 1].set(1e-2)
    kernel = made.query.kernel[...]
    values = []
    for sign in (1, -1):
        made.query.kernel[...] = kernel + sign * step
        values.append(loss(made, x))
    # a central difference of float32 values near 1 with steps of 1e-2: right to about 1e-4
    np.testing.assert_allclose(slope[2, 1, 1], (values[0] - values[1]) / 2e-2, rtol=1e-2, atol=1e-3)


def test_a_rule_that_reads_the_position_asks_for_positions_where_flax_gives_none():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class ByPosition:
        needs = frozenset({"position"})
        differentiate = True
        range = None

        def beta(self, stats):
            return 1.0 + stats.position / 4.0

    attend = models.attention_fn(temperature=ByPosition())
    q, k, v = vectors(3, T=1, S=6)
    with pytest.raises(ValueError, match="input_positions must be given.*ByPosition reads the position"):
        attend(q, k, v)
    got = attend(q, k, v, input_positions=jnp.array([4]))
    np.testing.assert_allclose(got, models.attention_fn(temperature=constant(2.0))(q, k, v), **CLOSE)


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="temperature must be a rule.*constant"):
        models.attention_fn(temperature=2.0)
    with pytest.raises(ValueError, match=r"mask of shape \(3, 6, 6\) does not broadcast.*\(3, 4, 6, 6\)"):
        PLAIN(*vectors(3), mask=jnp.ones((3, 6, 6), bool))
    with pytest.raises(ValueError, match=r"input_positions must broadcast to .*\(3, 6\), got \(5,\)"):
        PLAIN(*vectors(3), input_positions=jnp.arange(5))

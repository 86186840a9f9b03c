"""The ends of every range: one key, one query, odd widths, far offsets, extreme scales, ties, blocks of one row."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from calls import assert_equal_bits, attend, cotangents_of, draw, published_rows, with_gradients
from implementations import IMPLEMENTATIONS, compiled
from plain import attention as plain_attention

from adatemp import attention_entropy, dot_product_attention
from adatemp._compat import enable_x64
from adatemp.attention import ChunkedConfig

every_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)


def assert_plain(rows, arrays, options=None, atol=5e-6):
    want = plain_attention(arrays, options or {}, published_rows)
    np.testing.assert_allclose(rows.output, want.output, atol=atol)
    np.testing.assert_allclose(rows.entropy, want.entropy, atol=2e-5)
    np.testing.assert_allclose(rows.lse, want.lse, rtol=1e-5, atol=1e-5)


@every_implementation
@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 40), (24, 1)])
def test_one_query_and_one_key(implementation, T, S):
    arrays = draw(T, S)
    cotangents = cotangents_of(arrays)
    function = compiled(with_gradients(attend(implementation)), arrays, cotangents)
    rows, gradients = function(arrays, cotangents)
    assert_plain(rows, arrays)
    if S == 1:
        np.testing.assert_array_equal(rows.output, jnp.broadcast_to(arrays["value"], rows.output.shape))
        assert np.all(rows.entropy == 0) and np.all(rows.beta == 1)
        # One key has all the weight whatever its logit: only lse and lse_scaled move, each by 1.
        moved = np.einsum("btn,bsnh->btnh", cotangents.lse + cotangents.lse_scaled, arrays["key"].repeat(2, 2))
        np.testing.assert_allclose(gradients["query"], moved / np.sqrt(8), atol=1e-6)


@pytest.mark.parametrize("H", [1, 3, 40, 72, 80, 96, 112, 160, 192, 256])
def test_heads_of_any_width(H):
    """In the kernels, whose tiles are powers of two wide; the other forms have no tiles."""
    arrays = draw(17, 33, H=H, V=max(1, 256 - H))
    rows = compiled(attend("pallas"), arrays)(arrays)
    assert_plain(rows, arrays, atol=1e-5)  # logits are sums of up to 256 products


@every_implementation
def test_eight_query_heads_on_one_key_head(implementation):
    arrays = draw(17, 33, N=8, K=1)
    assert_plain(compiled(attend(implementation), arrays)(arrays), arrays)


@every_implementation
@pytest.mark.parametrize("window", [0, (0, 3), 1000, (2**40, 0)])
def test_windows_of_nothing_and_of_everything(implementation, window):
    """A window of 0 leaves each query the key at its own place, and one past both ends leaves all."""
    arrays = draw(24, 24)
    rows = compiled(attend(implementation, local_window_size=window), arrays)(arrays)
    if window == 0:
        np.testing.assert_array_equal(rows.output, jnp.broadcast_to(arrays["value"], rows.output.shape))
        assert np.all(rows.entropy == 0)
    else:
        assert_plain(rows, arrays, {"is_causal": True} if window == (2**40, 0) else {"local_window_size": window})


@every_implementation
def test_an_offset_past_the_keys_shows_them_all_and_a_window_there_shows_none(implementation):
    arrays = draw(24, 40)
    far = compiled(attend(implementation, is_causal=True, query_offset=10_000), arrays)(arrays)
    assert_plain(far, arrays)
    past = compiled(attend(implementation, local_window_size=5, query_offset=2**30 - 2), arrays)(arrays)
    assert np.all(past.output == 0) and np.all(past.lse == -np.inf)


@every_implementation
def test_a_traced_offset_is_the_known_one(implementation):
    """Decoding: one compiled program for every step."""
    arrays = draw(4, 40)
    step = jax.jit(lambda arrays, offset: attend(implementation, is_causal=True, query_offset=offset)(arrays))
    for offset in (0, 17, 36):
        assert_plain(step(arrays, offset), arrays, {"is_causal": True, "query_offset": offset})
    assert step._cache_size() == 1


@every_implementation
@pytest.mark.parametrize("scale", [1e-30, 1e4, -1.0, 0.0])
def test_scales_from_nothing_to_huge(implementation, scale):
    """At 1e-30 and 0 all logits are equal or nearly; at 1e4 each row is one-hot; -1 turns the order around."""
    arrays = draw(24, 40)
    cotangents = cotangents_of(arrays)
    rows, gradients = compiled(with_gradients(attend(implementation, scale=scale)), arrays, cotangents)(
        arrays, cotangents
    )
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves((rows, gradients)))
    if abs(scale) < 1e-20:
        np.testing.assert_allclose(rows.entropy, np.log(40), atol=1e-6)
        np.testing.assert_allclose(
            rows.output, arrays["value"].mean(1, keepdims=True).repeat(2, 2).repeat(24, 1), atol=1e-6
        )
    elif scale == 1e4:
        assert np.max(rows.entropy) < 0.1
        best = jnp.argmax(jnp.einsum("btnh,bsh->btns", arrays["query"], arrays["key"][:, :, 0]), -1)
        np.testing.assert_allclose(rows.output, arrays["value"][0, best[0], 0][None], atol=1e-3)
    else:
        assert_plain(rows, arrays, {"scale": scale})


@every_implementation
def test_keys_that_tie_share_evenly_and_have_finite_gradients(implementation):
    """Equal logits, all of them and the three highest: entropy log n exactly, and no gradient of a maximum."""
    arrays = draw(24, 40)
    same = arrays | {"key": jnp.broadcast_to(arrays["key"][:, :1], arrays["key"].shape)}
    cotangents = cotangents_of(arrays)
    function = compiled(with_gradients(attend(implementation)), arrays, cotangents)
    rows, gradients = function(same, cotangents)
    np.testing.assert_allclose(rows.entropy, np.log(40), atol=1e-6)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(gradients))
    three = arrays | {"key": jnp.zeros_like(arrays["key"]).at[:, ::13, :, 0].set(200.0)}
    three["query"] = jnp.ones_like(arrays["query"])
    rows, gradients = function(three, cotangents)
    # Four keys at 200 / sqrt(8), the others 70 nats below.
    np.testing.assert_allclose(rows.entropy, np.log(4), atol=2e-6)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(gradients))


def test_blocks_of_one_query_and_one_key():
    arrays = draw(5, 7)
    cotangents = cotangents_of(arrays)
    pair = []
    for sizes in [(1, 1), (5, 7)]:
        function = with_gradients(attend("queries", config=ChunkedConfig(*sizes), is_causal=True))
        pair.append(compiled(function, arrays, cotangents)(arrays, cotangents))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=5e-6), *pair)


@pytest.mark.parametrize("sizes", [(1000, 1000), (24, 40), (23, 39), (None, 13)])
def test_blocks_larger_than_the_call_and_almost_so(sizes):
    arrays = draw(24, 40)
    assert_plain(compiled(attend("queries", config=ChunkedConfig(*sizes)), arrays)(arrays), arrays)


@every_implementation
@pytest.mark.parametrize("sink", [-np.inf, -1e4, 1e4])
def test_sinks_from_absent_to_all_there_is(implementation, sink):
    arrays = draw(24, 40)
    with_sink = arrays | {"sink": jnp.full(2, sink, jnp.float32)}
    cotangents = cotangents_of(arrays)
    rows, gradients = compiled(with_gradients(attend(implementation)), with_sink, cotangents)(with_sink, cotangents)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(gradients))
    if sink < 0:
        assert_plain(rows, arrays)
        assert np.all(gradients["sink"] == 0)
    else:
        assert np.all(rows.output == 0)
        np.testing.assert_allclose(rows.lse_scaled, sink, rtol=2e-7)  # a unit: it may be made as a sum with the maximum
        np.testing.assert_allclose(gradients["sink"], cotangents.lse_scaled.sum((0, 1)), rtol=1e-5)


@every_implementation
def test_a_dead_row_with_a_sink_is_dead(implementation):
    arrays = draw(24, 40) | {"sink": jnp.ones(2)}
    lengths = jnp.array([11])
    cotangents = cotangents_of(arrays)
    function = with_gradients(attend(implementation, query_seq_lengths=lengths))
    rows, gradients = compiled(function, arrays, cotangents)(arrays, cotangents)
    assert np.all(rows.output[:, 11:] == 0) and np.all(rows.lse_scaled[:, 11:] == -np.inf)
    short = {name: x[:, :11] if name == "query" else x for name, x in arrays.items()}
    of_short = jax.tree.map(lambda x: x[:, :11], cotangents)
    _, want = compiled(with_gradients(attend("dense")), short, of_short)(short, of_short)
    np.testing.assert_allclose(gradients["sink"], want["sink"], rtol=2e-5)


@pytest.mark.parametrize("lengths", [11, np.int64(11), [11], (11,), np.array([11], np.uint8), jnp.array([11])])
def test_lengths_and_offsets_of_any_kind_of_integer(lengths):
    arrays = draw(24, 40)
    rows = attend("dense", key_value_seq_lengths=lengths, query_offset=np.int16(3), is_causal=True)(arrays)
    want = attend("dense", key_value_seq_lengths=np.array([11], "i"), query_offset=3, is_causal=True)(arrays)
    assert_equal_bits(rows, want)


def test_numpy_arrays_are_arrays():
    arrays = draw(24, 40)
    on_host = {name: np.asarray(array) for name, array in arrays.items()}
    assert_equal_bits(attend("dense")(on_host), attend("dense")(arrays))


def test_weak_types_make_no_difference_to_the_dtype():
    query = jnp.broadcast_to(jnp.asarray(1.0), (1, 3, 1, 4))
    assert query.weak_type
    output = dot_product_attention(query, query, query)
    assert output.dtype == jnp.float32 and not output.weak_type


@every_implementation
def test_sixty_four_bits_elsewhere_leave_float32_calls_as_they_are(implementation):
    arrays = {name: np.asarray(array) for name, array in draw(24, 40).items()}
    function = attend(implementation, is_causal=True, key_value_seq_lengths=np.array([30]), query_offset=2)
    narrow = jax.jit(function)(arrays)
    with enable_x64(True):
        wide = jax.jit(attend(implementation, is_causal=True, key_value_seq_lengths=np.array([30]), query_offset=2))(
            arrays
        )
        assert all(x.dtype == jnp.float32 for x in wide)
    for got, want in zip(wide, narrow):
        np.testing.assert_allclose(got, want, atol=1e-6)


@every_implementation
def test_the_entropy_alone_is_that_of_the_statistics(implementation):
    arrays = draw(24, 40)
    where = IMPLEMENTATIONS[implementation]
    alone = compiled(lambda q, k: attention_entropy(q, k, is_causal=True, **where), arrays["query"], arrays["key"])
    want = compiled(attend(implementation, is_causal=True), arrays)(arrays)
    np.testing.assert_allclose(alone(arrays["query"], arrays["key"]), want.entropy, atol=1e-6)
    assert attention_entropy(arrays["query"][0], arrays["key"][0]).shape == (24, 2)

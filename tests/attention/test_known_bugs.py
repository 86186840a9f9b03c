"""Bugs that other attention kernels had, one test each, named after where they were reported.

What needs a GPU is in `tests/gpu`: offsets beyond 32 bits (flash-attention 2611), more than 65,535 blocks on an axis of
the grid (jax 18361), TensorFloat-32 in silence (jax 23182), compilers that break values or speed (xla 19780), and rows
of 32,768 keys and more in a kernel (tokamax skips them). A T4 (jax 26799) and a gradient that differentiates the kernel
(marin 3043) are in `test_choice.py`, layouts mixed up (jax 19237) in `test_errors.py`, sharding in `test_sharding.py`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import plain
import pytest
from calls import assert_equal_bits, attend, cotangents_of, draw, published_rows, with_gradients
from implementations import IMPLEMENTATIONS, compiled

from adatemp.attention import ChunkedConfig

every_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
LENGTHS = [(1, 1000), (2, 127), (17, 129), (63, 2), (65, 65), (127, 191), (129, 63), (191, 17), (1000, 1)]


@pytest.mark.parametrize("implementation", ["queries", "keys", "pallas"])
@pytest.mark.parametrize(("T", "S"), LENGTHS)
def test_jax_27224_lengths_that_are_no_multiple_of_a_block_give_wrong_or_changing_values(implementation, T, S):
    config = IMPLEMENTATIONS[implementation]["config"]
    if isinstance(config, ChunkedConfig):  # 1,000 queries in blocks of 8 are slow in the interpreter of a loop
        config = ChunkedConfig(block_q=32, block_k=None if config.block_k is None else 64)
    arrays = draw(T, S)
    function = compiled(attend(implementation, is_causal=True, config=config), arrays)
    got, again = function(arrays), function(arrays)
    assert_equal_bits(got, again)
    want = plain.attention(arrays, {"is_causal": True}, published_rows)
    np.testing.assert_allclose(got.output, want.output, atol=1e-5)
    np.testing.assert_allclose(got.entropy, want.entropy, atol=2e-5)


@every_implementation
@pytest.mark.parametrize(("T", "S"), [(24, 40), (40, 24)])
def test_jax_24491_queries_and_keys_of_different_lengths(implementation, T, S):
    """Causal means top left, and bottom right with query_offset = S - T where there are more keys."""
    arrays = draw(T, S)
    offset = max(S - T, 0)
    got = compiled(attend(implementation, is_causal=True, query_offset=offset, temperature=None), arrays)(arrays)
    mask = np.tril(np.ones((1, 1, T, S), bool), offset)
    want = jax.nn.dot_product_attention(*arrays.values(), mask=jnp.asarray(mask))
    np.testing.assert_allclose(got.output, want, atol=2e-6)


@every_implementation
@pytest.mark.parametrize("offset", [-1e5, -2e5, 1e5])
def test_flashinfer_4267_masks_below_logits_that_are_very_negative(implementation, offset):
    """A mask of -1e5 or -1e30 in place of none at all is above such logits, or swamps them.

    Logits are multiples of 1/64, so that the offset is added exactly and nothing but lse may change.
    """
    rng = np.random.default_rng(0)
    logits = rng.integers(-512, 512, (1, 40, 1, 1)) / 64
    mask = rng.random((1, 1, 24, 40)) < 0.5
    query = jnp.ones((1, 24, 1, 1))
    pair = []
    for shift in (0, offset):
        key = jnp.asarray(logits + shift, jnp.float32)
        arrays = {"query": query, "key": key, "value": jnp.asarray(logits, jnp.float32), "mask": mask}
        pair.append(compiled(attend(implementation, scale=1.0), arrays)(arrays))
    at_zero, far = pair
    np.testing.assert_allclose(far.output, at_zero.output, atol=1e-5)
    np.testing.assert_allclose(far.entropy, at_zero.entropy, atol=1e-6)
    np.testing.assert_allclose(far.lse - offset, at_zero.lse, atol=0.02)  # an ulp at 2e5


def dead_rows(T, S, B):
    """Dead: the first row, some in the middle, the last, a whole block of 16 queries, a whole sequence."""
    mask = np.random.default_rng(3).random((B, 1, T, S)) < 0.6
    mask[:, :, [0, 5, T - 1]] = False
    mask[:, :, 16:32] = False
    mask[1] = False
    return mask


@every_implementation
def test_flashinfer_4452_and_pytorch_41508_dead_rows_are_zero_and_poison_no_gradient(implementation):
    T, S, B = 40, 24, 2
    arrays = draw(T, S, B=B)
    mask = dead_rows(T, S, B)
    cotangents = cotangents_of(arrays)
    function = attend(implementation, mask=jnp.asarray(mask))
    rows, gradients = compiled(with_gradients(function), arrays, cotangents)(arrays, cotangents)
    dead = ~mask.any(-1)[:, 0]
    assert np.all(rows.output[dead] == 0) and np.all(rows.entropy[dead] == 0) and np.all(rows.beta[dead] == 1)
    assert np.all(rows.lse[dead] == -np.inf) and np.all(rows.lse_scaled[dead] == -np.inf)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(gradients))
    assert np.all(gradients["query"][dead] == 0)
    # Without them: the live queries of the one live sequence, alone.
    alive = np.flatnonzero(~dead[0])
    alone = {name: array[:1, alive] if name == "query" else array[:1] for name, array in arrays.items()}
    of_alone = jax.tree.map(lambda x: x[:1, alive], cotangents)
    function = attend("dense", mask=jnp.asarray(mask[:1, :, alive]))
    want, want_gradients = compiled(with_gradients(function), alone, of_alone)(alone, of_alone)
    np.testing.assert_allclose(rows.output[:1, alive], want.output, atol=2e-6)
    np.testing.assert_allclose(gradients["query"][:1, alive], want_gradients["query"], atol=2e-5)
    for name in ("key", "value"):
        np.testing.assert_allclose(gradients[name][:1], want_gradients[name], atol=2e-5)
        assert np.all(gradients[name][1] == 0)


HIDING = {
    "lengths": {"query_seq_lengths": np.array([20]), "key_value_seq_lengths": np.array([27])},
    "capped": {
        "logits_soft_cap": 4.0,
        "query_seq_lengths": np.array([20]),
        "mask": np.arange(40)[None, None, None] < 27,
    },
    "bias": {"query_seq_lengths": np.array([20]), "bias": np.where(np.arange(40) < 27, 0, -np.inf)[None, None, None]},
}


@every_implementation
@pytest.mark.parametrize("hiding", HIDING)
def test_pytorch_101967_what_is_not_finite_behind_a_mask_changes_nothing(implementation, hiding):
    arrays = draw(24, 40)
    cotangents = cotangents_of(arrays)
    options = {name: jnp.asarray(x) if isinstance(x, np.ndarray) else x for name, x in HIDING[hiding].items()}
    if "bias" in options:
        options["bias"] = options["bias"].astype(jnp.float32)
    function = compiled(with_gradients(attend(implementation, **options)), arrays, cotangents)
    clean = function(arrays, cotangents)
    for odd in (np.nan, np.inf, -np.inf):
        # One entry, and a whole vector; the queries that are dead too.
        spoilt = {
            "query": arrays["query"].at[:, 21].set(odd).at[:, 23, 0, 3].set(odd),
            "key": arrays["key"].at[:, 27, 0, 3].set(odd).at[:, 30:].set(odd),
            "value": arrays["value"].at[:, 28, 0, 3].set(odd).at[:, 31:].set(odd),
        }
        rows, gradients = function(spoilt, cotangents)
        assert_equal_bits(rows, clean[0])
        assert_equal_bits(gradients, clean[1])


@every_implementation
def test_what_is_not_finite_and_seen_shows_in_the_rows_that_see_it_and_in_no_other(implementation):
    """Causal, so query t sees it from key t on. A value tells nothing about logits, so statistics stay."""
    arrays = draw(24, 40)
    function = compiled(attend(implementation, is_causal=True), arrays)
    clean = function(arrays)
    by_key = function(arrays | {"key": arrays["key"].at[:, 9].set(np.nan)})
    for field, was in zip(by_key, clean):
        np.testing.assert_array_equal(field[:, :9], was[:, :9])
    assert np.all(np.isnan(by_key.output[:, 9:])) and np.all(np.isnan(by_key.entropy[:, 9:]))
    for odd in (np.nan, np.inf):
        by_value = function(arrays | {"value": arrays["value"].at[:, 9, 0, 2].set(odd)})
        np.testing.assert_array_equal(by_value.output[:, :9], clean.output[:, :9])
        assert not np.any(np.isfinite(by_value.output[:, 9:, :, 2]))
        assert_equal_bits(by_value[1:], clean[1:])
    by_query = function(arrays | {"query": arrays["query"].at[:, 3, 1].set(np.nan)})
    assert np.all(np.isnan(by_query.output[:, 3, 1])) and np.isnan(by_query.output).sum() == 8


@every_implementation
def test_flash_attention_1817_each_statistic_has_its_gradient(implementation):
    """One at a time, so that none is carried by another; the output's cotangent is zero."""
    arrays = draw(24, 40)
    cotangents = cotangents_of(arrays)
    function = compiled(with_gradients(attend(implementation, is_causal=True)), arrays, cotangents)
    reference = jax.jit(with_gradients(lambda a: plain.attention(a, {"is_causal": True}, published_rows)))
    for name in oracle.Rows._fields[1:]:
        alone = oracle.Rows(*(x if field == name else 0 * x for field, x in zip(cotangents._fields, cotangents)))
        _, got = function(arrays, alone)
        _, want = reference(arrays, alone)
        for array in ("query", "key"):
            scale = np.max(np.abs(want[array]))
            assert scale > 0.1
            np.testing.assert_allclose(got[array], want[array], atol=2e-5 * scale, err_msg=name)
        assert np.all(got["value"] == 0)


@every_implementation
def test_flash_attention_404_statistics_are_in_nats(implementation):
    arrays = draw(24, 40)
    rows = compiled(attend(implementation, is_causal=True), arrays)(arrays)
    logits = jnp.einsum("btnh,bskh->btns", arrays["query"], arrays["key"], precision="highest") / np.sqrt(8)
    logits = jnp.where(jnp.tril(jnp.ones((24, 40), bool))[:, None], logits, -jnp.inf)
    np.testing.assert_allclose(rows.lse, jax.nn.logsumexp(logits, -1), rtol=2e-6, atol=2e-6)
    live = 1 + np.arange(24)[None, :, None]
    assert np.all(rows.entropy <= np.log(live) + 1e-6) and np.all(rows.entropy[:, 0] == 0)


@every_implementation
def test_h3_3_products_are_scaled_after_the_dot_and_not_rounded_before(implementation):
    """Sharp rows, logits of standard deviation 6, in bfloat16: the output is no worse than twice the naive form's."""
    arrays = draw(32, 256, N=1, H=32, V=32, spread=6.0, dtype="bfloat16")
    got = compiled(attend(implementation), arrays)(arrays)
    want = plain.attention({name: x.astype(jnp.float32) for name, x in arrays.items()}, {}, published_rows)
    naive = plain.attention(arrays, {}, published_rows)

    def error(rows):
        return np.max(np.abs(np.asarray(rows.output, np.float32) - want.output))

    assert error(got) <= 2 * error(naive)
    np.testing.assert_allclose(got.entropy, want.entropy, atol=2e-5)


def test_ring_flash_attention_22_statistics_do_not_depend_on_the_blocks_in_bfloat16():
    arrays = draw(24, 200, dtype="bfloat16")
    every = [
        compiled(attend("queries", config=ChunkedConfig(*sizes)), arrays)(arrays)
        for sizes in [(24, None), (7, 33), (24, 8)]
    ] + [compiled(attend("pallas"), arrays)(arrays)]
    for rows in every[1:]:
        for field, whole in zip(rows[1:], every[0][1:]):
            np.testing.assert_allclose(field, whole, rtol=1e-6, atol=2e-6)
        # The output is rounded once: one unit of bfloat16, 2^-8, of values up to 3.
        np.testing.assert_allclose(rows.output.astype("f"), every[0].output.astype("f"), atol=2**-6)


@every_implementation
@pytest.mark.parametrize(("N", "K"), [(8, 1), (8, 4)])
def test_levanter_449_gradients_of_shared_keys_are_summed_over_the_group_before_they_are_rounded(implementation, N, K):
    arrays = draw(24, 40, N=N, K=K, dtype="bfloat16")
    cotangents = cotangents_of(arrays)._replace(entropy=jnp.zeros((1, 24, N)))
    _, got = compiled(with_gradients(attend(implementation)), arrays, cotangents)(arrays, cotangents)
    exact = {name: x.astype(jnp.float32) for name, x in arrays.items()}
    of_exact = cotangents._replace(output=cotangents.output.astype(jnp.float32))
    _, want = jax.jit(with_gradients(attend("dense")))(exact, of_exact)
    for name in ("key", "value"):
        # Weights are rounded to 2^-9 each before the sum over heads and rows, and the result once.
        error = np.max(np.abs(got[name].astype(jnp.float32) - want[name]))
        assert error <= 1e-2 * np.max(np.abs(want[name]))


@pytest.mark.parametrize("implementation", ["queries", "keys", "pallas"])
def test_triton_3408_gradients_add_up_over_blocks_in_float32(implementation):
    """1,024 queries in blocks: sums kept in bfloat16 were eight times as far off as with all queries at once."""
    arrays = draw(1024, 64, N=1, dtype="bfloat16")
    cotangents = cotangents_of(arrays)
    cotangents = cotangents._replace(output=jnp.abs(cotangents.output))  # nothing cancels, so sums grow

    def errors(which):
        function = with_gradients(attend(which, temperature=None))
        _, got = compiled(function, arrays, cotangents)(arrays, cotangents)
        return {name: np.max(np.abs(got[name].astype(jnp.float32) - want[name])) for name in want}

    exact = {name: x.astype(jnp.float32) for name, x in arrays.items()}
    of_exact = cotangents._replace(output=cotangents.output.astype(jnp.float32))
    _, want = compiled(with_gradients(attend("dense", temperature=None)), exact, of_exact)(exact, of_exact)
    of_dense, of_blocks = errors("dense"), errors(implementation)
    assert all(of_blocks[name] <= 2 * of_dense[name] for name in of_dense)


@every_implementation
def test_pytorch_166211_and_jax_38495_the_same_call_gives_the_same_bits_however_it_is_called(implementation):
    arrays = draw(24, 40)
    function = attend(implementation, is_causal=True)

    def loss(arrays):
        rows = function(arrays)
        return jnp.sum(rows.output) + jnp.sum(rows.entropy), rows

    as_it_is, jitted = function(arrays), jax.jit(function)(arrays)
    assert_equal_bits(as_it_is, jitted)
    gradient = jax.jit(jax.grad(loss, has_aux=True))
    first, rows = gradient(arrays)
    for got, want in zip(rows, jitted):  # another program, which may fuse otherwise
        np.testing.assert_allclose(got, want, atol=1e-6)
    for _ in range(20):
        assert_equal_bits(gradient(arrays)[0], first)
        assert_equal_bits(function(arrays), jitted)


@every_implementation
def test_flash_attention_1133_a_window_as_wide_as_the_sequence_is_causal_to_the_bit(implementation):
    arrays = draw(24, 24)
    pair = [attend(implementation, **o) for o in ({"is_causal": True}, {"local_window_size": (23, 0)})]
    causal, window = (compiled(function, arrays)(arrays) for function in pair)
    assert_equal_bits(causal, window)


@every_implementation
def test_flash_attention_895_and_443_windows_where_there_are_more_queries_than_keys(implementation):
    """The right side may be wider than the keys; queries that stand past the keys' end see none, and harm nothing."""
    arrays = draw(40, 5)
    cotangents = cotangents_of(arrays)
    options = {"local_window_size": (2, 1000)}
    function = with_gradients(attend(implementation, **options))
    rows, gradients = compiled(function, arrays, cotangents)(arrays, cotangents)
    plainly = with_gradients(lambda a: plain.attention(a, options, published_rows))
    want, want_gradients = jax.jit(plainly)(arrays, cotangents)
    np.testing.assert_allclose(rows.output, want.output, atol=5e-6)
    assert np.all(rows.output[:, 7:] == 0) and np.all(rows.lse[:, 7:] == -np.inf)
    for name in gradients:
        np.testing.assert_allclose(gradients[name], want_gradients[name], atol=5e-5, err_msg=name)


@every_implementation
def test_jax_34920_and_27184_a_bias_shared_by_the_heads_is_mapped_and_has_a_gradient(implementation):
    arrays = draw(17, 33, N=4, K=2)
    biases = jnp.asarray(np.random.default_rng(0).normal(size=(3, 1, 1, 17, 33)), jnp.float32)

    def loss(bias):
        return jnp.sum(jnp.sin(attend(implementation)(arrays | {"bias": bias}).output))

    got = compiled(jax.vmap(jax.grad(loss)), biases)(biases)

    def plain_loss(bias):
        rows = plain.attention(arrays | {"bias": bias}, {"bias": np.zeros((1, 1, 17, 33))}, published_rows)
        return jnp.sum(jnp.sin(rows.output))

    for bias, gradient in zip(biases, got):
        np.testing.assert_allclose(gradient, jax.grad(plain_loss)(bias), atol=1e-5)

"""Whatever attention refuses, it refuses by name: the argument, what came, what is allowed, what to do."""

from __future__ import annotations

import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from implementations import PallasConfig

from adatemp import attention_entropy, constant, dot_product_attention, exp_offset, target_entropy
from adatemp.attention import ChunkedConfig, api

B, T, S, N, K, H, V = 2, 6, 8, 4, 2, 16, 5
QUERY, KEY, VALUE = np.ones((B, T, N, H), "f"), np.ones((B, S, K, H), "f"), np.ones((B, S, K, V), "f")


def call(**options):
    arguments = {"query": QUERY, "key": KEY, "value": VALUE} | options
    query, key, value = (arguments.pop(name) for name in ("query", "key", "value"))
    return jax.eval_shape(lambda: dot_product_attention(query, key, value, **arguments))


BAD = {
    # Arrays.
    "a list for an array": (dict(query=[[1.0]]), TypeError, "query must be an array, got list", "jnp.asarray"),
    "no value": (dict(value=None), TypeError, "value must be an array, got None", "attention_entropy"),
    "two axes": (dict(key=np.ones((8, 16), "f")), ValueError, "key must have 3 or 4 axes, got shape (8, 16)", "[batch"),
    "integers": (dict(value=np.ones((B, S, K, V), "i")), TypeError, "value must have one of the dtypes", "int32"),
    "complex": (dict(query=QUERY.astype("F")), TypeError, "query must have one of the dtypes", "complex64"),
    "float8": (dict(key=jnp.ones((B, S, K, H), jnp.float8_e4m3fn)), TypeError, "key must have one", "float8_e4m3fn"),
    "strings": (dict(query=np.full((B, T, N, H), "x")), TypeError, "query must be an array", "<U1"),
    "random keys": (dict(query=jax.random.split(jax.random.key(0), (B, T, N, H))), TypeError, "query must have one"),
    "two dtypes": (
        dict(key=KEY.astype(jnp.bfloat16)),
        TypeError,
        "must have one dtype, got query float32, key bfloat16, value float32",
        "cast",
    ),
    "batch axis on some": (dict(value=VALUE[0]), ValueError, "all have a batch axis or all have none", "(8, 2, 5)"),
    "an empty axis": (dict(key=KEY[:, :0], value=VALUE[:, :0]), ValueError, "every axis", "(2, 0, 2, 16)"),
    "batch sizes": (dict(query=QUERY[:1]), ValueError, "one batch size", "query (1, 6, 4, 16)"),
    "widths": (dict(query=QUERY[..., :3]), ValueError, "one width", "query (2, 6, 4, 3)"),
    "value of other keys": (dict(value=VALUE[:, :5]), ValueError, "value must have the batch, keys", "(2, 5, 2, 5)"),
    "value of other heads": (dict(value=VALUE[:, :, :1]), ValueError, "value must have the batch, keys and heads"),
    "head groups": (dict(query=QUERY[:, :, :3]), ValueError, "query heads, 3, must be a multiple", "key heads, 2"),
    "heads before time": (
        dict(query=np.ones((B, 4, 6, H), "f"), key=np.ones((B, 4, 8, H), "f"), value=np.ones((B, 4, 8, H), "f")),
        ValueError,
        "[batch, heads, time, width] with 4 heads",
        "jnp.swapaxes(x, 1, 2)",
    ),
    # Mask, bias, sink.
    "mask of numbers": (dict(mask=np.ones((1, 1, T, S), "f")), TypeError, "mask must be boolean", "bias"),
    "mask of strings": (dict(mask="causal"), TypeError, "mask must be an array", "'causal'"),
    "mask that does not broadcast": (
        dict(mask=np.ones((B, N, T, 3), bool)),
        ValueError,
        "mask of shape (2, 4, 6, 3) does not broadcast",
        "(2, 4, 6, 8)",
    ),
    "mask turned": (dict(mask=np.ones((B, T, N, S), bool)), ValueError, "mask of shape", "swapaxes(mask, 1, 2)"),
    "mask of five axes": (dict(mask=np.ones((1, 1, 1, 1, S), bool)), ValueError, "mask of shape (1, 1, 1, 1, 8)"),
    "bias of booleans": (dict(bias=np.ones((1, 1, T, S), bool)), TypeError, "bias must be floating point", "mask="),
    "bias that does not broadcast": (dict(bias=np.ones((3, 1, T, S), "f")), ValueError, "bias of shape (3, 1, 6, 8)"),
    "sink of integers": (dict(sink=np.ones(N, "i")), TypeError, "sink must be floating point", "int32"),
    "sink for key heads": (dict(sink=np.ones(K, "f")), ValueError, "sink must have shape (4,)", "(2,)"),
    # Numbers.
    "scale of words": (dict(scale="large"), TypeError, "scale must be a number", "'large'"),
    "scale without end": (dict(scale=np.inf), ValueError, "scale must be finite", "inf"),
    "scale beyond floats": (dict(scale=10**400), ValueError, "scale must be finite"),
    "soft cap of 0": (dict(logits_soft_cap=0), ValueError, "logits_soft_cap must be above 0", "no cap"),
    "soft cap of words": (dict(logits_soft_cap="50"), None),  # a string that is a number is one
    "causal by number": (dict(is_causal=1), TypeError, "is_causal must be True or False, got 1"),
    "negative window": (
        dict(local_window_size=(-1, 2)),
        ValueError,
        "local_window_size must not be negative",
        "(-1, 2)",
    ),
    "window of three": (dict(local_window_size=(1, 2, 3)), TypeError, "local_window_size must be", "(1, 2, 3)"),
    "window of fractions": (dict(local_window_size=2.5), TypeError, "local_window_size must be", "2.5"),
    "window of truth": (dict(local_window_size=True), TypeError, "local_window_size must be", "True"),
    # Lengths, offset, segments, positions.
    "query lengths beyond": (
        dict(query_seq_lengths=np.array([7, 2])),
        ValueError,
        "query_seq_lengths must lie between 0 and 6",
        "[7, 2]",
    ),
    "key lengths beyond": (
        dict(key_value_seq_lengths=jnp.array([3, 9])),
        ValueError,
        "key_value_seq_lengths must lie between 0 and 8",
        "[3, 9]",
    ),
    "negative lengths": (dict(key_value_seq_lengths=np.array([3, -1])), ValueError, "between 0 and 8", "[3, -1]"),
    "lengths that wrap": (dict(key_value_seq_lengths=np.array([3, 2**32 + 3])), ValueError, "key_value_seq_lengths"),
    "lengths of a larger batch": (dict(query_seq_lengths=np.array([1, 2, 3])), ValueError, "query_seq_lengths", "(2,)"),
    "fractional lengths": (dict(query_seq_lengths=np.array([1.0, 2.0])), TypeError, "query_seq_lengths", "float32"),
    "a mask for lengths": (dict(query_seq_lengths=np.array([True, False])), TypeError, "query_seq_lengths", "bool"),
    "negative offset": (dict(query_offset=-1), ValueError, "query_offset must be at least 0", "-1"),
    "offset that wraps": (dict(query_offset=2**31), ValueError, "query_offset must fit into 32 bits"),
    "offset too far": (dict(query_offset=2**30), ValueError, "query_offset must be at least 0 and below 2**30"),
    "offset of fractions": (dict(query_offset=1.5), TypeError, "query_offset must be an integer", "1.5"),
    "offset a query": (dict(query_offset=np.arange(T)), ValueError, "query_offset must be one integer", "(6,)"),
    "segments of queries alone": (dict(segment_ids=np.zeros((B, T), "i")), ValueError, "segment_ids must be a pair"),
    "segments of keys too short": (
        dict(segment_ids=(np.zeros((B, T), "i"), np.zeros((B, T), "i"))),
        ValueError,
        "segment_ids of keys must have shape (2, 8), got (2, 6)",
    ),
    "three segments": (dict(segment_ids=(1, 2, 3)), ValueError, "segment_ids must be one array or a pair", "3"),
    "positions a head": (dict(query_positions=np.zeros((B, T, N), "i")), ValueError, "query_positions", "(2, 6, 4)"),
    "positions of fractions": (dict(query_positions=np.zeros((B, T))), TypeError, "query_positions must be integers"),
    # Rules.
    "temperature by number": (dict(temperature=0.5), TypeError, "temperature must be a rule, got 0.5", "constant("),
    "a constructor": (dict(temperature=exp_offset), TypeError, "temperature must be None or a rule", "call it"),
    "parameters a token": (
        dict(temperature=constant(np.ones(T))),
        ValueError,
        "temperature: the rule gives beta of shape (6,)",
        "a value a head as [heads]",
    ),
    # Implementations.
    "unknown implementation": (dict(implementation="flash"), ValueError, "'dense', 'chunked', 'pallas'", "'flash'"),
    "cudnn": (dict(implementation="cudnn"), ValueError, "'cudnn' has no row statistics", "leave implementation out"),
    "cudnn in a list": (dict(implementation=("dense", "cudnn")), ValueError, "'cudnn' has no row statistics"),
    "no implementation": (dict(implementation=()), ValueError, "empty sequence", "leave it out"),
    "implementation by number": (dict(implementation=3), TypeError, "implementation must be None, a name", "3"),
    "config of another": (
        dict(implementation="dense", config=ChunkedConfig()),
        ValueError,
        "config is a ChunkedConfig and implementation='dense' takes none",
        "'chunked'",
    ),
    "config of pallas for chunked": (
        dict(implementation="chunked", config=PallasConfig(interpret=True)),
        ValueError,
        "config is a PallasConfig and implementation='chunked' takes none",
    ),
    "config of a kind unheard of": (dict(config={"block_q": 8}), TypeError, "config must be a ChunkedConfig or a"),
    "precision unheard of": (dict(precision="exact"), ValueError, "precision must be None", "'highest'", "'exact'"),
    "rows for key blocks": (
        dict(implementation="chunked", config=ChunkedConfig(block_k=4), temperature=target_entropy(1.0)),
        NotImplementedError,
        "temperature: rule TargetEntropy reads the whole row",
        "implementation=None always works",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_meant_is_refused_by_name(name):
    options, kind, *parts = BAD[name]
    if kind is None:
        call(**options)
        return
    with pytest.raises(kind) as refused:
        call(**options)
    assert refused.type is kind
    assert all(part in str(refused.value) for part in parts), str(refused.value)


@pytest.mark.parametrize("size", [0, -8, 2.5, True, "8"])
@pytest.mark.parametrize("name", ["block_q", "block_k"])
@pytest.mark.parametrize("kind", [ChunkedConfig, PallasConfig])
def test_a_config_refuses_a_size_that_is_none(kind, name, size):
    with pytest.raises((TypeError, ValueError), match=f"{name}.*{re.escape(repr(size))}"):
        kind(**{name: size})


def test_a_pallas_config_whose_tiles_cannot_fit_is_refused_before_a_compiler_sees_it():
    with pytest.raises(ValueError, match="block_"):
        call(implementation="pallas", config=PallasConfig(block_q=4096, block_k=4096, interpret=True))


def test_a_traced_scale_is_refused_with_what_to_do():
    with pytest.raises(TypeError, match="scale must be a number known when .* multiply the query by a learned scale"):
        jax.eval_shape(lambda scale: dot_product_attention(QUERY, KEY, VALUE, scale=scale), 1.0)


def test_a_length_is_checked_inside_a_traced_program_too_when_it_is_a_constant_there():
    with pytest.raises(ValueError, match="key_value_seq_lengths must lie between 0 and 8"):
        call(key_value_seq_lengths=np.array([3, 9]))


def test_the_entropy_alone_refuses_by_the_same_names():
    with pytest.raises(ValueError, match="query and key must have one width"):
        attention_entropy(QUERY, KEY[..., :3])
    with pytest.raises(TypeError, match="mask must be boolean"):
        attention_entropy(QUERY, KEY, mask=np.ones((1, 1, T, S)))


ODD = {
    "None": None,
    "a word": "word",
    "bytes": b"word",
    "an object": object(),
    "a number": 1.5,
    "a negative": -3,
    "a huge integer": 10**30,
    "a complex": 1j,
    "nan": float("nan"),
    "true": True,
    "an empty list": [],
    "a ragged list": [[1, 2], [3]],
    "a dict": {"a": 1},
    "a set": {1},
    "a function": len,
    "a class": ChunkedConfig,
    "an empty array": np.zeros((0, 2)),
    "objects": np.array([None, "x"], object),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "a vector": np.arange(3.0),
    "wrapped integers": np.array([2**40, 1]),
    "a shape": jax.ShapeDtypeStruct((B, T, N, H), np.float32),
    "a pretender": types.SimpleNamespace(shape=(B, T, N, H), dtype=np.dtype("f")),
}
ARGUMENTS = (
    "query key value bias mask scale is_causal query_offset query_seq_lengths key_value_seq_lengths local_window_size "
    "segment_ids query_positions logits_soft_cap sink temperature return_stats precision implementation config"
).split()


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_an_argument_of_any_kind_is_served_or_refused_by_name(argument, monkeypatch):
    """Never an AttributeError, an OverflowError or a message from deep inside."""
    monkeypatch.setattr(api, "_compiled", lambda *_: (jnp.zeros((B, T, N, V)), None))
    for odd in ODD.values():
        try:
            arguments = {"query": QUERY, "key": KEY, "value": VALUE} | {argument: odd}
            dot_product_attention(arguments.pop("query"), arguments.pop("key"), arguments.pop("value"), **arguments)
        except (TypeError, ValueError, NotImplementedError) as error:
            assert argument in str(error), f"{odd!r}: {error}"


def test_what_is_served_by_the_checks_is_served_by_the_computation():
    """The odd values that passed above, run without the stand-in."""
    for options in (
        dict(is_causal=True, local_window_size=10**30),
        dict(precision=jax.lax.Precision.HIGH),
        dict(precision="default"),
        dict(scale=-3),
        dict(scale=True),
        dict(logits_soft_cap=1.5),
    ):
        out = call(**options)
        assert jax.tree.leaves(out)[0].shape == (B, T, N, V)


def test_no_argument_of_this_list_was_forgotten():
    import inspect

    assert list(inspect.signature(dot_product_attention).parameters) == ARGUMENTS

"""From the arguments of attention to a `Problem`, or to an error that says what to do."""

from __future__ import annotations

import math
import operator

import jax
import jax.numpy as jnp
import numpy as np

from adatemp._rule import broadcasts, is_concrete
from adatemp.attention._problem import Problem

# Positions and distances stay below this, so that their sums fit into 32 bits.
_FARTHEST = 2**30 - 1

_FLOATING = ("float16", "bfloat16", "float32", "float64")
_LAYOUT = "query is [batch, queries, heads, width], key and value are [batch, keys, key heads, width]"


def build_problem(
    query,
    key,
    value,
    bias=None,
    mask=None,
    *,
    scale=None,
    is_causal=False,
    query_offset=0,
    query_seq_lengths=None,
    key_value_seq_lengths=None,
    local_window_size=None,
    segment_ids=None,
    query_positions=None,
    logits_soft_cap=None,
    sink=None,
    precision=None,
) -> tuple[Problem, bool]:
    """The call as a Problem, and whether it came without a batch axis.

    Raises:
        TypeError: An argument of a kind that cannot be meant.
        ValueError: A shape, length, window or scale that does not fit the others.
    """
    query, key, value, batched = _check_vectors(query, key, value)
    (B, T, N, H), S = query.shape, key.shape[1]
    logits = (B, N, T, S)
    query_segments, key_segments = _check_segments(segment_ids, B, T, S, batched)
    problem = Problem(
        query=query,
        key=key,
        value=value,
        bias=_check_per_logit("bias", bias, logits, batched),
        mask=_check_per_logit("mask", mask, logits, batched),
        sink=_check_sink(sink, N),
        query_lengths=_check_lengths("query_seq_lengths", query_seq_lengths, B, T),
        key_lengths=_check_lengths("key_value_seq_lengths", key_value_seq_lengths, B, S),
        query_offset=_check_offset(query_offset, B),
        query_segments=query_segments,
        key_segments=key_segments,
        query_positions=_check_integers("query_positions", query_positions, (B, T), batched),
        scale=1 / math.sqrt(H) if scale is None else _check_number("scale", scale),
        is_causal=check_flag("is_causal", is_causal),
        window=_check_window(local_window_size),
        soft_cap=_check_soft_cap(logits_soft_cap),
        precision=_check_precision(precision),
    )
    return problem, batched


def _array(name: str, value):
    """The argument as an array, or an error that names it."""
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} must be an array or what makes one, got {value!r} ({error})") from error


def _check_vectors(query, key, value):
    arrays = {"query": query, "key": key} | ({} if value is None else {"value": value})
    for name, array in arrays.items():
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise TypeError(f"{name} must be an array, got {type(array).__name__}; wrap it in jnp.asarray(...)")
        arrays[name] = array = _array(name, array)
        if array.dtype.name not in _FLOATING:
            raise TypeError(
                f"{name} must have one of the dtypes {', '.join(_FLOATING)}, got {array.dtype.name}; "
                f"cast it, for example {name}.astype(jnp.float32)"
            )
        if array.ndim not in (3, 4):
            raise ValueError(f"{name} must have 3 or 4 axes, got shape {array.shape}; {_LAYOUT}, or all without batch")
    shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
    if len({array.ndim for array in arrays.values()}) > 1:
        raise ValueError(f"query, key and value must all have a batch axis or all have none, got {shapes}")
    if len({array.dtype for array in arrays.values()}) > 1:
        dtypes = ", ".join(f"{name} {array.dtype.name}" for name, array in arrays.items())
        raise TypeError(f"query, key and value must have one dtype, got {dtypes}; cast them to one")
    batched = arrays["query"].ndim == 4
    if not batched:
        arrays = {name: array[None] for name, array in arrays.items()}
    query, key = arrays["query"], arrays["key"]
    if 0 in query.shape or 0 in key.shape:
        raise ValueError(f"every axis must have at least one entry, got {shapes}")
    if query.shape[0] != key.shape[0]:
        raise ValueError(f"query and key must have one batch size, got {shapes}")
    if query.shape[3] != key.shape[3]:
        raise ValueError(f"query and key must have one width on their last axis, got {shapes}")
    if query.shape[2] % key.shape[2]:
        raise ValueError(
            f"the number of query heads, {query.shape[2]}, must be a multiple of the number of key heads, "
            f"{key.shape[2]}, got {shapes}; {_LAYOUT}{_transposed(query, key)}"
        )
    if value is not None and arrays["value"].shape[:3] != key.shape[:3]:
        raise ValueError(
            f"value must have the batch, keys and heads of key, got {shapes}; its width alone may differ; {_LAYOUT}"
        )
    return query, key, arrays.get("value"), batched


def _transposed(query, key) -> str:
    if query.shape[1] % key.shape[1]:
        return ""
    return (
        f". These look like [batch, heads, time, width] with {query.shape[1]} heads: "
        "turn each with jnp.swapaxes(x, 1, 2)"
    )


def _check_per_logit(name: str, array, shape: tuple[int, ...], batched: bool):
    if array is None:
        return None
    array = _array(name, array)
    if name == "mask" and array.dtype != bool:
        raise TypeError(
            f"mask must be boolean, True where a key takes part, got {array.dtype.name}; "
            "write mask.astype(bool), or give a mask of 0 and -inf as bias"
        )
    if name == "bias" and array.dtype.name not in _FLOATING:
        raise TypeError(f"bias must be floating point, got {array.dtype.name}; a boolean mask goes into mask=")
    fits = array.ndim <= 4 and broadcasts(array.shape, shape)
    if not fits:
        layout = "[batch, heads, queries, keys]"
        turned = array.ndim == 4 and broadcasts((array.shape[0], array.shape[2], array.shape[1], array.shape[3]), shape)
        raise ValueError(
            f"{name} of shape {array.shape} does not broadcast to the logits {layout} = {shape}; give each of its axes "
            "that length or 1" + (f"; turn it with jnp.swapaxes({name}, 1, 2)" if turned else "")
        )
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def _check_sink(sink, heads: int):
    if sink is None:
        return None
    sink = _array("sink", sink)
    if not jnp.issubdtype(sink.dtype, jnp.floating):
        raise TypeError(f"sink must be floating point, a logit for each head, got {sink.dtype.name}")
    if sink.shape != (heads,):
        raise ValueError(f"sink must have shape ({heads},), a logit for each query head, got {sink.shape}")
    return sink


def _check_integers(name: str, array, shape: tuple[int, ...], batched: bool):
    if array is None:
        return None
    array = _integers(name, array)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{name} must be integers, got {array.dtype.name}; cast with .astype(jnp.int32)")
    if not batched and array.ndim == len(shape) - 1:
        array = array[None]
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape[0 if batched else 1 :]}, got {array.shape}")
    return array.astype(jnp.int32)


def _integers(name: str, value):
    """The argument as an array; integers that 32 bits do not hold are refused while their values are still known."""
    if is_concrete(value) and not isinstance(value, (list, tuple)):
        given = np.asarray(value) if _is_numeric(value) else None
        if given is not None and given.dtype.kind in "iu" and given.size:
            if given.min() < -(2**31) or given.max() >= 2**31:
                raise ValueError(f"{name} must fit into 32 bits, got {given.tolist()}")
    return _array(name, value)


def _is_numeric(value) -> bool:
    return isinstance(value, (int, np.generic, np.ndarray)) or (
        isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.extended)
    )


def _check_lengths(name: str, lengths, B: int, most: int):
    if lengths is None:
        return None
    array = _check_integers(name, jnp.atleast_1d(_integers(name, lengths)), (B,), True)
    # What was given and not what became of it: inside a traced program a constant turns into a placeholder.
    known = lengths if is_concrete(lengths) and not isinstance(lengths, (list, tuple)) else array
    if is_concrete(known):
        given = np.asarray(known)
        if given.min() < 0 or given.max() > most:
            raise ValueError(f"{name} must lie between 0 and {most}, the array's length, got {given.tolist()}")
    return array


def _check_offset(offset, B: int):
    if isinstance(offset, int) and not isinstance(offset, bool) and offset == 0:
        return None
    array = _integers("query_offset", offset)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"query_offset must be an integer or integers [batch], got {offset!r}")
    if array.shape not in ((), (B,)):
        raise ValueError(f"query_offset must be one integer or have shape ({B},), got shape {array.shape}")
    known = offset if is_concrete(offset) and not isinstance(offset, (list, tuple)) else array
    if is_concrete(known):
        given = np.asarray(known)
        if given.min() < 0 or given.max() >= _FARTHEST:
            raise ValueError(
                f"query_offset must be at least 0 and below 2**30, got {given.tolist()}; it is the position of the "
                "first query among the keys"
            )
    return jnp.broadcast_to(array.astype(jnp.int32), (B,))


def _check_segments(segments, B: int, T: int, S: int, batched: bool):
    if segments is None:
        return None, None
    pair = segments if isinstance(segments, (tuple, list)) else (segments, segments)
    if len(pair) != 2:
        raise ValueError(f"segment_ids must be one array or a pair (of queries, of keys), got {len(pair)} of them")
    if not isinstance(segments, (tuple, list)) and T != S:
        raise ValueError(
            f"segment_ids must be a pair (of queries, of keys) where there are {T} queries and {S} keys, got one array"
        )
    return tuple(
        _check_integers(f"segment_ids of {of}", array, (B, length), batched)
        for of, array, length in zip(("queries", "keys"), pair, (T, S))
    )


def _check_window(window):
    if window is None:
        return None
    pair = window if isinstance(window, (tuple, list)) else (window, window)
    try:
        before, after = (operator.index(x if not isinstance(x, bool) else None) for x in pair)
    except (TypeError, ValueError):
        raise TypeError(
            f"local_window_size must be an integer or a pair (before, after) of integers, got {window!r}"
        ) from None
    if before < 0 or after < 0:
        raise ValueError(
            f"local_window_size must not be negative, got {window!r}; leave it out for no window, and give "
            "a side without limit the number of keys"
        )
    return min(before, _FARTHEST), min(after, _FARTHEST)


def _check_soft_cap(cap):
    if cap is None:
        return None
    cap = _check_number("logits_soft_cap", cap)
    if cap <= 0:
        raise ValueError(f"logits_soft_cap must be above 0, got {cap}; leave it out for no cap")
    return cap


def _check_number(name: str, value) -> float:
    if isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"{name} must be a number known when the program is traced, got a traced value; "
            "multiply the query by a learned scale instead"
        )
    try:
        value = float(value if not getattr(value, "shape", ()) else None)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
    except OverflowError:
        raise ValueError(f"{name} must be finite in float64, got {value!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    return value


def check_flag(name: str, value) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _check_precision(precision):
    if precision is None or isinstance(precision, (jax.lax.Precision, jax.lax.DotAlgorithmPreset)):
        return precision
    try:
        return jax.lax.Precision(precision)
    except (TypeError, ValueError):
        names = ", ".join(repr(member.name.lower()) for member in jax.lax.Precision)
        raise ValueError(
            f"precision must be None, a jax.lax.Precision or its name ({names}), or a jax.lax.DotAlgorithmPreset, "
            f"got {precision!r}"
        ) from None

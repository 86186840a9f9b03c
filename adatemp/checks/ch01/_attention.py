"""Exercise 01.4, attention by einsum: from a single key to causal masks with more queries than keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from adatemp.checks import _float64
from adatemp.checks._stages import Mistake, Stage

SIGNATURE = "attention(query, key, value, is_causal=False)"

# Batch, heads, head width: no two sides of any array agree, but for the stage that wants T = S.
_B, _N, _H = 2, 3, 4


def inputs(seed: int, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Query [B, T, N, H], key and value [B, S, N, H] of normal numbers."""
    draw = np.random.default_rng(seed)
    shapes = ((_B, queries, _N, _H), (_B, keys, _N, _H), (_B, keys, _N, _H))
    query, key, value = (draw.normal(size=shape).astype(np.float32) for shape in shapes)
    return 1.5 * query, key, value


def stages() -> tuple[Stage, ...]:
    """The stages, from basic to subtle."""
    return (
        _single_key(),
        _no_mask("as many queries as keys", 5, 5),
        _no_mask("fewer queries than keys", 5, 7),
        _causal("causal, as many queries as keys", 5, 5),
        _causal("causal, fewer queries than keys", 5, 7),
        _causal("causal, more queries than keys", 7, 5),
        _offset(),
    )


def _single_key() -> Stage:
    query, key, value = inputs(31, 5, 1)
    return Stage(
        "one key: the output is its value",
        lambda f: _call(f, query, key, value),
        given="5 queries and a single key",
        expected=np.broadcast_to(value, query.shape),
        look="With one key the only weight is 1. What is left of your function then?",
        mistakes=(
            Mistake(
                "heads added up",
                "Each head's output is a sum over all heads.",
                "An axis letter missing after the arrow of an einsum is summed over.",
                "Which letters of your last einsum stand on the left and not on the right?",
                seen=np.broadcast_to(value.sum(2, keepdims=True), query.shape),
            ),
            *_layout(np.broadcast_to(value, query.shape)),
        ),
    )


def _no_mask(name: str, queries: int, keys: int) -> Stage:
    query, key, value = inputs(32 + keys, queries, keys)
    right = _float64.attention(query, key, value)
    logits = np.einsum("btnh,bsnh->bnts", query, key, dtype=np.float64)
    mistakes = [
        Mistake(
            "scale left out",
            "The logits are not scaled.",
            "The einsum alone already looks like attention.",
            "How does the standard deviation of query · key grow with the head width?",
            seen=_read(_float64.softmax(logits), value),
        ),
        Mistake(
            "scaled by d, not √d",
            "The logits are divided by the head width.",
            "The square root is easily lost when the formula is typed.",
            "What standard deviation have your logits for queries and keys of standard deviation 1?",
            seen=_read(_float64.softmax(logits / _H), value),
        ),
        Mistake(
            "scaled by the wrong axis",
            "The logits are divided by the root of a size that is not the head width.",
            "`shape[...]` was counted in another layout.",
            "Print the number you divide by.",
            seen=lambda out: any(
                size != _H and np.allclose(out, _read(_float64.softmax(logits / np.sqrt(size)), value), atol=1e-5)
                for size in (_B, _N, queries, keys, _N * _H)
            ),
        ),
        Mistake(
            "normalised over the queries",
            "The weights sum to 1 over the queries, not over the keys.",
            "With T = S both give a square of weights.",
            "Along which axis of your weights are the keys?",
            seen=_read(_float64.softmax(logits / np.sqrt(_H), -2), value),
        ),
        *_layout(right),
    ]
    if queries == keys:
        swapped = _float64.attention(*(x.swapaxes(1, 2) for x in (query, key, value))).swapaxes(1, 2)
        mistakes.append(
            Mistake(
                "time and head axes swapped",
                "Each position attends over its own heads.",
                "Many codes store heads before time; here time comes first.",
                "Label the axes of `query` with letters and check the two einsums letter by letter.",
                seen=swapped,
            )
        )
    return Stage(
        name,
        lambda f: _call(f, query, key, value),
        given=f"T = {queries}, S = {keys}, N = {_N} heads of width H = {_H}, no mask",
        expected=right,
        look="Write the axes of the logits in letters and say over which of them the softmax runs.",
        mistakes=tuple(mistakes),
    )


def _causal(name: str, queries: int, keys: int) -> Stage:
    query, key, value = inputs(52 + queries, queries, keys)
    lower = np.tril(np.ones((queries, keys), bool))
    corner = np.tril(np.ones((queries, keys), bool), keys - queries)
    logits = np.einsum("btnh,bsnh->bnts", query, key, dtype=np.float64) / np.sqrt(_H)
    right = _float64.attention(query, key, value, lower)
    mistakes = [
        Mistake(
            "mask ignored",
            "Every query sees every key.",
            "`is_causal` is optional, so the function runs without it.",
            "Where does `is_causal` enter?",
            seen=_float64.attention(query, key, value),
        ),
        Mistake(
            "mask added after softmax",
            "The mask meets finished weights: the rows no longer sum to 1, or −∞ and huge numbers reach the output.",
            "The mask can be multiplied or added in at any line without an error.",
            "Sum the weights of the first query. At which step does a hidden key have to disappear?",
            seen=lambda out: (
                np.allclose(out, _read(_float64.softmax(logits) * lower, value), atol=1e-5)
                or (~np.isfinite(np.asarray(out)[:, : min(2, queries)])).any()
                and np.allclose(_finite_rows(out, right), 0, atol=1e-4)
                or np.nanmax(np.abs(np.asarray(out))) > 1e3
            ),
        ),
        Mistake(
            "future and past exchanged",
            "Query t sees the keys from t on.",
            "`triu` for `tril`, or a comparison the wrong way round.",
            "Which keys does the first query see, and which the last?",
            seen=lambda out: np.allclose(
                np.asarray(out)[:, :keys],
                _float64.attention(query, key, value, np.triu(np.ones((queries, keys), bool)))[:, :keys],
                atol=1e-5,
            ),
        ),
        Mistake(
            "strict mask",
            "A query does not see the key at its own position.",
            "`<` and `<=` differ by the diagonal alone; the first query then sees nothing.",
            "How many keys does query t see, counted from t = 0?",
            seen=lambda out: np.allclose(
                np.asarray(out)[:, 1:],
                _float64.attention(query, key, value, np.tril(np.ones((queries, keys), bool), -1))[:, 1:],
                atol=1e-5,
            ),
        ),
    ]
    if queries != keys:
        mistakes.append(
            Mistake(
                "diagonal from the other corner",
                "The last query is aligned with the last key.",
                "That is the right mask for decoding with a cache. Here, as in `jax.nn`, query 0 stands at key 0.",
                "Which keys does query 0 see when there are more keys than queries?",
                seen=lambda out: np.allclose(
                    np.asarray(out)[:, max(0, queries - keys) :],
                    _float64.attention(query, key, value, corner)[:, max(0, queries - keys) :],
                    atol=1e-5,
                ),
            )
        )
    return Stage(
        name,
        lambda f: _call(f, query, key, value, is_causal=True),
        given=f"T = {queries}, S = {keys}, is_causal=True",
        expected=right,
        look="Print the weights of one head: which of them are 0, and do the rows sum to 1?",
        mistakes=tuple(mistakes),
    )


def _offset() -> Stage:
    query, key, value = inputs(61, 5, 7)
    query[..., 0], key[..., 0] = 200.0, 100.0  # adds 200 · 100/√4 = 10⁴ to every logit
    return Stage(
        "an offset of 10⁴ on every logit",
        lambda f: _call(f, query, key, value),
        given="queries and keys that share a large component, which adds 10⁴ to every logit",
        expected=_float64.attention(query, key, value),
        rtol=0.0,
        atol=0.02,  # float32 logits near 10⁴ are spaced by 0.001
        look="Which softmax do you use, and did it pass the first exercise?",
        mistakes=(
            Mistake(
                "no maximum subtracted",
                "The exponentials overflow.",
                "A softmax written inline is easily the textbook one.",
                "What is the largest number that enters `exp`?",
                seen=lambda out: not np.isfinite(np.asarray(out)).all(),
            ),
        ),
    )


def _layout(right: np.ndarray) -> tuple[Mistake, ...]:
    return (
        Mistake(
            "time and head axes swapped",
            "The numbers are right and the layout is [B, N, T, H].",
            "Many codes store heads before time; here time comes first.",
            "Which letters stand after the arrow of your last einsum, and in which order?",
            seen=right.swapaxes(1, 2),
        ),
    )


def _call(attention: Callable[..., Any], *arrays: np.ndarray, **options: bool) -> Any:
    return attention(*(jnp.asarray(array) for array in arrays), **options)


def _read(weights: np.ndarray, value: np.ndarray) -> np.ndarray:
    return np.einsum("bnts,bsnh->btnh", weights, value)


def _finite_rows(out: Any, right: np.ndarray) -> np.ndarray:
    """Error on the rows that came out finite: a late −∞ spoils the early queries, which hide the most keys."""
    out = np.asarray(out, np.float64)
    whole = np.isfinite(out).all((2, 3))
    return (out - right)[whole]


def picture(attention: Callable[..., Any]) -> Any:
    """The causal weights behind the reader's output, read by giving key s the s-th unit vector as its value."""
    from adatemp import plotting

    query, key, _ = inputs(57, _H, _H)
    value = np.broadcast_to(np.eye(_H, dtype=np.float32)[None, :, None, :], key.shape)
    weights = np.asarray(_call(attention, query, key, value, is_causal=True), np.float64)[0, :, 0, :]
    right = _float64.attention(query, key, value, np.tril(np.ones((_H, _H), bool)))[0, :, 0, :]
    fig, axes = plotting.figure(width=5.0, height=2.8, ncols=2)
    for axis, table, title in zip(axes, (weights, right), ("yours", "float64")):
        axis.imshow(table, vmin=0.0, vmax=1.0, cmap=plotting.colormap())
        axis.set_title(title)
        axis.set_xlabel("key s")
        axis.set_ylabel("query t")
    alt = (
        f"Two heat maps of causal weights of one head, {_H} queries by {_H} keys, yours beside float64. "
        f"The largest difference is {np.abs(weights - right).max():.2g}."
    )
    return plotting.show(fig, alt=alt)

"""Exercise 04.5, measuring spread: δ of every row of causal, grouped, padded attention in bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine

_SIGNATURE = "spread(query, key, where)"
_B, _T, _N, _K, _H = 2, 7, 4, 2, 6


def ex5(spread: Callable[..., Any]) -> Report:
    """Checks the spread of every row of attention.

    Args:
        spread: `spread(query, key, where) -> [B, T, N]` float32, from query [B, T, N, H] and key [B, T, K, H] in
            bfloat16 and a boolean [B, T] that says which keys exist. Attention is causal and scaled by 1/√H; query head
            n reads key head n // (N // K). A row that sees one key, or none, has spread 0.

    Returns:
        The report. Mistakes it names: hidden keys counted, as −∞ or as a large negative number; one spread for all
        queries together; padding counted; the causal mask left out; products rounded to bfloat16; the wrong key head;
        no scale; a dead row.
    """
    return examine(spread, "04.5 Measuring spread", _SIGNATURE, _stages())


def _stages() -> tuple[Stage, ...]:
    query, key, where = _planted()
    full = np.ones_like(where)
    wide = _planted(offset=60.0)

    def told(case: tuple, **how: Any) -> np.ndarray:
        return _spread(*case, **how)

    def mistakes(case: tuple) -> tuple[Mistake, ...]:
        return (
            Mistake(
                "hidden keys counted",
                "The spread is infinite, or as large as the number that hides a key.",
                "The smallest logit of a masked row is that of a masked key.",
                "Over which keys should the minimum be taken?",
                seen=lambda got: np.isinf(got).any() or (np.abs(got) > 1e4).any(),
            ),
            Mistake(
                "one spread for all queries together",
                "All queries of a head have the same spread.",
                "A maximum and a minimum over two axes are as easily written as over one.",
                "The bound on weights holds for each row by itself. What is a row?",
                seen=lambda got: got.shape == (_B, _T, _N) and (np.ptp(got, axis=1) == 0).all(),
            ),
            Mistake(
                "the causal mask left out",
                "Rows count keys that come after their query.",
                "A spread computed from all logits looks right.",
                "What should the spread of the first row be?",
                seen=lambda got: any(
                    _near(got, told(case, causal=False, padding=padding)) for padding in (True, False)
                ),
            ),
            Mistake(
                "padding counted",
                "Keys that do not exist are counted.",
                "`where` is easily left unused, because most examples have no padding.",
                "Which keys has the second sequence?",
                seen=told(case, padding=False),
            ),
            Mistake(
                "the wrong key head",
                "Query heads read each other's key heads.",
                "Heads can be grouped in blocks or in turns, and the shapes agree.",
                "Which key head does query head 1 read, of 4 query heads and 2 key heads?",
                seen=told(case, grouped=lambda n: n % _K),
            ),
            Mistake(
                "no scale",
                "The spreads are too large by the square root of the head's width.",
                "It does not appear among the arguments.",
                "What divides the products?",
                seen=told(case, scale=1.0),
            ),
            Mistake(
                "products rounded to bfloat16",
                "The spreads are off by the steps of bfloat16 at the size of the logits.",
                "A product of bfloat16 arrays is bfloat16 unless told otherwise, and a cast afterwards is too late.",
                "In which dtype is the product taken? Look for where the first cast stands.",
                seen=lambda got: got.shape == (_B, _T, _N) and np.abs(got - told(case)).max() <= _rounding(*case),
            ),
        )

    return (
        Stage(
            "causal rows, no padding",
            lambda spread: _call(spread, query, key, full),
            given="two sequences of 7 tokens, 4 query heads, 2 key heads",
            expected=told((query, key, full)),
            rtol=2e-3,
            atol=1e-3,
            mistakes=mistakes((query, key, full)),
            look="Print the logits of the first head and read off each row's largest and smallest.",
        ),
        Stage(
            "padding",
            lambda spread: _call(spread, query, key, where),
            given="sequences padded at the front and at the end",
            expected=told((query, key, where)),
            rtol=2e-3,
            atol=1e-3,
            mistakes=(
                Mistake(
                    "a dead row",
                    "A row that sees no key has a spread that is not 0.",
                    "The largest and smallest of nothing are −∞ and ∞.",
                    "Which rows of the first sequence see no key?",
                    seen=lambda got: not np.isfinite(got[0, :2]).all() and np.isfinite(got[0, 2:]).all(),
                ),
                *mistakes((query, key, where)),
            ),
            look="The first sequence is padded at the front, so its first rows see no key at all.",
        ),
        Stage(
            "logits of a few hundred, a few apart",
            lambda spread: _call(spread, *wide),
            given="keys with a common offset, which no spread depends on",
            expected=told(wide),
            rtol=5e-3,
            atol=2e-2,
            mistakes=(*mistakes(wide),),
            look="How far apart are neighbouring bfloat16 numbers near 300?",
        ),
        Stage(
            "float32 comes back",
            lambda spread: spread(query, key, where),
            given="bfloat16 arrays",
            accept=lambda got: got.dtype == jnp.float32,
            look="Cast before the product, and leave the result as it is.",
        ),
    )


def _call(spread: Callable[..., Any], query: Any, key: Any, where: Any) -> np.ndarray:
    answer = spread(jnp.asarray(query), jnp.asarray(key), jnp.asarray(where))
    return answer if answer is None or answer is Ellipsis else np.asarray(answer).astype(np.float64)


def _planted(offset: float = 0.0) -> tuple[jax.Array, jax.Array, np.ndarray]:
    draw = np.random.default_rng(45)
    query, key = draw.normal(size=(_B, _T, _N, _H)), draw.normal(size=(_B, _T, _K, _H))
    if offset:
        query[..., 0], key[..., 0] = 12.0, key[..., 0] / 12 + offset
    where = np.ones((_B, _T), bool)
    where[0, :2] = where[1, 5:] = False
    return jnp.asarray(query, jnp.bfloat16), jnp.asarray(key, jnp.bfloat16), where


def _spread(query, key, where, *, causal=True, padding=True, grouped=lambda n: n // (_N // _K), scale=_H**-0.5):
    """δ in float64, row by row, or what a mistake makes of it."""
    query, key = np.asarray(query).astype(np.float64), np.asarray(key).astype(np.float64)
    found = np.zeros((_B, _T, _N))
    for b in range(_B):
        for t in range(_T):
            for n in range(_N):
                seen = (where[b] | (not padding)) & ((np.arange(_T) <= t) | (not causal))
                logits = scale * (key[b, seen, grouped(n)] @ query[b, t, n])
                found[b, t, n] = np.ptp(logits) if logits.size else 0.0
    return found


def _near(got: Any, wanted: np.ndarray) -> bool:
    got = np.asarray(got, np.float64)
    return got.shape == wanted.shape and np.allclose(got, wanted, rtol=2e-3, atol=1e-3)


def _rounding(query, key, where) -> float:
    """Three steps of bfloat16 at the size of the largest logit, which has eight bits."""
    query, key = np.asarray(query).astype(np.float64), np.asarray(key).astype(np.float64)
    largest = np.linalg.norm(query, axis=-1).max() * np.linalg.norm(key, axis=-1).max() / np.sqrt(_H)
    return 3 * 2.0**-8 * largest

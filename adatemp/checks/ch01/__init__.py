"""Checks of chapter 01: a softmax, an entropy, a top weight to order, attention by einsum, leaks in a mask."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from adatemp.checks._report import Report
from adatemp.checks._stages import examine
from adatemp.checks.ch01 import _attention, _entropy, _leaks, _softmax, _top_weight
from adatemp.checks.ch01._leaks import example, suspects

__all__ = ["ex1", "ex2", "ex3", "ex4", "ex5", "example", "suspects"]


def ex1(softmax: Callable[..., Any]) -> Report:
    """A softmax that survives.

    The reader writes `softmax(logits, axis=-1, where=None) -> weights`:

        logits: array of any shape in float16 or float32; −∞ is a legal logit and means a key without weight.
        axis: the axis of the keys, an integer, counted from either end.
        where: boolean array of the shape of `logits`, True where a key is visible; None means all are.
        returns: weights of the shape and dtype of `logits`. Along `axis` they sum to 1 over the visible keys; a masked
            key has weight exactly 0 whatever its logit (a NaN included); a row without any visible key is all 0.

    Checked: values against float64 for every axis of arrays without two equal sides; shift invariance at an offset of
    10⁴; −∞ logits; masked keys far above the visible ones; dead rows; a finite and right gradient (left out for a
    function written in NumPy, which has none); float16 rows long enough for their sum to overflow.
    """
    stages = _softmax.stages()
    return examine(softmax, "01.1 A softmax that survives", _softmax.SIGNATURE, stages, picture=_softmax.picture)


def ex2(entropy: Callable[..., Any]) -> Report:
    """Entropy without p log p.

    The reader writes `entropy(logits, axis=-1) -> H`, from the logarithm of the normaliser and the mean logit:

        logits: array of any shape in float16 or float32; −∞ is a legal logit and means a masked key. Every row has at
            least one finite logit.
        axis: the axis of the keys, an integer.
        returns: the entropy of softmax(logits) in nats, with `axis` removed, in float32 or wider.

    Checked: values against float64; shift by 10⁴ and permutation of the keys change nothing; rows whose weights
    underflow; −∞ logits; a row of 10⁶ keys, where a constant inside the logarithm shows; float16 logits.
    """
    stages = _entropy.stages()
    return examine(entropy, "01.2 Entropy without p log p", _entropy.SIGNATURE, stages, picture=_entropy.picture)


def ex3(inverse_temperature: Callable[..., Any]) -> Report:
    """A top weight to order.

    The reader writes `inverse_temperature(logits, top_weight) -> beta`:

        logits: one row, a float32 array of shape [n].
        top_weight: a number in (0, 1), the weight that the largest logit is to get.
        returns: the β ≥ 0, a number, for which max(softmax(β · logits)) is `top_weight`, right to 10⁻⁶ in the weight.

    Where m logits tie for the top, none of them can get more than 1/m: for `top_weight` ≥ 1/m the function returns
    infinity or raises ValueError. No β ≥ 0 gives less than 1/n: there it raises ValueError or returns NaN.

    Checked: several rows and weights; a larger weight needs a larger β; rows a thousand times flatter and a thousand
    times steeper; an offset of 10⁴; two and three logits tied at the top; the weights that no β gives.
    """
    stages = _top_weight.stages()
    return examine(
        inverse_temperature,
        "01.3 A top weight to order",
        _top_weight.SIGNATURE,
        stages,
        picture=_top_weight.picture,
    )


def ex4(attention: Callable[..., Any]) -> Report:
    """Attention by einsum.

    The reader writes `attention(query, key, value, is_causal=False) -> output`:

        query: [B, T, N, H]; key, value: [B, S, N, H]; float32. B batch, T queries, S keys, N heads, H head width.
        is_causal: with True, query t sees the keys 0 to t, also when T and S differ (as in `jax.nn`).
        returns: [B, T, N, H]; each head attends on its own, logits are query·key/√H.

    Checked against float64, on sizes that all differ: one key; T = S; T ≠ S; causal with T = S, T < S and T > S; logits
    with an offset of 10⁴.
    """
    stages = _attention.stages()
    return examine(attention, "01.4 Attention by einsum", _attention.SIGNATURE, stages, picture=_attention.picture)


def ex5(depends_on: Callable[..., Any]) -> Report:
    """Find the leak.

    The reader writes `depends_on(attention, query, key, value, where) -> table`:

        attention: a function `attention(query, key, value, where) -> output` of shape [B, T, N, H], differentiable.
        query, key, value: float32 arrays [B, T, N, H], self-attention: as many keys as queries.
        where: boolean [B, T], False at padding, which may be seen by no query.
        returns: boolean [B, T, T], a NumPy or JAX array: entry [b, t, s] says whether output row t of sequence b
            depends on position s of `key` or of `value` of that sequence.

    An honest causal attention depends on s exactly where s ≤ t and `where[b, s]`; anything more is a leak, anything
    less a blind spot. `suspects()` gives five attention functions to run the test on and `example()` an input for them.

    Checked: the table for each of the five, on inputs with padding at the front and at the end, which hide a leak from
    a test that looks at weights alone, at sums over features, at large derivatives alone, or at unpadded sequences.
    """
    answers: dict[str, Any] = {}
    return examine(
        depends_on,
        "01.5 Find the leak",
        _leaks.SIGNATURE,
        _leaks.stages(answers),
        picture=functools.partial(_leaks.picture, answers),
    )

"""What each normaliser treats, how it streams, and where it comes from: a table for reading and for loops over all."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple

import jax

from adatemp._softmax import adaptive_temperature_softmax
from adatemp._variants.elementwise import relu, sigmoid
from adatemp._variants.entmax import entmax15, sparsemax
from adatemp._variants.length import llama4_softmax, log_length_softmax, scalable_softmax, yarn_softmax
from adatemp._variants.selection import hard, top_k
from adatemp._variants.sink import sink_softmax
from adatemp._variants.softpick import softpick
from adatemp._variants.stick_breaking import stick_breaking


class Variant(NamedTuple):
    """One normaliser.

    Attributes:
        function: From logits to weights, with `axis` and `where`.
        streams: How `dot_product_attention` runs it in O(n) memory: "query-side" (one pass, the queries multiplied),
            "one pass", "two passes", or "dense" where it does not and `attention_fn` is the way.
        treats: What it is meant against: "dispersion", "sinks", "sparsity", "stability", "speed", in any number;
            "reference" for what others are compared with.
        reads: What of the row a weight depends on beside its own logit: what a kernel would have to know.
        source: Key in the book's bibliography.
    """

    function: Callable
    streams: str
    treats: tuple[str, ...]
    reads: str
    source: str


# In the order of chapter 9.
VARIANTS = MappingProxyType(
    {
        "softmax": Variant(
            jax.nn.softmax, "one pass", ("reference",), "maximum and normaliser", "vaswani2017attention"
        ),
        "hard": Variant(hard, "dense", ("reference",), "which key is largest", "hahn2020theoretical"),
        "adaptive_temperature_softmax": Variant(
            adaptive_temperature_softmax,
            "two passes",
            ("dispersion",),
            "entropy, then normaliser",
            "velickovic2025softmax",
        ),
        "log_length_softmax": Variant(
            log_length_softmax, "query-side", ("dispersion",), "count and normaliser", "chiang2022overcoming"
        ),
        "scalable_softmax": Variant(
            scalable_softmax, "query-side", ("dispersion",), "count and normaliser", "nakanishi2025scalable"
        ),
        "yarn_softmax": Variant(yarn_softmax, "query-side", ("dispersion",), "normaliser", "peng2024yarn"),
        "llama4_softmax": Variant(
            llama4_softmax, "query-side", ("dispersion",), "count and normaliser", "meta2025llama4"
        ),
        "sink_softmax": Variant(sink_softmax, "one pass", ("sinks",), "maximum and normaliser", "openai2025gptoss"),
        "sparsemax": Variant(
            sparsemax, "dense", ("sparsity", "dispersion"), "threshold, several passes", "martins2016softmax"
        ),
        "entmax15": Variant(
            entmax15, "dense", ("sparsity", "dispersion"), "threshold, several passes", "peters2019sparse"
        ),
        "top_k": Variant(top_k, "dense", ("sparsity", "dispersion"), "the k largest keys", "gupta2021memory"),
        "softpick": Variant(
            softpick, "dense", ("sinks", "sparsity", "stability"), "maximum and normaliser", "zuhri2025softpick"
        ),
        "sigmoid": Variant(sigmoid, "dense", ("sinks", "stability"), "count", "ramapuram2025theory"),
        "relu": Variant(relu, "dense", ("speed",), "count", "wortsman2023replacing"),
        "stick_breaking": Variant(
            stick_breaking, "dense", ("dispersion",), "every later key, in order", "tan2025scaling"
        ),
    }
)

"""Other normalisers than softmax: from a row of logits to a row of weights, each shaped like `jax.nn.softmax`.

All take `axis` and `where`, compute in at least float32, round once, give 0 and gradient 0 at keys that take no part
and in rows without keys, and keep a NaN behind the mask from everything. `VARIANTS` lists them with what each is meant
against, how it streams and where it comes from. Those that stream run through `dot_product_attention`, by its
temperature or its sink; the others are dense, and `attention_fn` makes attention of them.

Each idea lives in a file of `adatemp._variants`; this one only names them.
"""

from __future__ import annotations

from adatemp._variants.attention import attention_fn
from adatemp._variants.elementwise import relu, sigmoid
from adatemp._variants.entmax import entmax15, sparsemax
from adatemp._variants.length import llama4_softmax, log_length_softmax, scalable_softmax, yarn_softmax
from adatemp._variants.selection import hard, top_k
from adatemp._variants.sink import sink_softmax
from adatemp._variants.softpick import softpick
from adatemp._variants.stick_breaking import stick_breaking
from adatemp._variants.table import VARIANTS, Variant

__all__ = [
    "VARIANTS",
    "Variant",
    "attention_fn",
    "entmax15",
    "hard",
    "llama4_softmax",
    "log_length_softmax",
    "relu",
    "scalable_softmax",
    "sigmoid",
    "sink_softmax",
    "softpick",
    "sparsemax",
    "stick_breaking",
    "top_k",
    "yarn_softmax",
]

"""What the GPU kernels share: the static form of a call, tiles of arrays, which keys a tile sees, logits of a tile.

Logits stand in the kernels as t = log2(e) (z - m), with m the largest live logit of the row, so that exp2(t) is
exp(z - m). The difference is taken before anything is scaled: between neighbouring floats it is exact, so a common
offset of the row's logits costs no digits, and no finite bias overflows. Triton rounds products and sums apart, so
this costs no more than the other order. Where the logits are multiples of the products alone ("direct"), z = scale x,
they stay x, m is the largest x, and the scale waits until after the difference.

A tile that every query of a block sees whole is computed without any mask. The tiles at an edge (of the causal
triangle, a window, the lengths), and all tiles when there is a mask, a bias or segments, select before they
exponentiate, read 0 for whatever lies outside the arrays or is not finite, and so let nothing hidden through.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

from adatemp.attention._tile import padded_width

LOG2_E = math.log2(math.e)
LN_2 = math.log(2.0)
LOWEST = float(jnp.finfo(jnp.float32).min)

# Where t is cut: past the underflow of exp2, and with a square that is finite in float32.
LOWEST_DIFFERENCE = -1e15

# What stands for the logarithm of an empty sum: exp2(t - EMPTY) is 0 for every t, and no live row comes near.
EMPTY = 1e30


@dataclasses.dataclass(frozen=True)
class Form:
    """Everything about a call that chooses code: shapes, masks, precision.

    Attributes:
        batch, queries, keys, heads, key_heads: B, T, S, N, K.
        width, value_width: H and V; V is 0 without values.
        scale, is_causal, window, soft_cap: As in `Problem`.
        bias, mask: Shapes, or None.
        present: Names of the other optional arrays of the problem that are there.
        precision: Of every product, as `lax.dot_general` takes it.
        compensated: Whether sums over tiles are compensated.
        interpret: Whether the kernels run in the interpreter.
    """

    batch: int
    queries: int
    keys: int
    heads: int
    key_heads: int
    width: int
    value_width: int
    scale: float
    is_causal: bool
    window: tuple[int, int] | None
    soft_cap: float | None
    bias: tuple[int, ...] | None
    mask: tuple[int, ...] | None
    present: frozenset[str]
    precision: object
    compensated: bool
    interpret: bool

    @property
    def group(self) -> int:
        """Query heads that read one key head."""
        return self.heads // self.key_heads

    @property
    def direct(self) -> bool:
        """Whether logits are positive multiples of the products, and not computed from them any further."""
        return self.bias is None and self.soft_cap is None and self.scale > 0

    @property
    def factor(self) -> float:
        """A tile's logits, times this, are in units of log 2."""
        return LOG2_E * self.scale if self.direct else LOG2_E

    @property
    def unit(self) -> float:
        """A row's state m, times this, is in nats."""
        return self.scale if self.direct else 1.0

    @property
    def masks_elements(self) -> bool:
        """Whether any tile may have a hole, so that none can be known to be seen whole."""
        return self.bias is not None or self.mask is not None or "query_segments" in self.present

    @property
    def padded(self) -> int:
        """Head width in a tile, a power of two."""
        return padded_width(self.width)

    @property
    def value_padded(self) -> int:
        """Value width in a tile."""
        return padded_width(self.value_width)


def index(length: int):
    """0 to length - 1, as int32 whatever the precision mode."""
    return lax.iota(jnp.int32, length)


def load(view, shape: tuple[int, ...], *conditions, fill=0):
    """A tile of a reference; `fill` where a condition (broadcastable to the shape, or None) does not hold."""
    conditions = [jnp.broadcast_to(c, shape) for c in conditions if c is not None]
    if not conditions:
        return pltriton.load(view)
    mask = conditions[0]
    for condition in conditions[1:]:
        mask = mask & condition
    return pltriton.load(view, mask=mask, other=fill)


def load_vectors(ref, where: tuple, length: int, width: int, rows_exist):
    """[length, padded width] of vectors: 0 beyond their width, and in rows that do not exist."""
    padded = padded_width(width)
    columns = None if width == padded else (index(padded) < width)[None, :]
    rows = None if rows_exist is None else rows_exist[:, None]
    return load(ref.at[(*where, slice(None))], (length, padded), rows, columns)


def store(view, tile, *conditions):
    """Writes a tile where every condition (or None) holds."""
    conditions = [jnp.broadcast_to(c, tile.shape) for c in conditions if c is not None]
    mask = None
    for condition in conditions:
        mask = condition if mask is None else mask & condition
    pltriton.store(view, tile, mask=mask)


def load_pairs(ref, heads: tuple, queries, keys, shape: tuple[int, int], exists_q, exists_k):
    """A tile of the bias or the mask, whose axes may have length 1: something that broadcasts to `shape`.

    `queries` and `keys` say where to read: a slice, or None where the array's axis has length 1.
    """
    per_query, per_key, first = queries is not None, keys is not None, jnp.int32(0)
    view = ref.at[(*heads, queries if per_query else first, keys if per_key else first)]
    if not per_query and not per_key:
        return pltriton.load(view)
    if per_query and per_key:
        q = None if exists_q is None else exists_q[:, None]
        k = None if exists_k is None else exists_k[None, :]
        return load(view, shape, q, k)
    if per_query:
        return load(view, shape[:1], exists_q)[:, None]
    return load(view, shape[1:], exists_k)[None, :]


class Pairs(NamedTuple):
    """What a tile's masks are made of; None where there is none. Vectors of queries and of keys, and tiles."""

    standing: jax.Array
    index: jax.Array
    exists_q: jax.Array | None
    exists_k: jax.Array | None
    segments_q: jax.Array | None
    segments_k: jax.Array | None
    mask: jax.Array | None
    bias: jax.Array | None


def along(vector, axis: int):
    """A vector as a column (axis 0) or a row (axis 1) of a tile."""
    return vector[:, None] if axis == 0 else vector[None, :]


def visible(form: Form, pairs: Pairs, rows: int):
    """Which keys take part in which rows; the queries run along axis `rows` of the tile."""
    i, s = along(pairs.standing, rows), along(pairs.index, 1 - rows)
    shape = jnp.broadcast_shapes(i.shape, s.shape)
    turned = (lambda tile: tile) if rows == 0 else jnp.transpose
    conditions = []
    if form.is_causal:
        conditions.append(s <= i)
    if form.window is not None:
        before, after = form.window
        conditions += [s >= i - before, s <= i + after]
    if pairs.exists_q is not None:
        conditions.append(along(pairs.exists_q, rows))
    if pairs.exists_k is not None:
        conditions.append(along(pairs.exists_k, 1 - rows))
    if pairs.segments_q is not None:
        conditions.append(along(pairs.segments_q, rows) == along(pairs.segments_k, 1 - rows))
    if pairs.mask is not None:
        mask = turned(pairs.mask)
        conditions.append(mask if mask.dtype == jnp.bool_ else mask != 0)
    if pairs.bias is not None:
        conditions.append(turned(pairs.bias) != -jnp.inf)
    seen = jnp.ones(shape, jnp.bool_)
    for condition in conditions:
        seen = seen & jnp.broadcast_to(condition, shape)
    return seen


def dot(form: Form, a, b, contract: tuple[int, int] = (1, 0)):
    """A matrix product that accumulates in float32."""
    return lax.dot_general(
        a, b, (((contract[0],), (contract[1],)), ((), ())), precision=form.precision, preferred_element_type=jnp.float32
    )


def logits(form: Form, q, k, bias, rows: int):
    """Logits of a tile, direct or in nats, queries along axis `rows`, and the slope of the soft cap (None without)."""
    x = dot(form, q, k, (1, 1)) if rows == 0 else dot(form, k, q, (1, 1))
    if form.direct:
        return x, None
    x, slope = x * form.scale, None
    if form.soft_cap is not None:
        tanh = jnp.tanh(x / form.soft_cap)
        x, slope = form.soft_cap * tanh, 1.0 - tanh * tanh
    if bias is not None:
        x = x + (bias if rows == 0 else jnp.transpose(bias)).astype(jnp.float32)
    return x, slope


def hide(x, seen):
    """Logits with -inf at the keys that take no part; all are seen where `seen` is None."""
    return x if seen is None else jnp.where(seen, x, -jnp.inf)


def difference(form: Form, m, m_new):
    """log2(e) (m - m') of two row states; the first is the lowest float while no live logit has been seen."""
    d = (m - m_new) * form.factor
    return jnp.where(d < LOWEST_DIFFERENCE, LOWEST_DIFFERENCE, d)


def shifted(form: Form, x, m, seen):
    """t = log2(e) (z - m), m given along its axis. A selection cuts it: on a GPU a maximum would drop a NaN."""
    t = (x - m) * form.factor
    return t if seen is None else jnp.where(t < LOWEST_DIFFERENCE, LOWEST_DIFFERENCE, t)


def is_finite(tile):
    """Which numbers of a tile are finite: those whose exponent has a bit that is 0. Without widening them."""
    exponent, integer = {
        jnp.dtype(jnp.float16): (0x7C00, jnp.int16),
        jnp.dtype(jnp.bfloat16): (0x7F80, jnp.int16),
        jnp.dtype(jnp.float32): (0x7F800000, jnp.int32),
    }[jnp.dtype(tile.dtype)]
    return (lax.bitcast_convert_type(tile, integer) & exponent) != exponent


def finite(tile):
    """A tile with 0 for what is not finite, so that a weight of 0 hides it in a product."""
    return jnp.where(is_finite(tile), tile, jnp.zeros_like(tile))


class Sections(NamedTuple):
    """Blocks to visit, from low to high: those up to `full_low` and from `full_high` on are at an edge."""

    low: jax.Array
    full_low: jax.Array
    full_high: jax.Array
    high: jax.Array


def sections(form: Form, block: int, low, high, full_low, full_high) -> Sections:
    """Blocks that cover [low, high), of which [full_low, full_high) needs no mask; all four are indices of elements."""
    low, high, full_low, full_high = (
        jnp.maximum(jnp.asarray(x, jnp.int32), 0) for x in (low, high, full_low, full_high)
    )
    size = jnp.int32(block)
    first, last = lax.div(low, size), lax.div(high + (block - 1), size)
    last = jnp.maximum(first, last)
    if form.masks_elements:
        return Sections(first, last, last, last)
    start = jnp.clip(lax.div(full_low + (block - 1), size), first, last)
    return Sections(first, start, jnp.clip(lax.div(full_high, size), start, last), last)


def visit(parts: Sections, body, carry, *, edge_low: bool, full: bool, edge_high: bool):
    """Runs body(block, carry, edge) over the blocks, in the parts that can have any."""
    if edge_low:
        carry = lax.fori_loop(parts.low, parts.full_low, lambda j, c: body(j, c, True), carry)
    if full:
        carry = lax.fori_loop(parts.full_low, parts.full_high, lambda j, c: body(j, c, False), carry)
    if edge_high:
        carry = lax.fori_loop(parts.full_high, parts.high, lambda j, c: body(j, c, True), carry)
    return carry


def add(total, error, term, compensated: bool):
    """total - error plus a term, again as a total and the error of its rounding (Kahan)."""
    if not compensated:
        return total + term, error
    term = term - error
    new = total + term
    return new, (new - total) - term


class Operands:
    """Arrays of a kernel by name, with the blocks it reads of them."""

    def __init__(self):
        self.names, self.arrays, self.specs = [], [], []

    def add(self, name: str, array, block: tuple, where) -> None:
        """An array, the shape of its block, and the function from grid indices to the block's index."""
        self.names.append(name)
        self.arrays.append(array)
        self.specs.append(pl.BlockSpec(block, where))

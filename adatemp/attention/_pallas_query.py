"""The grid of the kernels that own a block of queries and walk over the keys: its operands and what a program loads."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from adatemp.attention._pallas_tiles import (
    Form,
    Operands,
    Pairs,
    Sections,
    hide,
    index,
    load,
    load_pairs,
    load_vectors,
    logits,
    sections,
    store,
    visible,
    visit,
)
from adatemp.attention._tile import Tile


def grid(form: Form, tile: Tile) -> tuple[int, int, int]:
    """Blocks of queries, heads, batch."""
    return (pl.cdiv(form.queries, tile.block_q), form.heads, form.batch)


def block_of(form: Form, tile: Tile, i):
    """The block of queries that program i owns: under a causal mask the longest first, so that none is left to last."""
    return grid(form, tile)[0] - 1 - i if form.is_causal else i


def operands(form: Form, tile: Tile, arrays: dict) -> Operands:
    """The problem's arrays, by their names in `Problem`, as a program of this grid reads them."""
    found = Operands()
    queries = lambda i, h, b: (b, block_of(form, tile, i), h, 0)  # noqa: E731
    keys = lambda i, h, b: (b, 0, h // form.group, 0)  # noqa: E731
    found.add("query", arrays["query"], (None, tile.block_q, None, form.padded), queries)
    found.add("key", arrays["key"], (None, form.keys, None, form.padded), keys)
    if form.value_width:
        found.add("value", arrays["value"], (None, form.keys, None, form.value_padded), keys)
    for name in ("bias", "mask"):
        shape = getattr(form, name)
        if shape is not None:
            block = (None, None, tile.block_q if shape[2] > 1 else 1, shape[3])
            found.add(name, arrays[name], block, _pair_index(form, tile, shape))
    if "sink" in form.present:
        found.add("sink", arrays["sink"], (1,), lambda i, h, b: (h,))
    for name in ("query_lengths", "key_lengths", "query_offset"):
        if name in form.present:
            found.add(name, arrays[name], (1,), lambda i, h, b: (b,))
    for name in ("query_segments", "query_positions"):
        if name in form.present:
            found.add(name, arrays[name], (None, tile.block_q), lambda i, h, b: (b, block_of(form, tile, i)))
    if "key_segments" in form.present:
        found.add("key_segments", arrays["key_segments"], (None, form.keys), lambda i, h, b: (b, 0))
    return found


def _pair_index(form: Form, tile: Tile, shape: tuple[int, ...]):
    def where(i, h, b):
        return (b if shape[0] > 1 else 0, h if shape[1] > 1 else 0, block_of(form, tile, i) if shape[2] > 1 else 0, 0)

    return where


def row_block(form: Form, tile: Tile):
    """(block, index) of an array of rows [B, N, T]."""
    return (None, None, tile.block_q), lambda i, h, b: (b, h, block_of(form, tile, i))


class Program(NamedTuple):
    """What one program knows before it looks at a key."""

    form: Form
    tile: Tile
    refs: dict
    standing: jax.Array  # positions of the queries among the keys
    exists: jax.Array | None  # which queries exist; None when all do
    keys_end: jax.Array  # keys from here on take no part
    parts: Sections
    query: jax.Array
    in_array: jax.Array | None  # which queries lie in the array, dead or not; None when all do

    def visit(self, body, carry):
        """body(first key, carry, edge) over the blocks of keys that the queries see."""
        form, tile = self.form, self.tile
        whole = not form.masks_elements
        ragged = form.is_causal or "key_lengths" in form.present or form.keys % tile.block_k != 0
        return visit(
            self.parts,
            lambda j, c, edge: body(j * tile.block_k, c, edge),
            carry,
            edge_low=form.masks_elements or form.window is not None,
            full=whole,
            edge_high=whole and (ragged or form.window is not None),
        )

    def keys(self, first, edge: bool):
        """(index, existence) of a tile's keys; existence is None for a tile seen whole."""
        s = first + index(self.tile.block_k)
        return s, (s < self.keys_end) if edge else None

    def load_keys(self, first, exists):
        """A tile of keys."""
        return load_vectors(
            self.refs["key"], (pl.ds(first, self.tile.block_k),), self.tile.block_k, self.form.width, exists
        )

    def load_values(self, first, exists):
        """A tile of values."""
        return load_vectors(
            self.refs["value"], (pl.ds(first, self.tile.block_k),), self.tile.block_k, self.form.value_width, exists
        )

    def store_vectors(self, ref, vectors, width: int):
        """Writes a vector for every query of the array."""
        rows = None if self.in_array is None else self.in_array[:, None]
        padded = vectors.shape[1]
        columns = None if width == padded else (index(padded) < width)[None, :]
        store(ref, vectors.astype(ref.dtype), rows, columns)

    def seen(self, first, edge: bool):
        """(bias, which keys take part in which rows); the second is None for a tile seen whole."""
        form, tile, refs = self.form, self.tile, self.refs
        if not edge:
            return None, None
        s, exists = self.keys(first, edge)
        shape = (tile.block_q, tile.block_k)
        pairs = {}
        for name in ("bias", "mask"):
            lengths = getattr(form, name)
            if lengths is not None:
                queries = slice(None) if lengths[2] > 1 else None
                keys = pl.ds(first, tile.block_k) if lengths[3] > 1 else None
                pairs[name] = load_pairs(refs[name], (), queries, keys, shape, self.exists, exists)
        segments = (None, None)
        if "query_segments" in form.present:
            segments = (
                load(refs["query_segments"], (tile.block_q,), self.exists),
                load(refs["key_segments"].at[pl.ds(first, tile.block_k)], (tile.block_k,), exists),
            )
        mask, bias = pairs.get("mask"), pairs.get("bias")
        found = Pairs(self.standing, s, self.exists, exists, *segments, mask, bias)
        return bias, visible(form, found, rows=0)

    def logits(self, first, edge: bool):
        """(keys, logits with hidden ones at -inf, slope of the soft cap, which are seen) of a tile."""
        bias, seen = self.seen(first, edge)
        k = self.load_keys(first, self.keys(first, edge)[1])
        x, slope = logits(self.form, self.query, k, bias, rows=0)
        return k, hide(x, seen), slope, seen


def program(form: Form, tile: Tile, refs: dict) -> Program:
    """Loads the block of queries and finds the range of keys it sees."""
    start = block_of(form, tile, pl.program_id(0)) * tile.block_q
    queries_end, keys_end = jnp.int32(form.queries), jnp.int32(form.keys)
    if "query_lengths" in form.present:
        queries_end = jnp.minimum(refs["query_lengths"][0], queries_end)
    if "key_lengths" in form.present:
        keys_end = jnp.minimum(refs["key_lengths"][0], keys_end)
    offset = refs["query_offset"][0] if "query_offset" in form.present else jnp.int32(0)

    t = start + index(tile.block_q)
    ragged = form.queries % tile.block_q or "query_lengths" in form.present
    exists = t < queries_end if ragged else None
    in_array = t < form.queries if form.queries % tile.block_q else None
    first, last = offset + start, offset + jnp.minimum(start + tile.block_q, queries_end) - 1
    low, high, full_low, full_high = jnp.int32(0), keys_end, jnp.int32(0), keys_end
    if form.is_causal:
        high, full_high = jnp.minimum(high, last + 1), jnp.minimum(full_high, first + 1)
    if form.window is not None:
        before, after = form.window
        low, full_low = first - before, last - before
        high, full_high = jnp.minimum(high, last + after + 1), jnp.minimum(full_high, first + after + 1)
    high = jnp.where(start < queries_end, high, 0)
    parts = sections(form, tile.block_k, low, high, full_low, full_high)
    query = load_vectors(refs["query"], (slice(None),), tile.block_q, form.width, exists)
    return Program(form, tile, refs, offset + t, exists, keys_end, parts, query, in_array)

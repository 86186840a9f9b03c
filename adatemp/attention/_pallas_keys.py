"""The grid of the kernel that owns a block of keys and walks over the queries of every head that reads them.

A tile can lie on its side, keys down and queries across: then the sums over queries, dk and dv, are products of tiles
as they are. Upright, a thread holds the numbers of fewer rows. `configs` says which GPU takes which.
"""

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
    visible,
    visit,
)
from adatemp.attention._tile import Tile


def grid(form: Form, tile: Tile) -> tuple[int, int, int]:
    """Blocks of keys, key heads, batch. Under a causal mask the first block is the longest already."""
    return (pl.cdiv(form.keys, tile.block_k), form.key_heads, form.batch)


def operands(form: Form, tile: Tile, arrays: dict) -> Operands:
    """The problem's arrays, by their names in `Problem`, and "d_output", as a program of this grid reads them."""
    found = Operands()
    queries = lambda j, h, b: (b, 0, h, 0)  # noqa: E731
    keys = lambda j, h, b: (b, j, h, 0)  # noqa: E731
    found.add("query", arrays["query"], (None, form.queries, form.group, form.padded), queries)
    found.add("key", arrays["key"], (None, tile.block_k, None, form.padded), keys)
    if "d_output" in arrays:
        found.add("d_output", arrays["d_output"], (None, form.queries, form.group, form.value_padded), queries)
        found.add("value", arrays["value"], (None, tile.block_k, None, form.value_padded), keys)
    for name in ("bias", "mask"):
        shape = getattr(form, name)
        if shape is not None:
            heads = form.group if shape[1] > 1 else 1
            block = (None, heads, shape[2], tile.block_k if shape[3] > 1 else 1)
            found.add(name, arrays[name], block, _pair_index(shape))
    for name in ("query_lengths", "key_lengths", "query_offset"):
        if name in form.present:
            found.add(name, arrays[name], (1,), lambda j, h, b: (b,))
    if "query_segments" in form.present:
        found.add("query_segments", arrays["query_segments"], (None, form.queries), lambda j, h, b: (b, 0))
        found.add("key_segments", arrays["key_segments"], (None, tile.block_k), lambda j, h, b: (b, j))
    return found


def _pair_index(shape: tuple[int, ...]):
    def where(j, h, b):
        return (b if shape[0] > 1 else 0, h if shape[1] > 1 else 0, 0, j if shape[3] > 1 else 0)

    return where


class Program(NamedTuple):
    """What one program knows before it looks at a query."""

    form: Form
    tile: Tile
    refs: dict
    index: jax.Array  # of the keys
    exists: jax.Array | None  # which keys take part; None when all do
    offset: jax.Array
    queries_end: jax.Array  # queries from here on are dead
    parts: Sections
    key: jax.Array
    value: jax.Array | None
    rows: int  # axis of a tile along which the queries run

    def visit(self, body, carry):
        """body(first query, carry, edge) over the blocks of queries that see the keys."""
        form, tile = self.form, self.tile
        whole = not form.masks_elements
        ragged = form.window is not None or "query_lengths" in form.present or form.queries % tile.block_q != 0
        return visit(
            self.parts,
            lambda j, c, edge: body(j * tile.block_q, c, edge),
            carry,
            edge_low=form.masks_elements or form.is_causal or form.window is not None,
            full=whole,
            edge_high=whole and ragged,
        )

    def queries(self, first, edge: bool):
        """(index, existence) of a tile's queries; existence is None for a tile seen whole."""
        t = first + index(self.tile.block_q)
        return t, (t < self.queries_end) if edge else None

    def logits(self, member, first, edge: bool):
        """(queries, logits with hidden ones at -inf, slope of the soft cap, which are seen) of a tile of a head."""
        form, tile, refs = self.form, self.tile, self.refs
        t, exists = self.queries(first, edge)
        where = (pl.ds(first, tile.block_q), member)
        q = load_vectors(refs["query"], where, tile.block_q, form.width, exists)
        if not edge:
            x, slope = logits(form, q, self.key, None, rows=self.rows)
            return q, x, slope, None
        shape = (tile.block_q, tile.block_k)
        pairs = {}
        for name in ("bias", "mask"):
            lengths = getattr(form, name)
            if lengths is not None:
                queries = pl.ds(first, tile.block_q) if lengths[2] > 1 else None
                keys = slice(None) if lengths[3] > 1 else None
                heads = (member if lengths[1] > 1 else jnp.int32(0),)
                pairs[name] = load_pairs(refs[name], heads, queries, keys, shape, exists, self.exists)
        segments = (None, None)
        if "query_segments" in form.present:
            segments = (
                load(refs["query_segments"].at[pl.ds(first, tile.block_q)], (tile.block_q,), exists),
                load(refs["key_segments"], (tile.block_k,), self.exists),
            )
        mask, bias = pairs.get("mask"), pairs.get("bias")
        found = Pairs(self.offset + t, self.index, exists, self.exists, *segments, mask, bias)
        seen = visible(form, found, rows=self.rows)
        x, slope = logits(form, q, self.key, bias, rows=self.rows)
        return q, hide(x, seen), slope, seen


def program(form: Form, tile: Tile, refs: dict, rows: int) -> Program:
    """Loads the block of keys and finds the range of queries that see it."""
    start = pl.program_id(0) * tile.block_k
    queries_end, keys_end = jnp.int32(form.queries), jnp.int32(form.keys)
    if "query_lengths" in form.present:
        queries_end = jnp.minimum(refs["query_lengths"][0], queries_end)
    if "key_lengths" in form.present:
        keys_end = jnp.minimum(refs["key_lengths"][0], keys_end)
    offset = refs["query_offset"][0] if "query_offset" in form.present else jnp.int32(0)

    s = start + index(tile.block_k)
    ragged = form.keys % tile.block_k or "key_lengths" in form.present
    exists = s < keys_end if ragged else None
    last = jnp.minimum(start + tile.block_k, keys_end) - 1
    low, high, full_low, full_high = jnp.int32(0), queries_end, jnp.int32(0), queries_end
    if form.is_causal:
        low, full_low = start - offset, last - offset
    if form.window is not None:
        before, after = form.window
        low = jnp.maximum(low, start - after - offset)
        full_low = jnp.maximum(full_low, last - after - offset)
        high = jnp.minimum(high, last + before - offset + 1)
        full_high = jnp.minimum(full_high, start + before - offset + 1)
    high = jnp.where(start < keys_end, high, 0)
    parts = sections(form, tile.block_q, low, high, full_low, full_high)
    key = load_vectors(refs["key"], (slice(None),), tile.block_k, form.width, exists)
    value = None
    if "value" in refs:
        value = load_vectors(refs["value"], (slice(None),), tile.block_k, form.value_width, exists)
    return Program(form, tile, refs, s, exists, offset, queries_end, parts, key, value, rows)

"""The two backward kernels: dq of a block of queries, dk and dv of a block of keys. Nothing n by n is kept.

Logits, weights and the gradient of the logits are computed again, tile by tile, from a few float32 numbers a row. With
p = exp2(t - log_l) the plain weights, a = exp2(beta t - log_total) the tempered ones and t as in `_pallas_tiles`:

    w  = a (dO . v - D),              D = dO . o - dL2, with dL2 the cotangent of lse_scaled
    dz = beta w + p (c0 + c1 t + c2 t^2)

The bracket after p is dL - gH (z - mu) + gV ((z - mu)^2 + 2 (z - mu) - V), multiplied out about the row's maximum: its
c's are rows (`bracket` makes them). It needs gH and gV, and these need the derivative by beta,

    dbeta = sum (z - m) w + base,

a sum over the whole row. Two ways to get it before it is needed:

- "deferred": when beta of a row depends on that row alone, gH = dH + dbeta beta'(H), so the dq kernel sums what dbeta
  multiplies in a second accumulator, and adds the two when dbeta is known. Eight products in all, with the dk kernel.
- otherwise the dq kernel runs once for dbeta alone, the rule is differentiated outside, and then it runs for dq.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

from adatemp._compat import quiet_triton
from adatemp.attention import _pallas_keys as key_grid
from adatemp.attention import _pallas_query as query_grid
from adatemp.attention._pallas_tiles import (
    LN_2,
    Form,
    along,
    dot,
    finite,
    load,
    load_vectors,
    shifted,
    store,
)
from adatemp.attention._tile import Tile


@dataclasses.dataclass(frozen=True)
class Reads:
    """Which parts of the backward kernels are compiled.

    Attributes:
        beta: Whether rows have a beta; else it is 1.
        output: Whether the output has a cotangent; else w = a (dL2) alone.
        tempered: Whether anything reads w.
        plain: Order of the polynomial after p (0 for a constant), or None where it is 0.
        same: Whether p and a are the same numbers.
        dbeta: Whether the dq kernel sums dbeta.
        deferred: Order of the polynomial that dbeta multiplies, or None where there is none.
    """

    beta: bool
    output: bool
    tempered: bool
    plain: int | None
    same: bool
    dbeta: bool
    deferred: int | None


def bracket(d_lse, g_entropy, g_variance, mean, variance):
    """Rows (c0, c1, c2) with c0 + c1 t + c2 t^2 = dL - gH (z - mu) + gV ((z - mu)^2 + 2 (z - mu) - V).

    Args:
        d_lse, g_entropy, g_variance: dL, gH and gV; any may be None for 0.
        mean: Mean of t under the plain weights.
        variance: Variance of z in nats; read with g_variance only.

    Returns:
        As many rows as the polynomial has coefficients; none when it is 0.
    """
    mu = LN_2 * mean  # of z - m
    rows = []
    if d_lse is not None:
        rows = [d_lse]
    if g_entropy is not None:
        rows = [g_entropy * mu + (rows[0] if rows else 0.0), -LN_2 * g_entropy]
    if g_variance is not None:
        rows += [jnp.zeros_like(mu)] * (2 - len(rows))
        rows[0] = rows[0] + g_variance * (mu * mu - 2.0 * mu - variance)
        rows[1] = rows[1] + (2.0 * LN_2) * g_variance * (1.0 - mu)
        rows.append(LN_2**2 * g_variance)
    return tuple(rows)


def _evaluate(coefficients, t):
    value = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = value * t + coefficient
    return jnp.broadcast_to(value, t.shape)


class _Rows:
    """The rows of a block of queries that the backward pass reads, laid along an axis of the tile."""

    def __init__(self, refs: dict, reads: Reads, where, length: int, exists, axis: int):
        one = lambda name: along(load(refs[name].at[where], (length,), exists), axis)  # noqa: E731
        polynomial = lambda name, order: None if order is None else [one(f"{name}{n}") for n in range(order + 1)]  # noqa: E731
        self.m = one("m")
        self.beta = one("beta") if reads.beta else None
        self.log_total = one("log_total") if reads.tempered else None
        self.log_l = one("log_l") if "log_l" in refs else None
        self.D = one("D") if reads.tempered else None
        self.plain = polynomial("c", reads.plain)
        self.deferred = polynomial("d", reads.deferred)


def _gradients(form: Form, reads: Reads, rows: _Rows, x, slope, seen, dp):
    """(t, a, w, gradient of the product times scale, what dbeta multiplies in it) of a tile; None for what is not read.

    A selection at the end keeps out whatever a hidden pair computed, NaN of its slope included.
    """
    t = shifted(form, x, rows.m, seen)
    a = p = w = second = None
    if reads.tempered:
        a = jnp.exp2((t if rows.beta is None else rows.beta * t) - rows.log_total)
        w = a * (-rows.D if dp is None else dp - rows.D)
    if reads.plain is not None or reads.deferred is not None:
        p = a if reads.same else jnp.exp2(t - rows.log_l)
    dz = None
    if w is not None:
        dz = w if rows.beta is None else rows.beta * w
    if reads.plain is not None:
        first = p * _evaluate(rows.plain, t)
        dz = first if dz is None else dz + first
    if reads.deferred is not None:
        second = p * _evaluate(rows.deferred, t)
    if slope is not None:
        dz = None if dz is None else dz * slope
        second = None if second is None else second * slope
    if seen is not None:
        hide = lambda y: None if y is None else jnp.where(seen, y, 0.0)  # noqa: E731
        a, w, dz, second = hide(a), hide(w), hide(dz), hide(second)
    return t, a, w, dz, second


def _row_names(reads: Reads) -> list[str]:
    names = ["m"]
    if reads.beta:
        names.append("beta")
    if reads.tempered:
        names += ["log_total", "D"]
    if not reads.same and (reads.plain is not None or reads.deferred is not None):
        names.append("log_l")
    for name, order in (("c", reads.plain), ("d", reads.deferred)):
        names += [] if order is None else [f"{name}{n}" for n in range(order + 1)]
    return names


def query_gradient(form: Form, tile: Tile, reads: Reads, arrays: dict, rows: dict, *, with_dq: bool) -> dict:
    """Runs the dq kernel.

    Args:
        form: The call.
        tile: Sizes.
        reads: Which parts run.
        arrays: The problem's arrays by name, and "d_output" where the output has a cotangent.
        rows: Rows [B, N, T] by name, as `_row_names` lists them; with `reads.dbeta` "base" too.
        with_dq: Whether dq is computed, or dbeta alone.

    Returns:
        "dq" [B, T, N, H] and "dbeta" [B, N, T], those asked for.
    """
    found = query_grid.operands(form, tile, arrays)
    block, where = query_grid.row_block(form, tile)
    if reads.output:
        spec = (None, tile.block_q, None, form.value_padded)
        vectors = lambda i, h, b: (b, query_grid.block_of(form, tile, i), h, 0)  # noqa: E731
        found.add("d_output", arrays["d_output"], spec, vectors)
    for name in [*_row_names(reads), *(["base"] if reads.dbeta else [])]:
        found.add(name, rows[name], block, where)
    outputs, specs = {}, []
    if with_dq:
        outputs["dq"] = jax.ShapeDtypeStruct(arrays["query"].shape, arrays["query"].dtype)
        spec = (None, tile.block_q, None, form.padded)
        specs.append(pl.BlockSpec(spec, lambda i, h, b: (b, query_grid.block_of(form, tile, i), h, 0)))
    if reads.dbeta:
        outputs["dbeta"] = jax.ShapeDtypeStruct((form.batch, form.heads, form.queries), jnp.float32)
        specs.append(pl.BlockSpec(block, where))
    call = pl.pallas_call(
        partial(
            adatemp_dq,
            form=form,
            tile=tile,
            reads=reads,
            with_dq=with_dq,
            names=(*found.names, *(f"{name}_out" for name in outputs)),
        ),
        out_shape=tuple(outputs.values()),
        grid=query_grid.grid(form, tile),
        in_specs=found.specs,
        out_specs=tuple(specs),
        interpret=form.interpret,
        name="adatemp_dq",
        compiler_params=pltriton.CompilerParams(num_warps=tile.num_warps, num_stages=tile.num_stages),
    )
    quiet_triton()
    return dict(zip(outputs, call(*found.arrays)))


def adatemp_dq(*references, form: Form, tile: Tile, reads: Reads, with_dq: bool, names: tuple[str, ...]):
    """The kernel of a block of queries: over its keys it sums dq [block_q, H] and dbeta [block_q], in float32."""
    refs = dict(zip(names, references))
    program = query_grid.program(form, tile, refs)
    exists = program.exists
    rows = _Rows(refs, reads, slice(None), tile.block_q, exists, axis=0)
    d_output = None
    if reads.output:
        d_output = load_vectors(refs["d_output"], (slice(None),), tile.block_q, form.value_width, exists)

    def body(first, carry, edge):
        dq, second_dq, dbeta = carry
        k, x, slope, seen = program.logits(first, edge)
        dp = None
        if reads.output:
            v = program.load_values(first, program.keys(first, edge)[1])
            dp = dot(form, d_output, v, (1, 1))
        t, _, w, dz, second = _gradients(form, reads, rows, x, slope, seen, dp)
        if reads.dbeta:
            dbeta = dbeta + jnp.sum(w * t, 1)
        if with_dq:
            k = k if seen is None else finite(k)
            dq = dq if dz is None else dq + dot(form, dz.astype(k.dtype), k)
            if second is not None:
                second_dq = second_dq + dot(form, second.astype(k.dtype), k)
        return dq, second_dq, dbeta

    vectors = jnp.zeros((tile.block_q, form.padded), jnp.float32)
    sums = jnp.zeros((tile.block_q,), jnp.float32)
    start = (
        vectors if with_dq else None,
        vectors if with_dq and reads.deferred is not None else None,
        sums if reads.dbeta else None,
    )
    dq, second_dq, dbeta = program.visit(body, start)
    if reads.dbeta:
        dbeta = LN_2 * dbeta + load(refs["base"], (tile.block_q,), exists)
        store(refs["dbeta_out"], dbeta, program.in_array)
    if with_dq:
        dq = dq if second_dq is None else dq + dbeta[:, None] * second_dq
        program.store_vectors(refs["dq_out"], form.scale * dq, form.width)


def key_gradient(form: Form, tile: Tile, turned: bool, reads: Reads, arrays: dict, rows: dict) -> dict:
    """Runs the dk and dv kernel; arguments as for `query_gradient`, and `turned`: whether tiles lie on their side.

    Returns:
        "dk" [B, S, K, H] and, where the output has a cotangent, "dv" [B, S, K, V], summed in float32 over the query
        heads that read a key head.
    """
    found = key_grid.operands(form, tile, arrays)
    for name in _row_names(reads):
        found.add(name, rows[name], (None, form.group, form.queries), lambda j, h, b: (b, h, 0))
    outputs, specs = {"dk": jax.ShapeDtypeStruct(arrays["key"].shape, arrays["key"].dtype)}, []
    specs.append(pl.BlockSpec((None, tile.block_k, None, form.padded), lambda j, h, b: (b, j, h, 0)))
    if reads.output:
        outputs["dv"] = jax.ShapeDtypeStruct(arrays["value"].shape, arrays["value"].dtype)
        specs.append(pl.BlockSpec((None, tile.block_k, None, form.value_padded), lambda j, h, b: (b, j, h, 0)))
    names = (*found.names, *(f"{name}_out" for name in outputs))
    call = pl.pallas_call(
        partial(adatemp_dkv, form=form, tile=tile, turned=turned, reads=reads, names=names),
        out_shape=tuple(outputs.values()),
        grid=key_grid.grid(form, tile),
        in_specs=found.specs,
        out_specs=tuple(specs),
        interpret=form.interpret,
        name="adatemp_dkv",
        compiler_params=pltriton.CompilerParams(num_warps=tile.num_warps, num_stages=tile.num_stages),
    )
    quiet_triton()
    return dict(zip(outputs, call(*found.arrays)))


def adatemp_dkv(*references, form: Form, tile: Tile, turned: bool, reads: Reads, names: tuple[str, ...]):
    """The kernel of a block of keys: over all queries that read them it sums dk [block_k, H] and dv [block_k, V].

    No other program adds to these, so there are no atomics and two runs give the same bits.
    """
    refs = dict(zip(names, references))
    rows_axis = 1 if turned else 0
    contract = (rows_axis, 0)  # over the queries
    program = key_grid.program(form, tile, refs, rows_axis)

    def head(member, carry):
        def body(first, carry, edge):
            dk, dv = carry
            exists = program.queries(first, edge)[1]
            q, x, slope, seen = program.logits(member, first, edge)
            rows = _Rows(refs, reads, (member, pl.ds(first, tile.block_q)), tile.block_q, exists, axis=rows_axis)
            dp = None
            if reads.output:
                where = (pl.ds(first, tile.block_q), member)
                d_output = load_vectors(refs["d_output"], where, tile.block_q, form.value_width, exists)
                left, right = (program.value, d_output) if turned else (d_output, program.value)
                dp = dot(form, left, right, (1, 1))
            _, a, _, dz, _ = _gradients(form, reads, rows, x, slope, seen, dp)
            if reads.output:
                d_output = d_output if seen is None else finite(d_output)
                dv = dv + dot(form, a.astype(d_output.dtype), d_output, contract)
            if dz is not None:
                q = q if seen is None else finite(q)
                dk = dk + dot(form, dz.astype(q.dtype), q, contract)
            return dk, dv

        return program.visit(body, carry)

    dk = jnp.zeros((tile.block_k, form.padded), jnp.float32)
    dv = jnp.zeros((tile.block_k, form.value_padded), jnp.float32) if reads.output else None
    carry = (dk, dv)
    carry = head(jnp.int32(0), carry) if form.group == 1 else lax.fori_loop(0, form.group, head, carry)
    gradients = dict(zip(("dk", "dv"), carry))
    widths = {"dk": (form.width, form.padded), "dv": (form.value_width, form.value_padded)}
    start = pl.program_id(0) * tile.block_k
    s = start + lax.iota(jnp.int32, tile.block_k)
    for name, gradient in gradients.items():
        if gradient is None:
            continue
        if program.exists is not None:
            gradient = jnp.where(program.exists[:, None], gradient, 0.0)
        gradient = form.scale * gradient if name == "dk" else gradient
        width, padded = widths[name]
        columns = None if width == padded else (lax.iota(jnp.int32, padded) < width)[None, :]
        inside = None if form.keys % tile.block_k == 0 else (s < form.keys)[:, None]
        out = refs[f"{name}_out"]
        store(out, gradient.astype(out.dtype), inside, columns)

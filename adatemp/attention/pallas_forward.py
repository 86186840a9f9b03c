"""The forward kernel: statistics of a block of rows, their beta, then their output, in one launch.

One kernel body with two loops over the keys. The first carries the row state (m, l, s, and q and the count where a
rule reads them), the second the weighted sum of values. Its largest logit is beta m, known before it starts, so it
has no running maximum and never rescales what it has summed.

Which parts are compiled is a `Plan`:

    statistics            the first loop; without an output that is all (entropy alone)
    output "fixed"        the second loop, with beta from the rule inside the kernel or given as an array of rows
    output "online"       one loop with a running maximum, for rules that read neither entropy nor variance when nobody
                          asks for statistics, and for no rule at all: plain flash attention

Rows are written as m, log_l = log2 l, mean = s / l (of t, in units of log 2), variance (of t), count, beta, and
log_total = log2 sum exp2(beta t), the sink's share included; m is kept apart so that nothing loses digits. Dead rows
have m = 0, mean = 0, beta = 1 and log_l = log_total = EMPTY.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

from adatemp._compat import quiet_triton
from adatemp._rule import RowStatistics
from adatemp.attention import _pallas_query as query_grid
from adatemp.attention._pallas_tiles import (
    EMPTY,
    LN_2,
    LOG2_E,
    LOWEST,
    Form,
    add,
    difference,
    dot,
    finite,
    is_finite,
    load,
    shifted,
    store,
)
from adatemp.attention._tile import Tile


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which parts of the kernel are compiled.

    Attributes:
        statistics: Whether the row state is computed in a loop of its own.
        output: None, "fixed" or "online".
        entropy: Whether an online loop carries s too, for the entropy of its rows.
        second_moment: Whether the first loop carries q, for the variance.
        count: Whether keys are counted.
        rule: Structure of the rule that is evaluated in the kernel, or None.
        given: Whether m and beta are given as rows.
        rows: Names of the rows that are written.
    """

    statistics: bool = False
    output: str | None = None
    entropy: bool = False
    second_moment: bool = False
    count: bool = False
    rule: jax.tree_util.PyTreeDef | None = None
    given: bool = False
    rows: tuple[str, ...] = ()


class State(NamedTuple):
    """The row state of a block of rows and the rounding errors of its sums; None for what is not carried."""

    m: jax.Array
    l: jax.Array
    l_error: jax.Array
    s: jax.Array | None = None
    s_error: jax.Array | None = None
    q: jax.Array | None = None
    q_error: jax.Array | None = None
    count: jax.Array | None = None


def forward(form: Form, tile: Tile, plan: Plan, arrays: dict, rows: dict, parameters) -> dict:
    """Runs the kernel.

    Args:
        form: The call.
        tile: Sizes.
        plan: Which parts run.
        arrays: The problem's arrays by name.
        rows: m and beta [B, N, T] where the plan has them given.
        parameters: [leaves, N]: the leaves of the rule in the kernel, or None.

    Returns:
        By name: "output" [B, T, N, V] where the plan has one, and the rows it names, [B, N, T] each.
    """
    found = query_grid.operands(form, tile, arrays)
    block, where = query_grid.row_block(form, tile)
    for name, array in rows.items():
        found.add(name, array, block, where)
    if parameters is not None:
        found.add("parameters", parameters, (parameters.shape[0], 1), lambda i, h, b: (0, h))
    outputs, specs = {}, []
    if plan.output and form.value_width:
        shape = (form.batch, form.queries, form.heads, form.value_width)
        outputs["output"] = jax.ShapeDtypeStruct(shape, arrays["value"].dtype)
        spec = (None, tile.block_q, None, form.value_padded)
        specs.append(pl.BlockSpec(spec, lambda i, h, b: (b, query_grid.block_of(form, tile, i), h, 0)))
    for name in plan.rows:
        dtype = jnp.int32 if name == "count" else jnp.float32
        outputs[name] = jax.ShapeDtypeStruct((form.batch, form.heads, form.queries), dtype)
        specs.append(pl.BlockSpec(block, where))
    call = pl.pallas_call(
        partial(
            adatemp_forward, form=form, tile=tile, plan=plan, names=(*found.names, *(f"{name}_out" for name in outputs))
        ),
        out_shape=tuple(outputs.values()),
        grid=query_grid.grid(form, tile),
        in_specs=found.specs,
        out_specs=tuple(specs),
        interpret=form.interpret,
        name="adatemp_forward",
        compiler_params=pltriton.CompilerParams(num_warps=tile.num_warps, num_stages=tile.num_stages),
    )
    quiet_triton()
    return dict(zip(outputs, call(*found.arrays)))


def adatemp_forward(*references, form: Form, tile: Tile, plan: Plan, names: tuple[str, ...]):
    """The kernel; its name is what profilers and dumps show."""
    refs = dict(zip(names, references))
    program = query_grid.program(form, tile, refs)
    rows = {}
    if plan.statistics:
        rows = _finish(program, _statistics(program, plan))
    elif plan.given:
        rows = {"m": load(refs["m"], (tile.block_q,), program.exists)}
    beta = _beta(program, plan, rows)
    if plan.output:
        weigh = _fixed if plan.output == "fixed" else _online
        accumulated, total, rows = weigh(program, plan, rows, beta)
        dead = _dead(program, total)
        scale, rows["log_total"] = _normaliser(program, rows["m"], beta, total, dead)
        rows["m"] = jnp.where(dead, 0.0, rows["m"])
        rows["beta"] = jnp.ones_like(total) if beta is None else jnp.where(dead, 1.0, beta)
        if accumulated is not None:
            output = jnp.where(dead[:, None], 0.0, accumulated * scale[:, None])
            program.store_vectors(refs["output_out"], output, form.value_width)
    elif plan.count and not plan.statistics:
        rows["count"] = _count(program)
    # Rows past a length are dead and are written like all; only what is past the array is not.
    for name in plan.rows:
        store(refs[f"{name}_out"], rows[name], program.in_array)


def _dead(program: query_grid.Program, total):
    """Rows without live keys: nothing was summed, or the query is past its length."""
    return total == 0 if program.exists is None else (total == 0) | ~program.exists


def _empty(program: query_grid.Program, *, s: bool, q: bool, count: bool) -> State:
    zero = jnp.zeros((program.tile.block_q,), jnp.float32)
    moments = {name: zero for name, asked in (("s", s), ("q", q)) if asked}
    errors = {f"{name}_error": zero for name in moments}
    n = jnp.zeros((program.tile.block_q,), jnp.int32) if count else None
    return State(jnp.full_like(zero, LOWEST), zero, zero, count=n, **moments, **errors)


def _update(program: query_grid.Program, state: State, x, seen, beta=None):
    """The row state after a tile, its exponentials, and the factor that what was summed before must shrink by.

    With d = log2(e) (m - m'), the old sums move to the new maximum by expanding (t + d) and (t + d)^2.
    """
    form = program.form
    m = jnp.maximum(state.m, jnp.max(x, 1))
    d = difference(form, state.m, m)
    t = shifted(form, x, m[:, None], seen)
    if beta is not None:
        d, t = beta * d, beta[:, None] * t
    shrink, e = jnp.exp2(d), jnp.exp2(t)
    plus = partial(add, compensated=form.compensated)
    l, l_error = plus(shrink * state.l, shrink * state.l_error, jnp.sum(e, 1))
    s, s_error, q, q_error, count = state.s, state.s_error, state.q, state.q_error, state.count
    if q is not None:
        moved = shrink * (q + d * (2.0 * s + d * state.l))
        error = shrink * (q_error + d * (2.0 * s_error + d * state.l_error))
        q, q_error = plus(moved, error, jnp.sum(e * t * t, 1))
    if s is not None:
        moved, error = shrink * (s + d * state.l), shrink * (s_error + d * state.l_error)
        s, s_error = plus(moved, error, jnp.sum(e * t, 1))
    if count is not None:
        count = count + (program.tile.block_k if seen is None else jnp.sum(seen.astype(jnp.int32), 1))
    return State(m, l, l_error, s, s_error, q, q_error, count), e, shrink


def _statistics(program: query_grid.Program, plan: Plan) -> State:
    """The first loop: the row state alone."""

    def body(first, state, edge):
        _, x, _, seen = program.logits(first, edge)
        return _update(program, state, x, seen)[0]

    return program.visit(body, _empty(program, s=True, q=plan.second_moment, count=plan.count))


def _finish(program: query_grid.Program, state: State) -> dict:
    """Rows that a state says."""
    dead = _dead(program, state.l)
    l = jnp.where(dead, 1.0, state.l)
    log_l, mean = jnp.log2(l), jnp.where(dead, 0.0, state.s / l)
    rows = {"m": jnp.where(dead, 0.0, state.m), "log_l": jnp.where(dead, EMPTY, log_l), "mean": mean}
    entropy = LN_2 * (log_l - mean)
    rows["entropy"] = jnp.where(entropy < 0, 0.0, entropy)
    if state.q is not None:
        variance = state.q / l - mean * mean
        rows["variance"] = jnp.where(dead | (variance < 0), 0.0, variance)
    if state.count is not None:
        rows["count"] = jnp.where(dead, 0, state.count)
    return rows


def _beta(program: query_grid.Program, plan: Plan, rows: dict):
    """beta of the rows, or None for 1: given, or by the rule from what is known of them."""
    form, tile, refs = program.form, program.tile, program.refs
    if plan.given:
        return load(refs["beta"], (tile.block_q,), program.exists)
    if plan.rule is None:
        return None
    leaves = [refs["parameters"][n, 0] for n in range(plan.rule.num_leaves)]
    rule = jax.tree_util.tree_unflatten(plan.rule, leaves)
    known = {"entropy": rows.get("entropy")}
    if "variance" in rule.needs:
        known["variance"] = rows["variance"] * LN_2**2
    if "count" in rule.needs:
        known["count"] = rows["count"] if plan.statistics else _count(program)
    if "position" in rule.needs:
        there = "query_positions" in form.present
        known["position"] = (
            load(refs["query_positions"], (tile.block_q,), program.exists) if there else program.standing
        )
    beta = rule.beta(RowStatistics(**{name: known[name] for name in rule.needs}))
    beta = jnp.broadcast_to(jnp.asarray(beta, jnp.float32), (tile.block_q,))
    return jnp.where(rows["log_l"] >= EMPTY, 1.0, beta) if plan.statistics else beta


def _count(program: query_grid.Program):
    """Number of live keys of each row, from the masks alone."""
    form = program.form
    if not form.masks_elements:
        i = program.standing
        low, high = jnp.zeros_like(i), jnp.broadcast_to(program.keys_end, i.shape)
        if form.is_causal:
            high = jnp.minimum(high, i + 1)
        if form.window is not None:
            low, high = jnp.maximum(low, i - form.window[0]), jnp.minimum(high, i + form.window[1] + 1)
        return jnp.maximum(high - low, 0)

    def body(first, count, edge):
        return count + jnp.sum(program.seen(first, edge)[1].astype(jnp.int32), 1)

    return program.visit(body, jnp.zeros((program.tile.block_q,), jnp.int32))


def _weighted_values(program: query_grid.Program, first, e, seen):
    """e times the values of a tile. A value that is not finite reaches the rows that see it and no other."""
    v = program.load_values(first, program.keys(first, seen is not None)[1])
    if seen is not None:
        bad = jnp.max((~is_finite(v)).astype(jnp.int32), 1) > 0
        v, e = finite(v), jnp.where(seen & bad[None, :], jnp.nan, e)
    return dot(program.form, e.astype(v.dtype), v)


def _fixed(program: query_grid.Program, plan: Plan, rows: dict, beta):
    """The second loop: the largest logit is known, nothing is rescaled."""
    form = program.form

    def body(first, carry, edge):
        accumulated, total, error = carry
        _, x, _, seen = program.logits(first, edge)
        t = shifted(form, x, rows["m"][:, None], seen)
        e = jnp.exp2(t if beta is None else beta[:, None] * t)
        total, error = add(total, error, jnp.sum(e, 1), form.compensated)
        if accumulated is not None:
            accumulated = accumulated + _weighted_values(program, first, e, seen)
        return accumulated, total, error

    zero = jnp.zeros((program.tile.block_q,), jnp.float32)
    shape = (program.tile.block_q, form.value_padded)
    accumulated = jnp.zeros(shape, jnp.float32) if form.value_width else None
    accumulated, total, _ = program.visit(body, (accumulated, zero, zero))
    return accumulated, total, rows


def _online(program: query_grid.Program, plan: Plan, rows: dict, beta):
    """Plain flash attention: one loop, a running maximum."""

    def body(first, carry, edge):
        accumulated, state = carry
        _, x, _, seen = program.logits(first, edge)
        state, e, shrink = _update(program, state, x, seen, beta)
        return accumulated * shrink[:, None] + _weighted_values(program, first, e, seen), state

    accumulated = jnp.zeros((program.tile.block_q, program.form.value_padded), jnp.float32)
    accumulated, state = program.visit(body, (accumulated, _empty(program, s=plan.entropy, q=False, count=False)))
    if plan.entropy:
        return accumulated, state.l, _finish(program, state)
    return accumulated, state.l, {"m": state.m}


def _normaliser(program: query_grid.Program, m, beta, total, dead):
    """(factor of the sums of values, log2 of the whole normaliser relative to beta m); the sink joins here."""
    total = jnp.where(dead, 1.0, total)
    if "sink" not in program.form.present:
        return 1.0 / total, jnp.where(dead, EMPTY, jnp.log2(total))
    unit = program.form.unit * LOG2_E
    scaled = m if beta is None else beta * m
    sink = program.refs["sink"][0].astype(jnp.float32) * LOG2_E - scaled * unit
    top = jnp.maximum(sink, 0.0)
    total = total * jnp.exp2(-top) + jnp.exp2(sink - top)
    return jnp.exp2(-top) / total, jnp.where(dead, EMPTY, top + jnp.log2(total))

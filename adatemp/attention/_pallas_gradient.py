"""The gradient of attention from the rows the forward kernel saved: which kernels run, and what XLA does between."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from adatemp._attention_stats import AttentionStats
from adatemp.attention import _pallas_rule as in_kernel
from adatemp.attention._pallas_tiles import EMPTY, LOG2_E
from adatemp.attention._problem import STATIC, Problem
from adatemp.attention.pallas_backward import Reads, bracket, key_gradient, query_gradient


def gradients(call, floats: dict, others: dict, output, rows: dict, d_output, d_rows, perturbed: dict) -> dict:
    """Cotangents of `floats`, None where there is none.

    Args:
        call: The static description.
        floats, others: Arrays of the call by name; the rule's leaves under "leaves".
        output: What the forward pass returned, or None.
        rows: What its kernels wrote, [B, N, T].
        d_output: Cotangent of the output, or None for 0.
        d_rows: Of (entropy, beta, lse, lse_scaled), [B, T, N] or None.
        perturbed: Which of `floats` a gradient is asked for.
    """
    form, arrays = call.form, floats | others
    rule = None if call.rule is None else jax.tree.unflatten(call.rule, floats["leaves"])
    dead = rows["log_total"] >= EMPTY

    def by_row(x):  # [B, T, N] to [B, N, T]; whatever comes back to a dead row goes nowhere
        return None if x is None else jnp.where(dead, 0.0, jnp.swapaxes(x, 1, 2).astype(jnp.float32))

    d_entropy, d_beta, d_lse, d_lse_scaled = map(by_row, d_rows)
    found = dict.fromkeys(floats) | {"leaves": None}
    D = None if d_lse_scaled is None else -d_lse_scaled
    if d_output is not None:
        delta = by_row(jnp.sum(d_output.astype(jnp.float32) * output.astype(jnp.float32), -1))
        D = delta if D is None else delta + D
        arrays["d_output"] = d_output

    reads_row = rule is not None and rule.differentiate and bool(rule.needs & {"entropy", "variance"})
    wants_dbeta = rule is not None and (reads_row or any(perturbed["leaves"])) and not (D is None and d_beta is None)
    rows = dict(rows) | {"D": D}
    # Dead rows: a maximum of 0 and sums of EMPTY give weights of 0.
    same = rule is None and "sink" not in form.present
    reads = Reads(
        beta=rule is not None,
        output=d_output is not None,
        tempered=D is not None,
        plain=None,
        same=same and D is not None,
        dbeta=wants_dbeta and D is not None,
        deferred=None,
    )
    sink_share = None
    if "sink" in form.present and D is not None:
        unit = form.unit * LOG2_E
        scaled = rows["m"] * rows["beta"] if rule is not None else rows["m"]
        sink_share = jnp.exp2(floats["sink"].astype(jnp.float32)[:, None] * LOG2_E - scaled * unit - rows["log_total"])
        if perturbed["sink"]:
            found["sink"] = jnp.sum(-sink_share * D, (0, 2)).astype(floats["sink"].dtype)

    dbeta = None
    if wants_dbeta:
        dbeta = _base(form, rows, d_beta, d_lse_scaled, sink_share)
    derivatives = (None, None)
    if reads.dbeta:
        rows["base"] = dbeta
        if reads_row and call.fused and perturbed["query"]:
            derivatives = _row_derivatives(call, rule, arrays, rows)
    deferred = bracket(None, *derivatives, rows.get("mean"), _variance(rows)) if derivatives != (None, None) else ()
    dq_kernel = partial(query_gradient, form, call.kernels.dq, arrays=arrays)

    def with_plain(reads, g_entropy, g_variance):
        plain = bracket(d_lse, g_entropy, g_variance, rows.get("mean", jnp.zeros_like(rows["m"])), _variance(rows))
        named = rows | {f"c{n}": row for n, row in enumerate(plain)}
        return replace(reads, plain=len(plain) - 1 if plain else None), named

    if deferred:
        now, named = with_plain(replace(reads, deferred=len(deferred) - 1), d_entropy, None)
        named |= {f"d{n}": row for n, row in enumerate(deferred)}
        done = dq_kernel(now, rows=named, with_dq=True)
        found["query"], dbeta = done["dq"], done["dbeta"]
    elif reads.dbeta and (reads_row or not perturbed["query"]):
        dbeta = dq_kernel(reads, rows=rows, with_dq=False)["dbeta"]

    g_entropy, g_variance = d_entropy, None
    if dbeta is not None and (reads_row or not reads.dbeta or not perturbed["query"]):
        found["leaves"], g_entropy, g_variance = _through_rule(call, rule, floats, arrays, rows, dbeta, d_entropy)
    now, named = with_plain(reads, g_entropy, g_variance)
    if perturbed["query"] and not deferred and (D is not None or now.plain is not None):
        now_q = replace(now, dbeta=reads.dbeta and not reads_row)
        done = dq_kernel(now_q, rows=named, with_dq=True)
        found["query"] = done["dq"]
        if now_q.dbeta:
            found["leaves"], _, _ = _through_rule(call, rule, floats, arrays, rows, done["dbeta"], d_entropy)
    wants_keys = perturbed["key"] or (perturbed["value"] and d_output is not None)
    if wants_keys and (D is not None or now.plain is not None):
        now_k = replace(now, dbeta=False)
        done = key_gradient(form, call.kernels.dkv, call.kernels.turned, now_k, arrays, named)
        found["key"], found["value"] = done["dk"], done.get("dv")
    if perturbed["bias"] is True:
        found["bias"] = _bias_gradient(call, floats, others, d_output, d_rows)
    return found


def _variance(rows: dict):
    return rows["variance"] * (1 / LOG2_E) ** 2 if "variance" in rows else 0.0


def _base(form, rows: dict, d_beta, d_lse_scaled, sink_share):
    """dB + m sum w: what dbeta is but for the sum of (z - m) w. The weights w sum to dL2 but for the sink's share."""
    base = jnp.zeros_like(rows["m"]) if d_beta is None else d_beta
    total = d_lse_scaled
    if sink_share is not None:
        share = sink_share * rows["D"]
        total = share if total is None else total + share
    return base if total is None else base + form.unit * rows["m"] * total


def _row_derivatives(call, rule, arrays: dict, rows: dict):
    """(d beta / d H, d beta / d V) [B, N, T] of a rule that treats rows one by one; None for what it does not read."""
    known = in_kernel.readable(call, arrays, rows, rule.needs)
    found = []
    for name in ("entropy", "variance"):
        if name not in rule.needs:
            found.append(None)
            continue
        beta = lambda x: in_kernel.beta_public(call, rule, known | {name: x})  # noqa: B023, E731
        slope = jax.jvp(beta, (known[name],), (jnp.ones_like(known[name]),))[1]
        found.append(jnp.where(rows["log_total"] >= EMPTY, 0.0, jnp.swapaxes(slope, 1, 2)))
    return tuple(found)


def _through_rule(call, rule, floats: dict, arrays: dict, rows: dict, dbeta, d_entropy):
    """(cotangents of the leaves, gH, gV) from dbeta [B, N, T], by differentiating the rule as it is."""
    known = in_kernel.readable(call, arrays, rows, rule.needs)
    moving = {name: known[name] for name in ("entropy", "variance") if name in known}

    def beta(leaves, moving):
        return in_kernel.beta_public(call, jax.tree.unflatten(call.rule, leaves), known | moving)

    dead = rows["log_total"] >= EMPTY
    d_leaves, d_moving = jax.vjp(beta, floats["leaves"], moving)[1](jnp.swapaxes(jnp.where(dead, 0.0, dbeta), 1, 2))
    if not rule.differentiate:
        return d_leaves, d_entropy, None
    d_moving = {name: jnp.where(dead, 0.0, jnp.swapaxes(x, 1, 2)) for name, x in d_moving.items()}
    if "entropy" in d_moving:
        d_entropy = d_moving["entropy"] if d_entropy is None else d_entropy + d_moving["entropy"]
    return d_leaves, d_entropy, d_moving.get("variance")


def _bias_gradient(call, floats: dict, others: dict, d_output, d_rows):
    """Gradient of the bias, by the chunked form: it has the bias's size, which is what these kernels avoid."""
    rule = None if call.rule is None else jax.tree.unflatten(call.rule, floats["leaves"])
    arrays = {name: x for name, x in (floats | others).items() if name != "leaves"}
    if arrays["mask"] is not None:
        arrays["mask"] = arrays["mask"].astype(jnp.bool_)
    problem = Problem(**arrays, **dict(zip(STATIC, call.static)))
    chunked = importlib.import_module("adatemp.attention.chunked")  # only here: the kernels do not depend on it
    run = partial(chunked.attend, rule=rule, with_output=call.with_output, with_stats=call.with_stats)
    result, pull = jax.vjp(lambda bias: run(problem.replace(bias=bias)), floats["bias"])
    zeros = jax.tree.map(jnp.zeros_like, result)
    output, stats = zeros
    output = output if d_output is None else d_output
    if stats is not None:
        fields = (stats.entropy, stats.beta, stats.lse, stats.lse_scaled)
        stats = AttentionStats(*(z if d is None else d for z, d in zip(fields, d_rows)), stats.range)
    return pull((output, stats))[0]

"""Attention on NVIDIA GPUs by kernels that stream over the keys: what runs when, and the gradient around the kernels.

Rules whose beta is simple arithmetic on the row and whose parameters are numbers or one value a head run inside the
forward kernel. Any other rule runs between two kernels, one for the statistics, one for the output. Rows that kernels
write and read are [B, N, T].
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp

from adatemp._attention_stats import AttentionStats
from adatemp.attention import _pallas_rule as in_kernel
from adatemp.attention._pallas_gradient import gradients
from adatemp.attention._pallas_tiles import EMPTY, LN_2, LOG2_E, Form
from adatemp.attention._problem import STATIC, Problem
from adatemp.attention.configs import Kernels, PallasConfig, products_precision, refusal_of_sizes, tiles
from adatemp.attention.pallas_forward import Plan, forward

_OPTIONAL = (
    "sink",
    "query_lengths",
    "key_lengths",
    "query_offset",
    "query_segments",
    "key_segments",
    "query_positions",
)
_FLOATS = ("query", "key", "value", "bias", "sink")


@dataclasses.dataclass(frozen=True)
class Call:
    """What chooses code in a call.

    Attributes:
        form: Of the kernels.
        kernels: Tiles.
        rule: Structure of the rule; None for plain softmax.
        fused: Whether the rule runs inside the kernel.
        with_output, with_stats: What is returned.
        static: The problem's static fields, for the gradient of a bias.
    """

    form: Form
    kernels: Kernels
    rule: jax.tree_util.PyTreeDef | None
    fused: bool
    with_output: bool
    with_stats: bool
    static: tuple


def attend(problem: Problem, rule, *, with_output: bool, with_stats: bool, config: PallasConfig | None = None):
    """Output [B, T, N, V] and statistics [B, T, N], in memory that grows with T + S; reverse mode only.

    Raises:
        NotImplementedError: A dtype, head width or rule that the kernels do not serve.
        ValueError: A config whose tiles do not fit.
    """
    config = config or PallasConfig()
    reason = _refusal(problem, rule)
    if reason is not None:
        raise NotImplementedError(f"pallas: {reason}")
    call, leaves = _call(problem, rule, with_output, with_stats, config)
    floats = {name: getattr(problem, name) for name in _FLOATS} | {"leaves": tuple(leaves)}
    if not with_output:
        floats["value"] = None
    others = {name: getattr(problem, name) for name in ("mask", *_OPTIONAL[1:])}
    if config.interpret and others["mask"] is not None:
        others["mask"] = others["mask"].astype(jnp.int8)  # the interpreter turns references to booleans into integers
    output, rows = _attend(call, floats, others)
    if not with_stats:
        return output, None
    return output, AttentionStats(*rows, None if rule is None else rule.range)


def refusal(problem: Problem, rule, config: PallasConfig | None, compute_capabilities) -> str | None:
    """Why the kernels cannot serve a call on these devices, or None.

    Args:
        problem: The call.
        rule: Its rule or None.
        config: Its config or None.
        compute_capabilities: Of every visible device; 0 for what is not a CUDA device.

    Raises:
        ValueError: The config's tiles do not fit the GPU's shared memory.
    """
    config = config or PallasConfig()
    if not config.interpret:
        lowest = min(compute_capabilities, default=0)
        if lowest == 0:
            return "no CUDA device; to run the kernels on a processor, slowly, give PallasConfig(interpret=True)"
        if lowest < 8.0:
            return (
                f"compute capability {lowest}: Triton needs 8.0 (Ampere) or newer, and a T4 has 7.5; "
                "implementation='chunked' runs everywhere"
            )
        capability = lowest
    else:
        capability = None
    reason = _refusal(problem, rule)
    if reason is None:
        value_width = 0 if problem.value is None else problem.value.shape[-1]
        tiles(config, problem.query.dtype, problem.query.shape[-1], value_width, capability)  # or a ValueError
    return reason


def _refusal(problem: Problem, rule) -> str | None:
    reason = refusal_of_sizes(problem)
    if reason is None and rule is not None and "row" in rule.needs:
        return f"temperature: rule {type(rule).__name__} reads the whole row, which a kernel that streams never has"
    return reason


def _call(problem: Problem, rule, with_output: bool, with_stats: bool, config: PallasConfig):
    """The static description of a call, and the rule's leaves as arrays."""
    B, T, S, N, K = problem.sizes
    value_width = problem.value.shape[-1] if with_output else 0
    form = Form(
        batch=B,
        queries=T,
        keys=S,
        heads=N,
        key_heads=K,
        width=problem.query.shape[-1],
        value_width=value_width,
        scale=float(problem.scale),
        is_causal=problem.is_causal,
        window=problem.window,
        soft_cap=problem.soft_cap,
        bias=None if problem.bias is None else problem.bias.shape,
        mask=None if problem.mask is None else problem.mask.shape,
        present=frozenset(name for name in _OPTIONAL if getattr(problem, name) is not None),
        precision=products_precision(problem.query.dtype, problem.precision, config.interpret),
        compensated=config.compensated,
        interpret=config.interpret,
    )
    kernels = tiles(config, problem.query.dtype, form.width, value_width)
    leaves, structure = jax.tree.flatten(rule)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    call = Call(
        form=form,
        kernels=kernels,
        rule=None if rule is None else structure,
        fused=rule is not None and in_kernel.fits(rule, N),
        with_output=with_output,
        with_stats=with_stats,
        static=tuple(getattr(problem, name) for name in STATIC),
    )
    return call, leaves


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(call: Call, floats: dict, others: dict):
    output, rows = _forward(call, floats, others, saved=False)
    return output, public(call, rows)


def _attend_forward(call: Call, floats: dict, others: dict):
    perturbed = jax.tree.map(lambda x: x.perturbed, floats, is_leaf=lambda x: hasattr(x, "perturbed"))
    floats, others = jax.tree.map(lambda x: x.value, (floats, others), is_leaf=lambda x: hasattr(x, "perturbed"))
    output, rows = _forward(call, floats, others, saved=True)
    flags, structure = jax.tree.flatten(perturbed)
    return (output, public(call, rows)), (floats, others, output, rows, _Static((tuple(flags), structure)))


def _attend_backward(call: Call, saved, cotangents):
    floats, others, output, rows, static = saved
    flags, structure = static.value
    perturbed = jax.tree.unflatten(structure, flags)
    zero = jax.custom_derivatives.SymbolicZero
    d_output, d_rows = jax.tree.map(
        lambda x: None if isinstance(x, zero) else x, cotangents, is_leaf=lambda x: isinstance(x, zero)
    )
    d_rows = (None,) * 4 if d_rows is None else d_rows
    found = gradients(call, floats, others, output, rows, d_output, d_rows, perturbed)
    return found, None


_attend.defvjp(_attend_forward, _attend_backward, symbolic_zeros=True)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Static:
    """A value that goes from the forward to the backward pass as part of the program's structure."""

    value: tuple


def public(call: Call, rows: dict):
    """(entropy, beta, lse, lse_scaled), [B, T, N] each, from the kernels' rows; None without statistics."""
    if not call.with_stats:
        return None
    dead = rows["log_l"] >= EMPTY
    beta = rows.get("beta", jnp.ones_like(rows["m"]))
    entropy = LN_2 * (rows["log_l"] - rows["mean"])
    entropy = jnp.where(dead | (entropy < 0), 0.0, entropy)
    m = call.form.unit * rows["m"]
    lse = jnp.where(dead, -jnp.inf, m + LN_2 * rows["log_l"])
    lse_scaled = jnp.where(dead, -jnp.inf, beta * m + LN_2 * rows["log_total"])
    return tuple(jnp.swapaxes(x, 1, 2) for x in (entropy, beta, lse, lse_scaled))


def _forward(call: Call, floats: dict, others: dict, saved: bool):
    """(output, rows): the kernels that the call takes. `saved`: whether the backward pass needs the rows."""
    form, tile, arrays = call.form, call.kernels.forward, floats | others
    run = partial(forward, form, tile)
    state = ("m", "log_l", "mean")
    if call.rule is None:
        if not call.with_output:
            rows = run(Plan(statistics=True, rows=state), arrays, {}, None)
            return None, rows | {"log_total": _with_sink(form, rows, arrays)}
        wanted = (*state, "log_total") if call.with_stats else ("m", "log_total") if saved else ()
        rows = run(Plan(output="online", entropy=call.with_stats, rows=wanted), arrays, {}, None)
        return rows.pop("output"), rows

    rule = jax.tree.unflatten(call.rule, floats["leaves"])
    streams = not rule.needs & {"entropy", "variance"} and not call.with_stats
    read = {"second_moment": "variance" in rule.needs, "count": "count" in rule.needs}
    known = tuple(name for name in ("variance", "count") if name in rule.needs)
    if call.fused and call.with_output:
        parameters = in_kernel.parameters(floats["leaves"], form.heads)
        if streams:
            wanted = ("m", "beta", "log_total") if saved else ()
            rows = run(Plan(output="online", rule=call.rule, rows=wanted), arrays, {}, parameters)
            rows |= _count(call, arrays) if saved and "count" in rule.needs else {}
        else:
            wanted = (*state, *known, "beta", "log_total") if saved or call.with_stats else ()
            plan = Plan(statistics=True, output="fixed", rule=call.rule, rows=wanted, **read)
            rows = run(plan, arrays, {}, parameters)
        return rows.pop("output"), rows

    rows = run(Plan(statistics=True, rows=(*state, *known), **read), arrays, {}, None)
    dead = rows["log_l"] >= EMPTY
    beta = jnp.where(dead, 1.0, in_kernel.beta_outside(call, rule, arrays, rows))
    rows["beta"] = beta
    plan = Plan(output="fixed", given=True, rows=("log_total",))
    second = run(plan, arrays, {"m": rows["m"], "beta": beta}, None)
    return second.get("output"), rows | {"log_total": second["log_total"]}


def _count(call: Call, arrays: dict) -> dict:
    """Keys of each row, for the derivative of a rule that reads them."""
    return forward(call.form, call.kernels.forward, Plan(rows=("count",), count=True), arrays, {}, None)


def _with_sink(form: Form, rows: dict, arrays: dict):
    """log_total of rows without a temperature, from their state."""
    if "sink" not in form.present:
        return rows["log_l"]
    unit = form.unit * LOG2_E
    sink = arrays["sink"].astype(jnp.float32)[:, None] * LOG2_E - rows["m"] * unit
    return jnp.where(rows["log_l"] >= EMPTY, EMPTY, jnp.logaddexp2(rows["log_l"], sink))

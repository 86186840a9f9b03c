"""Temperature rules and the kernels: which run inside one, their parameters as an array, their beta outside."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from adatemp._rule import RowStatistics, beta_of_rows
from adatemp.attention._pallas_tiles import EMPTY, LN_2
from adatemp.attention._rows import HOW

# Arithmetic on one row at a time that Triton has. A rule made of anything else runs outside, where XLA has all of it.
_SIMPLE = set(
    "abs add and broadcast_in_dim clamp convert_element_type copy custom_jvp_call div eq exp exp2 expm1 ge gt "
    "integer_pow jit le log log1p logistic lt max min mul ne neg not or pjit pow rsqrt select_n sign sqrt square "
    "stop_gradient sub tanh".split()
)
_ROWS = 16


def fits(rule, heads: int) -> bool:
    """Whether a rule of this library is simple arithmetic on one row, its parameters numbers or one value a head.

    Then beta of a row depends on that row alone, which the gradient makes use of. Nobody promises that of a class
    defined elsewhere.
    """
    leaves, structure = jax.tree.flatten(rule)
    if not type(rule).__module__.startswith("adatemp.") or not all(_a_head(leaf, heads) for leaf in leaves):
        return False
    rows = jax.ShapeDtypeStruct((_ROWS,), jnp.float32)
    counts = jax.ShapeDtypeStruct((_ROWS,), jnp.int32)
    stats = RowStatistics(
        **{name: counts if name in ("count", "position") else rows for name in rule.needs if name != "row"}
    )
    scalars = [jax.ShapeDtypeStruct((), jnp.float32)] * len(leaves)
    traced = jax.make_jaxpr(lambda leaves, stats: jax.tree.unflatten(structure, leaves).beta(stats))(scalars, stats)
    return not traced.consts and traced.out_avals[0].shape in ((), (_ROWS,)) and _is_simple(traced.jaxpr)


def _a_head(leaf, heads: int) -> bool:
    shape = jnp.shape(leaf)
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating) and (
        shape == () or (shape[-1] in (1, heads) and set(shape[:-1]) <= {1} and len(shape) <= 3)
    )


def _is_simple(jaxpr) -> bool:
    for equation in jaxpr.eqns:
        if equation.primitive.name not in _SIMPLE:
            return False
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", None)  # of a jit, or of a function with a derivative of its own
            if inner is not None and not _is_simple(inner):
                return False
    return True


def parameters(leaves, heads: int):
    """[leaves, N] of a rule that `fits`, or None when it has none."""
    if not leaves:
        return None
    flat = [jnp.broadcast_to(leaf.astype(jnp.float32).reshape(-1), (heads,)) for leaf in leaves]
    return jnp.stack(flat)


def readable(call, arrays: dict, rows: dict, needs) -> dict:
    """What the rule may read, [B, T, N], from the kernels' rows."""
    known = {}
    if "entropy" in needs:
        entropy = LN_2 * (rows["log_l"] - rows["mean"])
        known["entropy"] = jnp.where((rows["log_l"] >= EMPTY) | (entropy < 0), 0.0, entropy)
    if "variance" in needs:
        known["variance"] = rows["variance"] * LN_2**2
    if "count" in needs:
        known["count"] = rows["count"]
    known = {name: jnp.swapaxes(x, 1, 2) for name, x in known.items()}
    if "position" in needs:
        known["position"] = _positions(call, arrays)
    return known


def _positions(call, arrays: dict):
    form = call.form
    at = arrays["query_positions"]
    if at is None:
        at = jnp.arange(form.queries, dtype=jnp.int32)[None]
        if arrays["query_offset"] is not None:
            at = at + arrays["query_offset"][:, None]
    return jnp.broadcast_to(at[:, :, None], (form.batch, form.queries, form.heads))


def beta_public(call, rule, known: dict):
    """beta [B, T, N] of a rule from what it may read."""
    form = call.form
    return beta_of_rows(rule, known, (form.batch, form.queries, form.heads), jnp.float32, HOW)


def beta_outside(call, rule, arrays: dict, rows: dict):
    """beta [B, N, T] of a rule that does not run in the kernel; dead rows are not yet 1."""
    return jnp.swapaxes(beta_public(call, rule, readable(call, arrays, rows, rule.needs)), 1, 2)

"""Attention over several devices: batch and heads apart, and the keys of a sequence over devices that merge states.

Each device attends to its own batch items and heads without a word to the others. Where the keys are divided too, a
device knows part of each row: the devices exchange their row states once (one all-gather of a few numbers a row), each
then knows every row's beta, and the parts of the tempered output are added once (one all-reduce).
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, reshard

from adatemp._attention_stats import AttentionStats
from adatemp._polynomial import PAPER
from adatemp._row_state import RowState
from adatemp._rule import broadcasts, check_rule
from adatemp.attention._arguments import build_problem, check_flag
from adatemp.attention._key_blocks import beta_from_state, finish, key_state, merge_all, tempered_sums
from adatemp.attention._logits import live_logits, split
from adatemp.attention._problem import Problem
from adatemp.attention._query_blocks import hide_filling, map_query_blocks
from adatemp.attention.api import attend
from adatemp.attention.chunked import block_sizes

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from adatemp.temperature import TemperatureRule


def sharded_attention(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"],
    value: Float[Array, "B S K V"],
    bias=None,
    mask=None,
    *,
    mesh: Mesh,
    batch_axis: str | None = None,
    head_axis: str | None = None,
    key_axis: str | None = None,
    temperature: TemperatureRule | None = PAPER,
    return_stats: bool = False,
    implementation=None,
    config=None,
    **options,
) -> Float[Array, "B T N V"] | tuple[Float[Array, "B T N V"], AttentionStats]:
    """`dot_product_attention` over the devices of a mesh, in values and in gradients.

    Under plain `jit` a sharded call of a kernel gathers all its inputs on every device. Here each device is given its
    part: batch items along `batch_axis`, heads along `head_axis` (query heads with the key heads they read), keys and
    values along `key_axis`. Queries are not divided: with `key_axis`, every device has all of them.

    Args:
        query: As for `dot_product_attention`, with a batch axis; the whole arrays, placed anyhow.
        key: Likewise.
        value: Likewise.
        bias: Likewise.
        mask: Likewise.
        mesh: The devices.
        batch_axis: Name of the mesh's axis that divides the batch, or None.
        head_axis: Name of the mesh's axis that divides the heads, or None.
        key_axis: Name of the mesh's axis that divides the keys, or None. With it the devices run the chunked form.
        temperature: As for `dot_product_attention`; with `key_axis` not a rule that reads whole rows.
        return_stats: As for `dot_product_attention`.
        implementation: What each device runs; not with `key_axis`.
        config: Likewise.
        options: Every other argument of `dot_product_attention`, by name.

    Returns:
        As `dot_product_attention`, divided over `batch_axis` and `head_axis` and the same along `key_axis`.

    Raises:
        TypeError: A mesh that is none, an option that `dot_product_attention` does not have, and what that refuses.
        ValueError: An axis that the mesh does not have, is named twice, or does not divide its size.
        NotImplementedError: A rule that reads whole rows, or an implementation, together with `key_axis`.

    Example:
        >>> import jax
        >>> from adatemp.attention import sharded_attention
        >>> mesh = jax.make_mesh((1,), ("data",))
        >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 2, 16, 4, 8))
        >>> sharded_attention(query, key, value, mesh=mesh, batch_axis="data", is_causal=True).shape
        (2, 16, 4, 8)
    """
    if not isinstance(mesh, (Mesh, AbstractMesh)):
        raise TypeError(f'mesh must be a jax.sharding.Mesh, got {mesh!r}; make one with jax.make_mesh((4,), ("data",))')
    if value is None:
        raise TypeError("value must be an array, got None; the entropy alone is in the statistics of return_stats=True")
    unknown = sorted(set(options) - set(inspect.signature(build_problem).parameters))
    if unknown:
        raise TypeError(f"sharded_attention has no argument {', '.join(map(repr, unknown))}; see dot_product_attention")
    return_stats = check_flag("return_stats", return_stats)
    if temperature is not None:
        check_rule(temperature)
    problem, batched = build_problem(query, key, value, bias, mask, **options)
    if not batched:
        raise ValueError(
            f"query must have a batch axis, got shape {query.shape}; write query[None] and so for the others"
        )
    _check_axes(mesh, problem, batch_axis, head_axis, key_axis)
    if key_axis is None:
        body = partial(attend, implementation=implementation, config=config, with_output=True, with_stats=True)
    else:
        if temperature is not None and "row" in temperature.needs:
            raise NotImplementedError(
                f"temperature: rule {type(temperature).__name__} reads the whole row, which no device has with key_axis"
            )
        if implementation is not None or config is not None:
            raise NotImplementedError(
                "implementation and config cannot be chosen with key_axis, which has a form of its own; leave them out"
            )
        body = partial(_attend_part_of_keys, key_axis)
    specs = (
        _specs(problem, batch_axis, head_axis, key_axis),
        _rule_specs(problem, temperature, batch_axis, head_axis),
    )
    rows = PartitionSpec(batch_axis, None, head_axis)
    output, stats = jax.shard_map(
        body,
        mesh=mesh,
        in_specs=specs,
        out_specs=(PartitionSpec(batch_axis, None, head_axis, None), rows),
        check_vma=False,  # a Pallas call has no rule for it
    )(*_place((problem, temperature), specs, mesh))
    return (output, stats) if return_stats else output


def _place(arrays, specs, mesh: Mesh):
    """The arrays divided as the specs say. With automatic axes the compiler sees to it; explicit ones want it said."""
    if jax.sharding.AxisType.Explicit not in mesh.axis_types:
        return arrays

    def place(array, spec):
        sharding = NamedSharding(mesh, spec)
        return reshard(array, sharding) if isinstance(array, jax.core.Tracer) else jax.device_put(array, sharding)

    return jax.tree.map(place, arrays, specs)


def _attend_part_of_keys(axis: str, problem: Problem, rule) -> tuple[Array, AttentionStats]:
    """What one device does that has all queries and part of the keys."""
    B, T, S, N, _ = problem.sizes
    first = jax.lax.axis_index(axis) * S
    queries, keys = split(problem, first_key=first)
    block_q, _ = block_sizes(problem)
    queries = hide_filling(queries, block_q)
    second_moment = rule is not None and "variance" in rule.needs

    def state_of(block):
        return jax.tree.map(_queries_second, key_state(problem, block, keys, second_moment=second_moment))

    own = jax.tree.map(_queries_last, map_query_blocks(state_of, queries, T, block_q))
    state = merge_all(_gather(own, axis))
    beta = beta_from_state(rule, queries, state)

    def sums_of(block):
        queries, beta, m = block
        z = live_logits(problem, queries, keys)
        total, numerator = tempered_sums(problem, z, keys, _queries_last(beta), _queries_last(m))
        total = _queries_second(total)[..., None]  # [B, T, K, G, 1]
        return jnp.concatenate([numerator, total], -1)

    rows = (queries, _queries_second(beta), _queries_second(state.m))
    sums = jax.lax.psum(map_query_blocks(sums_of, rows, T, block_q), axis)
    numerator, total = sums[..., :-1], _queries_last(sums[..., -1])
    return finish(problem, rule, state, beta, (total, numerator), problem.value.dtype, True)


def _gather(state: RowState, axis: str) -> RowState:
    """The states of all devices along a new first axis, by one collective: the count travels as a float's bits."""
    dtype = state.m.dtype
    count = state.count if dtype == jnp.float32 else state.count.astype(jnp.int64)
    fields = [state.m, state.l, state.s, jax.lax.bitcast_convert_type(count, dtype)]
    fields += [] if state.q is None else [state.q]
    m, l, s, count, *q = jnp.moveaxis(jax.lax.all_gather(jnp.stack(fields), axis), 1, 0)
    count = jax.lax.bitcast_convert_type(count, jnp.int32 if dtype == jnp.float32 else jnp.int64)
    return RowState(jax.lax.stop_gradient(m), l, s, count.astype(jnp.int32), q[0] if q else None)


def _queries_second(rows):
    """[B, K, G, T] to [B, T, K, G]."""
    return jnp.moveaxis(rows, 3, 1)


def _queries_last(rows):
    """[B, T, K, G] to [B, K, G, T]."""
    return jnp.moveaxis(rows, 1, 3)


def _specs(problem: Problem, b, h, s) -> Problem:
    """How each array of the problem is divided; an axis of length 1 is not."""

    def spec(array, *names):
        if array is None:
            return None
        return PartitionSpec(*(name if size > 1 else None for name, size in zip(names, array.shape)))

    return problem.replace(
        query=PartitionSpec(b, None, h, None),
        key=PartitionSpec(b, s, h, None),
        value=PartitionSpec(b, s, h, None),
        bias=spec(problem.bias, b, h, None, s),
        mask=spec(problem.mask, b, h, None, s),
        sink=spec(problem.sink, h),
        query_lengths=spec(problem.query_lengths, b),
        key_lengths=spec(problem.key_lengths, b),
        query_offset=spec(problem.query_offset, b),
        query_segments=spec(problem.query_segments, b, None),
        key_segments=spec(problem.key_segments, b, s),
        query_positions=spec(problem.query_positions, b, None),
    )


def _rule_specs(problem: Problem, rule, b, h):
    """How the parameters of a rule, which broadcast against [B, T, N], are divided."""
    B, T, _, N, _ = problem.sizes

    def spec(leaf):
        shape = jnp.shape(leaf)
        if not broadcasts(shape, (B, T, N)):
            return PartitionSpec()
        names = (b, None, h)[3 - len(shape) :]
        return PartitionSpec(*(name if size > 1 else None for name, size in zip(names, shape)))

    return jax.tree.map(spec, rule)


def _check_axes(mesh, problem: Problem, batch_axis, head_axis, key_axis) -> None:
    B, _, S, _, K = problem.sizes
    given = {
        "batch_axis": (batch_axis, B, "batch"),
        "head_axis": (head_axis, K, "key heads"),
        "key_axis": (key_axis, S, "keys"),
    }
    given = {argument: rest for argument, rest in given.items() if rest[0] is not None}
    if not given:
        raise ValueError("name at least one of batch_axis, head_axis and key_axis; without any, nothing is divided")
    for argument, (name, size, what) in given.items():
        if name not in mesh.shape:
            raise ValueError(f"{argument} {name!r} is not an axis of the mesh, which has {dict(mesh.shape)}")
        if size % mesh.shape[name]:
            raise ValueError(
                f"{argument} {name!r} has {mesh.shape[name]} devices, which do not divide the {size} {what}; "
                f"make up the {what} to a multiple, or choose another axis"
            )
    names = [name for name, _, _ in given.values()]
    if len(set(names)) < len(names):
        raise ValueError(f"batch_axis, head_axis and key_axis must be different axes of the mesh, got {names}")

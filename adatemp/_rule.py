"""What a temperature rule is: the statistics it may read, the protocol it follows, how its parameters are checked."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int


class RowStatistics(NamedTuple):
    """What a rule may read of a row; only what its `needs` names is filled in.

    Attributes:
        count: Number of live keys.
        entropy: Entropy of the row's softmax, in nats.
        variance: Variance of the row's logits under its softmax.
        row: The row itself, its logits less their maximum, keys last; -1e15 at keys that take no part.
        position: Where the row's query stands in its sequence, from 0; attention alone has it.
    """

    count: Int[Array, "*rows"] | None = None
    entropy: Float[Array, "*rows"] | None = None
    variance: Float[Array, "*rows"] | None = None
    row: Float[Array, "*rows n"] | None = None
    position: Int[Array, "*rows"] | None = None


@runtime_checkable
class TemperatureRule(Protocol):
    """What a temperature rule offers. A rule is also a pytree, its parameters being the leaves.

    Attributes:
        needs: Which fields of `RowStatistics` it reads: a subset of {count, entropy, variance, row, position}. A rule
            that reads neither entropy nor variance costs no second pass over the row; one that reads the row cannot
            stream.
        differentiate: Whether gradients flow through the statistics into the logits. The gradient with respect to the
            rule's own parameters flows either way.
        range: The entropies (lowest, highest) in nats that the rule was made for, or None if it has no such range.
    """

    needs: frozenset[str]
    differentiate: bool
    range: tuple[float, float] | None

    def beta(self, stats: RowStatistics) -> Float[Array, "*rows"]:
        """The inverse temperature of each row, positive."""
        ...


def rule(*parameters: str):
    """Makes a class a rule: a frozen dataclass and pytree, the named fields its leaves and the others static.

    Nothing is checked when a rule is made this way, because JAX rebuilds pytrees around tracers, None and whatever
    else it likes. Constructors check.
    """

    def register(cls):
        cls = dataclasses.dataclass(frozen=True, eq=False, kw_only=True)(cls)
        static = [field.name for field in dataclasses.fields(cls) if field.name not in parameters]
        return jax.tree_util.register_dataclass(cls, data_fields=list(parameters), meta_fields=static)

    return register


def parameter(name: str, value, *, above: float | None = None, reason: str = ""):
    """A rule's parameter as a leaf, its value checked where it is known.

    A host number becomes a Python float: making a rule then starts no device, and the rule keeps all its digits until
    it meets a row, whose dtype it takes.
    """
    if not isinstance(value, (jax.Array, np.ndarray, np.generic, int, float)):
        raise TypeError(f"{name} must be a number or an array of numbers, got {value!r}")
    array = value if isinstance(value, jax.Array) else np.asarray(value)
    if array.dtype.kind in "iu":
        array = array.astype(np.float32 if isinstance(array, jax.Array) else np.float64)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} must be real, got dtype {array.dtype}")
    if is_concrete(array):
        numbers = np.asarray(array, np.float64)
        if not np.all(np.isfinite(numbers)):
            raise ValueError(f"{name} must be finite, got {numbers.tolist()}")
        if above is not None and not np.all(numbers > above):
            raise ValueError(f"{name} must be above {above:g}, got {numbers.tolist()}{reason and '; ' + reason}")
    return array if isinstance(array, jax.Array) or array.ndim else float(array)


def setting(name: str, value) -> float:
    """A static number of a rule: finite, and known when the program is traced."""
    try:
        value = float(value)
    except TypeError:
        raise TypeError(
            f"{name} chooses code, so it must be a Python number known at trace time, got {value!r}"
        ) from None
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    return value


def is_concrete(value) -> bool:
    """Whether the value is known now, rather than a placeholder in a program being traced."""
    return not isinstance(value, jax.core.Tracer)


def check_rule(temperature) -> None:
    """Refuses whatever cannot serve as a rule.

    Raises:
        TypeError: A number, a class, an object without the protocol, or one that is no pytree.
        ValueError: A rule that asks for statistics no row has.
    """
    if isinstance(temperature, (bool, int, float, np.ndarray, np.generic, jax.Array)):
        raise TypeError(
            f"temperature must be a rule, got {temperature!r}; if you mean the inverse temperature, which multiplies "
            "the logits, write temperature=constant(beta=...), and constant(beta=1 / T) for a temperature T"
        )
    if isinstance(temperature, type) or not isinstance(temperature, TemperatureRule):
        called = f"; call it: {temperature.__name__}(...)" if hasattr(temperature, "__name__") else ""
        raise TypeError(
            f"temperature must be None or a rule from adatemp.temperature, such as PAPER or constant(beta=2.0), "
            f"got {temperature!r}{called}"
        )
    unknown = set(temperature.needs) - set(RowStatistics._fields)
    if unknown:
        raise ValueError(
            f"temperature: rule {type(temperature).__name__} needs {sorted(unknown)}, "
            f"and rows have only {list(RowStatistics._fields)}"
        )
    if jax.tree_util.all_leaves([temperature]):
        raise TypeError(
            f"temperature: rule {type(temperature).__name__} is not a pytree; decorate it with "
            "jax.tree_util.register_dataclass, its parameters as data fields"
        )


def beta_of_rows(
    rule: TemperatureRule, readable: dict, shape: tuple[int, ...], dtype, how: str
) -> Float[Array, "*rows"]:
    """A rule's beta for rows of the given shape.

    Args:
        rule: The rule.
        readable: What is known of the rows, by the names of `RowStatistics`; it has at least what the rule needs.
        shape: Shape of the rows.
        dtype: Of the result.
        how: How to shape a parameter, for the error.

    Raises:
        ValueError: The rule's beta does not broadcast to the rows.
    """
    stats = RowStatistics(**{name: readable[name] for name in rule.needs})
    if not rule.differentiate:
        stats = jax.lax.stop_gradient(stats)
    beta = jnp.asarray(rule.beta(stats), dtype)
    if not broadcasts(beta.shape, shape):
        raise ValueError(
            f"temperature: the rule gives beta of shape {beta.shape}, which does not broadcast to the rows' shape "
            f"{shape}; {how}"
        )
    return jnp.broadcast_to(beta, shape)


def broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether an array of one shape broadcasts to another without changing it."""
    try:
        return np.broadcast_shapes(shape, to) == tuple(to)
    except ValueError:
        return False

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
    """

    count: Int[Array, "*rows"] | None = None
    entropy: Float[Array, "*rows"] | None = None
    variance: Float[Array, "*rows"] | None = None
    row: Float[Array, "*rows n"] | None = None


@runtime_checkable
class TemperatureRule(Protocol):
    """What a temperature rule offers. A rule is also a pytree, its parameters being the leaves.

    Attributes:
        needs: Which fields of `RowStatistics` it reads: a subset of {count, entropy, variance, row}. A rule that reads
            the count alone costs no second pass over the row; one that reads the row cannot stream.
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

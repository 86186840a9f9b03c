"""Exercise 10.6, across devices: a row's keys over eight of them, one collective, and the row's entropy on each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adatemp.checks import _float64
from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._trace import equations
from adatemp.checks._written import written
from adatemp.checks.ch10 import _planted as planted

_TITLE = "10.6 Across devices"
_SIGNATURE = "across(logits, axis_name)"
_DEVICES, _ROWS, _KEYS = 8, 5, 6
_AXIS = "keys"
_OFFSET = np.float32(1e4)

# What talks to other devices, by the names of the primitives of the supported versions of JAX.
_COLLECTIVES = ("psum", "pmax", "pmin", "all_gather", "all_to_all", "ppermute", "reduce_scatter", "psum_scatter")


def ex6(across: Callable[..., Any]) -> Report:
    """Checks row statistics whose keys are spread over eight devices.

    Args:
        across: `across(logits, axis_name) -> (lse, entropy)`, each [rows], in nats, the same on every device. `logits`
            [rows, k], float32, are the device's own part of the keys; −∞ is a legal logit and every row has a finite
            one on some device. Collectives of `jax.lax` over `axis_name` reach the other devices. One is enough, of a
            size that does not depend on k.

    The devices are those of this machine if it has eight (`XLA_FLAGS=--xla_force_host_platform_device_count=8` makes
    them of one processor, before JAX starts) and a mapped axis otherwise, which computes the same.

    Returns:
        The report. Mistakes it names: no collective; entropies averaged; normalisers added; sums added before a common
        maximum, or without moving their first moment; an unshifted sum; a device without a finite logit; the logits
        sent instead of their statistics; more than one collective.
    """
    return examine(
        across,
        _TITLE,
        _SIGNATURE,
        _stages(written(across)),
        remark="Three numbers a row and a device, whatever the number of keys.",
    )


def devices() -> str:
    """What the check runs on: eight devices of this machine, or eight places of a mapped axis."""
    return "eight devices" if len(jax.devices()) >= _DEVICES else "a mapped axis of eight places"


def _spread(across: Callable[..., Any]) -> Callable[[np.ndarray], np.ndarray]:
    """From logits [rows, keys] to the (lse, entropy) of every device, [2, devices, rows]; compiled once."""

    def place(part: jax.Array) -> tuple[jax.Array, jax.Array]:
        lse, entropy = across(part, _AXIS)
        return lse, entropy

    if len(jax.devices()) >= _DEVICES:
        spec = jax.sharding.PartitionSpec(_AXIS)
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:_DEVICES]), (_AXIS,))

        def one(part: jax.Array) -> tuple[jax.Array, jax.Array]:
            return tuple(jnp.asarray(answer)[None] for answer in place(part[0]))

        mapped = jax.shard_map(one, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    else:
        mapped = jax.vmap(place, axis_name=_AXIS)
    compiled = jax.jit(mapped)

    def run(logits: np.ndarray) -> np.ndarray:
        answers = compiled(jnp.asarray(np.stack(np.split(logits, _DEVICES, axis=1))))
        return np.stack([np.asarray(answer) for answer in answers])

    return run


def _collectives(across: Callable[..., Any], rows: int, keys: int) -> list[tuple[str, int]]:
    """Name and numbers sent of each collective in the traced function."""
    part = jax.ShapeDtypeStruct((rows, keys), jnp.float32)
    traced = jax.make_jaxpr(lambda z: tuple(across(z, _AXIS)), axis_env=[(_AXIS, _DEVICES)])(part)
    return [
        (name, sum(int(np.prod(operand.aval.shape)) for operand in equation.invars))
        for equation in equations(traced)
        for name in _COLLECTIVES
        # some versions add a number or a word to the name
        if equation.primitive.name in (name, f"{name}2", f"{name}_invariant")
    ]


def _stages(across: Callable[..., Any]) -> tuple[Stage, ...]:
    run = _spread(across)
    levels = np.repeat(np.array([0, 3, 1, -2, 0, 4, 2, 1], np.float32), _KEYS)
    logits = _float64.logits(601, _ROWS, _DEVICES * _KEYS) + levels
    hidden = logits.copy()
    hidden[0, :_KEYS] = hidden[1, -_KEYS:] = hidden[2, 3] = -np.inf
    hidden[3, : 7 * _KEYS] = -np.inf
    return (
        _values(run, logits),
        _levels(run),
        _hidden(run, hidden),
        _offset(run, logits),
        _traffic(across),
    )


def _on_each(pair: np.ndarray) -> np.ndarray:
    """The same pair on every device."""
    return np.stack([np.broadcast_to(part, (_DEVICES, _ROWS)) for part in pair])


def _values(run: Callable[[np.ndarray], np.ndarray], logits: np.ndarray) -> Stage:
    parts = np.split(logits, _DEVICES, axis=1)
    own = np.stack([planted.exact(part) for part in parts], axis=1)  # [2, devices, rows]
    states = [planted.state_of(part) for part in parts]
    top = np.max([state.m for state in states], axis=0)
    right = planted.exact(logits)
    shares = np.exp(own[0] - own[0].max(0))
    shares = shares / shares.sum(0)

    def entropy_is(*wrong: np.ndarray) -> Callable[[Any], bool]:
        return lambda got: any(np.allclose(got[1], w, rtol=1e-3, atol=1e-4) for w in wrong)

    def sums(moved: bool, scaled: bool) -> np.ndarray:
        """The entropy from sums that are added up with and without their factors and shifts."""
        factor = [np.exp(state.m - top) if scaled else np.ones_like(top) for state in states]
        l = sum(a * state.l for a, state in zip(factor, states))
        s = sum(a * (state.s + moved * (state.m - top) * state.l) for a, state in zip(factor, states))
        return np.log(l) - s / l

    return Stage(
        "the row's log-sum-exp and entropy on every device",
        lambda _: run(logits),
        given=f"five rows of {_DEVICES * _KEYS} logits over {devices()}, with a different maximum on each",
        expected=_on_each(right),
        rtol=1e-5,
        atol=2e-5,
        nats=True,
        look="Each device has the state of its own block. How do two states become one?",
        mistakes=(
            Mistake(
                "no collective",
                "Every device answers for its own keys.",
                "With one device everything is right.",
                "What does a device know of the keys that it does not hold?",
                seen=own,
            ),
            Mistake(
                "bits for nats",
                "The entropy is right in bits; this book measures in nats.",
                "Information theory often uses the logarithm to base 2.",
                "Look at which logarithm is taken.",
                seen=lambda got: np.allclose(got[0], right[0], atol=1e-3) and entropy_is(right[1] / np.log(2))(got),
            ),
            Mistake(
                "the results exchanged",
                "The entropy stands where log-sum-exp should, and the other way round.",
                "Both are one number a row.",
                "The function returns (lse, entropy).",
                seen=_on_each(right[::-1]),
            ),
            Mistake(
                "entropies averaged",
                "The entropy is a mean, or a sum, of the devices' own entropies.",
                "Losses and gradients are averaged over devices, and a collective for it is at hand.",
                "Two devices hold one key each, of equal logits. What is the entropy of each, and of the row?",
                seen=entropy_is(own[1].mean(0), own[1].sum(0), (shares * own[1]).sum(0)),
            ),
            Mistake(
                "normalisers added",
                "Log-sum-exp is a sum, or a mean, of the devices' own.",
                "Sums over devices are what a collective does, and this is one more number a row.",
                "Is the logarithm of a sum the sum of logarithms?",
                seen=lambda got: any(
                    np.allclose(got[0], wrong, rtol=1e-3)
                    for wrong in (own[0].sum(0), own[0].mean(0), np.log(_DEVICES) + own[0].mean(0))
                ),
            ),
            Mistake(
                "sums added before a common maximum",
                "The devices' sums were added as they are, each relative to its own maximum.",
                "The collective that adds is the first to come to mind.",
                "What does Σ e^(z−m) of one device mean on another, whose m is different?",
                seen=entropy_is(sums(False, False), sums(True, False)),
            ),
            Mistake(
                "the first moment is not moved",
                "The sums were scaled to the common maximum, and t inside s left at the devices' own.",
                "l needs a factor and nothing else, and s looks like l.",
                "Which of your three numbers changes how when m does?",
                seen=entropy_is(sums(False, True)),
            ),
            Mistake(
                "the entropy of the shares",
                "The answer is how evenly the devices share the mass.",
                "The devices' log-sum-exps have an entropy too; it is one of two parts.",
                "What is missing if one device holds all the mass?",
                seen=entropy_is(-(shares * np.log(shares)).sum(0)),
            ),
        ),
    )


def _levels(run: Callable[[np.ndarray], np.ndarray]) -> Stage:
    levels = np.repeat(np.array([0, -300, 100, -50, 200, 0, 0, -10], np.float32), _KEYS)
    logits = _float64.logits(603, _ROWS, _DEVICES * _KEYS) + levels
    return Stage(
        "devices at very different levels",
        lambda _: run(logits),
        given="the same, with devices moved by −300 to 200",
        expected=_on_each(planted.exact(logits)),
        rtol=1e-5,
        atol=1e-3,
        look="What is the largest number that enters `exp`?",
        mistakes=(
            Mistake(
                "one device's maximum for all",
                "The exponentials overflow.",
                "A reference that all share is right on paper, and a device's own is at hand.",
                "Which reference makes every exponent at most 0?",
                seen=lambda got: not np.isfinite(got).all(),
            ),
        ),
    )


def _hidden(run: Callable[[np.ndarray], np.ndarray], hidden: np.ndarray) -> Stage:
    exact = planted.exact(hidden)
    return Stage(
        "devices without a finite logit",
        lambda _: run(hidden),
        given="rows whose logits are −∞ on one device, or on all but one",
        expected=_on_each(exact),
        rtol=1e-5,
        atol=2e-5,
        look="Follow the state of a block of −∞ through the merge.",
        mistakes=(
            Mistake(
                "−∞ − (−∞), or 0 · (−∞)",
                "A row turns to NaN, on every device, because one of them has no finite logit of it.",
                "At 131,072 keys and a causal mask most devices see nothing of the first rows.",
                "What is the maximum of a block without a finite logit, and which products does it enter?",
                seen=lambda got: np.isnan(got).any(),
            ),
            Mistake(
                "hidden keys counted as e⁰",
                "A device without a finite logit adds mass.",
                "With a finite stand-in for the maximum, z − m is 0 for keys that stand at the same number.",
                "What are l and s of a block without a finite logit?",
                seen=lambda got: (got[0] > exact[0] + 1e-3).any(),
            ),
        ),
    )


def _offset(run: Callable[[np.ndarray], np.ndarray], logits: np.ndarray) -> Stage:
    right = planted.exact(logits)[1]
    return Stage(
        "an offset of 10⁴ leaves the entropy alone",
        lambda _: run(logits + _OFFSET)[1],
        given="the same logits plus 10⁴",
        expected=np.broadcast_to(right, (_DEVICES, _ROWS)),
        rtol=0.0,
        atol=1e-4,
        look="Which two numbers does the last subtraction take, and how large are they?",
        mistakes=(
            Mistake(
                "two large numbers subtracted",
                "The entropy has lost digits, or all of them.",
                "From log-sum-exps and mean logits of the devices the row's are quickly made; both are near 10⁴, where "
                "float32 is spaced by 0.001.",
                "Can everything that is sent be kept relative to a maximum?",
                seen=lambda got: bool(np.isfinite(got).all()),
            ),
        ),
    )


def _traffic(across: Callable[..., Any]) -> Stage:
    def call(_: Any) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        return _collectives(across, _ROWS, _KEYS), _collectives(across, _ROWS, 10 * _KEYS)

    def sizes(found: list[tuple[str, int]]) -> list[int]:
        return [size for _, size in found]

    return Stage(
        "one collective, of a size that does not depend on the keys",
        call,
        given="the traced function, with 6 and with 60 keys a device",
        accept=lambda got: len(got[0]) == 1 and sizes(got[0]) == sizes(got[1]),
        look="`jax.make_jaxpr` shows what your function does; count what talks to other devices.",
        mistakes=(
            Mistake(
                "the logits are sent",
                "What travels grows with the number of keys.",
                "Collecting the row on every device makes one device of eight, and is always right.",
                "How many numbers does a device have to tell about its keys?",
                seen=lambda got: sizes(got[0]) != sizes(got[1]),
            ),
            Mistake(
                "more than one collective",
                "The answer is right, and the devices wait for each other more than once.",
                "A common maximum first and sums afterwards is the order in which one device works. A tuple that is "
                "collected is one collective for each of its arrays.",
                "Can a device send its state before it knows the common maximum, and three arrays as one?",
                seen=lambda got: len(got[0]) > 1,
            ),
        ),
    )

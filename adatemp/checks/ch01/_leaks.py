"""Exercise 01.5, find the leak: stages that run the reader's dependence test on five attention functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adatemp.checks._stages import Mistake, Stage
from adatemp.checks.ch01 import _suspects as suspect

SIGNATURE = "depends_on(attention, query, key, value, where)"

Attention = Callable[..., jax.Array]


def suspects() -> dict[str, Attention]:
    """Five attention functions `attention(query, key, value, where) -> output`, each said to be causal and masked.

    All take float32 arrays [B, T, N, H] and a boolean [B, T], and are differentiable. Some keep the promise that output
    row t depends on the keys and values at s ≤ t with `where[b, s]`, and on no others.

    >>> list(suspects())
    ['A', 'B', 'C', 'D', 'E']
    """
    functions = (suspect.late_mask, suspect.honest, suspect.shared_temperature, suspect.strict, suspect.unpadded)
    return dict(zip("ABCDE", functions))


def example() -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """An input for the suspects: query, key, value [2, 6, 2, 3] and where [2, 6].

    The first sequence is padded at the front, by one position, and the second at the end, by two. In the first, the
    values of each key are whole numbers that add to 0 over the features, and key 1 gets a weight near 10⁻⁴.
    """
    draw = np.random.default_rng(71)
    query, key, value = (draw.normal(size=(2, 6, 2, 3)) for _ in range(3))
    value[0] = np.round(3.0 * value[0])
    value[0, ..., 2] = -value[0, ..., 0] - value[0, ..., 1]
    # With 1 as the first component of every query, that of a key shifts its logits: key 1 of the first sequence by -9.
    query[..., 0], key[..., 0] = 1.0, 0.0
    key[0, 1, :, 0] = -9.0 * np.sqrt(3.0)
    where = np.ones((2, 6), bool)
    where[0, 0] = where[1, 4] = where[1, 5] = False
    return *(jnp.asarray(array, jnp.float32) for array in (query, key, value)), jnp.asarray(where)


def tables() -> dict[str, np.ndarray]:
    """What output row t of each suspect depends on, boolean [B, T, T], from how its mask is built."""
    where = np.asarray(example()[3])
    length = where.shape[1]
    past = np.tril(np.ones((length, length), bool))
    live = np.broadcast_to(where[:, None, :], (2, length, length))
    promised = past & live
    visible = promised.sum(-1, keepdims=True)
    return {
        "A": np.broadcast_to(visible > 0, live.shape),  # a row without visible keys is 0 whatever its normaliser
        "B": promised,
        "C": np.where(visible > 1, live, promised),  # a single visible key has weight 1 at any temperature
        "D": np.tril(past, -1) & live,
        "E": np.broadcast_to(past, live.shape),
    }


def stages(answers: dict[str, Any]) -> tuple[Stage, ...]:
    """One stage a suspect, from the honest one to the subtlest; each leaves the reader's table in `answers`."""
    functions, truth = suspects(), tables()
    order = (
        ("B", "an attention that keeps its promise"),
        ("E", "an attention that sees padding"),
        ("D", "an attention that misses its own position"),
        ("A", "an attention whose hidden keys have weight 0"),
        ("C", "an attention whose weights look perfect"),
    )

    def keep(letter: str, depends_on: Callable[..., Any]) -> Any:
        answers[letter] = depends_on(functions[letter], *example())
        return answers[letter]

    return tuple(
        _stage(name, functools.partial(keep, letter), functions[letter], truth[letter]) for letter, name in order
    )


def _stage(name: str, call: Callable[..., Any], attention: Attention, truth: np.ndarray) -> Stage:
    honest = tables()["B"]

    def by_keys(**how: Any) -> np.ndarray:
        return _depends(attention, 1, **how)

    def by_values(**how: Any) -> np.ndarray:
        return _depends(attention, 2, **how)

    # The tables of the mistakes are computed when an answer is wrong. One that is right for this suspect cannot equal
    # a wrong answer; a later suspect tells it apart.
    mistakes = (
        Mistake(
            "magnitudes in place of yes or no",
            "The table holds the size of the dependence.",
            "The Jacobian has been reduced, and not yet asked a question.",
            "Which comparison turns a derivative into a yes or a no?",
            seen=lambda table: _same(np.asarray(table) != 0, truth),
        ),
        Mistake(
            "transposed",
            "Rows and columns of the table are exchanged.",
            "`jax.jacobian` puts the axes of the output first and those of the input last.",
            "Which axis of your Jacobian belongs to the output's positions?",
            seen=truth.swapaxes(1, 2),
        ),
        Mistake(
            "only leaks reported",
            "The table is empty where the dependence is legal.",
            "The exercise is about leaks, so the legal part looks uninteresting.",
            "How would a mask that hides too much show in your table?",
            seen=truth & ~honest,
        ),
        Mistake(
            "padding never switched on",
            "The table is that of an input without padding.",
            "A test is quickly written with every position real, and `where` then goes unused.",
            "Which `where` does `attention` receive in your test?",
            seen=lambda table: _same(table, by_keys(unpadded=True) | by_values(unpadded=True)),
        ),
        Mistake(
            "query counted, so a strict mask goes unseen",
            "The table says that a row depends on its own position where that key is hidden.",
            "Every output row depends on its own query; differentiating in the query, or changing a whole token, "
            "cannot tell that from seeing the key.",
            "Which of the inputs does the question ask about?",
            seen=lambda table: _same(table, truth | _depends(attention, 0)),
        ),
        Mistake(
            "looked at weights only",
            "Some dependence is missing: the table tells which values are read, which is the pattern of the weights.",
            "A key of weight 0 looks harmless. It can still sit in the normaliser, or in a statistic of the row, and "
            "move every other weight.",
            "Through which other input can a position act, apart from its value?",
            seen=lambda table: _same(table, by_values()),
        ),
        Mistake(
            "looked at keys only",
            "Some dependence is missing: the table tells which keys move the output.",
            "The mask is about keys, so the values are forgotten.",
            "Where one key alone is visible, which derivative is 0 and which is not?",
            seen=lambda table: _same(table, by_keys()),
        ),
        Mistake(
            "expected mask returned",
            "The table is what an honest attention would give, whatever attention is passed.",
            "The promise was written down instead of being tested.",
            "Does your function call `attention`, and does the result enter the table?",
            seen=honest,
        ),
        Mistake(
            "summed before differentiating",
            "Some dependence is missing: effects on the features of an output row have cancelled.",
            "A gradient needs a scalar, and a sum is the first that comes to mind.",
            "Can a sum stay still while its terms move? Differentiate the outputs one by one.",
            seen=lambda table: _same(table, by_keys(summed=True) | by_values(summed=True)),
        ),
        Mistake(
            "small derivatives taken for 0",
            "Some dependence is missing where the weight of a key is small.",
            "A tolerance that suits values of order one hides weights of 10⁻⁴.",
            "The derivative in a masked input is exactly 0. Is rounding a reason to ask for less?",
            seen=lambda table: any(
                _same(table, by_keys(above=10.0**-power) | by_values(above=10.0**-power)) for power in range(1, 7)
            ),
        ),
        Mistake(
            "one sequence for all",
            "The table of one sequence is given for both.",
            "`[0]`, or an `any` over the batch, loses the batch axis, and broadcasting hides it.",
            "The two sequences have different padding. Where do they enter?",
            seen=lambda table: _same(np.asarray(table)[0], np.asarray(table)[1]) and not _same(truth[0], truth[1]),
        ),
    )
    return Stage(
        name,
        call,
        given="two sequences of 6 positions, one padded at the front and one at the end",
        expected=truth,
        look="Change one key or one value by hand and look at which output rows move.",
        mistakes=mistakes,
    )


def _same(table: Any, other: np.ndarray) -> bool:
    return np.array_equal(np.asarray(table, bool), other)


def _depends(
    attention: Attention, argument: int, *, summed: bool = False, above: float = 0.0, unpadded: bool = False
) -> np.ndarray:
    """The table that the Jacobian in one argument gives, [B, T, T]: of sums over features, above a size, unpadded."""
    moved = (np.abs(_jacobian(attention, argument, summed, unpadded)) > above).any((2, 3, 6, 7))  # [B, T, B, S]
    batch = np.arange(moved.shape[0])
    return moved[batch, :, batch, :]


@functools.lru_cache(maxsize=64)
def _jacobian(attention: Attention, argument: int, summed: bool, unpadded: bool) -> np.ndarray:
    *arrays, where = example()
    where = jnp.ones_like(where) if unpadded else where

    def output(x: jax.Array) -> jax.Array:
        out = attention(*(x if i == argument else array for i, array in enumerate(arrays)), where)
        return out.sum((2, 3), keepdims=True) if summed else out

    return np.asarray(jax.jit(jax.jacrev(output))(arrays[argument]))


def picture(answers: dict[str, Any], depends_on: Callable[..., Any]) -> Any:
    """The reader's tables for the second sequence, the promised pattern in dots; suspects not reached are left out."""
    from adatemp import plotting

    promised = tables()["B"][1]
    found = {name: np.asarray(answers[name], bool)[1] for name in sorted(answers)}
    fig, axes = plotting.figure(width=5.0, height=3.8, ncols=3, nrows=2, sharex=True, sharey=True)
    for axis in axes.flat[len(found) :]:
        axis.set_axis_off()
    for axis, (name, table) in zip(axes.flat, found.items()):
        axis.imshow(table, vmin=0.0, vmax=1.0, cmap=plotting.colormap())
        rows, columns = np.nonzero(promised)
        # one of the two colours stands out on either end of the colour map, on a light page and on a dark one
        axis.plot(columns, rows, "o", markersize=5, mfc=plotting.palette["ground"], mec=plotting.palette["ink"])
        axis.set_title(name)
        axis.tick_params(labelbottom=True)
    axes[0, 0].set_xlabel("position s")
    axes[0, 0].set_ylabel("output row t")
    counts = ", ".join(f"{name} {int((table & ~promised).sum())}" for name, table in found.items())
    alt = (
        f"Dependence tables of {len(found)} suspects, six rows by six positions, dots where an honest attention may "
        f"depend. Entries beyond the promise: {counts}."
    )
    return plotting.show(fig, alt=alt)

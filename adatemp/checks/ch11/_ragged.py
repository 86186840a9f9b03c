"""Exercise 11.1, the ragged tile: every number of keys from none to three tiles, with NaN behind the last."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks.ch11 import _tile as tile

_TITLE = "11.1 The ragged tile"
_SIGNATURE = "kernel(count_ref, query_ref, key_ref, value_ref, output_ref, entropy_ref)"
_B, _Q = tile.BLOCK, tile.QUERIES
_DEAD = (0, 7, 15)  # first, middle and last row


def ex1(kernel: Callable[..., None]) -> Report:
    """Checks a kernel for one tile of queries over keys whose number is no multiple of the tile.

    Args:
        kernel: `kernel(count_ref, query_ref, key_ref, value_ref, output_ref, entropy_ref)`, a Pallas kernel without a
            grid: every reference is to a whole array. `count` [16] int32: query t sees the keys 0 to count[t] − 1, at
            most 48. `query` [16, 8], `key` [48, 8], `value` [48, 4] are float32; keys and values that no query sees
            hold anything, NaN included. It writes `output` [16, 4], attention with logits query·key/√8, and `entropy`
            [16] in nats, both 0 for a query without keys. It takes the keys 16 at a time.

    Run in the interpreter, compiled once.

    Returns:
        The report. Mistakes it names: sums that are not rescaled; the scale; the ragged tail dropped, counted as e⁰,
        or one key too long; a mask that is added; 0 · NaN through the values; one length for all queries; a finite
        sentinel, or 0/0, in a dead row; no maximum subtracted.
    """
    return examine(
        kernel,
        _TITLE,
        _SIGNATURE,
        _stages(kernel),
        remark="Three places to keep a hidden key out of: the maximum, the sums and the product with the values.",
    )


class _Runs:
    """The reader's kernel, compiled when it is first run."""

    def __init__(self, kernel: Callable[..., None]) -> None:
        self.kernel, self.call = kernel, None

    def __call__(self, counts: np.ndarray, *arrays: np.ndarray) -> np.ndarray:
        """Output and entropy side by side, [..., 16, 5], for counts [..., 16]; NaN beyond the largest count."""
        if self.call is None:
            self.call = tile.compiled(self.kernel, (_Q, tile.VALUE_WIDTH), (_Q,))
        answers = []
        for count in counts.reshape(-1, _Q):
            query, key, value = (array.copy() for array in arrays)
            key[count.max() :] = value[count.max() :] = np.nan
            output, entropy = self.call(count.astype(np.int32), query, key, value)
            answers.append(np.concatenate([output, entropy[:, None]], axis=1))
        return np.stack(answers).reshape(*counts.shape, -1)


def _visible(counts: np.ndarray) -> np.ndarray:
    return np.arange(tile.KEYS) < counts[..., None]


def _expected(counts: np.ndarray, *arrays: np.ndarray) -> np.ndarray:
    return np.stack([tile.outcome(*arrays, _visible(count)) for count in counts])


def _stages(kernel: Callable[..., None]) -> tuple[Stage, ...]:
    run = _Runs(kernel)
    arrays = tile.arrays(701)
    whole = np.repeat(np.array([[1], [2], [3]]) * _B, _Q, axis=1)
    every = np.repeat(np.arange(1, tile.KEYS + 1)[:, None], _Q, axis=1)
    own = np.stack([np.random.default_rng(top).integers(1, top + 1, _Q) for top in (5, 16, 23, 37, 48)])
    own[:, 3] = own.max(1)
    dead = own.copy()
    dead[:, _DEAD] = 0
    dead = np.concatenate([dead, np.zeros((1, _Q), int)])
    return (
        _whole_tiles(run, whole, arrays),
        _every_length(run, every, arrays),
        _own_lengths(run, own, arrays),
        _dead_rows(run, dead, arrays),
        _offset(run, own[2:4]),
    )


def _whole_tiles(run: _Runs, counts: np.ndarray, arrays: tuple[np.ndarray, ...]) -> Stage:
    query, key, value = arrays
    right = _expected(counts, *arrays)
    unscaled = np.stack(
        [tile.of_logits(np.where(_visible(c), tile.logits(query, key) / tile.SCALE, -np.inf), value) for c in counts]
    )

    def parts(got: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return got[..., :-1], got[..., -1]

    def bits(got: np.ndarray) -> bool:
        return np.allclose(parts(got)[1] * np.log(2), parts(right)[1], atol=1e-4)

    return Stage(
        "one, two and three whole tiles",
        lambda _: run(counts, *arrays),
        given="16, 32 and 48 keys",
        expected=right,
        rtol=1e-4,
        atol=1e-4,
        look="Is the first of the three right, of a single tile? Then look at what happens between tiles.",
        mistakes=(
            Mistake(
                "nothing is written",
                "A reference that should have been written holds NaN everywhere.",
                "A kernel returns nothing; what it does not assign to a reference is lost.",
                "`output_ref[...] = ...`, and the same for the entropy.",
                seen=lambda got: any(np.isnan(part).all() for part in parts(got)),
            ),
            Mistake(
                "bits for nats",
                "The entropy is right in bits; this book measures in nats.",
                "Exponentials to base 2 are usual in kernels, and the entropy comes out in their unit.",
                "Look at which logarithm is taken.",
                seen=bits,
            ),
            Mistake(
                "the scale is missing",
                "The answer is that of logits without 1/√8.",
                "The product of query and key is called the logits in many kernels, and scaled elsewhere.",
                "Which numbers are the logits of this exercise?",
                seen=unscaled,
            ),
            Mistake(
                "the sums are not rescaled",
                "A single tile is right and several are not.",
                "With one tile the maximum does not move.",
                "Which of your running sums are relative to the maximum, and what happens to them when it rises?",
                seen=lambda got: np.allclose(got[0], right[0], atol=1e-3),
            ),
            Mistake(
                "the output is not divided",
                "The entropy is right, and the output is a sum where a mean is wanted.",
                "In plain attention the division is the last line, and easily lost.",
                "Do your weights sum to 1?",
                seen=lambda got: np.allclose(got[..., -1], right[..., -1], atol=1e-3),
            ),
        ),
    )


def _every_length(run: _Runs, counts: np.ndarray, arrays: tuple[np.ndarray, ...]) -> Stage:
    query, key, value = arrays
    z = tile.logits(query, key)
    right = _expected(counts, *arrays)
    floored = np.stack([tile.of_logits(np.where(_visible(c // _B * _B), z, -np.inf), value) for c in counts])
    padded = np.stack(
        [
            tile.of_logits(
                np.where(_visible(c), z, np.where(_visible(-(-c // _B) * _B), 0.0, -np.inf)),
                np.where(_visible(c)[0][:, None], value, 0.0),
            )
            for c in counts
        ]
    )
    ragged = counts[:, 0] % _B != 0

    def entropies(got: np.ndarray) -> np.ndarray:
        return got[..., -1]

    return Stage(
        "every number of keys from 1 to 48",
        lambda _: run(counts, *arrays),
        given="1 to 48 keys, and NaN in the keys and values behind them",
        expected=right,
        rtol=1e-4,
        atol=1e-4,
        look="Follow a key that does not exist, whose numbers are NaN, through your loop.",
        mistakes=(
            Mistake(
                "the ragged tail is dropped",
                "The keys of the last, incomplete tile are not seen.",
                "Integer division rounds down.",
                "How many tiles are needed for 17 keys?",
                seen=lambda got: np.allclose(got[counts[:, 0] > _B], floored[counts[:, 0] > _B], atol=1e-3),
            ),
            Mistake(
                "padding counted as e⁰",
                "The keys that fill up the last tile count, with a logit of 0.",
                "Zeros are a natural filling: a product with them is 0. But the weight of a logit 0 is e^(0 − m).",
                "Which logit does a key get that is not there?",
                seen=lambda got: np.allclose(entropies(got), entropies(padded), atol=1e-3),
            ),
            Mistake(
                "a mask that is added",
                "The entropy is NaN wherever the last tile is incomplete.",
                "A large negative number added to a logit hides it, if the logit is a number.",
                "What is NaN + (−10⁹), and which operation does not care what stood there?",
                seen=lambda got: np.isnan(entropies(got)[ragged]).any(),
            ),
            Mistake(
                "0 · NaN through the values",
                "The entropy is right, and the output is NaN wherever the last tile is incomplete.",
                "A weight of 0 seems to be enough. The product of the weights with the values still multiplies it by "
                "what stands there.",
                "What is 0 · NaN?",
                seen=lambda got: (
                    np.isnan(got[..., :-1]).any() and np.allclose(entropies(got), entropies(right), atol=1e-3)
                ),
            ),
        ),
    )


def _own_lengths(run: _Runs, counts: np.ndarray, arrays: tuple[np.ndarray, ...]) -> Stage:
    longest = np.broadcast_to(counts.max(1, keepdims=True), counts.shape)
    beyond = np.minimum(counts + 1, longest)
    return Stage(
        "every query with its own number of keys",
        lambda _: run(counts, *arrays),
        given="counts that differ from query to query, and NaN behind the largest",
        expected=_expected(counts, *arrays),
        rtol=1e-4,
        atol=1e-4,
        look="The mask is a table of queries by keys.",
        mistakes=(
            Mistake(
                "one length for all queries",
                "Every query sees as many keys as the one that sees most.",
                "The number of tiles is decided by the largest count, and the mask is then written with it.",
                "Which shape has your mask?",
                seen=lambda got: np.allclose(got, _expected(longest, *arrays), atol=1e-3),
            ),
            Mistake(
                "one key too many",
                "Every query sees the key behind its last one.",
                "A causal mask has ≤, and a count is not a position.",
                "Which keys does a query with count 1 see?",
                seen=lambda got: np.allclose(got, _expected(beyond, *arrays), atol=1e-3, equal_nan=True),
            ),
        ),
    )


def _dead_rows(run: _Runs, counts: np.ndarray, arrays: tuple[np.ndarray, ...]) -> Stage:
    nobody = counts == 0

    def alive(got: np.ndarray) -> np.ndarray:
        return got[~nobody]

    return Stage(
        "queries without keys",
        lambda _: run(counts, *arrays),
        given="counts of which the first, a middle and the last are 0, and a tile in which all are",
        expected=_expected(counts, *arrays),
        rtol=1e-4,
        atol=1e-4,
        look="Print maximum, sums and entropy of a row with count 0 after the loop.",
        mistakes=(
            Mistake(
                "0/0 in a dead row",
                "Rows without keys are NaN.",
                "Their sums are 0, and a maximum of −∞ less itself is NaN.",
                "What is l in such a row, and what should be written there?",
                seen=lambda got: np.isnan(got[nobody]).any() and np.isfinite(alive(got)).all(),
            ),
            Mistake(
                "a finite sentinel in a dead row",
                "Rows without keys attend to hidden keys, all alike.",
                "If −10⁹ stands for a hidden logit it is also the maximum of a row that has nothing else, and every "
                "hidden key gets e⁰ = 1.",
                "What makes an exponential 0 in a row whose maximum is the sentinel itself?",
                seen=lambda got: (np.abs(got[nobody]) > 1e-3).any(),
            ),
            Mistake(
                "a dead row spoils others",
                "Rows with keys have changed because others have none.",
                "A reduction without an axis, or a loop bound taken from one row, ties the rows together.",
                "Which numbers of your kernel belong to the tile, and which to a row?",
                seen=lambda got: not np.allclose(alive(got), alive(_expected(counts, *arrays)), atol=1e-3),
            ),
        ),
    )


def _offset(run: _Runs, counts: np.ndarray) -> Stage:
    high, low = tile.arrays(711, offset=1e4), tile.arrays(712, offset=-1e4)
    right = np.stack([_expected(counts, *arrays) for arrays in (high, low)])
    return Stage(
        "an offset of 10⁴ or of −10⁴ on every logit",
        lambda _: np.stack([run(counts, *arrays) for arrays in (high, low)]),
        given="queries and keys that share a large component",
        expected=right,
        rtol=0.0,
        atol=0.05,  # float32 logits near 10⁴ are spaced by 0.001
        look="What is the largest number that enters `exp`, and which two numbers does the entropy subtract?",
        mistakes=(
            Mistake(
                "no maximum subtracted",
                "The exponentials overflow.",
                "With logits of order one nothing warned you.",
                "What keeps exponentials in range, whatever the logits?",
                seen=lambda got: not np.isfinite(got[0]).all(),
            ),
            Mistake(
                "the stand-in is above the logits",
                "With logits near 10⁴ the answer is right, and near −10⁴ it is not.",
                "−1000 is far below every logit of order one.",
                "Which maximum does a row get whose logits are below the number that hides a key?",
                seen=lambda got: np.allclose(got[0], right[0], atol=0.05),
            ),
        ),
    )

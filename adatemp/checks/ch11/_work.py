"""Exercise 11.4, count the work: operations, exponentials and bytes, and the relative speed that they allow."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written
from adatemp.checks.ch11._work_programs import counted, moved
from adatemp.checks.ch11._work_speed import draw, speed_stages

_TITLE = "11.4 Count the work"
_SIZES = ((1_000, 64), (2_000, 64), (2_000, 96))


def ex4(work: Callable[..., Any], relative_speed: Callable[..., Any]) -> Report:
    """Checks a count of the work of attention, and the speed of adaptive attention that follows from it.

    Args:
        work: `work(n, width, *, adaptive, causal, backward) -> (operations, exponentials, bytes)` of a head with n
            queries and n keys. Operations are those of the matrix products, two for a multiply-add. The logits are
            made again in every loop that needs them, and the backward pass is two kernels. A causal query sees the
            keys up to its own. Bytes are what the pass has to read from and write to the main memory, each array once:
            query, key, value, output and, backward, their four cotangents, [n, width] in bfloat16; and the numbers a
            row, in float32: forward 1 (plain) or 4 (adaptive), backward 2 or 6.
        relative_speed: `relative_speed(gpu, n, width) -> number`: the time of plain over that of adaptive attention,
            forward and not causal. `gpu` has the rates "operations", "exponentials" and "bandwidth", a second. A loop
            takes as long as the busier of products and exponentials; a kernel as long as its loops one after the
            other, but not less than its bytes take.

    Returns:
        The report. Mistakes it names: multiply-adds for operations; a second sweep that is not counted, or a backward
        pass in one kernel; exponentials that are free; a causal mask that halves one thing only, or the bytes; keys
        read again, or logits, charged to the memory; one roof over both loops; speeds turned round.
    """
    return in_turn(
        (
            lambda: examine(work, _TITLE, "work(n, width, *, adaptive, causal, backward)", _work_stages(written(work))),
            lambda: examine(
                relative_speed, _TITLE, "relative_speed(gpu, n, width)", speed_stages(written(relative_speed))
            ),
        ),
        remark="Two thirds is what is left when exponentials and bytes cost nothing.",
        picture=lambda: draw(written(relative_speed)),
    )


_MODES = tuple(itertools.product((False, True), repeat=2))  # (adaptive, backward)


def _pairs(n: np.ndarray, causal: bool) -> np.ndarray:
    return n * (n + 1) / 2 if causal else n * n


def _work_stages(work: Callable[..., Any]) -> tuple[Stage, ...]:
    n, width = np.array(_SIZES, np.float64).T

    def call(causal: bool, modes: tuple[tuple[bool, bool], ...]) -> np.ndarray:
        """Counts of every mode and size, [modes, sizes, 3]."""
        return np.array(
            [
                [[float(x) for x in work(*size, adaptive=mode[0], causal=causal, backward=mode[1])] for size in _SIZES]
                for mode in modes
            ]
        )

    def right(causal: bool, modes: tuple[tuple[bool, bool], ...]) -> np.ndarray:
        pairs = _pairs(n, causal)
        return np.array(
            [
                np.stack(
                    [
                        counted(*mode)[0] * 2 * pairs * width,
                        counted(*mode)[1] * pairs,
                        moved(n, width, adaptive=mode[0], backward=mode[1]),
                    ],
                    axis=1,
                )
                for mode in modes
            ]
        )

    return (
        _forward(call, right(False, _MODES[::2])),
        _backward(call, right(False, _MODES[1::2])),
        _causal(call, right(True, _MODES), right(False, _MODES)),
    )


_TOLERANCE = {"rtol": 5e-3, "atol": 0.0}  # n²/2 for n(n + 1)/2 is within it


def _bytes_mistakes(right: np.ndarray) -> tuple[Mistake, ...]:
    def extra(got: np.ndarray) -> np.ndarray:
        return got[..., 2] - right[..., 2]

    def grows(got: np.ndarray, factor: float) -> bool:
        """Whether doubling n multiplies what is too much by more than `factor`."""
        return bool((extra(got)[:, 0] > 0).all() and (extra(got)[:, 1] > factor * extra(got)[:, 0]).all())

    return (
        Mistake(
            "keys read again, charged to the memory",
            "The bytes grow faster than n, and with the width: the keys are counted for every tile of queries.",
            "Every tile of queries does read all keys, and values.",
            "From which memory is a key read for the second time, if those of a head fit into the cache?",
            seen=lambda got: grows(got, 3) and (extra(got)[:, 2] > 1.3 * extra(got)[:, 1]).all(),
        ),
        Mistake(
            "the logits are written out",
            "The bytes grow like n², whatever the width.",
            "In attention as it is written down the logits are an array like the others.",
            "Which arrays does the kernel have, and which exist for a tile at a time?",
            seen=lambda got: grows(got, 3),
        ),
        Mistake(
            "two bytes for four",
            "The numbers a row are counted in bfloat16, or the arrays in float32.",
            "One width for all is simpler.",
            "Why does this book keep statistics in float32?",
            seen=lambda got: any(
                np.allclose(got[..., 2], wrong, rtol=1e-3)
                for wrong in (right[..., 2] - _row_bytes(right) / 2, 2 * right[..., 2] - _row_bytes(right))
            ),
        ),
        Mistake(
            "the numbers a row are left out",
            "The bytes are those of the arrays alone.",
            "A few numbers a row are nothing beside the width.",
            "What does the backward pass read besides arrays?",
            seen=lambda got: np.allclose(got[..., 2], right[..., 2] - _row_bytes(right), rtol=1e-4),
        ),
    )


def _row_bytes(right: np.ndarray) -> np.ndarray:
    """What the numbers a row take of the bytes, from how these grow with the width."""
    n, width = np.array(_SIZES, np.float64).T
    per_width = (right[:, 2, 2] - right[:, 1, 2]) / (n[2] * (width[2] - width[1]))
    return right[..., 2] - per_width[:, None] * n * width


def _forward(call: Callable[..., np.ndarray], right: np.ndarray) -> Stage:
    def operations(factor: Any) -> Callable[[Any], bool]:
        return lambda got: np.allclose(got[..., 0], np.asarray(factor)[:, None] * right[..., 0], **_TOLERANCE)

    return Stage(
        "forward, plain and adaptive",
        lambda _: call(False, _MODES[::2]),
        given="(n, width) = " + ", ".join(map(str, _SIZES)),
        expected=right,
        **_TOLERANCE,
        look="Take the loops of a kernel one by one: which products, which exponentials, for a tile of how many pairs?",
        mistakes=(
            Mistake(
                "multiply-adds for operations",
                "The operations are half of what they should be.",
                "A multiply-add is one instruction.",
                "A peak in operations a second counts both of them.",
                seen=operations([0.5, 0.5]),
            ),
            Mistake(
                "the second sweep is not counted",
                "Adaptive attention has the operations of plain attention.",
                "Its products are the same two.",
                "How often are the logits made?",
                seen=operations([1.0, 2 / 3]),
            ),
            Mistake(
                "a second sweep with its values",
                "Adaptive attention has twice the operations of plain attention.",
                "Two sweeps for one.",
                "Which of the two products does the first loop need?",
                seen=operations([1.0, 4 / 3]),
            ),
            Mistake(
                "exponentials are free",
                "No exponentials are counted.",
                "They are few beside the products: one for 2·width operations.",
                "How many of either can a multiprocessor do in one tick?",
                seen=lambda got: (got[..., 1] == 0).all(),
            ),
            Mistake(
                "the first loop's exponentials are not counted",
                "Adaptive attention has the exponentials of plain attention.",
                "The output needs one set of weights.",
                "What is the entropy made of?",
                seen=lambda got: (
                    np.allclose(got[..., 0], right[..., 0], **_TOLERANCE)
                    and np.allclose(got[:, :, 1], right[:1, :, 1], **_TOLERANCE)
                ),
            ),
            *_bytes_mistakes(right),
        ),
    )


def _backward(call: Callable[..., np.ndarray], right: np.ndarray) -> Stage:
    plain, adaptive = counted(False, True)[0], counted(True, True)[0]

    def operations(*products: int) -> Callable[[Any], bool]:
        factor = np.array(products) / (plain, adaptive)
        return lambda got: np.allclose(got[..., 0], factor[:, None] * right[..., 0], **_TOLERANCE)

    return Stage(
        "backward, plain and adaptive",
        lambda _: call(False, _MODES[1::2]),
        given="(n, width) = " + ", ".join(map(str, _SIZES)),
        expected=right,
        **_TOLERANCE,
        look="Two kernels: one owns a tile of queries, the other a tile of keys. Write the products of each in a list.",
        mistakes=(
            Mistake(
                "a backward pass in one kernel",
                "What both kernels need is counted once.",
                "One kernel could do it, if it could add to dq from many places at once.",
                "Which two products does each of the kernels begin with?",
                seen=lambda got: any(
                    operations(*products)(got) for products in ((5, 6), (5, 5), (plain - 2, adaptive - 1))
                ),
            ),
            Mistake(
                "the gradient through the entropy costs no product",
                "The adaptive backward pass has the products of the plain one.",
                "In the kernel that owns keys it has: its part is added to dz first.",
                "What does the kernel that owns queries carry besides Σ w k, and why can it not add the two at once?",
                seen=operations(plain, plain),
            ),
            Mistake(
                "twice the forward pass",
                "The backward pass has twice the products of the forward pass.",
                "It is a good rule for a network of layers.",
                "It does not know that the logits are made again.",
                seen=operations(2 * counted(False, False)[0], 2 * counted(True, False)[0]),
            ),
            Mistake(
                "exponentials are counted for one kernel",
                "Each set of weights is counted once.",
                "The forward pass has one loop for each.",
                "How many kernels make weights out of logits, and which weights?",
                seen=lambda got: (
                    np.allclose(got[..., 0], right[..., 0], **_TOLERANCE)
                    and np.allclose(got[..., 1], right[..., 1] / 2, **_TOLERANCE)
                ),
            ),
            *_bytes_mistakes(right),
        ),
    )


def _causal(call: Callable[..., np.ndarray], right: np.ndarray, whole: np.ndarray) -> Stage:
    def share(got: np.ndarray, column: int) -> float:
        """What a causal mask leaves of a column, over all modes and sizes, if it leaves the same everywhere."""
        ratio = got[..., column] / whole[..., column]
        return float(ratio.mean()) if np.ptp(ratio) < 2e-3 else float("nan")

    def shares(got: np.ndarray) -> np.ndarray:
        return np.array([share(got, column) for column in range(3)])

    def leaves(*wanted: float) -> Callable[[Any], bool]:
        return lambda got: np.allclose(shares(got), wanted, atol=5e-3)

    return Stage(
        "causal",
        lambda _: call(True, _MODES),
        given="the same with a causal mask, forward and backward",
        expected=right,
        **_TOLERANCE,
        look="How many pairs of a query and a key are visible? Which of the three counts is a count of pairs?",
        mistakes=(
            Mistake(
                "the causal mask is ignored",
                "The counts are those without a mask.",
                "A masked tile that is computed and thrown away costs what every tile costs.",
                "Which tiles does a causal kernel visit?",
                seen=leaves(1.0, 1.0, 1.0),
            ),
            Mistake(
                "half for the operations only",
                "The operations are halved and the exponentials are not.",
                "The products are what one thinks of.",
                "Which work is done for a pair that is never visited?",
                seen=leaves(0.5, 1.0, 1.0),
            ),
            Mistake(
                "half for the exponentials only",
                "The exponentials are halved and the operations are not.",
                "A mask stands next to the exponential.",
                "Which work is done for a pair that is never visited?",
                seen=leaves(1.0, 0.5, 1.0),
            ),
            Mistake(
                "half of the bytes",
                "The bytes are halved as well.",
                "Half of the work, half of everything.",
                "Which query is not read, which key, and which output is not written?",
                seen=leaves(0.5, 0.5, 0.5),
            ),
        ),
    )

"""Exercise 01.1, a softmax that survives: plain rows, axes, shifts and half precision; masks are in the next file."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from adatemp.checks import _float64
from adatemp.checks._stages import Mistake, Stage
from adatemp.checks.ch01 import _softmax_masks as masks

# Few shapes: each new one costs a reader's jax.numpy function a compilation of every operation in it.
SIGNATURE = "softmax(logits, axis=-1, where=None)"

_OFFSET = 1e4


def stages() -> tuple[Stage, ...]:
    """The stages, from basic to subtle."""
    return _plain_stages() + masks.stages() + _half_stages()


def _plain_stages() -> tuple[Stage, ...]:
    rows, cube = _float64.logits(1, 4, 7), _float64.logits(2, 2, 3, 5)
    axes_tried = (0, -2)
    shifted = rows + np.float32(_OFFSET)
    uneven = rows + np.array([[0.0], [-300.0], [200.0], [0.0]], np.float32)
    powers = np.exp(rows.astype(np.float64))
    lost_axis = Mistake(
        "the sum lost its axis",
        "Dividing `(4, 7)` by a sum of shape `(4,)` does not broadcast.",
        "On a square array it does broadcast, along the wrong axis, so a square test hides it.",
        "What shape does your sum have, and which keyword of `sum` keeps the reduced axis?",
        seen=lambda answer: isinstance(answer, TypeError | ValueError) and "broadcast" in str(answer),
    )
    plain = Stage(
        "each row is normalised",
        lambda f: f(jnp.asarray(rows)),
        given="logits of shape (4, 7), axis -1",
        expected=_float64.softmax(rows),
        look="Compare one row with exp(logits) divided by its sum, by hand.",
        mistakes=(
            lost_axis,
            Mistake(
                "wrong axis",
                "The columns sum to 1, not the rows.",
                "The axis is easy to count from the wrong end, and a square test does not tell rows from columns.",
                "Sum your weights over each axis of a (4, 7) array.",
                seen=_float64.softmax(rows, 0),
            ),
            Mistake(
                "one normaliser for all rows",
                "All weights of the array together sum to 1.",
                "Reductions without an `axis` run over everything.",
                "Which axis does each reduction run over?",
                seen=powers / powers.sum(),
            ),
            Mistake(
                "no division",
                "The answer is the exponentials; they do not sum to 1.",
                "The normaliser was computed and not used, or not computed.",
                "Sum a row of your answer.",
                seen=lambda w: (
                    np.allclose(np.asarray(w) * (powers / np.asarray(w))[:, :1], powers, rtol=1e-4)
                    and not np.allclose(np.sum(w, -1), 1.0, atol=1e-3)
                ),
            ),
            Mistake(
                "powers of two",
                "The weights are 2^logit normalised.",
                "`exp2` is what fast kernels use, after a factor log₂e that is missing here.",
                "Look at the base of the exponential.",
                seen=_float64.softmax(rows * np.log(2.0)),
            ),
        ),
    )
    axes = Stage(
        "any axis of three",
        lambda f: tuple(f(jnp.asarray(cube), axis=axis) for axis in axes_tried),
        given="logits of shape (2, 3, 5), with axis 0 and -2",
        accept=lambda ws: all(plain.close(w, _float64.softmax(cube, axis)) for w, axis in zip(ws, axes_tried)),
        look="Use an array whose sides all differ and sum the weights over the axis you asked for.",
        mistakes=(
            Mistake(
                "axis ignored",
                "The weights sum to 1 over the last axis whatever `axis` says.",
                "A `-1` was written into a reduction while the function was tried on rows.",
                "Look for a number where `axis` should stand.",
                seen=lambda ws: all(plain.close(w, _float64.softmax(cube)) for w in ws),
            ),
            lost_axis,
        ),
    )
    shift = Stage(
        "a shift by 10⁴ changes nothing",
        lambda f: f(jnp.asarray(shifted)),
        given="the same logits plus 10⁴",
        expected=_float64.softmax(rows),
        look="What is the largest number that enters `exp`?",
        mistakes=(
            Mistake(
                "no maximum subtracted",
                "The exponentials overflow: ∞ / ∞ is NaN.",
                "On logits of order one the textbook formula works, so nothing warned you.",
                "A constant may be taken off every logit of a row without changing the weights. Which constant keeps "
                "`exp` in range?",
                seen=lambda w: not np.isfinite(np.asarray(w, np.float64)).all(),
            ),
        ),
    )
    levels = Stage(
        "rows at very different levels",
        lambda f: f(jnp.asarray(uneven)),
        given="four rows, one moved by -300 and one by 200",
        expected=_float64.softmax(rows),
        look="Which number is subtracted from each row?",
        mistakes=(
            Mistake(
                "one maximum for all rows",
                "A row far below the largest logit of the array lost its weights: all its exponentials underflow.",
                "`max()` without an axis is the maximum of everything, and that is enough against overflow.",
                "Over what does your maximum run?",
                seen=lambda w: plain.close(np.asarray(w)[2], _float64.softmax(rows)[2]),
            ),
        ),
    )
    return plain, axes, shift, levels


def _half_stages() -> tuple[Stage, ...]:
    steep = np.asarray(_float64.logits(6, 4, 7) * 4.0 + 20.0, np.float16)
    even = np.zeros((2, 70_001), np.float16)
    widened = Mistake(
        "answered in another precision",
        "The weights are not float16.",
        "Work in float32 is right; the last line has to come back to the dtype of the logits.",
        "Compare the dtype of what came in with that of what goes out.",
        seen=lambda w: np.asarray(w).dtype != np.float16,
    )
    return (
        Stage(
            "float16 logits beyond the range of exp",
            lambda f: f(jnp.asarray(steep)),
            given="float16 logits near 20, where exp leaves the range of float16",
            expected=_float64.softmax(steep),
            rtol=2e-3,  # two units in the last place of float16
            atol=1e-4,
            dtype=np.float16,
            look="In which precision does each line run?",
            mistakes=(widened,),
        ),
        Stage(
            "70,001 equal float16 logits",
            lambda f: f(jnp.asarray(even)),
            given="two rows of 70,001 equal float16 logits",
            expected=_float64.softmax(even),
            rtol=0.0,
            atol=6e-8,  # one step of float16 below its normal range
            dtype=np.float16,
            look="What is the sum of the row's exponentials, and does it fit?",
            mistakes=(
                Mistake(
                    "the sum overflows float16",
                    "All weights are 0: the sum of the exponentials exceeds 65,504, the largest float16.",
                    "Every exponential is at most 1, so it looks as if half precision were enough.",
                    "In which dtype is the sum taken?",
                    seen=lambda w: np.asarray(w).dtype == np.float16 and not np.asarray(w).any(),
                ),
                widened,
            ),
        ),
    )


picture = masks.picture

"""Exercise 01.2, entropy without p log p: shifts, underflow, masked keys, a million keys and half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from adatemp.checks import _float64
from adatemp.checks._stages import Mistake, Stage

# Few shapes: each new one costs a reader's jax.numpy function a compilation of every operation in it.
SIGNATURE = "entropy(logits, axis=-1)"

_OFFSET = np.float32(1e4)


def stages() -> tuple[Stage, ...]:
    """The stages, from basic to subtle."""
    return _plain_stages() + _range_stages() + _masked_stages() + _precision_stages()


def _plain_stages() -> tuple[Stage, ...]:
    rows, cube = _float64.logits(11, 4, 6), _float64.logits(12, 2, 3, 5)
    axes_tried = (0, -2)
    right = _float64.entropy(rows)
    wide = rows.astype(np.float64)
    top = wide.max(-1)
    shifted = wide - top[:, None]
    normaliser = np.exp(shifted).sum(-1)
    plain = Stage(
        "the entropy of plain rows",
        lambda f: f(jnp.asarray(rows)),
        given="logits of shape (4, 6), axis -1",
        expected=right,
        nats=True,
        look="Work one row of three logits through by hand.",
        mistakes=(
            Mistake(
                "mean of the unshifted logits",
                "The answer is off by the row's largest logit.",
                "The logarithm of the normaliser was taken of shifted logits and the mean of the logits as they came.",
                "Both terms change when the logits are shifted. Do yours change together?",
                seen=lambda h: plain.close(h, right - top) or plain.close(h, right + top),
            ),
            Mistake(
                "unweighted mean",
                "The mean gives every key the same weight.",
                "`mean` is one word; the entropy asks for the mean logit under the weights.",
                "With which weights is the mean taken?",
                seen=np.log(normaliser) - shifted.mean(-1),
            ),
            Mistake(
                "mean not normalised",
                "The mean logit is too large by the factor of the normaliser.",
                "The sum of exponential times logit still has to be divided by something.",
                "Do the weights in your mean sum to 1?",
                seen=np.log(normaliser) - (np.exp(shifted) * shifted).sum(-1),
            ),
            Mistake(
                "sign",
                "The answer is the negative of the entropy.",
                "log p is negative, and one of the two terms carries a minus sign.",
                "Can an entropy be negative?",
                seen=-right,
            ),
            Mistake(
                "perplexity",
                "The answer is e^H, the effective number of keys.",
                "Perplexity is often reported beside the entropy.",
                "What does your function give for two equal logits?",
                seen=np.exp(right),
            ),
            Mistake(
                "wrong axis",
                "The answer has one entropy a column.",
                "The axis is easy to count from the wrong end, and a square test does not tell rows from columns.",
                "Along which axis are the keys?",
                seen=_float64.entropy(rows, 0),
            ),
        ),
    )
    axes = Stage(
        "any axis of three",
        lambda f: tuple(f(jnp.asarray(cube), axis=axis) for axis in axes_tried),
        given="logits of shape (2, 3, 5), with axis 0 and -2",
        accept=lambda hs: all(plain.close(h, _float64.entropy(cube, axis)) for h, axis in zip(hs, axes_tried)),
        look="Use an array whose sides all differ; each answer lacks the axis you asked for.",
        mistakes=(
            Mistake(
                "axis ignored",
                "The entropy is taken over the last axis whatever `axis` says.",
                "A `-1` was written into a reduction while the function was tried on rows.",
                "Look for a number where `axis` should stand.",
                seen=lambda hs: all(plain.close(h, _float64.entropy(cube)) for h in hs),
            ),
        ),
    )
    return plain, axes


def _range_stages() -> tuple[Stage, ...]:
    rows = _float64.logits(13, 4, 6)
    right = _float64.entropy(rows)
    levels = rows + np.array([[0.0], [-300.0], [200.0], [0.0]], np.float32)
    falling = -np.sort(-_float64.logits(14, 4, 6) * 40.0, -1)
    rising = falling[:, ::-1].copy()
    shift = Stage(
        "a shift by 10⁴ changes nothing",
        lambda f: f(jnp.asarray(rows + _OFFSET)),
        given="logits plus 10⁴",
        expected=right,
        look="What is the largest number that enters `exp`, and which two numbers are subtracted at the end?",
        mistakes=(
            Mistake(
                "no maximum subtracted",
                "The exponentials overflow.",
                "On logits of order one nothing warned you.",
                "The entropy does not change when a constant is taken off a row. Which constant keeps `exp` in range?",
                seen=lambda h: not np.isfinite(np.asarray(h, np.float64)).all(),
            ),
            Mistake(
                "two large numbers subtracted",
                "The answer is right to about three decimals only.",
                "log Z and the mean logit are both near 10⁴, where float32 is spaced by 0.001; their difference keeps "
                "that error.",
                "Can both terms be computed from logits that are already near 0?",
                seen=lambda h: np.abs(np.asarray(h) - right).max() < 0.02,
            ),
        ),
    )
    level = Stage(
        "rows at very different levels",
        lambda f: f(jnp.asarray(levels)),
        given="four rows, one moved by -300 and one by 200",
        expected=right,
        look="Which number is subtracted from each row?",
        mistakes=(
            Mistake(
                "one maximum for all rows",
                "A row far below the largest logit of the array has lost all its weights.",
                "`max()` without an axis is the maximum of everything, and that is enough against overflow.",
                "Over what does your maximum run?",
                seen=lambda h: shift.close(np.asarray(h)[2], right[2]),
            ),
        ),
    )
    order = Stage(
        "a permutation of the keys changes nothing, and weights may underflow",
        lambda f: (f(jnp.asarray(falling)), f(jnp.asarray(rising))),
        given="rows that span hundreds, the largest logit first and then last",
        accept=lambda hs: all(shift.close(h, _float64.entropy(falling)) for h in hs),
        look="Follow a key whose weight is 0 in float32 through your function.",
        mistakes=(
            Mistake(
                "shifted by the first logit",
                "The answer is right when the first key is the largest and fails when it is the smallest.",
                "Any constant may be subtracted on paper; in floating point only one choice is safe.",
                "Which logit do you subtract?",
                seen=lambda hs: shift.close(hs[0], _float64.entropy(falling)),
            ),
            Mistake(
                "0 · log 0",
                "The answer is NaN as soon as a weight underflows.",
                "p log p tends to 0 with p, but 0 · log 0 is 0 · (−∞), which is NaN.",
                "Write the entropy so that no weight enters a logarithm.",
                seen=lambda hs: np.isnan(np.asarray(hs[0])).any(),
            ),
        ),
    )
    return shift, level, order


def _masked_stages() -> tuple[Stage, ...]:
    rows = _float64.logits(15, 4, 6)
    rows[0, 1] = rows[1, [0, 5]] = -np.inf
    rows[2, 1:] = -np.inf
    rows[3, :3] = rows[3].max()  # a tie for the top
    right = _float64.entropy(rows)
    return (
        Stage(
            "masked keys count for nothing",
            lambda f: f(jnp.asarray(rows)),
            given="rows with some logits −∞, one with a single finite logit",
            expected=right,
            look="Follow a logit of −∞ through your function.",
            mistakes=(
                Mistake(
                    "0 · (−∞)",
                    "A masked key makes the row NaN.",
                    "Its weight is 0 and its logit −∞; the product in the mean logit is NaN, though its limit is 0.",
                    "Which factor of the product can be replaced before it is taken?",
                    seen=lambda h: np.isnan(np.asarray(h)[:3]).all() and np.isfinite(np.asarray(h)[3]),
                ),
            ),
        ),
    )


def _precision_stages() -> tuple[Stage, ...]:
    long = _float64.logits(16, 1, 1_000_000)
    half = _float64.logits(17, 3, 4_097).astype(np.float16) + np.float16(64.0)
    right_long, right_half = _float64.entropy(long), _float64.entropy(half)
    weights = _float64.softmax(long)

    def narrow(h: Any) -> bool:
        return np.asarray(h).dtype.itemsize < 4

    million = Stage(
        "a row of a million keys",
        lambda f: f(jnp.asarray(long)),
        given="one row of 1,000,000 logits",
        expected=right_long,
        rtol=0.0,
        atol=1e-4,  # float32 sums of a million terms, and 10⁻¹⁰ per key would show
        look="What is added to, or taken from, each of the million terms?",
        mistakes=(
            Mistake(
                "epsilon inside the log",
                "The entropy is wrong by an amount that grows with the number of keys.",
                "A small constant in `log(p + ε)` hides NaN; it is not small beside weights of 10⁻⁶.",
                "Compare a thousand keys with a million. Which term does not shrink with the weights?",
                seen=lambda h: any(
                    np.allclose(h, -np.sum(weights * np.log(blurred)), rtol=0, atol=1e-3)
                    for power in range(4, 11)
                    for blurred in (weights + 10.0**-power, np.maximum(weights, 10.0**-power))
                ),
            ),
        ),
    )
    return (
        million,
        Stage(
            "float16 logits",
            lambda f: f(jnp.asarray(half)),
            given="three rows of 4,097 float16 logits near 64",
            accept=lambda h: not narrow(h) and np.allclose(h, right_half, rtol=0, atol=1e-3),
            look="In which precision does each line run?",
            mistakes=(
                Mistake(
                    "answered in half precision",
                    "The entropy is a float16 number; near 8 nats those are 0.008 apart.",
                    "The dtype of the logits was carried through.",
                    "A statistic of many keys deserves more digits than one logit has. When do you widen?",
                    seen=narrow,
                ),
                Mistake(
                    "widened too late",
                    "The answer has a wide dtype and half-precision accuracy.",
                    "The cast stands at the end, after the sums were taken in float16.",
                    "Which line is the first to lose digits?",
                    seen=lambda h: (
                        np.abs(np.asarray(h) - right_half).max() < 0.2 or not np.isfinite(np.asarray(h)).all()
                    ),
                ),
            ),
        ),
    )


def picture(entropy: Callable[..., Any]) -> Any:
    """Error of the reader's entropy as the offset of the logits grows from 1 to 10⁵."""
    from adatemp import plotting

    rows = _float64.logits(13, 4, 6)
    right = _float64.entropy(rows)
    # Whole offsets below 2¹⁷ leave the logits, multiples of 1/64, exact in float32.
    offsets = np.array([0, 1, 10, 100, 1_000, 10_000, 100_000], np.float32)
    errors = np.array([np.abs(np.asarray(entropy(jnp.asarray(rows + offset))) - right).max() for offset in offsets])
    fig, axis = plotting.figure()
    axis.plot(offsets, np.maximum(errors, 1e-8), label="yours (10⁻⁸ stands for 0)", **plotting.role("plain"))
    axis.axhline(2.0**-23, label="one unit of float32", **plotting.role("neutral") | {"marker": ""})
    axis.set_xscale("symlog", linthresh=1.0)
    axis.set_yscale("log")
    axis.set_xlim(-0.2, 2e5)
    axis.set_ylim(1e-9, 10.0)
    axis.set_xlabel("offset added to every logit")
    axis.set_ylabel("largest error, nats")
    axis.legend()
    lost = int(np.isnan(errors).sum())
    alt = (
        "Line chart: the largest error of your entropy against the offset of the logits, on logarithmic axes: "
        f"{errors[0]:.1g} nats without offset, {errors[5]:.1g} at 10,000; {lost} of {errors.size} values are NaN."
    )
    return plotting.show(fig, alt=alt)

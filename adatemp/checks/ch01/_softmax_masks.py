"""Exercise 01.1, continued: −∞ logits, masked keys, dead rows and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adatemp.checks import _float64
from adatemp.checks._stages import Mistake, NotApplicable, Stage


def masked_rows() -> tuple[np.ndarray, np.ndarray]:
    """Four rows of seven keys: masked keys below the visible ones, far above them, all masked, none masked."""
    logits = _float64.logits(3, 4, 7)
    where = np.ones((4, 7), bool)
    where[0, [1, 4]] = False
    logits[0, [1, 4]] = -3.0
    where[1, [0, 5, 6]] = False
    logits[1, [0, 5, 6]] = 150.0
    where[2] = False
    logits[3, :2] = logits[3].max() + 0.5  # a tie for the top
    return logits, where


def stages() -> tuple[Stage, ...]:
    """The stages with −∞ logits, masks and gradients, from basic to subtle."""
    rows = _float64.logits(4, 4, 7)
    rows[:, 2] = -np.inf
    rows[1] = -np.inf
    logits, where = masked_rows()
    right = _float64.softmax(logits, -1, where)
    poisoned = np.where(where, logits, np.nan).astype(np.float32)
    return (
        Stage(
            "a logit of −∞ gets weight 0",
            lambda f: f(jnp.asarray(rows)),
            given="rows with one logit −∞, and one row of nothing else",
            expected=_float64.softmax(rows),
            atol=0.0,
            look="Follow the row of −∞ through your function.",
            mistakes=_dead_row_mistakes(1),
        ),
        Stage(
            "masked keys get exactly 0, dead rows are 0",
            lambda f: f(jnp.asarray(logits), where=jnp.asarray(where)),
            given="rows whose masked keys lie below the visible ones, far above them, and are all there is",
            expected=right,
            # A masked weight has to be 0, not small: only the relative tolerance is left.
            atol=0.0,
            look="Which of your reductions see masked keys?",
            mistakes=(
                Mistake(
                    "maximum taken over masked keys",
                    "The row whose masked keys lie far above the visible ones lost all its weights.",
                    "The maximum is often taken before the mask is applied; then every visible exponential underflows.",
                    "Which keys may take part in the maximum?",
                    seen=lambda w: _lost(np.asarray(w)[1]) and np.allclose(np.asarray(w)[0], right[0], rtol=1e-5),
                ),
                Mistake(
                    "masked keys left in the normaliser",
                    "Masked keys have weight 0, and the visible ones sum to less than 1.",
                    "Multiplying finished weights by the mask removes keys from the answer, not from the sum.",
                    "Sum the first row. At which step does a masked key have to disappear?",
                    seen=lambda w: np.allclose(np.asarray(w)[0], _float64.softmax(logits[0]) * where[0], rtol=1e-5),
                ),
                Mistake(
                    "mask ignored",
                    "Masked keys get weight.",
                    "`where` is optional, so the function runs without it.",
                    "Where does `where` enter?",
                    seen=lambda w: np.allclose(np.asarray(w)[0], _float64.softmax(logits[0]), rtol=1e-5),
                ),
                Mistake(
                    "mask read the wrong way round",
                    "The visible keys have weight 0.",
                    "Some libraries mark with True what is hidden; here True means visible.",
                    "Look at the sense of the mask.",
                    seen=lambda w: not np.asarray(w)[0][where[0]].any(),
                ),
                *_dead_row_mistakes(2),
                Mistake(
                    "masked weights small, not 0",
                    "A masked key has a small positive weight.",
                    "A finite number stands where the logit of a masked key should be −∞.",
                    "What is the exponential of your stand-in, relative to the row's maximum?",
                    seen=lambda w: (np.asarray(w)[0][~where[0]] > 0).all(),
                ),
            ),
        ),
        Stage(
            "NaN behind the mask stays there",
            lambda f: f(jnp.asarray(poisoned), where=jnp.asarray(where)),
            given="the same rows, every masked logit replaced by NaN",
            expected=right,
            atol=0.0,
            look="Which operations see the masked logits?",
            mistakes=(
                Mistake(
                    "mask mixed in by arithmetic",
                    "NaN in a masked key reaches the visible ones.",
                    "0 · NaN and NaN − ∞ are NaN: a mask that multiplies or adds cannot remove what is not finite.",
                    "Select in place of calculating, and before the first reduction.",
                    seen=lambda w: np.isnan(np.asarray(w)[:2]).any(),
                ),
            ),
        ),
        _gradient_stage(),
    )


def _dead_row_mistakes(dead: int) -> tuple[Mistake, ...]:
    """What goes wrong in a row without visible keys, row `dead` of the answer; row 0 has some."""
    return (
        Mistake(
            "a dead row divides 0 by 0",
            "A row without visible keys is NaN.",
            "Its maximum is −∞, so it computes −∞ − (−∞), or 0 / 0.",
            "Follow such a row through your function, line by line. Which intermediate result needs a replacement?",
            seen=lambda w: np.isnan(np.asarray(w)[dead]).all() and np.isfinite(np.asarray(w)[0]).all(),
        ),
        Mistake(
            "a large negative number for −∞",
            "A row without visible keys spreads its weight evenly over keys that nobody may see.",
            "`-1e9` works as −∞ does while at least one key is visible; with none, all logits are equal.",
            "What should a row of masked keys return, and who decides it?",
            seen=lambda w: np.allclose(np.asarray(w)[dead], 1.0 / np.asarray(w).shape[-1]),
        ),
    )


def _gradient_stage() -> Stage:
    logits, where = masked_rows()
    cotangent = _float64.logits(5, 4, 7).astype(np.float64)
    right = _float64.softmax_gradient(logits, cotangent, where)

    def gradient(softmax: Callable[..., Any]) -> np.ndarray:
        def total(z: jax.Array) -> jax.Array:
            return jnp.sum(softmax(z, where=jnp.asarray(where)) * jnp.asarray(cotangent, jnp.float32))

        try:
            return np.asarray(jax.grad(total)(jnp.asarray(logits)))
        except jax.errors.TracerArrayConversionError:
            raise NotApplicable("written in NumPy, which has no gradients") from None

    return Stage(
        "the gradient is finite and right",
        gradient,
        given="the masked rows above, differentiated with respect to the logits",
        expected=right,
        rtol=1e-4,
        look="Differentiate one row at a time and find the first that is off.",
        mistakes=(
            Mistake(
                "mask applied after the division",
                "The values are right and the gradient of the row without visible keys is NaN.",
                "The row computes 0 / 0 and a selection hides it; the derivative of the hidden branch is still NaN.",
                "Which denominator can be 0, and can it be replaced before the division?",
                seen=lambda g: np.isnan(np.asarray(g)[2]).any(),
            ),
            Mistake(
                "mask applied after the exponential",
                "The values are right and the gradient of a row with a masked key far above the visible ones is NaN.",
                "`where` selects the value; the derivative of the branch not taken is ∞, and 0 · ∞ is NaN.",
                "What does the exponential see at a masked key? A selection around the result does not change that.",
                seen=lambda g: np.isnan(np.asarray(g)[1]).any(),
            ),
            Mistake(
                "gradient stopped",
                "The gradient is 0 everywhere.",
                "A `stop_gradient` or a detour through another type cuts the whole function, not only the maximum.",
                "What may be held constant without changing the derivative?",
                seen=lambda g: not np.asarray(g).any(),
            ),
        ),
    )


def _lost(row: np.ndarray) -> bool:
    return bool(np.isnan(row).any() or not row.any())


def picture(softmax: Callable[..., Any]) -> Any:
    """Weights that the reader's function gives to the masked rows, beside the float64 ones."""
    from adatemp import plotting

    logits, where = masked_rows()
    drawn = np.asarray(softmax(jnp.asarray(logits), where=jnp.asarray(where)), np.float64)
    right = _float64.softmax(logits, -1, where)
    fig, axes = plotting.figure(width=5.0, height=4.2, ncols=1, nrows=2, sharex=True)
    for axis, row, title in zip(axes, (0, 1), ("masked keys below the others", "masked keys far above the others")):
        keys = np.arange(where.shape[1])
        axis.bar(keys - 0.2, np.nan_to_num(drawn[row]), 0.4, color=plotting.palette["plain"], label="yours")
        axis.bar(keys + 0.2, right[row], 0.4, color=plotting.palette["neutral"], label="float64")
        hidden = keys[~where[row]]
        axis.plot(hidden, 0.0 * hidden, "x", color=plotting.palette["ink"], label="masked", clip_on=False, zorder=3)
        axis.set_title(title)
        axis.set_ylabel("weight")
    axes[0].legend()
    axes[1].set_xlabel("key")
    worst = float(np.max(np.abs(np.nan_to_num(drawn, nan=1.0) - right)[:2]))
    alt = (
        "Bar charts of two rows of seven weights, yours beside float64, masked keys marked by crosses. "
        f"The largest difference is {worst:.2g}."
    )
    return plotting.show(fig, alt=alt)

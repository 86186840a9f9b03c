"""Exercise 08.4, the gradient of β: the whole derivative, the stopped one, and where more scale sharpens less."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.temperature import PAPER_COEFFICIENTS as PAPER

_TITLE = "08.4 The gradient of β"
_GRADIENTS, _FALLING = "gradients(logits, values)", "falling(row)"
_LOW, _HIGH = 0.848582, 5.944521


def ex4(gradients: Callable[..., Any], falling: Callable[..., Any]) -> Report:
    """Checks the derivative of a head's output through the published map, and the scales at which it sharpens less.

    With p = softmax(z), H its entropy in nats, β the published map of H and a = softmax(βz), the output is Σ a_j v_j.

    Args:
        gradients: `gradients(logits, values) -> (full, stopped)`: the derivative of the output in each logit, with β a
            function of the logits, and with β held at the value it has. `logits` and `values` are [n] float64; no row
            lies within 10⁻³ nats of a kink of the map.
        falling: `falling(row) -> (low, high)`: the scales s > 0 between which the top weight of the row s·row falls as
            s rises, each to 10⁻³. There is one such interval in the rows asked for.

    Returns:
        The report. Mistakes it names: the chain through H left out; the derivative of the entropy with the wrong sign
        or without its mean; a factor β left out; the interval where β falls; an end at a kink missed by a stencil.
    """
    return in_turn(
        (
            lambda: examine(gradients, _TITLE, _GRADIENTS, _gradient_stages()),
            lambda: examine(falling, _TITLE, _FALLING, _falling_stages()),
        ),
        remark="Inside that interval, ascent on sharpness shrinks the logits.",
        picture=functools.partial(_draw, falling),
    )


def _softmax(z: np.ndarray) -> np.ndarray:
    powers = np.exp(z - z.max())
    return powers / powers.sum()


def _entropy(p: np.ndarray) -> float:
    return float(-(p * np.log(np.where(p > 0, p, 1.0))).sum())


def _map(entropy: float) -> tuple[float, float]:
    """β and its slope."""
    if _LOW < entropy < _HIGH:
        return float(np.polyval(PAPER, entropy)), float(np.polyval(np.polyder(PAPER), entropy))
    return 1.0, 0.0


def output(z: np.ndarray, v: np.ndarray) -> float:
    """What the head returns."""
    beta, _ = _map(_entropy(_softmax(z)))
    return float(_softmax(beta * z) @ v)


def derivative(z: np.ndarray, v: np.ndarray, through: float = 1.0, sign: float = 1.0, mean: float = 1.0) -> np.ndarray:
    """dO/dz by the chain rule; `through` = 0 stops at the entropy, the others plant mistakes."""
    p = _softmax(z)
    beta, slope = _map(_entropy(p))
    a = _softmax(beta * z)
    w = a * (v - a @ v)
    d_entropy = -p * (z - mean * (p @ z))
    return beta * w + through * sign * slope * (w @ z) * d_entropy


def _rows() -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(804)
    rows = [scale * draw.normal(size=n) for n, scale in ((7, 1.0), (40, 1.5), (300, 2.0), (300, 0.5))]
    rows.append(np.where(np.arange(50) == 3, 9.0, 0.0) + 0.1 * draw.normal(size=50))  # below the window: β is 1
    rows.append(0.3 * draw.normal(size=900))  # above it
    return [(row + 2.0, draw.normal(size=row.size)) for row in rows]


def _gradient_stages() -> tuple[Stage, ...]:
    rows = _rows()

    def joined(part: Callable[..., np.ndarray]) -> np.ndarray:
        """Derivatives of all rows, each divided by its largest true entry, so that no row hides behind another."""
        return np.concatenate([part(z, v) / np.abs(derivative(z, v)).max() for z, v in rows])

    called = functools.cache(lambda f: [f(z, v) for z, v in rows])

    def given(f: Callable[..., Any], which: int) -> np.ndarray:
        parts = [np.asarray(pair[which], np.float64) for pair in called(f)]
        return np.concatenate([g / np.abs(derivative(z, v)).max() for g, (z, v) in zip(parts, rows, strict=True)])

    full, stopped = joined(derivative), joined(functools.partial(derivative, through=0.0))
    near = {"rtol": 1e-4, "atol": 1e-4}
    where = "six rows of 7 to 900 logits, two of them outside the window"
    return (
        Stage(
            "two arrays of the row's length",
            lambda f: called(f),
            given=where,
            accept=lambda got: all(
                len(pair) == 2 and all(np.shape(part) == z.shape for part in pair)
                for pair, (z, _) in zip(got, rows, strict=True)
            ),
            look="Return `(full, stopped)`, each of the shape of the logits.",
        ),
        Stage(
            "the stopped derivative",
            lambda f: given(f, 1),
            given=where,
            expected=stopped,
            **near,
            mistakes=(
                Mistake(
                    "the two exchanged",
                    "What came second is the whole derivative.",
                    "They differ by one term.",
                    "The order is `(full, stopped)`.",
                    seen=full,
                ),
                Mistake(
                    "a factor β left out",
                    "The answer is the derivative in βz and not in z.",
                    "It is the gradient of a softmax, which one knows by heart.",
                    "β multiplies the logits. What does the chain rule make of that?",
                    seen=joined(lambda z, v: derivative(z, v, through=0.0) / _map(_entropy(_softmax(z)))[0]),
                ),
            ),
            look="With β a number, which softmax is differentiated, and in what?",
        ),
        Stage(
            "the whole derivative",
            lambda f: given(f, 0),
            given=where,
            expected=full,
            **near,
            mistakes=(
                Mistake(
                    "the chain through H left out",
                    "The two derivatives are equal.",
                    "β looks like a constant in the last line of the code.",
                    "β is a function of the entropy, the entropy one of every logit.",
                    seen=stopped,
                ),
                Mistake(
                    "the sign of the entropy's derivative",
                    "The term through the entropy has the wrong sign.",
                    "Raising the largest logit lowers the entropy; in the formula the minus is easily lost.",
                    "Does the entropy rise or fall when the largest logit rises?",
                    seen=joined(functools.partial(derivative, sign=-1.0)),
                ),
                Mistake(
                    "the entropy's derivative without its mean",
                    "Adding a number to all logits changes your answer.",
                    "dH/dz = −p(z − E[z]), and the mean is easily dropped.",
                    "What must the derivatives of the entropy add up to?",
                    seen=joined(functools.partial(derivative, mean=0.0)),
                ),
            ),
            look="Compare with central differences of the output, row by row. Which rows are off?",
        ),
    )


def _falling_stages() -> tuple[Stage, ...]:
    rows = _leaders()
    expected = np.array([falling_interval(row) for row in rows])
    return (
        Stage(
            "where more scale gives a smaller top weight",
            lambda f: np.array([[float(x) for x in f(row)] for row in rows]),
            given="one leader among 16 to 1,024, and a row of normal logits",
            expected=expected,
            rtol=0,
            atol=2e-3,
            mistakes=(
                Mistake(
                    "the interval where β falls",
                    "Your interval begins where β does, and there the top weight still rises.",
                    "The published map falls from its peak on, as the row gets sharper.",
                    "The top weight depends on the product of the scale and β.",
                    seen=lambda got: bool(
                        np.allclose(got[:, 1], expected[:, 1], atol=0.05) and (got[:, 0] < expected[:, 0] - 0.01).all()
                    ),
                ),
                Mistake(
                    "a kink inside the stencil",
                    "The upper end is off by about a step of your grid or of your differences.",
                    "At that end β has a kink, and a difference across a kink is the slope of neither side.",
                    "At which entropy does the interval end, exactly? Solve for it.",
                    seen=lambda got: bool(
                        np.abs(got[:, 0] - expected[:, 0]).max() < 0.1
                        and np.abs(got[:, 1] - expected[:, 1]).max() < 0.1
                    ),
                ),
                Mistake(
                    "scales in the place of top weights",
                    "The ends returned are not scales.",
                    "Weights are what one plots.",
                    "Return the two values of s.",
                    seen=lambda got: bool((got <= 1).all()),
                ),
            ),
            look="Plot the top weight against s, and β beside it.",
        ),
    )


def _leaders() -> list[np.ndarray]:
    rows = [
        np.where(np.arange(n) == 0, 1.0, 0.0) for n in (16, 256, 1024)
    ]  # from about 2,000 on there are two intervals
    return [*rows, np.random.default_rng(8044).normal(size=200)]


def falling_interval(row: np.ndarray) -> tuple[float, float]:
    """Scales between which s β(s) falls: from a zero of its derivative to the kink at the lower root."""
    from scipy.optimize import brentq

    def at(s: float) -> tuple[float, float]:
        """Entropy of the scaled row, and d(s β)/ds there."""
        p = _softmax(s * row)
        entropy = _entropy(p)
        variance = float(p @ row**2 - (p @ row) ** 2)
        return entropy, float(np.polyval(PAPER, entropy) - s * np.polyval(np.polyder(PAPER), entropy) * s * variance)

    widest = 60.0 / np.ptp(row)
    end = brentq(lambda s: at(s)[0] - _LOW, 1e-3, widest, xtol=1e-12)
    scales = np.linspace(end / 3, end, 400)[:-1]
    rising = [s for s in scales if at(s)[1] > 0 and at(s)[0] < _HIGH]
    start = brentq(lambda s: at(s)[1], max(rising), end * (1 - 1e-12), xtol=1e-12)
    return float(start), float(end)


def _draw(falling: Callable[..., Any]) -> Any:
    """Top weight against scale for one leader among 256, with the interval that came back."""
    from adatemp import plotting

    row = _leaders()[1]
    low, high = (float(x) for x in falling(row))
    scales = np.linspace(2, 11, 300)
    tops = [_softmax(_map(_entropy(_softmax(s * row)))[0] * s * row).max() for s in scales]
    figure, axes = plotting.figure(height=2.6)
    axes.plot(scales, tops, **plotting.role("adaptive") | {"marker": None})
    axes.axvspan(low, high, color=plotting.palette["highlight"], alpha=0.15, linewidth=0)
    axes.set(xlabel="scale s", ylabel="top weight")
    return plotting.show(
        figure,
        alt=f"Top weight of one leader among 256 under the published map, against the scale of the row; your interval "
        f"from {low:.2f} to {high:.2f} is shaded.",
    )

"""Max retrieval with one number: when the logit is linear in the priority, only n/S matters.

Let the logit of an item be S times its priority and the n priorities be uniform on [0, 1). Counted from the top, the
gaps n(1 − ρ_(1)), n(1 − ρ_(2)), ... tend to the arrivals Γ₁ < Γ₂ < ... of a Poisson process of rate 1 as n grows, so
with r = n/S the weights are

    w_i ∝ exp(−S(1 − ρ_(i))) = exp(−Γ_i/r),

and accuracy and entropy are functions of r alone. Dividing the temperature by β is dividing n by β. For large r the
weights' sum has mean r and the mean gap is 1, so the entropy is close to 1 + log r.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Bool, Float

# Arrivals past 14 r are left out: they hold a share exp(−14) < 1e-6 of the mass.
TAIL = 14.0
# Arrivals held at once.
BLOCK = 4_000_000


def accuracy(
    ratio: Float[ArrayLike, "*r"], *, classes: int = 10, sets: int = 10_000, seed: int = 0
) -> Float[np.ndarray, "*r"]:
    """Share of sets in which the class of the top item has the largest mass, by simulation of the Poisson process.

    Args:
        ratio: n/S, positive; one number or an array.
        classes: number of classes C, uniform over the items.
        sets: simulated sets; the standard error is at most 1/(2√sets).
        seed: of the simulation; the same arrivals serve all ratios of a call, so that curves are smooth.

    Returns:
        Accuracy in [1/C, 1], of the shape of `ratio`.
    """
    return _average(ratio, lambda weights, labels: _top_class_wins(weights, labels, classes), classes, sets, seed)


def entropy(ratio: Float[ArrayLike, "*r"], *, sets: int = 2_000, seed: int = 0) -> Float[np.ndarray, "*r"]:
    """Mean entropy of the attention weights in nats, close to 1 + log(ratio) for large ratios.

    Args:
        ratio: n/S, positive; one number or an array.
        sets: simulated sets.
        seed: of the simulation.
    """
    return _average(ratio, lambda weights, labels: _row_entropy(weights), 1, sets, seed)


def sharpness(
    priority: Float[ArrayLike, "sets n"],
    logits: Float[ArrayLike, "sets n"],
    *,
    window: float = 0.05,
    where: Bool[ArrayLike, "sets n"] | None = None,
) -> float:
    """S of a trained head: the slope of its logits in the priority among the items near the top.

    A least-squares line through the items whose priority is within `window` of the highest of their set, with an
    intercept for each set, since the query may shift all logits of a set. At any size the weight lies on items within a
    few 1/S of the top, so the window should be a few times 1/S; what the logits do further down does not matter.

    Args:
        priority: priorities of the items.
        logits: their attention logits.
        window: how far below its set's highest priority an item may be, in units of priority.
        where: which items exist.

    Returns:
        The slope, in nats per unit of priority; negative when the head prefers low priorities.

    Raises:
        ValueError: when no set has two items of different priority within the window.
    """
    priority, logits = np.asarray(priority, np.float64), np.asarray(logits, np.float64)
    if priority.shape != logits.shape or priority.ndim != 2:
        raise ValueError(f"priority {priority.shape} and logits {logits.shape} must both be [sets, n].")
    live = np.ones(priority.shape, bool) if where is None else np.asarray(where, bool)
    near = live & (priority >= np.where(live, priority, -np.inf).max(-1, keepdims=True) - window)
    count = np.maximum(near.sum(-1, keepdims=True), 1)
    x = np.where(near, priority - np.where(near, priority, 0).sum(-1, keepdims=True) / count, 0)
    y = np.where(near, logits - np.where(near, logits, 0).sum(-1, keepdims=True) / count, 0)
    if not (x**2).sum() > 0:
        raise ValueError(f"window={window}: no set has two items that near to its top; widen it or give larger sets.")
    return float((x * y).sum() / (x**2).sum())


def _average(ratio, statistic, classes, sets, seed):
    """Mean of a statistic of weights and labels over simulated sets, for each ratio."""
    ratios = np.asarray(ratio, np.float64)
    if not (ratios > 0).all() or not np.isfinite(ratios).all():
        raise ValueError(f"ratio={ratio!r}: n/S must be positive and finite.")
    reach = TAIL * ratios.ravel()
    # Arrivals up to TAIL·r with five standard deviations to spare.
    points = np.ceil(reach + 5 * np.sqrt(reach) + 10).astype(int)
    block = max(1, BLOCK // points.max(initial=1))
    totals = np.zeros(points.size)
    for start in range(0, sets, block):
        rng = np.random.default_rng((seed, start))
        size = (min(block, sets - start), points.max(initial=1))
        arrivals = np.cumsum(rng.standard_exponential(size), axis=-1)
        labels = rng.integers(classes, size=size)
        for index, (r, near) in enumerate(zip(ratios.ravel(), points)):
            # The factor exp(−Γ₁/r) is common to all items of a set: divided by it, the top item has weight 1.
            weights = np.exp((arrivals[:, :1] - arrivals[:, :near]) / r)
            totals[index] += statistic(weights, labels[:, :near]).sum()
    return (totals / sets).reshape(ratios.shape)[()]


def _top_class_wins(weights, labels, classes):
    rows = np.broadcast_to(np.arange(len(weights))[:, None] * classes, labels.shape)
    mass = np.bincount((rows + labels).ravel(), weights.ravel(), minlength=len(weights) * classes)
    return mass.reshape(-1, classes).argmax(-1) == labels[:, 0]


def _row_entropy(weights):
    total = weights.sum(-1)
    log_weights = np.log(np.maximum(weights, np.finfo(np.float64).tiny))
    return np.log(total) - (weights * log_weights).sum(-1) / total

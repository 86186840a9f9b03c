"""Proposition 3.2 under attack: rows whose entropy falls as the temperature rises are looked for, in float64.

sizes, factors   numbers of items n, and by what the higher temperature exceeds the lower: every pair is tried
attack           rows (random rows tried, each at a random temperature), ascents, and the largest excess
                 H(z/θ) − H(z/θ′) with θ′ above θ, in nats, among the random rows (random), at the ends of the ascents
                 (ascent; over logits and temperature together) and over rows of two levels of every count
                 (two_levels). Positive means that an entropy fell. A row of equal logits has 0
rate             largest relative error of the rate Var(z)/θ³ against central differences, over the random rows
limits           largest distance in nats, over the random rows, of the entropy at the lowest temperature from the
                 logarithm of the number of largest logits, and at the highest from log n
"""

from __future__ import annotations

import numpy as np

SIZES = (2, 3, 5, 17, 64, 257)
FACTORS = (1.01, 1.5, 10.0)
RANDOM, STARTS, WIDEST = 500, 8, 8.0

CELLS = ("attack",)
SECONDS = 20
DATA = ()


def run(cell: str) -> dict:
    """Attack the proposition at every size and factor."""
    del cell
    excess: dict[str, list[float]] = {"random": [], "ascent": [], "two_levels": []}
    rate, cold, hot = [], [], []
    for n in SIZES:
        draw = np.random.default_rng(n)
        rows = random_rows(n, draw)
        thetas = np.exp(draw.uniform(-1.5, 2.0, len(rows)))[:, None]
        rate.append(_rate_error(rows, thetas))
        ties = (rows == rows.max(1, keepdims=True)).sum(1)
        cold.append(np.abs(entropy(rows / 1e-5) - np.log(ties)).max())
        hot.append(np.abs(entropy(rows / 1e7) - np.log(n)).max())
        levels = np.tril(np.ones((n - 1, n)))
        for factor in FACTORS:
            excess["random"].append(_fall(rows, thetas, factor).max())
            starts = [np.append(row, draw.uniform(-1, 1)) for row in rows[:: len(rows) // STARTS][:STARTS]]
            excess["ascent"] += [_ascend(start, factor) for start in starts]
            excess["two_levels"] += [_fall(s * levels, 1.0, factor).max() for s in (1e-3, 0.1, 1.0, 4.0, 30.0)]
    pairs = len(SIZES) * len(FACTORS)
    return {
        "attack": {
            "rows": 2 * RANDOM * pairs,
            "ascents": STARTS * pairs,
            **{how: float(max(values)) for how, values in excess.items()},
        },
        "rate": float(max(rate)),
        "limits": {"lowest": float(max(cold)), "highest": float(max(hot))},
    }


def assemble(parts: list[dict]) -> dict:
    """The data of the result from its one cell."""
    return {"sizes": list(SIZES), "factors": list(FACTORS), **parts[0]}


def random_rows(n: int, draw: np.random.Generator) -> np.ndarray:
    """Normal rows, and rows of few values with ties, in multiples of 1/100."""
    normal = draw.normal(0, 2, (RANDOM, n))
    tied = draw.integers(0, 4, (RANDOM, n)) * draw.uniform(0.1, 2.0, (RANDOM, 1))
    return np.round(np.concatenate([normal, tied]), 2)


def entropy(z: np.ndarray) -> np.ndarray:
    """Entropy in nats of softmax(z), as the logarithm of the shifted normaliser less the mean shifted logit."""
    t = z - z.max(-1, keepdims=True)
    powers = np.exp(t)
    total = powers.sum(-1)
    return np.log(total) - (powers * t).sum(-1) / total


def _fall(rows: np.ndarray, theta: np.ndarray | float, factor: float) -> np.ndarray:
    return entropy(rows / theta) - entropy(rows / (theta * factor))


def _rate_error(rows: np.ndarray, theta: np.ndarray) -> float:
    """Largest error of Var(z)/θ³ against central differences, relative to the largest rate at hand."""
    h = 1e-4 * theta
    difference = (entropy(rows / (theta + h)) - entropy(rows / (theta - h))) / (2 * h[:, 0])
    z = rows / theta
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    centred = rows - (p * rows).sum(1, keepdims=True)
    rate = (p * centred**2).sum(1) / theta[:, 0] ** 3
    return float((np.abs(difference - rate) / (np.abs(rate) + 1e-3)).max())


def _ascend(start: np.ndarray, factor: float) -> float:
    """The largest fall that a quasi-Newton ascent over logits and log θ finds, from a random row."""
    from scipy.optimize import minimize

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        row, theta = x[:-1], np.exp(x[-1])
        value, slopes, in_log_theta = [], [], []
        for at in (theta, theta * factor):
            z = row / at
            p = np.exp(z - z.max())
            p /= p.sum()
            centred = z - p @ z
            value.append(float(entropy(z)))
            slopes.append(-p * centred / at)
            in_log_theta.append(float(p @ centred**2))
        slope = np.append(slopes[0] - slopes[1], in_log_theta[0] - in_log_theta[1])
        return value[1] - value[0], -slope

    box = [(-WIDEST, WIDEST)] * (start.size - 1) + [(-2.0, 2.0)]
    return -float(minimize(negative, np.clip(start, -2 * WIDEST, WIDEST), jac=True, method="L-BFGS-B", bounds=box).fun)

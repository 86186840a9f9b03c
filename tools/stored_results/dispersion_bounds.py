"""The bounds of chapter 03 under attack: random rows and gradient ascent on the excess, in float64.

sizes, scaled, temperature   numbers of items n, spreads over temperature δ/θ, and the temperature: every pair is tried
rows       one for each bound: quantity, bound, rows (random rows tried), ascents, and the largest excess over the bound
           among the random rows (random), at the ends of the ascents (ascent) and over all rows of two levels
           (two_levels); furthest, the least over the pairs of the largest of these three: how near some row comes to
           the bound at every pair. In nats; for the distance in mass. Positive means broken. Where a row attains the
           bound the excess is 0 up to rounding; for entropy and distance, up to that of a count
constants  the largest and the smallest n·p over κ and 1/κ, by the tight bounds, at n = 10⁹
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SIZES = (2, 3, 5, 17, 64, 257)
SCALED = (0.1, 1.0, 3.0, 6.0, 12.0)
TEMPERATURE = 0.7
RANDOM, STARTS = 1_000, 10  # rows of each of two kinds; ascents for each pair

CELLS = ("largest weight", "smallest weight", "entropy", "distance from uniform")
SECONDS = 25
DATA = ()

Reading = Callable[[np.ndarray], tuple[float, np.ndarray]]  # a row to (value, slope)


def run(cell: str) -> list[dict]:
    """Attack every bound on one quantity, at every size and spread."""
    quantity = {
        "largest weight": _log_top,
        "smallest weight": _minus_log_bottom,
        "entropy": _deficit,
        "distance from uniform": _distance,
    }[cell]
    worst = {name: {"random": [], "ascent": [], "two_levels": []} for name in bounds(cell)}
    for n in SIZES:
        for s in SCALED:
            spread, draw = s * TEMPERATURE, np.random.default_rng([n, int(10 * s)])
            found = {
                "random": max(quantity(row)[0] for row in _random_rows(n, spread, draw)),
                "ascent": max(_ascend(quantity, row, spread) for row in _starts(n, spread, draw)),
                "two_levels": _best_of_two_levels(quantity, n, spread),
            }
            for name, bound in bounds(cell).items():
                for how, value in found.items():
                    worst[name][how].append(float(value - bound(n, s)))
    pairs = len(SIZES) * len(SCALED)
    return [
        {
            "quantity": cell,
            "bound": name,
            "rows": 2 * RANDOM * pairs,
            "ascents": STARTS * pairs,
            **{how: max(values) for how, values in excess.items()},
            "furthest": min(map(max, zip(*excess.values(), strict=True))),
        }
        for name, excess in worst.items()
    ]


def assemble(parts: list[list[dict]]) -> dict:
    """The data of the result from its cells."""
    contrast, many = np.exp(SCALED), 1e9
    high, low = contrast / (contrast + many - 1), 1 / (1 + (many - 1) * contrast)
    return {
        "sizes": list(SIZES),
        "scaled": list(SCALED),
        "temperature": TEMPERATURE,
        "rows": [row for part in parts for row in part],
        "constants": {
            "upper": [float(x) for x in many * high / contrast],
            "lower": [float(x) for x in many * low * contrast],
        },
    }


def bounds(cell: str) -> dict[str, Callable[[int, float], float]]:
    """The bounds on a quantity as functions of n and δ/θ, all as upper bounds of what its reading returns.

    Written out here, so that the stored result stays what it is when the library's forms change; a test compares them.
    """

    def exact_deficit(n: int, s: float) -> float:
        zeta = s / -np.expm1(-s)
        return min(zeta - 1 - np.log(zeta), np.log(n))

    return {
        "largest weight": {
            "simple": lambda n, s: s - np.log(n),
            "tight": lambda n, s: -np.log1p((n - 1) * np.exp(-s)),
        },
        "smallest weight": {
            "simple": lambda n, s: s + np.log(n),
            "tight": lambda n, s: np.log1p((n - 1) * np.exp(s)),
        },
        "entropy": {
            "linear": lambda n, s: min(s, np.log(n)),
            "quadratic": lambda n, s: min(s * s / 8, np.log(n)),
            "exact": exact_deficit,
        },
        "distance from uniform": {"exact": lambda n, s: np.tanh(s / 4)},
    }[cell]


def _weights(row: np.ndarray) -> np.ndarray:
    powers = np.exp((row - row.max()) / TEMPERATURE)
    return powers / powers.sum()


def _log_top(row: np.ndarray) -> tuple[float, np.ndarray]:
    """The logarithm of the largest weight, and its slope."""
    p = _weights(row)
    top = int(row.argmax())
    slope = -p / TEMPERATURE
    slope[top] += 1 / TEMPERATURE
    return float(np.log(p[top])), slope


def _minus_log_bottom(row: np.ndarray) -> tuple[float, np.ndarray]:
    p = _weights(row)
    bottom = int(row.argmin())
    slope = p / TEMPERATURE
    slope[bottom] -= 1 / TEMPERATURE
    return float(-np.log(p[bottom])), slope


def _deficit(row: np.ndarray) -> tuple[float, np.ndarray]:
    """log n − H."""
    p = _weights(row)
    h = -float((p * np.log(p)).sum())
    return float(np.log(p.size)) - h, p * (np.log(p) + h) / TEMPERATURE


def _distance(row: np.ndarray) -> tuple[float, np.ndarray]:
    p = _weights(row)
    above = p > 1 / p.size
    inside = p[above].sum()
    return float(inside - above.mean()), p * (above - inside) / TEMPERATURE


def _random_rows(n: int, spread: float, draw: np.random.Generator) -> np.ndarray:
    """Rows drawn evenly, and rows near the two ends."""
    return spread * np.concatenate([draw.uniform(size=(RANDOM, n)), draw.beta(0.05, 0.05, (RANDOM, n))])


def _starts(n: int, spread: float, draw: np.random.Generator) -> np.ndarray:
    """Rows from mostly high to mostly low: the best count of high logits may be either."""
    return spread * draw.uniform(size=(STARTS, n)) ** np.geomspace(0.2, 60.0, STARTS)[:, None]


def _ascend(quantity: Reading, start: np.ndarray, spread: float) -> float:
    """The value at which a quasi-Newton ascent within the spread ends."""
    from scipy.optimize import minimize

    def negative(row: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = quantity(row)
        return -value, -slope

    box = [(0.0, spread)] * start.size
    return -float(minimize(negative, start, jac=True, method="L-BFGS-B", bounds=box).fun)


def _best_of_two_levels(quantity: Reading, n: int, spread: float) -> float:
    """The largest value on a row of two levels, of any count: what attains the tight form, or comes nearest to it."""
    return max(quantity(row)[0] for row in spread * np.tril(np.ones((n - 1, n))))

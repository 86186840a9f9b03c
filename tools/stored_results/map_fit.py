"""The published map's fit done again by several procedures, and what rounding leaves of its roots.

entropies   grid in nats on which curves are stored; edges, limits of the bins in nats
published   beta of the published map on the grid, never below 1
curves      one for each head, choice of sets and way to fit a quartic to their misordered rows:
    head        "10,000 steps, seed 0" and seed 1 of table1, "1,000 steps, seed 0" of the same recipe, and
                "adam, L2 term, seed 0", 10,000 steps with the penalty in the loss
    sets        "16"; "16 to 128", "16 to 1,024", "16 to 4,096", "16 to 16,384" items, in doublings
    way         "beta": least squares of max(1, beta*), as `fit_inverse_temperature`; "temperature": least squares
                of 1/max(1, beta*), its reciprocal; "median": least squares of the medians of beta by bins of
                entropy; "by size": least squares of one beta for each size, the likeliest for its misordered rows
                together, at their mean entropy, of the highest degree up to four that the sizes determine
    misordered  rows fitted; low, high: 1st and 99th percentile of their entropies
    degree, coefficients   of the polynomial in the entropy, highest power first: beta, or 1/beta for "temperature"
    beta        the curve on the grid, never below 1, null outside low to high
    distance    root mean square of its difference from the published map over those points, and points, how many
bins        for each head and choice of sets: head, sets, and for each bin count, median, mean and harmonic mean of
            max(1, beta*), null with fewer than 8 rows
on_top      for each head, by size, the share of sets whose target has the largest logit
rounding    of the five published coefficients, taken to be right to half a unit of the last of `decimals`:
    lower, upper, peak, height   the interval, over all such coefficients, of the two entropies where the quartic
                is 1, of its peak's entropy in nats, and of its value there; lower and upper exactly, the others
                over samples
    quantiles   of the same under independent uniform errors: 2.5, 50 and 97.5 per cent
    samples
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from adatemp._fit import _best_beta
from adatemp._polynomial import PAPER_COEFFICIENTS
from adatemp.tasks import max_retrieval

HEADS = {
    "10,000 steps, seed 0": (0, 10_000, max_retrieval.MAIN_RECIPE),
    "10,000 steps, seed 1": (1, 10_000, max_retrieval.MAIN_RECIPE),
    "1,000 steps, seed 0": (0, 1_000, max_retrieval.MAIN_RECIPE),
    "adam, L2 term, seed 0": (0, 10_000, "adam, L2 term"),
}
CELLS = ("rounding", *HEADS)
SECONDS = 30
DATA = ()

SETS = {16: 2048, 32: 2048, 64: 2048, 128: 2048, 256: 2048, 512: 1024, 1024: 1024, 2048: 512, 4096: 256, 8192: 128}
SETS |= {16384: 128}
CHOICES = {"16": 16, "16 to 128": 128, "16 to 1,024": 1024, "16 to 4,096": 4096, "16 to 16,384": 16384}
ENTROPIES = np.arange(0.5, 6.01, 0.125)
EDGES = np.arange(0, 6.51, 0.25)
FEWEST = 8

#: Decimals to which each coefficient may be thought printed: all to three, or -2.3 to one.
DECIMALS = {"three each": (3, 3, 3, 3, 3), "-2.3 to one": (3, 3, 1, 3, 3)}
SAMPLES = 20_000


def run(cell: str) -> dict:
    """The rounding of the published coefficients, or all fits to one head."""
    if cell == "rounding":
        return {"rounding": [{"decimals": name, **rounding(digits, SAMPLES)} for name, digits in DECIMALS.items()]}
    seed, steps, recipe = HEADS[cell]
    head, _ = max_retrieval.train_head(seed, steps=steps, recipe=recipe, progress=False)
    return fits(cell, head, SETS)


def fits(name: str, head, sets: dict[int, int]) -> dict:
    """Curves, bins and shares of one head."""
    by_size = {n: points(head, n, count) for n, count in sets.items()}
    curves, bins = [], []
    for choice, largest in CHOICES.items():
        chosen = [found for n, found in by_size.items() if n <= largest]
        entropy, beta = (np.concatenate([found[part] for found in chosen]) for part in ("entropy", "beta"))
        if not len(entropy):
            continue
        bins.append({"head": name, "sets": choice, **binned(entropy, beta)})
        low, high = np.percentile(entropy, [1, 99])
        for way, coefficients in polynomials(entropy, beta, bins[-1], chosen).items():
            inside = (low <= ENTROPIES) & (high >= ENTROPIES)
            values = np.polyval(coefficients, ENTROPIES)
            if way == "temperature":
                values = 1 / np.clip(values, 1e-3, 1)
            values = np.maximum(values, 1)
            apart = (values - published())[inside]
            curve = {"head": name, "sets": choice, "way": way, "misordered": len(entropy), "low": low, "high": high}
            curve |= {"degree": len(coefficients) - 1, "coefficients": list(coefficients)}
            curve |= {"beta": [float(v) if at else None for v, at in zip(values, inside)]}
            curve |= {"distance": float(np.sqrt(np.mean(apart**2))) if inside.any() else None}
            curves.append(curve | {"points": int(inside.sum())})
    on_top = {"head": name, "sizes": list(sets), "share": [found["on_top"] for found in by_size.values()]}
    return {"curves": curves, "bins": bins, "on_top": on_top}


def points(head, n: int, count: int) -> dict:
    """Entropy and best permitted beta of the misordered of random sets of n items, and the likeliest common beta."""
    entropy, beta, rows, right = [], [], [], 0
    block = min(count, 2**20 // n)
    for start in range(0, count, block):
        sets = max_retrieval.sample(jax.random.fold_in(jax.random.fold_in(jax.random.key(7), n), start), block, n)
        logits = head.logits(sets.items, sets.query)
        at_target = jnp.take_along_axis(logits, sets.top_item[:, None], -1)[:, 0]
        wrong = np.asarray(at_target < logits.max(-1))
        right += int((~wrong).sum())
        own_entropy, _, best = (np.asarray(x, np.float64)[wrong] for x in _best_beta(logits, at_target))
        entropy.append(own_entropy)
        beta.append(np.maximum(best, 1))
        rows.append((np.asarray(logits)[wrong], np.asarray(at_target)[wrong]))
    logits, at_target = (np.concatenate(part) for part in zip(*rows))
    found = {"entropy": np.concatenate(entropy), "beta": np.concatenate(beta), "on_top": right / count}
    return found | {"common": common_beta(logits, at_target) if len(logits) >= FEWEST else None}


def common_beta(logits, at_target) -> float:
    """The beta of at least 1 that maximises the summed log-probability of the targets, by bisection of its slope."""
    t = jnp.asarray(logits) - jnp.max(jnp.asarray(logits), -1, keepdims=True)
    target = jnp.asarray(at_target) - jnp.max(jnp.asarray(logits), -1)

    @jax.jit
    def slope(beta):
        return jnp.sum(target - jnp.sum(jax.nn.softmax(beta * t) * t, -1))

    low, high = 1.0, 64.0
    if slope(low) <= 0:
        return low
    for _ in range(30):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low * high) ** 0.5


def binned(entropy, beta) -> dict:
    """Count, median, mean and harmonic mean of beta by bins of entropy."""
    which = np.digitize(entropy, EDGES) - 1
    parts = [beta[which == i] for i in range(len(EDGES) - 1)]
    kinds = {"median": np.median, "mean": np.mean, "harmonic_mean": lambda b: 1 / np.mean(1 / b)}
    columns = {name: [float(f(b)) if len(b) >= FEWEST else None for b in parts] for name, f in kinds.items()}
    return {"count": [len(b) for b in parts], **columns}


def polynomials(entropy, beta, bins: dict, chosen: list[dict]) -> dict:
    """Coefficients by each way that the rows determine."""
    found = {"beta": np.polyfit(entropy, beta, 4), "temperature": np.polyfit(entropy, 1 / beta, 4)}
    middles = (EDGES[:-1] + EDGES[1:]) / 2
    seen = [(x, y) for x, y in zip(middles, bins["median"]) if y is not None]
    if len(seen) > 4:
        found["median"] = np.polyfit(*zip(*seen), 4)
    sizes = [(part["entropy"].mean(), part["common"]) for part in chosen if part["common"] is not None]
    if len(sizes) > 1:
        found["by size"] = np.polyfit(*zip(*sizes), min(4, len(sizes) - 1))
    return found


def published() -> np.ndarray:
    """The published map on the grid."""
    return np.maximum(np.polyval(PAPER_COEFFICIENTS, ENTROPIES), 1)


def rounding(decimals: tuple[int, ...], samples: int) -> dict:
    """Intervals and quantiles of the published map's roots and peak, its coefficients known to half a unit.

    At a positive entropy every coefficient raises the quartic, so the roots are extreme with all errors of one sign.
    """
    middle, half = np.array(PAPER_COEFFICIENTS), 0.5 * 10.0 ** -np.array(decimals)
    low, high = roots(middle + half), roots(middle - half)
    rng = np.random.default_rng(0)
    drawn = [features(middle + half * rng.uniform(-1, 1, 5)) for _ in range(samples)]
    columns = dict(zip(("lower", "upper", "peak", "height"), np.array(drawn).T))
    extremes = {name: [float(x.min()), float(x.max())] for name, x in columns.items()}
    extremes |= {"lower": [low[0], high[0]], "upper": [high[1], low[1]]}
    quantiles = {name: [float(q) for q in np.quantile(x, [0.025, 0.5, 0.975])] for name, x in columns.items()}
    return {**extremes, "quantiles": quantiles, "samples": samples}


def roots(coefficients) -> tuple[float, float]:
    """The first and the last positive entropy at which the quartic is 1."""
    found = np.roots(np.polysub(coefficients, [1.0]))
    real = sorted(root.real for root in found if abs(root.imag) < 1e-9 and root.real > 0)
    return float(real[0]), float(real[-1])


def features(coefficients) -> tuple[float, float, float, float]:
    """Both roots, and the entropy and value of the highest point between them."""
    first, last = roots(coefficients)
    turns = np.roots(np.polyder(coefficients))
    inside = [turn.real for turn in turns if abs(turn.imag) < 1e-9 and first < turn.real < last]
    peak = max(inside, key=lambda x: np.polyval(coefficients, x))
    return first, last, float(peak), float(np.polyval(coefficients, peak))


def assemble(rows: list[dict]) -> dict:
    """The data of the result from its rows."""
    return {
        "entropies": list(ENTROPIES),
        "edges": list(EDGES),
        "published": list(published()),
        "counts": {str(n): count for n, count in SETS.items()},
        "curves": [curve for row in rows for curve in row.get("curves", ())],
        "bins": [part for row in rows for part in row.get("bins", ())],
        "on_top": [row["on_top"] for row in rows if "on_top" in row],
        "rounding": [part for row in rows for part in row.get("rounding", ())],
    }

"""Exercise 02.6: intervals for a paired gain over seeds, and which of eleven sizes are resolved."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "02.6 How sure are you?"
_SIZES, _SETS = 11, 4096
_SEED_SD, _GAIN_SD = 0.10, 0.04  # of the accuracy between seeds, and of the gain between seeds


class _Covered(NamedTuple):
    """What the intervals did on many simulated tables."""

    share: float  # of intervals that contain the true gain
    width: float  # mean, in units of the standard error that the simulation has


def ex6(intervals: Callable[..., tuple[Any, Any, Any]]) -> Report:
    """Checks intervals for a paired gain by their coverage on simulated tables with a known truth.

    Both rules are read from the same trained heads on the same sets, seed by seed. Accuracies vary between seeds by
    about ten points, the gain by about four; eleven sizes are tested at once.

    Args:
        intervals: `intervals(plain, adaptive, sets, level=0.95) -> (low, high, resolved)`, each an array [sizes].
            `plain` and `adaptive` are arrays [seeds, sizes] of accuracies in [0, 1], `sets` is the number of sets
            behind each accuracy. `low` and `high` bound the mean gain over seeds at one size, with coverage `level`
            for each size by itself. `resolved` is True at the sizes where the gain differs from zero, such that with
            no gain anywhere the chance of any True among all sizes is at most 1 − level.

    Returns:
        The report. Mistakes it names: a binomial error where seeds vary more; an unpaired test on shared sets; eleven
        tests without correction; a normal quantile for ten seeds; a level or a number of seeds written into the code;
        corrected intervals where pointwise ones are asked; nothing ever resolved.
    """
    return examine(
        intervals,
        _TITLE,
        "intervals(plain, adaptive, sets, level=0.95)",
        _STAGES,
        remark="Ten seeds are ten numbers. However many sets stand behind each, the interval is about the seeds.",
        picture=_draw,
    )


@functools.cache
def _tables(count: int, seeds: int, gain: float, start: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulated accuracies of both rules, [tables, seeds, sizes], with a known mean gain at every size."""
    rng = np.random.default_rng(start)
    centre = np.linspace(0.85, 0.35, _SIZES)
    plain = centre + rng.normal(scale=_SEED_SD, size=(count, seeds, 1)) * np.ones(_SIZES)
    adaptive = plain + gain + rng.normal(scale=_GAIN_SD, size=plain.shape)
    return plain, adaptive


def _coverage(intervals: Callable[..., Any], *, seeds: int, level: float, tables: int = 300) -> _Covered:
    plain, adaptive = _tables(tables, seeds, 0.03, seeds)
    bounds = np.array([_bounds(intervals, *pair, level) for pair in zip(plain, adaptive, strict=True)])
    low, high = bounds[:, 0], bounds[:, 1]
    standard_error = _GAIN_SD / np.sqrt(seeds)
    return _Covered(float(((low <= 0.03) & (0.03 <= high)).mean()), float((high - low).mean() / standard_error))


def _bounds(intervals: Callable[..., Any], plain: np.ndarray, adaptive: np.ndarray, level: float) -> np.ndarray:
    low, high, _ = intervals(plain, adaptive, _SETS, level=level)
    return np.array([low, high], float)


def _resolved(intervals: Callable[..., Any], gain: float, tables: int) -> np.ndarray:
    plain, adaptive = _tables(tables, 10, gain, 99)
    return np.array(
        [np.asarray(intervals(*pair, _SETS, level=0.95)[2], bool) for pair in zip(plain, adaptive, strict=True)]
    )


def _named_by_coverage(extra: tuple[Mistake, ...] = ()) -> tuple[Mistake, ...]:
    return (
        *extra,
        Mistake(
            "a binomial error where seeds vary more",
            "The intervals are far too short: most miss the true gain.",
            "The number of sets is given, and the error of a share is the formula one remembers. It measures how well "
            "*this* head's accuracy is known, not how heads differ.",
            "Over what was the mean gain averaged? That is what has to be resampled.",
            seen=lambda got: got.share < 0.8,
        ),
        Mistake(
            "corrected intervals where pointwise ones are asked",
            "The intervals cover more often than the level says, by one and the same factor in width.",
            "A correction for eleven sizes belongs to `resolved`.",
            "`low` and `high` speak of one size by itself.",
            seen=lambda got: got.share > 0.985 and 6.2 < got.width < 9.5,
        ),
        Mistake(
            "an unpaired test on shared sets",
            "The intervals are much too long: almost every one contains the true gain.",
            "Two columns of accuracies call for a two-sample formula. But both come from the same heads and the same "
            "sets, and what differs from seed to seed differs in both.",
            "Which number, one a seed, does not contain the seed's own level?",
            seen=lambda got: got.share > 0.985,
        ),
        Mistake(
            "a normal quantile for ten seeds",
            "The intervals are a little too short.",
            "1.96 is right when the standard deviation is known. From ten seeds it is estimated, and a percentile "
            "bootstrap of ten numbers is short for the same reason.",
            "Which distribution has the mean divided by its *estimated* standard error?",
            seen=lambda got: 0.87 < got.share < 0.932,
        ),
    )


_STAGES = (
    Stage(
        "three arrays, one entry a size",
        lambda intervals: [np.asarray(part) for part in intervals(*(t[0] for t in _tables(300, 10, 0.03, 10)), _SETS)],
        given="a table of 10 seeds and 11 sizes",
        accept=lambda parts: (
            len(parts) == 3 and all(part.shape == (_SIZES,) for part in parts) and (parts[0] <= parts[1]).all()
        ),
        look="Return `(low, high, resolved)`; the average runs over seeds, the first axis.",
    ),
    Stage(
        "95% intervals contain the truth 95 times in 100",
        lambda intervals: _coverage(intervals, seeds=10, level=0.95),
        given="300 simulated tables of 10 seeds",
        accept=lambda got: abs(got.share - 0.95) < 0.018,
        mistakes=_named_by_coverage(),
        look="Work with the gains, one a seed and size, and with the spread of those.",
    ),
    Stage(
        "the level is used",
        lambda intervals: _coverage(intervals, seeds=10, level=0.8),
        given="the same tables at level 0.8",
        accept=lambda got: abs(got.share - 0.8) < 0.035,
        mistakes=(
            Mistake(
                "the level is written into the code",
                "The intervals for level 0.8 are those for 0.95.",
                "The quantile was typed in as a number.",
                "Where does `level` enter?",
                seen=lambda got: abs(got.share - 0.95) < 0.02,
            ),
        ),
        look="A two-sided interval leaves (1 − level)/2 on each side.",
    ),
    Stage(
        "five seeds get longer intervals",
        lambda intervals: _coverage(intervals, seeds=5, level=0.95),
        given="300 simulated tables of 5 seeds",
        accept=lambda got: abs(got.share - 0.95) < 0.018,
        mistakes=(
            Mistake(
                "the number of seeds is written into the code",
                "The quantile is that of ten seeds.",
                "2.26 is right for ten.",
                "Read the number of seeds from the table.",
                seen=lambda got: 0.89 < got.share < 0.932,
            ),
        ),
        look="The fewer the seeds, the worse the standard deviation is known.",
    ),
    Stage(
        "with no gain anywhere, no size is resolved, 95 times in 100",
        lambda intervals: _resolved(intervals, 0.0, 400),
        given="400 simulated tables without any gain",
        accept=lambda got: got.any(axis=1).mean() < 0.085,
        mistakes=(
            Mistake(
                "eleven tests, no correction",
                "In four tables of ten some size is declared resolved although no gain exists.",
                "`resolved` asks whether the interval leaves out zero, which is right for one size looked at alone.",
                "With eleven chances of 5% each, how likely is at least one?",
                seen=lambda got: abs(got.any(axis=1).mean() - (1 - 0.95**_SIZES)) < 0.1,
            ),
        ),
        look="The chance of *any* false alarm among the eleven is to be at most 5%.",
    ),
    Stage(
        "a gain of eight points is resolved",
        lambda intervals: _resolved(intervals, 0.08, 100),
        given="100 simulated tables with a gain of eight points at every size",
        accept=lambda got: got.mean() > 0.8,
        mistakes=(
            Mistake(
                "nothing is ever resolved",
                "A gain of six standard errors is not found.",
                "A correction applied twice, or to the wrong side, is safe and useless.",
                "Compare your threshold with the one for a single size.",
                seen=lambda got: got.mean() < 0.2,
            ),
        ),
        look="Divide the allowed chance of error among the eleven sizes, no further.",
    ),
)


def _draw(intervals: Callable[..., Any]) -> Any:
    """Intervals on one simulated table, resolved sizes marked, with the true gain."""
    from adatemp import plotting

    plain, adaptive = (table[3] for table in _tables(300, 10, 0.03, 10))
    low, high, resolved = (np.asarray(part) for part in intervals(plain, adaptive, _SETS))
    sizes = 16 * 2 ** np.arange(_SIZES)
    figure, axes = plotting.figure()
    axes.axhline(0, color=plotting.palette["ink"], linewidth=0.8)
    axes.axhline(3, color=plotting.palette["muted"], linestyle="--", label="true gain")
    for n, bottom, top, found in zip(sizes, 100 * low, 100 * high, resolved, strict=True):
        colour = plotting.palette["adaptive" if found else "plain"]
        axes.plot([n, n], [bottom, top], "-", color=colour, linewidth=4 if found else 2)
    axes.set(xscale="log", xlabel="items n", ylabel="gain, points")
    axes.legend()
    return plotting.show(
        figure,
        alt=f"Intervals of a simulated gain of 3 points at eleven sizes: {int(((low <= 0.03) & (high >= 0.03)).sum())} "
        f"contain it, {int(resolved.sum())} are resolved.",
    )

"""Exercise 02.3: errors split into ranking and dispersion, with the lucky cases apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "02.3 Two kinds of error"
_SIGNATURE = "split(logits, labels, top, classes)"
_ITEMS, _CLASSES = 9, 7
_PARTS = ("accuracy", "ranking", "lucky", "dispersion")

# Rows of each kind, one line a seed. The numbers are the truth that the split has to find.
#                  right  dispersed  misranked  lucky  rescued
_KINDS = np.array([[20, 14, 10, 12, 8], [30, 2, 6, 6, 20], [9, 31, 13, 4, 7]])
_SETS = int(_KINDS[0].sum())


def ex3(split: Callable[..., dict[str, Any]]) -> Report:
    """Checks a split of a head's errors on planted logits whose errors are known by construction.

    A set is read by summing the softmax weights of each class and taking the largest sum. The hard reading takes the
    class of the item with the largest logit. With these, per seed and as shares of all sets:

        accuracy    the soft reading is right
        ranking     the largest logit does not belong to the item with the highest priority
        lucky       ... and yet the item it belongs to has the right class
        dispersion  accuracy of the hard reading minus accuracy of the soft one; may be negative

    so that accuracy + dispersion + ranking − lucky = 1.

    Args:
        split: `split(logits, labels, top, classes) -> dict` with the four names above, each an array [seeds].
            `logits` [seeds, sets, n] float, `labels` [seeds, sets, n] int, `top` [seeds, sets] int: the index of the
            item with the highest priority, `classes` int.

    Returns:
        The report. Mistakes it names: class mass compared with item argmax; lucky rows dropped; seeds averaged before
        subtracting; a negative part clipped; luck counted twice; mean weight taken for accuracy.
    """
    return examine(
        split,
        _TITLE,
        _SIGNATURE,
        _stages(),
        remark="A temperature can move the dispersion part and nothing else.",
        picture=_draw,
    )


def _stages() -> tuple[Stage, ...]:
    logits, labels, top = _planted()
    right, dispersed, misranked, lucky, rescued = _KINDS.T / _SETS
    truth = {
        "accuracy": right + lucky + rescued,
        "ranking": misranked + lucky + rescued,
        "lucky": lucky,
        "dispersion": dispersed - rescued,
    }
    kept = _SETS / (_SETS - _KINDS[:, 3])  # what shares become when lucky rows leave the denominator
    mean_weight = _mean_weight(logits, labels, top)

    def part(name):
        return lambda split: split(logits, labels, top, _CLASSES)[name]

    averaged = Mistake(
        "seeds averaged before subtracting",
        "One number came back where three seeds went in.",
        "A mean over everything is one call, and the sum of the parts is the same either way.",
        "The spread between seeds is lost with it, and the difference of the two readings is far steadier within a "
        "seed than each of them is between seeds. Keep the seed axis to the end.",
        seen=lambda table: table.ndim == 1 or np.ptp(table, axis=1).max() == 0,
    )
    dropped = Mistake(
        "lucky rows dropped",
        "The shares are right for the sets that are left when the lucky ones are taken out.",
        "A lucky set is neither a clean success nor an error, so it is tempting to remove it.",
        "Every set counts once in every denominator; otherwise the parts no longer add up to 1.",
        seen=None,
    )
    given = f"planted logits [3 seeds, {_SETS} sets, {_ITEMS} items], {_CLASSES} classes"
    return (
        Stage(
            "the four parts come back, one number a seed",
            lambda split: _table(split(logits, labels, top, _CLASSES)),
            given=given,
            accept=lambda table: table.shape == (4, len(_KINDS)) and np.ptp(table, axis=1).max() != 0,
            mistakes=(averaged,),
            look="Return a dict with the four names, each an array [seeds]. Reduce over sets, the second axis.",
        ),
        Stage(
            "accuracy of the soft reading",
            part("accuracy"),
            given=given,
            expected=truth["accuracy"],
            atol=1e-5,
            mistakes=(
                _with(dropped, (truth["accuracy"] - lucky) * kept),
                Mistake(
                    "mean weight taken for accuracy",
                    "The mean softmax weight of the right class came back.",
                    "The weights sum to one like probabilities, and their mean looks like an accuracy.",
                    "A set is right or wrong: first decide each, then average.",
                    seen=mean_weight,
                ),
            ),
            look="Sum the weights of each class within a set; the class with the largest sum is the answer. One seed's "
            "logits stand at 10,000: subtract the row's maximum before the exponential.",
        ),
        Stage(
            "ranking errors",
            part("ranking"),
            given=given,
            expected=truth["ranking"],
            atol=1e-5,
            mistakes=(
                Mistake(
                    "luck counted twice",
                    "Sets whose largest logit sits on another item of the right class are missing.",
                    "The hard reading is right on them, so they look like successes; they are, by luck, and `lucky` "
                    "already says so.",
                    "Is it the item or its class that a ranking is about?",
                    seen=truth["ranking"] - lucky,
                ),
                _with(dropped, (truth["ranking"] - lucky) * kept),
            ),
            look="Compare the index of the largest logit with `top`.",
        ),
        Stage(
            "lucky sets",
            part("lucky"),
            given=given,
            expected=truth["lucky"],
            atol=1e-5,
            mistakes=(
                Mistake(
                    "right by the soft reading taken for lucky",
                    "Sets that the average rescued are counted as lucky as well.",
                    "Both are right although the ranking is wrong. They differ in which reading is right.",
                    "Lucky is a property of the hard reading.",
                    seen=lucky + rescued,
                ),
            ),
            look="The largest logit is on the wrong item, and that item's class is the class of the right one.",
        ),
        Stage(
            "dispersion, of either sign",
            part("dispersion"),
            given=given,
            expected=truth["dispersion"],
            atol=1e-5,
            mistakes=(
                Mistake(
                    "class mass compared with item argmax",
                    "The item that was ranked first is compared with the class that got most mass, so the lucky sets "
                    "are booked as a gain of the soft reading.",
                    "Both are called accuracy. One asks for the item, the other for its class.",
                    "Compare like with like: class with class.",
                    seen=truth["dispersion"] - lucky,
                ),
                Mistake(
                    "a negative part clipped",
                    "Where the soft reading beats the hard one, zero came back.",
                    "An error that is negative looks like a slip. It means that averaging rescued misranked sets.",
                    "Leave the sign: the parts have to add up.",
                    seen=np.maximum(truth["dispersion"], 0),
                ),
                Mistake(
                    "the sign turned round",
                    "The soft reading's accuracy came first in the difference.",
                    "A loss is easily written as new minus old.",
                    "Dispersion is what the soft reading loses against the hard one.",
                    seen=-truth["dispersion"],
                ),
            ),
            look="Accuracy of the hard reading minus accuracy of the soft one, both for classes, seed by seed.",
        ),
        Stage(
            "the parts add up to one",
            lambda split: _sum(split(logits, labels, top, _CLASSES)),
            given=given,
            expected=np.ones(len(_KINDS)),
            atol=1e-5,
            look="accuracy + dispersion + ranking − lucky = 1 for every seed.",
        ),
    )


def _with(mistake: Mistake, seen: Any) -> Mistake:
    return Mistake(mistake.name, mistake.wrong, mistake.why, mistake.look, seen=seen)


def _table(parts: Any) -> np.ndarray:
    return np.array([np.asarray(parts[name], float) for name in _PARTS])


def _sum(parts: dict[str, Any]) -> np.ndarray:
    accuracy, ranking, lucky, dispersion = _table(parts)
    return accuracy + dispersion + ranking - lucky


def _planted() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, labels and the index of the highest priority, with rows of the five kinds in random order."""
    rng = np.random.default_rng(20)
    seeds = [_seed(rng, kinds) for kinds in _KINDS]
    logits, labels, top = (np.stack(parts) for parts in zip(*seeds, strict=True))
    logits[2] += 10_000.0
    return logits.astype(np.float32), labels, top


def _seed(rng: np.random.Generator, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = [_row(rng, kind) for kind, count in enumerate(kinds) for _ in range(count)]
    rows = [rows[i] for i in rng.permutation(len(rows))]
    return tuple(np.stack(parts) for parts in zip(*rows, strict=True))


def _row(rng: np.random.Generator, kind: int) -> tuple[np.ndarray, np.ndarray, np.int64]:
    """One row in which item 0 has the highest priority and class 0, then shuffled, classes renamed.

    The margins are wide: the jitter of 0.02 cannot change which item or which class leads.
    """
    logits = np.full(_ITEMS, -3.0)
    labels = rng.integers(2, _CLASSES, _ITEMS)
    labels[0] = 0
    if kind == 0:  # right: the top item leads, and leads by mass
        logits[0] = 5.0
    elif kind == 1:  # dispersed: the top item leads, four of one other class outweigh it
        logits[0], logits[1:5], labels[1:5] = 1.0, 0.85, 1
    elif kind == 2:  # misranked: another item of another class leads by far
        logits[0], logits[1], labels[1] = 1.0, 6.0, 1
    elif kind == 3:  # lucky: another item of the same class leads
        logits[0], logits[1], labels[1] = 1.0, 6.0, 0
    else:  # rescued: a rival leads narrowly, the top item's class outweighs it
        logits[:5], labels[:5] = (1.0, 1.25, 0.85, 0.85, 0.85), (0, 1, 0, 0, 0)
    logits += rng.uniform(-0.02, 0.02, _ITEMS)
    place, rename = rng.permutation(_ITEMS), rng.permutation(_CLASSES)
    return logits[place], rename[labels[place]], np.argmax(place == 0)


def _mean_weight(logits: np.ndarray, labels: np.ndarray, top: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64)
    weights = np.exp(shifted - shifted.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    target = np.take_along_axis(labels, top[..., None], axis=-1)
    return np.where(labels == target, weights, 0).sum(-1).mean(-1)


def _draw(split: Callable[..., Any]) -> Any:
    """The four parts of each seed as bars, the truth as a tick beside each."""
    from adatemp import plotting

    logits, labels, top = _planted()
    table = 100 * _table(split(logits, labels, top, _CLASSES))
    figure, axes = plotting.figure()
    names = ("plain", "argmax", "adaptive", "ours")
    for row, (part, colour) in enumerate(zip(_PARTS, names, strict=True)):
        axes.bar(np.arange(3) + (row - 1.5) * 0.2, table[row], width=0.18, color=plotting.palette[colour], label=part)
    axes.axhline(0, color=plotting.palette["ink"], linewidth=0.8)
    axes.set_xticks(range(3), [f"seed {seed}" for seed in range(3)])
    axes.set(ylabel="share of sets, %", ylim=(-40, 125))
    axes.legend(ncols=2)
    words = "; ".join(
        f"seed {seed}: " + ", ".join(f"{part} {table[i, seed]:.0f}%" for i, part in enumerate(_PARTS))
        for seed in range(3)
    )
    return plotting.show(figure, alt=f"Bars of the four parts for three planted seeds. {words}.")

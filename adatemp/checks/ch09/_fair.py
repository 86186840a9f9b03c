"""Exercise 09.6, a fair table: what makes a comparison unfair, and the interval that belongs to a gain."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written
from adatemp.checks.ch09._planted_runs import SIZES, TASKS, TRAIN_SIZES, Run, changed, clean, without

_TITLE = "09.6 A fair table"
_FAULTS = "faults(runs, train_sizes)"
_GAIN = "gain(runs, task, rule, n)"


def ex6(faults: Callable[..., Any], gain: Callable[..., Any]) -> Report:
    """Checks an audit of raw runs, and the interval of a gain over plain softmax.

    Args:
        faults: `faults(runs, train_sizes) -> set of (fault, where)`. A run is a dictionary with `task`, `rule`,
            `model` and `sets` (names of the trained model and of its test sets), `n`, `accuracy`, `steps` (of
            training), `knob_sizes` (sizes on which the rule's parameters were chosen, () for none) and `oracle`
            (whether it is declared to be tuned on the test). The faults, with what `where` is: ("no argmax row",
            task), ("no best constant row", task), ("no averaging control", rule) for a rule without runs on the task
            "averaging", ("other budget", rule) for steps other than those of "plain", ("knob from test sizes", rule)
            for a rule that is no oracle and has a knob size beyond `train_sizes`.
        gain: `gain(runs, task, rule, n) -> (low, high, paired)`, the 95% interval (Student's t) of the mean gain in
            accuracy over "plain": paired where both read the same model on the same sets, Welch's otherwise.

    Returns:
        The report. Mistakes it names: no argmax row, no best constant, a missing control, another budget or a knob
        from test sizes let pass; a declared oracle accused; false alarms; runs paired by their order; a gap between
        models read from a paired test; pairing thrown away; normal quantiles; a variance divided by n; the sign.
    """
    faults, gain = written(faults), written(gain)
    return in_turn(
        (
            lambda: examine(faults, _TITLE, _FAULTS, _fault_stages()),
            lambda: examine(gain, _TITLE, _GAIN, _gain_stages()),
        ),
        remark="A gain without its ceiling, its control and its pairing is a number, and not yet a finding.",
    )


_ORACLE = Mistake(
    "a declared oracle accused",
    "The best constant is flagged for choosing its β on the test.",
    "It does choose it there.",
    "What is that row for, and what does its field `oracle` say?",
    seen=lambda got: ("knob from test sizes", "best constant") in got,
)


def _fault_stages() -> tuple[Stage, ...]:
    def planted(name: str, runs: list[Run], wanted: set, missed: Mistake) -> Stage:
        return Stage(
            name,
            lambda faults: {tuple(fault) for fault in faults([dict(run) for run in runs], TRAIN_SIZES)},
            given=f"the runs of five rules on three tasks; planted: {name}",
            accept=lambda got: got == wanted,
            look="Compare the set you returned with the list of faults, one by one.",
            mistakes=(
                _ORACLE,
                missed,
                Mistake(
                    "a false alarm",
                    "Something is flagged that is in order, or under another name than the exercise gives.",
                    "A condition is too wide, or a pair is turned round.",
                    "Look at a flagged rule or task in the runs themselves.",
                    seen=lambda got: bool(got - wanted),
                ),
            ),
        )

    def missed(name: str, wrong: str, why: str, look: str, wanted: set) -> Mistake:
        return Mistake(name, wrong, why, look, seen=lambda got: bool(wanted - got))

    argmax = {("no argmax row", "recall")}
    constant = {("no best constant row", "retrieval")}
    control = {("no averaging control", "length")}
    budget = {("other budget", "sparse")}
    knob = {("knob from test sizes", "length")}
    half = lambda run: run["rule"] == "length" and run["n"] == SIZES[1]  # noqa: E731
    return (
        planted("nothing", clean(), set(), missed("nothing to find", "", "", "", set())),
        planted(
            "one task without an argmax row",
            without(lambda run: run["rule"] == "argmax" and run["task"] == "recall"),
            argmax,
            missed(
                "a missing argmax row let pass",
                "A task without its ceiling was not flagged.",
                "The row is there for the other tasks.",
                "Without it, can you tell a better normaliser from a better ranked key? Look task by task.",
                argmax,
            ),
        ),
        planted(
            "one task without the best constant",
            without(lambda run: run["rule"] == "best constant" and run["task"] == "retrieval"),
            constant,
            missed(
                "a missing constant let pass",
                "A task without the best constant β was not flagged.",
                "A constant looks like no competitor.",
                "What does an adaptive rule have to beat?",
                constant,
            ),
        ),
        planted(
            "one rule never run on the averaging task",
            without(lambda run: run["rule"] == "length" and run["task"] == "averaging"),
            control,
            missed(
                "a missing control let pass",
                "A rule that was not tried on a head that must average was not flagged.",
                "The task has runs, of the other rules.",
                "Which rules sharpen everything, and where would that show?",
                control,
            ),
        ),
        planted(
            "one rule trained for longer",
            changed(lambda run: run["rule"] == "sparse" and run["model"].endswith("seed 3"), steps=9_000),
            budget,
            missed(
                "another budget let pass",
                "A rule with more steps of training in one of its seeds was not flagged.",
                "Most of its runs have the common budget.",
                "Compare every run, not the first or the mean.",
                budget,
            ),
        ),
        planted(
            "a knob chosen on test sizes",
            changed(half, knob_sizes=(16, SIZES[1])),
            knob,
            missed(
                "a knob from test sizes let pass",
                "A rule whose parameter was chosen with a test size among others was not flagged.",
                "One of its sizes is a training size.",
                "Which sizes may a knob have seen? All of them must be of that kind.",
                knob,
            ),
        ),
    )


def _values(runs: list[Run], task: str, rule: str, n: int) -> list[Run]:
    return [run for run in runs if run["task"] == task and run["rule"] == rule and run["n"] == n]


def interval(
    runs: list[Run], task: str, rule: str, n: int, *, paired: bool | None = None, ddof: int = 1, normal: bool = False
) -> tuple[float, float, bool]:
    """The interval by the textbook, with the choices that a mistake would make differently."""
    ours = sorted(_values(runs, task, rule, n), key=lambda run: run["model"])
    plain = sorted(_values(runs, task, "plain", n), key=lambda run: run["model"])
    same = [(a["model"], a["sets"]) for a in ours] == [(b["model"], b["sets"]) for b in plain]
    a, b = (np.array([run["accuracy"] for run in part]) for part in (ours, plain))
    if same if paired is None else paired:
        difference = a - b
        error, freedom = np.sqrt(difference.var(ddof=ddof) / len(a)), len(a) - 1
    else:
        parts = a.var(ddof=ddof) / len(a), b.var(ddof=ddof) / len(b)
        error = np.sqrt(sum(parts))
        freedom = sum(parts) ** 2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    reach = error * (stats.norm.ppf(0.975) if normal else stats.t.ppf(0.975, freedom))
    middle = a.mean() - b.mean()
    return float(middle - reach), float(middle + reach), same


def _by_order(runs: list[Run], task: str, rule: str, n: int) -> np.ndarray:
    a, b = (np.array([run["accuracy"] for run in _values(runs, task, name, n)]) for name in (rule, "plain"))
    difference = a - b
    reach = stats.t.ppf(0.975, len(a) - 1) * difference.std(ddof=1) / np.sqrt(len(a))
    return difference.mean() + np.array([-reach, reach])


def _gain_stages() -> tuple[Stage, ...]:
    runs = clean(1)
    within = [(task, "length", n) for task in TASKS for n in SIZES]
    between = [(task, "sparse", n) for task in TASKS for n in SIZES]

    def answers(cells: list[tuple]) -> Callable[..., Any]:
        return functools.cache(lambda gain: np.array([[float(x) for x in gain(runs, *cell)[:2]] for cell in cells]))

    def as_if(cells: list[tuple], **choices: Any) -> np.ndarray:
        return np.array([interval(runs, *cell, **choices)[:2] for cell in cells])

    def common(cells: list[tuple]) -> tuple[Mistake, ...]:
        return (
            Mistake(
                "normal quantiles",
                "The intervals use 1.96.",
                "It is the quantile one remembers.",
                "How many seeds stand behind the variance?",
                seen=as_if(cells, normal=True),
            ),
            Mistake(
                "a variance divided by n",
                "The standard deviation is that of a whole population.",
                "It is NumPy's default.",
                "What does `ddof` say?",
                seen=as_if(cells, ddof=0),
            ),
            Mistake(
                "the sign",
                "The interval is that of plain less the rule.",
                "A difference has two directions.",
                "A gain is positive where the rule is better.",
                seen=lambda got: np.allclose(-got[:, ::-1], as_if(cells)),
            ),
            Mistake(
                "the wrong size or task",
                "The interval has the right form and is too wide: runs of other sizes or tasks are in it.",
                "Filters are easily left incomplete.",
                "How many runs enter one interval?",
                seen=lambda got: (
                    (np.diff(got, axis=1) > 1.5 * np.diff(as_if(cells, paired=False), axis=1)).mean() > 0.5
                ),
            ),
        )

    return (
        Stage(
            "two readings of one model",
            answers(within),
            given="the rule `length` against `plain`, nine cells of six seeds, the runs in any order",
            expected=as_if(within),
            rtol=1e-6,
            atol=1e-9,
            look="Which runs belong together? Take their difference first.",
            mistakes=(
                Mistake(
                    "runs paired by their order",
                    "Differences were taken between runs of different models.",
                    "The two lists have one length.",
                    "Match the runs by the names of their model and sets.",
                    seen=np.array([_by_order(runs, *cell) for cell in within]),
                ),
                Mistake(
                    "pairing thrown away",
                    "The intervals are those of two independent groups.",
                    "It is the safe choice, where nothing is known.",
                    "Both readings share the model and its sets. Which part of the scatter cancels?",
                    seen=as_if(within, paired=False),
                ),
                *common(within),
            ),
        ),
        Stage(
            "two models",
            answers(between),
            given="the rule `sparse`, a model of its own, against `plain`",
            expected=as_if(between),
            rtol=1e-6,
            atol=1e-9,
            look="Do these runs share a model? Then what varies between them?",
            mistakes=(
                Mistake(
                    "a gap between models read from a paired test",
                    "Runs were paired by their seed, though each rule has trained its own model.",
                    "The seed has the same number, and the test sets are the same.",
                    "Which of the two names must agree for scatter to cancel?",
                    seen=lambda got: (
                        np.allclose(got, as_if(between, paired=True))
                        or np.allclose(got, [_by_order(runs, *cell) for cell in between])
                    ),
                ),
                *common(between),
            ),
        ),
        Stage(
            "whether it was paired",
            lambda gain: np.array([bool(gain(runs, *cell)[2]) for cell in within[:1] + between[:1]]),
            given="one cell of each kind",
            accept=lambda got: got.tolist() == [True, False],
            look="The third value says which interval it is.",
        ),
    )

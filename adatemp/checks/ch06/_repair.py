"""Exercise 06.6, repair the corollary: a counter-example to each of five loose versions, and what survives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "06.6 Repair the corollary"
_SPREAD = 2.0
_SIZES = (10, 10**3, 10**6, 10**9)
_MARGIN = 0.1

#: What each loose version asks of the head, in words. All conclude that from some n on {A, B, …, B} is answered B.
VERSIONS = {
    "tie allowed": "the read-out is continuous and sees the average only; {B, …, B} is answered B, perhaps by a tie",
    "jump allowed": "the read-out sees the average only; {B, …, B} is answered B by a margin",
    "own position": "the read-out is continuous; {B, …, B} is answered B by a margin; it also sees the value of the "
    "item at whose position it stands, which in {A, B, …, B} is A",
    "sum pooling": "the read-out is continuous and sees Σ exp(z_i) v_i only; {B, …, B} is answered B by a margin",
    "sees n": "for each n the read-out is continuous and answers {B, …, B} by B by a margin; it sees the average and n",
}

#: Assumptions to choose from, by name.
ASSUMPTIONS = {
    "weight of A tends to 0": "as n grows; for instance because the spread is bounded",
    "weights sum to 1": "the read-out gets an average",
    "average only": "the read-out sees nothing but the average: no residual path, not n",
    "same read-out for all n": "one function f, not a family f_n",
    "same values in both sets": "a B has the same value whether or not A is in the set, and for all n",
    "strict margin": "at the value of B, class B leads every other class by some γ > 0",
    "continuous at v_B": "the class logits are",
    "Lipschitz": "the class logits are, on the segment from v_B to v_A",
    "finite precision": "numbers below machine epsilon are lost",
    "all weights equal": "the head is uniform",
    "A differs from B in direction": "v_A is no multiple of v_B",
}

_NEEDED = frozenset(
    {
        "weight of A tends to 0",
        "weights sum to 1",
        "average only",
        "same read-out for all n",
        "same values in both sets",
        "strict margin",
        "continuous at v_B",
    }
)


def ex6(counterexample: Callable[[str], Any], weakest: Collection[str]) -> Report:
    """Checks five counter-examples and the assumptions that are left.

    Args:
        counterexample: `counterexample(version) -> (value_a, value_b, read)` for each name in `VERSIONS`: two values
            [d] with entries of ordinary size, and `read(x, n, own) -> (logit of A, logit of B)`. The check runs it on
            {A, B, …, B} and on {B, …, B} of 10 to 10⁹ items at spread 2, where x is the average (or the sum, for "sum
            pooling") and own the value at the read-out's position. B is answered if its logit is not below A's. A
            margin is 0.1 at least; what a version forbids to see must not matter.
        weakest: names from `ASSUMPTIONS`: the fewest that together imply that from some n on {A, B, …, B} is answered
            like {B, …, B}.

    Returns:
        The report. Mistakes it names: a version's own assumptions broken; an answer that is B after all; continuity
        without strictness; the residual path forgotten; values that depend on A forgotten; more assumed than needed.
    """
    examinations = [
        functools.partial(examine, counterexample, _TITLE, "counterexample(version)", _stages(version))
        for version in VERSIONS
    ]
    return in_turn(
        (*examinations, lambda: examine(lambda: weakest, _TITLE, "weakest", (_WEAKEST,))),
        remark="What is left says when a head fails; the counter-examples say how to build one that does not.",
        picture=lambda: _draw(counterexample),
    )


def _stages(version: str) -> tuple[Stage, ...]:
    called = functools.cache(_case)
    return (
        Stage(
            f"{version}: the version's own assumptions hold",
            lambda f: _broken(called(f, version), version),
            given=VERSIONS[version],
            accept=lambda broken: broken == "",
            mistakes=tuple(
                Mistake(name, *words, seen=lambda broken, name=name: broken == name) for name, words in _BROKEN.items()
            ),
            look="Go through what the version asks, one by one.",
        ),
        Stage(
            f"{version}: and its conclusion does not",
            lambda f: _answers(called(f, version), version),
            given="n = 10, 1,000, 10⁶ and 10⁹ at spread 2",
            accept=lambda answers: all(mixed and not plain for mixed, plain in answers),
            mistakes=(
                Mistake(
                    "an answer that is B after all",
                    "From some n on {A, B, …, B} is answered B.",
                    "A small effect of A was taken for one that does not vanish, or for one that vanishes at once.",
                    "Print the two logits for n = 10⁹ and see what is left of A.",
                    seen=lambda answers: not all(mixed for mixed, _ in answers),
                ),
                Mistake(
                    "{B, …, B} answered A",
                    "The set without A is answered A.",
                    "A read-out that always says A is right about the first set only.",
                    "Both sets must be answered rightly.",
                    seen=lambda answers: any(plain for _, plain in answers),
                ),
            ),
            look="A has to be answered at every n in the first set, and B in the second.",
        ),
    )


_BROKEN = {
    "a margin that is a tie": (
        "At {B, …, B} class B leads by less than 0.1 for some n.",
        "A margin that shrinks with n is no margin.",
        "The version asks for one γ that holds at every n.",
    ),
    "a jump": (
        "The logits change by a finite amount next to the value of B.",
        "A comparison such as `x != value_b` is the quickest way to see A.",
        "The version asks for a continuous read-out.",
    ),
    "sees n": (
        "The logits depend on n, which this version's read-out does not see.",
        "n is an argument of `read` for every version, for one of them in earnest.",
        "What is the read-out allowed to see?",
    ),
    "the residual path": (
        "The logits depend on the value at the read-out's own position, which this version's read-out does not see.",
        "`own` is an argument of `read` for every version, for one of them in earnest.",
        "What is the read-out allowed to see?",
    ),
    "two equal values": (
        "A and B have the same value.",
        "Then nothing could tell them apart, and nothing needs to.",
        "Two different values of ordinary size.",
    ),
}


def _case(function: Callable[[str], Any], version: str) -> tuple[np.ndarray, np.ndarray, Callable[..., Any]]:
    answer = function(version)
    if answer is None or answer is Ellipsis:
        raise NotImplementedError
    value_a, value_b, read = answer
    value_a, value_b = (np.atleast_1d(np.asarray(v, np.float64)) for v in (value_a, value_b))

    def logits(x: np.ndarray, n: float, own: np.ndarray) -> np.ndarray:
        return np.asarray([float(np.squeeze(part)) for part in read(x, n, own)])

    return value_a, value_b, logits


def _pooled(value_a: np.ndarray, value_b: np.ndarray, n: int, version: str) -> tuple[np.ndarray, np.ndarray]:
    """What the read-out gets of {A, B, …, B} and of {B, …, B}."""
    if version == "sum pooling":
        return math.exp(_SPREAD) * value_a + (n - 1) * value_b, n * value_b
    alpha = 1 / (1 + (n - 1) * math.exp(-_SPREAD))
    return value_b + alpha * (value_a - value_b), value_b


def _broken(case: Any, version: str) -> str:
    """The name of the first assumption that does not hold, or nothing."""
    a, b, read = case
    if np.allclose(a, b):
        return "two equal values"
    draw = np.random.default_rng(0)
    for n in _SIZES:
        points = [*_pooled(a, b, n, version), *(b + draw.normal(size=(4, *b.shape)))]
        at = points[1]
        if version != "sees n" and any(not np.allclose(read(x, n, b), read(x, 7 * n + 1, b)) for x in points):
            return "sees n"
        if version != "own position" and any(not np.allclose(read(x, n, b), read(x, n, a)) for x in points):
            return "the residual path"
        of_a, of_b = read(at, n, b)
        if version != "tie allowed" and of_b - of_a < _MARGIN:
            return "a margin that is a tie"
        if version != "jump allowed":
            near = at + 1e-13 * draw.normal(size=(8, *b.shape)) * (1 + np.abs(at))
            near = [*near, at + 1e-13 * (a - b)]
            if any(np.abs(read(x, n, b) - read(at, n, b)).max() > 0.01 for x in near):
                return "a jump"
    return ""


def _answers(case: Any, version: str) -> list[tuple[bool, bool]]:
    """For each n, whether A is answered in {A, B, …, B} and in {B, …, B}."""
    a, b, read = case
    told = []
    for n in _SIZES:
        mixed, plain = _pooled(a, b, n, version)
        first, second = read(mixed, n, a), read(plain, n, b)
        told.append((bool(first[0] > first[1]), bool(second[0] > second[1])))
    return told


def _missing(name: str, title: str, why: str, look: str) -> Mistake:
    return Mistake(
        title,
        f"Without “{name}” the statement is false.",
        why,
        look,
        seen=lambda chosen: name not in set(chosen) and set(chosen) <= set(ASSUMPTIONS),
    )


_WEAKEST = Stage(
    "the assumptions that survive",
    lambda function: _chosen(function()),
    given="the names of `ASSUMPTIONS`",
    accept=lambda chosen: set(chosen) == _NEEDED,
    mistakes=(
        Mistake(
            "not the names",
            "Some entries are not names of `ASSUMPTIONS`.",
            "A spelling differs, or one string was passed for a list.",
            "Print `checks.ch06.ASSUMPTIONS`.",
            seen=lambda chosen: bool(set(chosen) - set(ASSUMPTIONS)),
        ),
        _missing(
            "strict margin",
            "continuity without strictness",
            "Continuity seems to say that a small change of x changes nothing.",
            "It changes the logits a little, and at a tie a little decides. Which of your counter-examples is this?",
        ),
        _missing(
            "average only",
            "the residual path forgotten",
            "The attention output is what the theorem is about, and a block adds it to what was there.",
            "Which of your counter-examples reads something else than the average?",
        ),
        _missing(
            "same values in both sets",
            "values that depend on A forgotten",
            "In the first layer a B is a B. In a deeper one its value may have been changed by A.",
            "Let v_B be one vector in {B, …, B} and another in {A, B, …, B}: what is the average?",
        ),
        _missing(
            "same read-out for all n",
            "a read-out that sees n forgotten",
            "One trained network is one function, and then this is easily taken for granted.",
            "A positional scheme, or a network retrained for each n, is a family.",
        ),
        _missing(
            "continuous at v_B",
            "a jump forgotten",
            "Networks are continuous, mostly.",
            "A sign activation, a hard threshold, a rounding step are not.",
        ),
        _missing(
            "weights sum to 1",
            "sum pooling forgotten",
            "Softmax weights do.",
            "Linear attention's need not.",
        ),
        _missing(
            "weight of A tends to 0",
            "dispersion forgotten",
            "It is the theorem before this one.",
            "With hard attention everything else on the list can hold.",
        ),
        Mistake(
            "more assumed than needed",
            "The statement holds without some of what you chose.",
            "A rate needs more than a limit, and a machine gives a reason of its own.",
            "Is the size asked for, or only that there is one?",
            seen=lambda chosen: set(chosen) > _NEEDED,
        ),
    ),
    look="Write the proof in three lines and mark where each assumption is used.",
)


def _chosen(names: Any) -> tuple[str, ...]:
    if names is None or names is Ellipsis or len(names) == 0:
        raise NotImplementedError
    return (names,) if isinstance(names, str) else tuple(names)


def _draw(counterexample: Callable[[str], Any]) -> Any:
    """A's lead in {A, B, …, B} against n for the five versions."""
    from adatemp import plotting

    sizes = np.geomspace(10, 1e9, 17)
    fig, axes = plotting.figure(height=3.0)
    roles = ("plain", "adaptive", "argmax", "published", "ours")
    for version, role in zip(VERSIONS, roles, strict=True):
        a, b, read = _case(counterexample, version)
        leads = []
        for n in sizes:
            of_a, of_b = read(_pooled(a, b, n, version)[0], n, a)
            leads.append(of_a - of_b)
        axes.plot(sizes, leads, label=version, **plotting.role(role))
    axes.set(xscale="log", xlabel="items n", ylabel="lead of A")
    axes.legend()
    return plotting.show(
        fig,
        alt="Lead of the logit of A over that of B in {A, B, …, B} against n from 10 to 10⁹: positive throughout "
        "for each of your five counter-examples.",
    )

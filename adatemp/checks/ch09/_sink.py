"""Exercise 09.3, a sink logit is a gate: its factor on the output, and how it joins a row that was read in splits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks import _float64
from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written

_TITLE = "09.3 A sink logit is a gate"
_ROWS, _KEYS, _WIDTH = 6, 15, 3
_SINKS = np.array([0.0, 1.5, -2.0, 4.0, 9.0, -np.inf])  # one a row
_CUTS = ((5, 10), (1, 2), (14,), (), (3, 6, 9, 12))


def ex3(gate: Callable[..., Any], attend: Callable[..., Any]) -> Report:
    """Checks a sink logit, as a factor on a plain output and in a merge of key splits.

    Args:
        gate: `gate(lse, sink) -> factor` by which a sink logit multiplies the output of a row whose log-sum-exp over
            the keys is `lse`. Arrays that broadcast; −∞ for no sink, or for a row without keys (where both are −∞ the
            factor is 0).
        attend: `attend(parts, sink) -> output [rows, width]`, from a list of states (m, l, r), one a split of the
            keys: the maximum m and l = Σe^(z−m) of shape [rows], and r = Σe^(z−m)v of shape [rows, width]; an empty
            split has m = −∞, l = 0, r = 0. `sink` has shape [rows].

    Returns:
        The report. Mistakes it names: the mass of the sink for that of the keys; a ratio that overflows; the sink
        not measured from the maximum; the sink added once per split; the sink left out of the maximum; splits averaged.
    """
    gate, attend = written(gate), written(attend)
    return in_turn(
        (
            lambda: examine(gate, _TITLE, "gate(lse, sink)", _gate_stages()),
            lambda: examine(attend, _TITLE, "attend(parts, sink)", _merge_stages()),
        ),
        remark="A sink subtracts mass and leaves the ratios of the weights as they are.",
    )


def _gate_stages() -> tuple[Stage, ...]:
    lse = np.array([[-3.0], [0.0], [2.5], [11.0]])
    sink = np.array([0.0, 1.5, -4.0, -np.inf, 12.0])
    right = np.exp(lse) / (np.exp(lse) + np.exp(sink))
    far = np.array([-2e4, -1e4, 1e4, 2e4])
    return (
        Stage(
            "the factor on the output",
            lambda gate: gate(lse, sink),
            given="lse [4, 1] and five sinks, one of them −∞",
            expected=right,
            rtol=1e-5,
            look="Divide the sum over the keys by the sum that has the sink in it.",
            mistakes=(
                Mistake(
                    "the mass of the sink",
                    "The factor is the share that the sink takes.",
                    "It is one sign away.",
                    "What should the factor be when there is no sink?",
                    seen=1 - right,
                ),
                Mistake(
                    "the mass against that of one key",
                    "The sink's exponential was added to 1, whatever the row's normaliser is.",
                    "The formula of the weights has a 1 in it for a sink at 0.",
                    "To which sum does the sink add its exponential?",
                    seen=lambda got: np.allclose(got, 1 / (1 + np.exp(sink)) + 0 * lse, atol=1e-5),
                ),
            ),
        ),
        Stage(
            "logits of ±10⁴",
            lambda gate: np.stack([gate(far, np.zeros(4)), gate(np.zeros(4), far), gate(far, far)]),
            given="lse and sink of ±10,000 and ±20,000",
            expected=np.array([[0, 0, 1, 1], [1, 1, 0, 0], [0.5] * 4], float),
            look="Only one difference matters. Which?",
            mistakes=(
                Mistake(
                    "a ratio that overflows",
                    "Large logits give NaN or a wrong limit.",
                    "Both exponentials leave the number format.",
                    "Write the factor as a function of one difference.",
                    seen=lambda got: not np.isfinite(got).all() or np.abs(got - 0.5).max() <= 0.5,
                ),
            ),
        ),
        Stage(
            "rows without keys",
            lambda gate: gate(np.array([-np.inf, -np.inf]), np.array([1.0, -np.inf])),
            given="lse = −∞, with a sink and without one",
            expected=np.zeros(2),
            look="A row without keys has nothing to give, whatever the sink. Where does −∞ − (−∞) arise?",
        ),
    )


def _problem() -> tuple[np.ndarray, np.ndarray]:
    logits = _float64.logits(921, _ROWS, _KEYS).astype(np.float64)
    logits[2] += 1e4
    logits[3] -= 300.0
    logits[1, 3:9] = -np.inf
    values = np.random.default_rng(923).normal(size=(_KEYS, _WIDTH))
    return logits, values


def _split(cut: tuple[int, ...]) -> list[tuple[np.ndarray, ...]]:
    logits, values = _problem()
    parts = []
    for places in np.split(np.arange(_KEYS), cut):
        z, v = logits[:, places], values[places]
        m = z.max(-1, initial=-np.inf)
        e = np.exp(z - np.where(np.isfinite(m), m, 0.0)[:, None])
        parts.append((m, e.sum(-1), e @ v))
    return parts


def _sinks() -> np.ndarray:
    """One sink a row, at the level of that row; the row at −300 has one that swallows it."""
    return _SINKS + np.array([0, 0, 1e4, -300.0, 0, 0])


def _attended(sink_terms: Callable[[np.ndarray, np.ndarray, int], np.ndarray]) -> np.ndarray:
    """Outputs for each cut; `sink_terms(m, sink, splits)` is what the sink adds to Σe^(z−m)."""
    logits, values = _problem()
    m = logits.max(-1)
    e = np.exp(logits - m[:, None])
    with np.errstate(over="ignore"):
        return np.stack([(e @ values) / (e.sum(-1) + sink_terms(m, _sinks(), len(cut) + 1))[:, None] for cut in _CUTS])


def _merge_stages() -> tuple[Stage, ...]:
    right = _attended(lambda m, s, splits: np.exp(s - m))
    several = np.array([len(cut) > 0 for cut in _CUTS])
    call = functools.cache(lambda attend: np.stack([np.asarray(attend(_split(cut), _sinks())) for cut in _CUTS]))
    return (
        Stage(
            "any split of the keys gives one output",
            call,
            given="fifteen keys in one to five splits, rows at levels from −300 to 10⁴",
            expected=right,
            rtol=1e-6,
            atol=1e-8,
            look="Merge first. What is left to do, and how often?",
            mistakes=(
                Mistake(
                    "1 in place of e^(−m)",
                    "The sink's exponential is not measured from the maximum, and the sums are.",
                    "On paper the sink adds e^S, and after the shift the keys' exponentials look the same.",
                    "By which factor is every other exponential of the row multiplied?",
                    seen=lambda got: np.allclose(
                        got[:, [0, 1, 4]], _attended(lambda m, s, splits: np.exp(np.minimum(s, 50)))[:, [0, 1, 4]]
                    ),
                ),
                Mistake(
                    "the sink added once per split",
                    "One split is right, and with every further one the output shrinks.",
                    "Each split is a softmax of its own and may carry its own sink.",
                    "How many sinks does the row have after three splits are merged?",
                    seen=lambda got: (
                        np.allclose(got[~several], right[~several], rtol=1e-5)
                        and np.allclose(
                            got[:, [0, 1]], _attended(lambda m, s, splits: splits * np.exp(s - m))[:, [0, 1]], rtol=1e-5
                        )
                    ),
                ),
                Mistake(
                    "no sink",
                    "The output is that of plain softmax.",
                    "The sink was handed on and not used.",
                    "Which rows should have a smaller output?",
                    seen=_attended(lambda m, s, splits: np.zeros_like(s)),
                ),
                Mistake(
                    "splits not brought to one maximum",
                    "One split is right, and several are not.",
                    "The sums of a split are relative to the maximum of that split.",
                    "Multiply by which exponential before you add?",
                    seen=lambda got: (
                        np.allclose(got[~several], right[~several], rtol=1e-5)
                        and not np.allclose(got[several], right[several], rtol=1e-3)
                    ),
                ),
            ),
        ),
        Stage(
            "empty splits",
            lambda attend: attend(
                [(np.full(_ROWS, -np.inf), np.zeros(_ROWS), np.zeros((_ROWS, _WIDTH))), *_split((5,))], _sinks()
            ),
            given="a split of which every row is empty, and two others",
            expected=right[0],
            rtol=1e-6,
            atol=1e-8,
            look="Where does −∞ − (−∞) arise, and what should that product be?",
        ),
        Stage(
            "a row that is empty altogether",
            lambda attend: attend([(np.full(2, -np.inf), np.zeros(2), np.zeros((2, 1)))] * 2, np.array([0.5, -np.inf])),
            given="two empty splits, with a sink and without",
            expected=np.zeros((2, 1)),
            look="Its output is 0. Which quotient is 0/0?",
        ),
    )

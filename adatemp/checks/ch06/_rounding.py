"""Exercise 06.2, where is the rounding: the size at which two sets give one output, in four pipelines, simulated."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks.ch06._pipelines import accumulator_size, int8_size, output_size, weights_size

_TITLE = "06.2 Where is the rounding?"
_SIGNATURE = "size(pipeline, value_a, value_b, spread, temperature, grid)"
_ROUND_OFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3}


def ex2(size: Callable[..., Any]) -> Report:
    """Checks the predicted size from which {A, B, …, B} and {B, …, B} give one number, in four pipelines.

    One coordinate: A's value, B's value; A's logit is δ above the Bs'. Everything is exact, except:

        "output"             exponentials in float32; the finished average is rounded to a format
        "weights"            exponentials in the format itself; weights rounded to it, the products summed exactly, the
                             sum rounded to it; the size at which half of the sizes about it collide
        "accumulator first"  weights and products rounded to a format, and every partial sum of them, A added first
        "accumulator last"   the same, A added last
        "int8"               exponentials in float32; values and output are multiples of a step

    Args:
        size: `size(pipeline, value_a, value_b, spread, temperature, grid) -> n`, where grid is the name of the format,
            or the step for "int8". Infinity where they never collide. Values are numbers of the format.

    Returns:
        The report. Within a factor of 1.5 for a rounded output and int8 and of 2 for the others. Mistakes it names: the
        spacing for the unit round-off; u|v_B| for half the gap; δ for δ/θ; an underflow ignored; the pipelines
        confused; the order of summation ignored; a relative error for int8.
    """
    return examine(size, _TITLE, _SIGNATURE, _stages(), remark=_REMARK, picture=_draw)


_REMARK = "One head, four sizes, apart by powers of ten: say where the rounding is before you say when sets collide."

_POWER = [  # v_B a power of two, A above it: half the gap is u|v_B|
    ("output", 2.0, 1.0, 0.0, 1.0, "bfloat16"),
    ("output", 2.0, 1.0, 3.0, 1.0, "float16"),
    ("output", 1.0, 0.5, 5.0, 2.0, "float8_e4m3fn"),
    ("output", 6.0, 2.0, 4.0, 0.5, "float8_e5m2"),
    ("output", -2.0, -1.0, 2.5, 2.0, "bfloat16"),
]
_OTHER = [  # not so: just below a power of two, or A below a power of two
    ("output", 0.5, 1.9921875, 2.0, 1.0, "bfloat16"),
    ("output", 0.0, 1.0, 2.0, 1.0, "float16"),
    ("output", 3.5, 1.875, 1.0, 2.0, "float8_e4m3fn"),
    ("output", -1.0, 2.0, 3.0, 1.0, "float16"),
    ("output", 3.0, 1.75, 3.0, 1.0, "float8_e5m2"),
]
_UNDERFLOW = [
    ("output", 2.0, 1.0, 120.0, 1.0, "float16"),
    ("output", 2.0, 1.0, 60.0, 0.5, "bfloat16"),
    ("weights", 2.0, 1.0, 20.0, 1.0, "float16"),
    ("output", 2.0, 1.0, 20.0, 1.0, "float16"),
    ("weights", 2.0, 1.0, 20.0, 2.0, "bfloat16"),
]
_WEIGHTS = [
    ("weights", 2.0, 1.0, 1.0, 1.0, "bfloat16"),
    ("weights", 1.5, 1.25, 4.0, 2.0, "bfloat16"),
    ("weights", 2.0, 1.0, 0.5, 1.0, "float16"),
]
_RUNNING = [
    ("accumulator first", 2.0, 1.0, 0.0, 1.0, "bfloat16"),
    ("accumulator first", 2.0, 1.0, 4.0, 2.0, "bfloat16"),
    ("accumulator first", 2.0, 1.0, 3.5, 1.0, "float16"),
    ("accumulator first", 2.0, 1.0, 8.0, 1.0, "bfloat16"),
    ("accumulator last", 2.0, 1.0, 2.0, 1.0, "bfloat16"),
    ("accumulator last", 2.0, 1.0, 6.0, 2.0, "float16"),
]
_STEP = 1 / 32
_INT8 = [
    ("int8", b + 20 * _STEP, b, s, t, _STEP)
    for b, s, t in ((0.0, 2.0, 1.0), (5 * _STEP, 4.0, 2.0), (100 * _STEP, 4.0, 1.0), (-60 * _STEP, 0.0, 1.0))
] + [("int8", 1.0, 0.25, 100.0, 0.5, _STEP)]


def _stages() -> tuple[Stage, ...]:
    def stage(name: str, cases: list, given: str, factor: float, mistakes: Any, look: str) -> Stage:
        right = np.array([_measured(case) for case in cases])
        return Stage(
            name,
            lambda f: np.array([float(f(*case)) for case in cases]),
            given=given,
            accept=lambda got: _within(got, right, factor),
            mistakes=tuple(mistakes(cases, right)),
            look=look,
        )

    return (
        stage(
            "output rounded, A above a power of two",
            _POWER,
            "five pairs of values and spreads",
            1.5,
            lambda cases, right: (
                _like("the spacing for the unit round-off", right / 2, _SPACING, 1.1),
                _temperature(cases),
                _like("the order of magnitude of another format", right * 2, _DOUBLE, 1.1),
            ),
            "A's weight times the distance of the values is lost when it is at most half of the gap next to v_B.",
        ),
        stage(
            "output rounded, other values",
            _OTHER,
            "values of B just below a power of two, and A below a power of two",
            1.5,
            lambda cases, right: (
                _like("u|v_B| for half the gap", [_relative(case) for case in cases], _GAP, 1.1),
                _like("the spacing for the unit round-off", right / 2, _SPACING, 1.1),
                _temperature(cases),
            ),
            "How far is the next number of the format, on the side where A is?",
        ),
        stage(
            "exponentials that underflow",
            _UNDERFLOW,
            "spreads of 120 in float32 exponentials, and of 20 in float16 ones",
            2.0,
            lambda cases, right: (
                Mistake(
                    "an underflow of exp ignored",
                    "A finite size came back where the Bs' exponentials are exactly 0.",
                    "e^(δ/θ)/u has no end, and on paper nothing is ever 0.",
                    "What is A's weight if every other exponential is 0?",
                    seen=lambda got: bool((np.isfinite(got) & ~np.isfinite(right)).any()),
                ),
                Mistake(
                    "an underflow where there is none",
                    "Infinity came back where the exponentials are small and not 0.",
                    "The format of the exponentials is not always that of the output.",
                    "In which format are the exponentials taken, in each pipeline?",
                    seen=lambda got: bool((~np.isfinite(got) & np.isfinite(right)).any()),
                ),
            ),
            "The smallest positive number of float32 is 2⁻¹⁴⁹, of float16 2⁻²⁴, of bfloat16 2⁻¹³³; half of it is 0.",
        ),
        stage(
            "weights rounded",
            _WEIGHTS,
            "bfloat16 and float16 weights",
            2.0,
            lambda cases, right: (
                _temperature(cases),
                Mistake(
                    "a sum that stops",
                    "The sizes do not depend on the spread, as in a running sum of low precision.",
                    "Weights of 1/n look like terms that are swallowed.",
                    "The sum is exact here; each weight is rounded once.",
                    seen=lambda got: bool(
                        np.allclose(got * [_ROUND_OFF[c[5]] for c in cases], got[0] * 2.0**-8, rtol=0.3)
                    ),
                ),
            ),
            "Rounding a weight is a relative error of u, and the output is rounded too.",
        ),
        stage(
            "low-precision accumulator",
            _RUNNING,
            "bfloat16 and float16 running sums, A first or last",
            2.0,
            lambda cases, right: (
                Mistake(
                    "the order of summation ignored",
                    "The same size came back whether A is added first or last.",
                    "Sums commute, on paper.",
                    "What has the running sum become when A arrives, and what is it when A is the first term?",
                    seen=lambda got: bool(np.isfinite(got[4:]).any() and np.isfinite(got[:3]).all()),
                ),
                Mistake(
                    "the formula of a rounded output",
                    "The sizes grow with e^(δ/θ).",
                    "It holds where the sum is precise.",
                    "After how many equal terms does a running sum stop growing?",
                    seen=lambda got: bool(got[1] > 3 * got[0]),
                ),
                Mistake(
                    "Bs that are invisible beside A",
                    "A finite size came back for e^(δ/θ) above 1/u with A first.",
                    "The sum of Bs alone stops in both sets.",
                    "Does the first B change a sum that begins with A?",
                    seen=lambda got: bool(np.isfinite(got[3]) and _within(got[:3], right[:3], 2.0)),
                ),
            ),
            "A running sum stops at about 1/u of its terms. Follow both sets from their first term on.",
        ),
        stage(
            "int8",
            _INT8,
            "a step of 1/32, values of B from −60 to 100 steps, and one spread beyond underflow",
            1.5,
            lambda cases, right: (
                Mistake(
                    "a relative error assumed for int8",
                    "The size depends on how large v_B is, and not only on its distance from v_A.",
                    "Floating-point formats have relative steps.",
                    "How far is the next multiple of the step, next to 0 and next to 100 steps?",
                    seen=lambda got: bool(
                        got[0] > 100 * right[0]
                        or abs(np.log(got[2] / right[2]) - np.log(got[1] / right[1])) > 1.0
                        or not np.isfinite(got[0])
                    ),
                ),
                _like("the step for half of it", right / 2, _SPACING, 1.15),
                Mistake(
                    "an underflow of exp ignored",
                    "A finite size came back where the Bs' exponentials are exactly 0.",
                    "The step has nothing to do with exponentials.",
                    "The exponentials are taken in float32 here too.",
                    seen=lambda got: bool(np.isfinite(got[-1])),
                ),
            ),
            "Half a step is lost, next to any value.",
        ),
    )


_SPACING = (
    "The sizes are half of what they should be.",
    "The distance of two neighbours, which libraries call eps, is easily taken for the rounding error.",
    "How far can a number be moved before it rounds to the next one?",
)
_DOUBLE = (
    "The sizes are twice what they should be.",
    "One binary digit too many was counted, such as the hidden one twice.",
    "What is the number next to 1 in bfloat16?",
)
_GAP = (
    "Half the gap next to v_B was taken as u|v_B|, and some sizes are off by up to a factor of 2.",
    "u bounds the relative error; it is reached at a power of two, from above.",
    "The gap is constant between powers of two, and halves below one.",
)


def _like(name: str, wanted: Any, words: tuple[str, str, str], factor: float) -> Mistake:
    return Mistake(name, *words, seen=lambda got: _within(got, np.asarray(wanted, float), factor))


def _temperature(cases: list) -> Mistake:
    forgotten = np.array([_measured((*case[:4], 1.0, case[5])) for case in cases])
    return Mistake(
        "δ for δ/θ",
        "The sizes are right at temperature 1 only.",
        "The temperature is easily forgotten.",
        "What is A's weight at temperature θ?",
        seen=lambda got: _within(got, forgotten, 1.5),
    )


def _within(got: np.ndarray, wanted: np.ndarray, factor: float) -> bool:
    """Within a factor where finite, and infinite together."""
    if got.shape != wanted.shape or np.isnan(got).any() or (np.isfinite(got) != np.isfinite(wanted)).any():
        return False
    finite = np.isfinite(wanted)
    return bool((np.abs(np.log(np.maximum(got[finite], 1e-9) / wanted[finite])) <= math.log(factor)).all())


def _relative(case: tuple) -> float:
    _, a, b, spread, temperature, grid = case
    return 1 + math.exp(spread / temperature) * (abs(a - b) / (_ROUND_OFF[grid] * abs(b)) - 1)


@functools.cache
def _measured(case: tuple) -> float:
    pipeline, a, b, spread, temperature, grid = case
    s = spread / temperature
    if pipeline == "output":
        return output_size(a, b, s, grid)
    if pipeline == "weights":
        return weights_size(a, b, s, grid)
    if pipeline == "int8":
        return int8_size(a, b, s, grid)
    return accumulator_size(a, b, s, grid, pipeline.split()[1])


def _draw(size: Callable[..., Any]) -> Any:
    """Predicted and measured sizes against the spread."""
    from adatemp import plotting

    spreads = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    fig, axes = plotting.figure(height=3.0)
    words = []
    for pipeline, grid, role in (
        ("output", "bfloat16", "plain"),
        ("accumulator first", "bfloat16", "adaptive"),
        ("int8", _STEP, "published"),
    ):
        claimed = [float(size(pipeline, 2.0, 1.0, s, 1.0, grid)) for s in spreads]
        axes.plot(spreads, claimed, label=pipeline, **plotting.role(role) | {"marker": ""})
        measured = [_measured((pipeline, 2.0, 1.0, float(s), 1.0, grid)) for s in spreads]
        axes.plot(spreads, measured, **plotting.role(role) | {"linestyle": ""})
        words.append(f"{pipeline} {claimed[-1]:.3g}, measured {measured[-1]:.3g}")
    axes.set(yscale="log", xlabel="spread δ", ylabel="size of collision")
    axes.legend()
    return plotting.show(
        fig,
        alt="Size of collision against spread: your predictions as lines, measured sizes as marks; at 5: "
        + "; ".join(words)
        + ".",
    )

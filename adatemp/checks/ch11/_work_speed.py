"""The second half of exercise 11.4: the relative speed that a count of the work allows, and its picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adatemp.checks._stages import Mistake, Stage
from adatemp.checks.ch11._work_programs import moved

# Rates a second: of the order of an H200 and of an A100, and a device that no one sells, quick at exponentials.
_DEVICES = (
    {"operations": 9.9e14, "exponentials": 3.9e12, "bandwidth": 4.8e12},
    {"operations": 3.1e14, "exponentials": 2.4e12, "bandwidth": 1.6e12},
    {"operations": 2.0e14, "exponentials": 9.0e13, "bandwidth": 1.0e12},
)


def speed_stages(relative_speed: Callable[..., Any]) -> tuple[Stage, ...]:
    cases = [(gpu, 16_384, width) for gpu in _DEVICES for width in (32, 64, 96, 128, 256)]
    short = [(gpu, 64, width) for gpu in _DEVICES[:2] for width in (64, 256)]

    def call(given: list[tuple[Mapping[str, float], int, int]]) -> np.ndarray:
        return np.array([float(relative_speed(*case)) for case in given])

    def predicted(case: tuple[Mapping[str, float], int, int], model: str = "") -> float:
        gpu, n, width = case
        product, exponential = 2 * n * n * width / gpu["operations"], n * n / gpu["exponentials"]
        loop = (lambda a, b: a + b) if model == "no overlap" else (lambda a, b: a) if model == "free" else max
        plain, adaptive = loop(2 * product, exponential), loop(product, exponential) + loop(2 * product, exponential)
        if model == "one roof":
            adaptive = max(3 * product, 2 * exponential)
        if model != "no memory":
            plain, adaptive = (
                max(time, moved(n, width, adaptive=kind, backward=False) / gpu["bandwidth"])
                for kind, time in ((False, plain), (True, adaptive))
            )
        return plain / adaptive

    def of(given: list[tuple[Mapping[str, float], int, int]], model: str = "") -> np.ndarray:
        return np.array([predicted(case, model) for case in given])

    return (
        Stage(
            "the relative speed of long sequences",
            lambda _: call(cases),
            given="n = 16,384, widths from 32 to 256, three devices",
            expected=of(cases),
            rtol=0.005,
            atol=0.0,
            look="Write down the time of each loop of each kernel, for one device and one width.",
            mistakes=(
                Mistake(
                    "speeds turned round",
                    "The answer is above 1: the time of adaptive over that of plain attention.",
                    "A ratio of times is the inverse of that of speeds.",
                    "Is adaptive attention faster than plain attention?",
                    seen=1 / of(cases),
                ),
                Mistake(
                    "exponentials are free",
                    "The answer is two thirds everywhere.",
                    "Three products for two.",
                    "At which width does a loop wait for its exponentials?",
                    seen=of(cases, "free"),
                ),
                Mistake(
                    "one roof over both loops",
                    "Products and exponentials of both loops were added up before the busier of them was taken.",
                    "A roofline has one roof for a kernel.",
                    "Can the exponentials of the first loop overlap with products of the second?",
                    seen=of(cases, "one roof"),
                ),
                Mistake(
                    "work added up where it overlaps",
                    "Products and exponentials were added within a loop.",
                    "Without overlap that would be right.",
                    "In this model a loop takes as long as its busier unit.",
                    seen=of(cases, "no overlap"),
                ),
            ),
        ),
        Stage(
            "the relative speed of short sequences",
            lambda _: call(short),
            given="n = 64, where the memory decides",
            expected=of(short),
            rtol=0.005,
            atol=0.0,
            look="Compare the time of the loops with that of the bytes.",
            mistakes=(
                Mistake(
                    "the memory is forgotten",
                    "The answer does not change with n.",
                    "For long sequences attention is bound by its arithmetic.",
                    "At n = 64, how long do the bytes take, and how long the products?",
                    seen=of(short, "no memory"),
                ),
            ),
        ),
    )


def draw(relative_speed: Callable[..., Any]) -> Any:
    """The reader's relative speed against the width, for two devices."""
    from adatemp import plotting

    widths = np.array([16, 32, 64, 96, 128, 192, 256])
    figure, axis = plotting.figure(4, 3.2)
    told = []
    for gpu, name, role in zip(_DEVICES, ("like an H200", "like an A100"), ("adaptive", "plain")):
        speeds = [float(relative_speed(gpu, 16_384, int(width))) for width in widths]
        axis.plot(widths, speeds, label=name, **plotting.role(role))
        told.append(f"{name} {speeds[2]:.2f} at width 64 and {speeds[4]:.2f} at 128")
    axis.axhline(2 / 3, **(plotting.role("bound") | {"marker": ""}))
    axis.set_xlabel("width of the head")
    axis.set_ylabel("relative speed")
    axis.set_ylim(0.45, 0.7)
    axis.legend(loc="lower right")
    return plotting.show(
        figure,
        alt="Line chart: your predicted speed of adaptive attention relative to plain attention against the width of "
        f"the head, below a line at two thirds. {'; '.join(told)}.",
    )

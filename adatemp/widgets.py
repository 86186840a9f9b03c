"""Figures that move: with sliders over prepared frames, which need nothing but a browser, or with a kernel.

    def draw(temperature):
        fig, axes = plotting.figure()
        axes.bar(range(8), np.asarray(jax.nn.softmax(logits / temperature)), color=plotting.palette["plain"])
        axes.set_ylim(0, 1)
        return fig

    widgets.live_figure(
        draw,
        {"temperature": [0.25, 0.5, 1.0, 2.0, 4.0]},
        alt=lambda temperature: f"Bar chart of eight attention weights at temperature {temperature}: ...",
        start={"temperature": 1.0},
    )

Give the axes fixed limits: what stays the same from frame to frame is stored once, and the eye sees what moves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adatemp import _live_figure, _svg, plotting

__all__ = ["LiveFigure", "explorer", "live_figure"]

_MOST_FRAMES = 200
_MOST_BYTES = 1_500_000


@dataclass(frozen=True)
class LiveFigure:
    """A finished live figure: displays as HTML with sliders, prints as the description of its first frame."""

    alts: tuple[str, ...]
    start: int
    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.alts[self.start]


def live_figure(
    draw: Callable[..., Any],
    values: Mapping[str, Sequence[Any]],
    *,
    alt: Callable[..., str],
    labels: Mapping[str, str] | None = None,
    start: Mapping[str, Any] | None = None,
    max_width: int | None = None,
) -> LiveFigure:
    """Draws a figure for every combination of values, and gives each parameter a slider.

    The result is plain HTML: it moves on the book's pages, in Colab, in JupyterLab and from a file, without a kernel and
    without a widget library. Without scripts, and on paper, it shows the frame it stands at.

    Args:
        draw: takes the parameters by name, returns a figure from `plotting.figure`.
        values: for each parameter, the values its slider stops at, in order. One to three parameters.
        alt: takes the same parameters, returns what that frame shows (at least 40 characters).
        labels: the visible name of a parameter, by default its own name with spaces.
        start: the value a parameter starts at, by default its first.
        max_width: CSS pixels the figure may take on a wide screen.

    Returns:
        A `LiveFigure`. As the last expression of a cell it is displayed.

    Raises:
        TypeError: `draw` or `alt` cannot be called or returns something else; `values` is not a mapping to sequences.
        ValueError: no values, a start that is not among them, too many frames, or too heavy a page.
    """
    controls = _controls(values, labels or {}, start or {})
    for name, function in (("draw", draw), ("alt", alt)):
        if not callable(function):
            raise TypeError(f"live_figure: {name} must be a function of {', '.join(values)}, got {function!r}")

    drawings, alts = [], []
    for combination in itertools.product(*values.values()):
        frame = dict(zip(values, combination))
        where = ", ".join(f"{name}={value!r}" for name, value in frame.items())
        text = alt(**frame)
        plotting.check_alt(text, f"live_figure: alt({where})")
        alts.append(text)
        drawings.append(plotting.draw(draw(**frame), f"live_figure: the result of draw({where})"))
    first = drawings[0]
    if any(drawing[:2] != first[:2] for drawing in drawings):
        raise ValueError("live_figure: draw returned figures of different sizes; give every frame the same width and height")

    everything = [element for drawing in drawings for element in drawing.elements]
    numbered = iter(_svg.number_ids(everything, plotting.unique_prefix(everything)))
    frames = [tuple(itertools.islice(numbered, len(drawing.elements))) for drawing in drawings]
    index = 0
    for control in controls:
        index = index * len(control.values) + control.start
    body = _live_figure.compose(plotting.svg_open(first, alts[index]), _live_figure.share(frames), alts, controls)
    page = plotting.wrap(body, first.width, max_width, "adatemp-live", _live_figure.read("_live_figure.css"))
    if len(page.encode()) > _MOST_BYTES:
        raise ValueError(
            f"live_figure: {len(frames)} frames weigh {len(page.encode()) / 1e6:.1f} MB, at most {_MOST_BYTES / 1e6:g} "
            "are allowed in a page: use fewer values, fewer points a curve, or fixed axis limits"
        )
    return LiveFigure(tuple(alts), index, page)


def _controls(
    values: Mapping[str, Sequence[Any]], labels: Mapping[str, str], start: Mapping[str, Any]
) -> list[_live_figure.Control]:
    """Checks the parameters and describes their sliders."""
    if not isinstance(values, Mapping):
        raise TypeError(f'live_figure: values must map names to sequences, like {{"n": [8, 16]}}, got {values!r}')
    if not 1 <= len(values) <= 3:
        raise ValueError(f"live_figure: values must name 1 to 3 parameters, got {len(values)}")
    for argument, given in (("labels", labels), ("start", start)):
        if unknown := set(given) - set(values):
            raise ValueError(f"live_figure: {argument} names {sorted(unknown)}, which values does not: {list(values)}")

    controls, frames = [], 1
    for name, choices in values.items():
        if isinstance(choices, str) or not hasattr(choices, "__len__") or not hasattr(choices, "__getitem__"):
            raise TypeError(f"live_figure: values[{name!r}] must be a sequence of values, got {choices!r}")
        choices = list(choices)
        if len(choices) < 2:
            raise ValueError(f"live_figure: values[{name!r}] has {len(choices)} values, a slider needs at least 2")
        first = start.get(name, choices[0])
        if first not in choices:
            raise ValueError(f"live_figure: start[{name!r}] is {first!r}, which is not one of values[{name!r}]: {choices}")
        texts = tuple(choice if isinstance(choice, str) else f"{choice:g}" for choice in choices)
        controls.append(_live_figure.Control(labels.get(name, name.replace("_", " ")), texts, choices.index(first)))
        frames *= len(choices)
    if frames > _MOST_FRAMES:
        sizes = " x ".join(str(len(control.values)) for control in controls)
        raise ValueError(f"live_figure: values ask for {sizes} = {frames} frames, at most {_MOST_FRAMES} are allowed")
    return controls


def explorer(draw, **controls):
    raise NotImplementedError

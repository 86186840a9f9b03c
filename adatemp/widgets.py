"""Figures that move: with sliders over prepared frames, which need nothing but a browser, or with a kernel.

    fig, axes = plotting.figure()
    axes.set_ylim(0, 1)
    bars = axes.bar(range(8), 8 * [0.0], color=plotting.palette["plain"])

    def draw(temperature):
        for bar, weight in zip(bars, np.asarray(jax.nn.softmax(logits / temperature))):
            bar.set_height(weight)
        return fig

    widgets.live_figure(
        draw,
        {"temperature": [0.25, 0.5, 1.0, 2.0, 4.0]},
        alt=lambda temperature: f"Bar chart of eight attention weights at temperature {temperature}: ...",
        start={"temperature": 1.0},
    )

Moving one figure's artists is about three times as fast as drawing a new figure for each frame, which works too. Give
the axes fixed limits: what stays the same from frame to frame is stored once, and the eye sees what moves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adatemp import _live_figure, _picture, _svg
from adatemp._explorer import Explorer, explorer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Explorer", "LiveFigure", "explorer", "live_figure"]

_MOST_FRAMES = 200


@dataclass(frozen=True)
class LiveFigure:
    """A finished live figure: displays as HTML with sliders, prints as the description of the frame it starts at."""

    alts: tuple[str, ...]
    start: int
    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.alts[self.start]


def live_figure(
    draw: Callable[..., Figure],
    values: Mapping[str, Sequence[Any]],
    *,
    alt: Callable[..., str],
    labels: Mapping[str, str] | None = None,
    start: Mapping[str, Any] | None = None,
    max_width: int | None = None,
) -> LiveFigure:
    """Draws a figure for every combination of values, and gives each parameter a slider.

    The result is plain HTML: it moves on the book's pages, in Colab, in JupyterLab and from a file, without a kernel
    and without a widget library. Without scripts it shows the frame it starts at, on paper the one it stands at.

    Args:
        draw: takes the parameters by name, returns a figure from `plotting.figure`: a new one or the same one, moved.
            All frames have the layout of the first, so titles and tick labels should need the same room in each.
        values: for each parameter, the values its slider stops at, in order. One to three parameters.
        alt: takes the same parameters, returns what that frame shows (at least 40 characters).
        labels: the visible name of a parameter, by default its own name with spaces.
        start: the value a parameter starts at, by default its first.
        max_width: CSS pixels the figure may take on a wide screen.

    Returns:
        A `LiveFigure`. As the last expression of a cell it is displayed.

    Raises:
        TypeError: `draw` or `alt` cannot be called or returns something else; `values` is not a mapping to sequences.
        ValueError: too few values or too many frames, a start that is not among the values, frames of different sizes,
            a page too heavy, or what `plotting.show` would refuse.
    """
    controls = _controls(values, labels or {}, start or {})
    for name, function in (("draw", draw), ("alt", alt)):
        if not callable(function):
            raise TypeError(f"live_figure: {name} must be a function of {', '.join(values)}, got {function!r}")

    drawings: list[_svg.Drawing] = []
    alts: list[str] = []
    for combination in itertools.product(*values.values()):
        frame = dict(zip(values, combination))
        where = ", ".join(f"{name}={value!r}" for name, value in frame.items())
        alts.append(alt(**frame))
        _picture.check_alt(alts[-1], f"live_figure: alt({where})")
        like = drawings[0] if drawings else None
        drawings.append(_picture.draw(draw(**frame), f"live_figure: the result of draw({where})", like))
        if drawings[-1].size != drawings[0].size:
            raise ValueError(
                f"live_figure: draw({where}) returned a figure of {drawings[-1].size} points, the first frame has "
                f"{drawings[0].size}; give all frames the same width and height"
            )

    everything = [element for drawing in drawings for element in drawing.elements]
    numbered = iter(_svg.number_ids(everything, _picture.unique_prefix(everything)))
    frames = [tuple(itertools.islice(numbered, len(drawing.elements))) for drawing in drawings]
    first = _live_figure.start_frame(controls)
    opening = _picture.svg_open(drawings[0], alts[first])
    body = _live_figure.compose(opening, _live_figure.share(frames), alts, controls)
    style = _live_figure.read("_live_figure.css")
    page = _picture.wrap(body, drawings[0], max_width, "live_figure: draw", kind="adatemp-live", style=style)
    return LiveFigure(tuple(alts), first, page)


def _controls(
    values: Mapping[str, Sequence[Any]], labels: Mapping[str, str], start: Mapping[str, Any]
) -> list[_live_figure.Control]:
    """Checks the parameters and describes their sliders."""
    if not isinstance(values, Mapping):
        raise TypeError(f'live_figure: values must map names to sequences, like {{"n": [8, 16]}}, got {values!r}')
    if not 1 <= len(values) <= 3:
        raise ValueError(f"live_figure: values must name 1 to 3 parameters, got {len(values)}: {list(values)}")
    for argument, given in (("labels", labels), ("start", start)):
        if unknown := sorted(set(given) - set(values)):
            raise ValueError(f"live_figure: {argument} names {unknown}, but values has only {list(values)}")

    controls, frames = [], 1
    for name, choices in values.items():
        if isinstance(choices, str) or not hasattr(choices, "__len__") or not hasattr(choices, "__getitem__"):
            raise TypeError(f"live_figure: values[{name!r}] must be a sequence of values, got {choices!r}")
        choices = list(choices)
        if len(choices) < 2:
            raise ValueError(f"live_figure: values[{name!r}] has {len(choices)} values, a slider needs at least 2")
        first = start.get(name, choices[0])
        if first not in choices:
            raise ValueError(f"live_figure: start[{name!r}]={first!r} is not one of values[{name!r}]={choices}")
        label = labels.get(name, name.replace("_", " "))
        controls.append(_live_figure.Control(label, tuple(map(_picture.value_text, choices)), choices.index(first)))
        frames *= len(choices)
    if frames > _MOST_FRAMES:
        sizes = " x ".join(str(len(control.values)) for control in controls)
        raise ValueError(
            f"live_figure: values ask for {sizes} = {frames} frames, at most {_MOST_FRAMES} are allowed; "
            "use fewer values, or widgets.explorer, which draws with a kernel"
        )
    return controls

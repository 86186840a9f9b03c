"""Figures in the book's style: one drawing that reads on light and dark pages, on a phone and on paper.

    fig, axes = plotting.figure()
    axes.plot(sizes, weights, label="plain softmax", **plotting.role("plain"))
    axes.set_xlabel("items n")
    axes.legend()
    plotting.show(fig, alt="Line chart: the largest weight falls from 0.9 at 8 items to 0.02 at 16,384.")

The last line gives the cell's output: inline SVG whose colours are CSS custom properties. Draw with `palette` and `role`
only; for a lighter tone use `alpha=`. Write Greek letters and powers as Unicode (θ, δ, n², β₀): they stay text in the
reader's own font. `$mathtext$` works too, drawn as outlines. matplotlib's global settings are never changed, and figures
do not pass through pyplot, so nothing is left open.
"""

from __future__ import annotations

import functools
import hashlib
import html
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from adatemp import _palette, _svg

if TYPE_CHECKING:
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

__all__ = ["Picture", "colormap", "figure", "palette", "role", "show"]

#: Colour of each role, as matplotlib takes it. See `adatemp._palette` for what the names mean.
palette = MappingProxyType({name: _palette.light(name) for name in (*_palette.STROKES, "grid", "ground")})

_SHORTEST_ALT = 40  # characters; shorter texts name the figure instead of saying what it shows
_PHONE = 328  # CSS pixels that a phone 360 wide leaves for a figure
_SMALLEST_TEXT = 9  # CSS pixels on that phone
_PIXELS_PER_INCH = 108  # on a wide screen, so that 10 pt text is about as large as the page's own

_shown: Counter[str] = Counter()


@dataclass(frozen=True)
class Picture:
    """A finished picture: displays as inline SVG, prints as its description."""

    alt: str
    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.alt


def figure(width: float = 5.0, height: float = 3.2, ncols: int = 1, nrows: int = 1, **subplots: Any) -> tuple[Figure, Any]:
    """Makes a figure in the house style.

    Args:
        width, height: inches. A width of 5 keeps 10 pt text legible on a phone; stack panels rather than widen.
        ncols, nrows: the grid of axes.
        **subplots: passed to `matplotlib.figure.Figure.subplots`, such as `sharex=True` or `height_ratios=[2, 1]`.

    Returns:
        The figure and its axes, one or an array of them, as `Figure.subplots` gives them.
    """
    from cycler import cycler
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width, height), layout="constrained")
    axes = fig.subplots(nrows, ncols, **subplots)
    lines = [role(name) for name in ("plain", "adaptive", "argmax", "published", "ours")]
    # Markers are asked for by role(...); a curve of many points reads better without them.
    cycle = cycler(color=[line["color"] for line in lines]) + cycler(linestyle=[line["linestyle"] for line in lines])
    for panel in fig.axes:
        panel.set_prop_cycle(cycle)
        panel.spines[["top", "right"]].set_visible(False)
        for edge in panel.spines.values():
            edge.set_color(palette["muted"])
        panel.tick_params(which="both", color=palette["muted"], labelcolor=palette["ink"], grid_color=palette["grid"])
        panel.set_axisbelow(True)
        panel.set_facecolor("none")
    return fig, axes


def role(name: str) -> dict[str, Any]:
    """Returns how a role is drawn, as keywords for `Axes.plot`: colour, line and marker.

    Args:
        name: "plain", "adaptive", "argmax", "published", "ours", "bound", "tight", "neutral" or "highlight".

    Example:
        >>> role("plain")["marker"]
        'o'
    """
    if name not in _palette.STROKES:
        raise ValueError(f"role: name={name!r} is not one of {', '.join(_palette.STROKES)}")
    linestyle, marker = _palette.STROKES[name]
    return {"color": palette[name], "linestyle": linestyle, "marker": marker}


@functools.cache
def colormap() -> ListedColormap:
    """Returns the colour map for heat maps: cividis without its darkest and lightest ends, which would merge with a page."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["cividis"](range(24, 244)), name="adatemp")


def show(figure: Figure, *, alt: str, max_width: int | None = None) -> Picture:
    """Turns a figure into a picture for the page, and closes it.

    Args:
        figure: from `plotting.figure`.
        alt: what the picture shows, for a reader who cannot see it: kind of chart, axes, and the point it makes.
        max_width: CSS pixels it may take on a wide screen; by default 108 an inch.

    Returns:
        A `Picture`. As the last expression of a cell it is displayed.

    Raises:
        TypeError: `figure` is not a matplotlib figure.
        ValueError: `alt` is too short, a colour is not in the palette, or text would be too small on a phone.
    """
    check_alt(alt, "show: alt")
    drawing = draw(figure, "show: figure")
    elements = _svg.number_ids(drawing.elements, unique_prefix(drawing.elements))
    return Picture(alt, wrap("".join((svg_open(drawing, alt), *elements, "</svg>")), drawing.width, max_width))


def draw(figure: Any, argument: str) -> _svg.Drawing:
    """Renders a figure, holds it to the house rules and closes it; `argument` names it in errors."""
    from matplotlib.figure import Figure

    if not isinstance(figure, Figure):
        raise TypeError(
            f"{argument} must be a matplotlib Figure, got {type(figure).__name__}; "
            "return or pass the fig of fig, axes = plotting.figure()"
        )
    drawing = _svg.render(figure, _colormap_colours())
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(figure)
    scale = min(1.0, _PHONE / drawing.width)
    if drawing.font_sizes and scale * drawing.font_sizes[0] < _SMALLEST_TEXT:
        smallest = drawing.font_sizes[0]
        raise ValueError(
            f"{argument} has text of {smallest:g} pt, which is {scale * smallest:.1f} pixels on a phone; at least "
            f"{_SMALLEST_TEXT} are needed: use {_SMALLEST_TEXT / scale:.1f} pt or more at this width "
            f"of {drawing.width / 72:g} inches, or a narrower figure with its panels stacked"
        )
    return drawing


def check_alt(alt: Any, argument: str) -> None:
    """Raises unless `alt` is text long enough to say what a figure shows."""
    if not isinstance(alt, str):
        raise TypeError(f"{argument} must be a string, got {type(alt).__name__}")
    if len(alt.strip()) < _SHORTEST_ALT:
        raise ValueError(
            f"{argument} has {len(alt.strip())} characters, at least {_SHORTEST_ALT} are needed: {alt!r}; "
            "say what kind of chart it is, what is on the axes and what a reader should see"
        )


def svg_open(drawing: _svg.Drawing, alt: str) -> str:
    """Returns the opening tag of the picture, which carries its description."""
    box = f"0 0 {drawing.width:g} {drawing.height:g}"
    return f'<svg viewBox="{box}" role="img" aria-label="{html.escape(" ".join(alt.split()))}">'


def unique_prefix(elements: Iterable[str]) -> str:
    """Returns a prefix for identifiers that is unique in a page and the same in every build.

    It comes from the content; a picture shown again gets a number besides.
    """
    key = hashlib.blake2s("".join(elements).encode()).hexdigest()[:8]
    _shown[key] += 1
    return f"adatemp-{key}-" if _shown[key] == 1 else f"adatemp-{key}-{_shown[key]}-"


def wrap(body: str, width: float, max_width: int | None, kind: str = "", style: str = "") -> str:
    """Puts a picture `width` units wide in its box, with the style it carries."""
    pixels = round(width / 72 * _PIXELS_PER_INCH) if max_width is None else max_width
    name = f"adatemp-figure {kind}".strip()
    return f'<div class="{name}" style="max-width:{pixels}px"><style>{stylesheet()}{style}</style>{body}</div>'


@functools.cache
def stylesheet() -> str:
    """Returns the style every output carries, since Colab shows each in a frame of its own."""
    css = resources.files("adatemp").joinpath("_figure.css").read_text(encoding="utf-8")
    return css.replace("LIGHT", _palette.declarations("light")).replace("DARK", _palette.declarations("dark")).strip()


@functools.cache
def _colormap_colours() -> frozenset[str]:
    from matplotlib.colors import to_hex

    return frozenset(to_hex(colour) for colour in colormap().colors)

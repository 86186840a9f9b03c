"""Figures in the book's style: one drawing that reads on light and dark pages, on a phone and on paper.

    fig, axes = plotting.figure()
    axes.plot(sizes, weights, label="plain softmax", **plotting.role("plain"))
    axes.set_xlabel("items n")
    axes.legend()
    plotting.show(fig, alt="Line chart: the largest weight falls from 0.9 at 8 items to 0.02 at 16,384.")

The last line gives the cell's output: inline SVG whose colours are CSS custom properties. Draw with `palette` and
`role` only; for a lighter tone use `alpha=`. Write Greek letters and powers as Unicode (θ, δ, n², β₀): they stay text,
in the reader's font. `$mathtext$` works too, drawn as outlines. matplotlib's global settings are never changed, and
figures do not pass through pyplot, so nothing is left open. Numbers that are better read than seen go in a `table`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from adatemp import _palette, _picture, _svg
from adatemp._table import Table, table

if TYPE_CHECKING:
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

__all__ = ["Picture", "Table", "colormap", "figure", "palette", "role", "show", "table"]

#: The colour of each role, as matplotlib takes it: palette["plain"]. What the names mean stands in `adatemp._palette`.
palette = MappingProxyType({name: _palette.light(name) for name in (*_palette.STROKES, *_palette.SURFACES)})


@dataclass(frozen=True)
class Picture:
    """A finished picture: displays as inline SVG, prints as its description."""

    alt: str
    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.alt


def figure(
    width: float = 5.0, height: float = 3.2, ncols: int = 1, nrows: int = 1, *, mosaic: Any = None, **subplots: Any
) -> tuple[Figure, Any]:
    """Makes a figure in the house style.

    Args:
        width, height: inches. A width of 5 keeps 10 pt text legible on a phone; stack panels rather than widen.
        ncols, nrows: the grid of axes.
        mosaic: instead of a grid, named panels such as [["logits", "weights"], ["plane", "plane"]].
        **subplots: passed to `Figure.subplots` or `Figure.subplot_mosaic`: `sharex=True`, `height_ratios=[2, 1]`.

    Returns:
        The figure and its axes: one, an array of them, or with a mosaic a dictionary by name.
    """
    from cycler import cycler
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width, height), layout="constrained")
    axes = fig.subplots(nrows, ncols, **subplots) if mosaic is None else fig.subplot_mosaic(mosaic, **subplots)
    strokes = [role(name) for name in ("plain", "adaptive", "argmax", "published", "ours")]
    # Markers come with role(...) only: a curve of many points reads better without them.
    cycle = cycler(**{key: [stroke[key] for stroke in strokes] for key in ("color", "linestyle")})
    for panel in fig.axes:
        panel.set_prop_cycle(cycle)
        panel.set_facecolor("none")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        panel.spines[:].set_color(palette["muted"])
        panel.tick_params(which="both", color=palette["muted"], labelcolor=palette["ink"], grid_color=palette["grid"])
    return fig, axes


def role(name: str) -> dict[str, Any]:
    """Returns how a role is drawn, as keywords for `Axes.plot`: its colour, line and marker.

    Args:
        name: "plain", "adaptive", "argmax", "published", "ours", "bound", "tight", "neutral" or "highlight".

    Raises:
        ValueError: there is no such role.

    Example:
        >>> role("adaptive")["marker"]
        's'
    """
    if name not in _palette.STROKES:
        raise ValueError(f"role: name={name!r} is not one of {', '.join(_palette.STROKES)}")
    linestyle, marker = _palette.STROKES[name]
    return {"color": palette[name], "linestyle": linestyle, "marker": marker}


def colormap() -> ListedColormap:
    """Returns the colour map for heat maps: cividis without the ends, which would merge with a dark or a light page."""
    return _palette.colormap()


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
        ValueError: `alt` is too short, a colour is not in the palette, text would be too small on a phone,
            or the picture is too heavy for a page.
    """
    _picture.check_alt(alt, "show: alt")
    drawing = _picture.draw(figure, "show: figure")
    elements = _svg.number_ids(drawing.elements, _picture.unique_prefix(drawing.elements))
    svg = "".join((_picture.svg_open(drawing, alt), *elements, "</svg>"))
    return Picture(alt, _picture.wrap(svg, drawing, max_width, "show: figure"))

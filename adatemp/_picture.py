"""What still and live figures share: the house rules a drawing must keep, and the box it is shown in."""

from __future__ import annotations

import functools
import hashlib
import html
import numbers
import sys
from collections import Counter
from collections.abc import Iterable
from importlib import resources
from typing import Any

from adatemp import _palette, _svg

_SHORTEST_ALT = 40  # characters; shorter texts name the figure instead of saying what it shows
_PHONE = 328  # CSS pixels that a phone 360 wide leaves for a figure
_SMALLEST_TEXT = 9  # CSS pixels on that phone
_MOST_BYTES = 1_500_000  # of HTML; a page should come to little more in all, and compresses to a tenth
_PIXELS_PER_INCH = 108  # on a wide screen, where 10 pt text is then as large as the page's own

_shown: Counter[str] = Counter()


def draw(figure: Any, argument: str, like: _svg.Drawing | None = None) -> _svg.Drawing:
    """Renders a figure, holds it to the house rules and closes it.

    Args:
        figure: what should be a matplotlib figure.
        argument: what to call it in errors.
        like: an earlier drawing whose layout to keep.
    """
    from matplotlib.figure import Figure

    if not isinstance(figure, Figure):
        raise TypeError(
            f"{argument} must be a matplotlib Figure, got {type(figure).__name__}; "
            "return or pass the fig of fig, axes = plotting.figure()"
        )
    drawing = _svg.render(figure, like and like.boxes)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(figure)
    scale = min(1.0, _PHONE / drawing.width)
    size = drawing.smallest_text
    if scale * size < _SMALLEST_TEXT:
        raise ValueError(
            f"{argument} has text of {size:g} pt, which is {scale * size:.1f} pixels high on a phone; at least "
            f"{_SMALLEST_TEXT} are needed: use {_SMALLEST_TEXT / scale:.1f} pt or more at this width of "
            f"{drawing.width / 72:g} inches, or a narrower figure with its panels stacked"
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


def unique_prefix(elements: Iterable[str]) -> str:
    """Returns a prefix for identifiers that is unique in a page and the same in every build.

    It comes from the content; a picture shown again gets a number besides.
    """
    key = hashlib.blake2s("".join(elements).encode()).hexdigest()[:8]
    _shown[key] += 1
    return f"adatemp-{key}-" if _shown[key] == 1 else f"adatemp-{key}-{_shown[key]}-"


def svg_open(drawing: _svg.Drawing, alt: str) -> str:
    """Returns the opening tag of the picture, which carries its description."""
    box = f"0 0 {drawing.width:g} {drawing.height:g}"
    return f'<svg viewBox="{box}" role="img" aria-label="{html.escape(" ".join(alt.split()))}">'


def wrap(
    body: str, drawing: _svg.Drawing, max_width: int | None, argument: str, kind: str = "", style: str = ""
) -> str:
    """Puts a picture in its box, with the style it carries; raises if it is too heavy for a page."""
    pixels = round(drawing.width / 72 * _PIXELS_PER_INCH) if max_width is None else max_width
    name = f"adatemp-figure {kind}".strip()
    page = f'<div class="{name}" style="max-width:{pixels}px"><style>{stylesheet()}{style}</style>{body}</div>'
    if (size := len(page.encode())) > _MOST_BYTES:
        raise ValueError(
            f"{argument} weighs {size / 1e6:.1f} MB in a page, at most {_MOST_BYTES / 1e6:g} are allowed: use fewer "
            "points a curve, a smaller image, and in a live figure fewer values and the same axis limits in every frame"
        )
    return page


@functools.cache
def stylesheet() -> str:
    """Returns the style every output carries, since Colab shows each in a frame of its own."""
    css = resources.files("adatemp").joinpath("_figure.css").read_text(encoding="utf-8").strip()
    return css.replace("LIGHT", _palette.declarations("light")).replace("DARK", _palette.declarations("dark"))


def value_text(value: Any) -> str:
    """Writes the value a slider stands at: 131,072 or 0.25."""
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}"
    return f"{float(value):g}" if hasattr(value, "__float__") else str(value)

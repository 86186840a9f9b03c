"""From a matplotlib figure to SVG that lives inside a page: small, themable, the same bytes every time.

matplotlib writes a document with a date, identifiers that repeat from figure to figure, six decimals and fixed colours.
`render` keeps the drawing and nothing else, as a flat list of elements in painting order, so that the frames of a live
figure can share what they have in common. `number_ids` gives the identifiers that remain their final names.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from adatemp import _palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_FAMILY = re.compile(r"font-family:[^;]*;?")
_REFERENCE = re.compile(r'(url\(#|href="#|id=")([A-Za-z][\w-]*)')
_SUPERSCRIPTS = str.maketrans("-−0123456789", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Drawing(NamedTuple):
    """A figure as SVG elements in painting order, in a box of width by height units of 1/72 inch."""

    width: float
    height: float
    elements: tuple[str, ...]
    smallest_text: float
    boxes: tuple[Any, ...]  # where each axes ended up, in figure coordinates

    @property
    def size(self) -> tuple[float, float]:
        return self.width, self.height


def render(figure: Figure, boxes: Sequence[Any] | None = None) -> Drawing:
    """Draws a figure and cleans the SVG.

    Args:
        figure: a matplotlib figure, drawn with the colours of `plotting.palette` and `plotting.colormap`.
        boxes: where to put each axes, from an earlier drawing; None lets the figure's layout engine decide. The layout
            is about half of the time, and frames that share it do not jump.

    Returns:
        The drawing. Equal figures give equal drawings, in this process and in the next.

    Raises:
        ValueError: a colour outside the palette, which could vanish on one of the two grounds.
    """
    _plain_log_labels(figure)
    figure.set_facecolor("none")
    # The layout engine also places legends and titles of the whole figure, which boxes say nothing about.
    if boxes is not None and len(boxes) == len(figure.axes) and not figure.legends and not figure.get_suptitle():
        figure.set_layout_engine("none")
        for axes, box in zip(figure.axes, boxes):
            axes.set_position(box)
    document = _document(figure)
    if "<!-- $" in document and _outline_mathematics(figure):
        document = _document(figure)

    root = ElementTree.fromstring(document)
    _, _, width, height = map(float, root.get("viewBox").split())
    colours = _palette.variables() | {colour: colour for colour in _palette.colormap_colours()}
    elements = [element for child in root for element in _flatten(child) if not _invisible(element)]
    texts = tuple(_clean(element, colours) for element in elements)
    sizes = [float(size) for text in texts for size in re.findall(r"font-size:([\d.]+)px", text)]
    placed = tuple(axes.get_position(original=True).frozen() for axes in figure.axes)
    return Drawing(width, height, texts, min(sizes, default=float("inf")), placed)


def _document(figure: Figure) -> str:
    """Returns matplotlib's SVG, with real text, constant identifiers and no date."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    settings = {"svg.fonttype": "none", "svg.hashsalt": "adatemp", "font.sans-serif": ["DejaVu Sans"]}
    buffer = io.StringIO()
    with matplotlib.rc_context(settings):
        # The canvas itself, as Figure.savefig would draw the figure once more only to lay it out.
        FigureCanvasSVG(figure).print_svg(buffer, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return buffer.getvalue()


def _outline_mathematics(figure: Figure) -> bool:
    """Has mathematics drawn as outlines; returns whether there was any.

    matplotlib places it glyph by glyph with its own font's widths, which the reader's font does not share. All other
    text stays text.
    """
    from matplotlib.patheffects import Normal
    from matplotlib.text import Text

    texts = [text for text in figure.findobj(Text) if text.get_text().count("$") >= 2 and not text.get_path_effects()]
    for text in texts:
        text.set_path_effects([Normal()])
    return bool(texts)


def number_ids(texts: Sequence[str], prefix: str) -> list[str]:
    """Renames the identifiers in `texts`, the same everywhere, to prefix0, prefix1, ... in order of appearance."""
    names: dict[str, str] = {}

    def rename(match: re.Match) -> str:
        name = names.setdefault(match[2], f"{prefix}{len(names)}")
        return match[1] + name

    return [_REFERENCE.sub(rename, text) for text in texts]


def _plain_log_labels(figure: Figure) -> None:
    """Writes the powers on logarithmic axes in Unicode, 10⁻³, so that they stay text."""
    from matplotlib.ticker import Formatter, LogFormatterMathtext, LogFormatterSciNotation

    class Unicode(Formatter):
        def __init__(self, mathtext: Formatter) -> None:
            self.mathtext = mathtext

        def set_axis(self, axis: Any) -> None:
            self.mathtext.set_axis(axis)

        def set_locs(self, locs: Any) -> None:
            self.mathtext.set_locs(locs)

        def __call__(self, x: float, pos: int | None = None) -> str:
            text = self.mathtext(x, pos).replace(r"\times", "×")
            text = re.sub(r"\^\{([-−\d]+)\}", lambda power: power[1].translate(_SUPERSCRIPTS), text)
            return re.sub(r"^\$\\mathdefault\{(.*)\}\$$", r"\1", text)

    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            major, minor = axis.get_major_formatter(), axis.get_minor_formatter()
            if type(major) in (LogFormatterMathtext, LogFormatterSciNotation):
                axis.set_major_formatter(Unicode(major))
            if type(minor) in (LogFormatterMathtext, LogFormatterSciNotation):
                axis.set_minor_formatter(Unicode(minor))


def _flatten(element: ElementTree.Element) -> list[ElementTree.Element]:
    """Opens groups that only group, and drops the namespaces."""
    element.tag = element.tag.rpartition("}")[2]
    for name in [name for name in element.attrib if name.startswith("{")]:
        element.set(name.rpartition("}")[2], element.attrib.pop(name))
    children = [grandchild for child in element for grandchild in _flatten(child)]
    element[:] = children
    element.text = element.text if element.tag in ("text", "tspan") else None
    element.tail = None
    if element.tag in ("g", "image"):
        # figure_1, axes_1, ...: counters that repeat in every figure; two equal images of one figure share theirs.
        element.attrib.pop("id", None)
        if not element.attrib:
            return children
    if element.tag == "style" or (element.tag in ("g", "defs") and not children):
        return []
    return [element]


def _invisible(element: ElementTree.Element) -> bool:
    """Returns whether the element paints nothing: a background without a fill and an edge."""
    style = (element.get("style") or "").replace(" ", "")
    return element.tag == "path" and "fill:none" in style and "stroke:" not in style and not element.get("id")


def _clean(element: ElementTree.Element, colours: dict[str, str]) -> str:
    """Writes an element with short numbers, the page's font and the page's colours."""

    def colour(match: re.Match) -> str:
        if match[0] in colours:
            return colours[match[0]]
        raise ValueError(
            f"the figure is drawn with the colour {match[0]}, which may vanish on a light or a dark page; "
            'use a colour of plotting.palette, such as plotting.palette["plain"], with alpha= for a lighter tone'
        )

    for part in element.iter():
        for name in ("d", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "transform"):
            # A factor is no length: the scale of an image or a glyph keeps all its digits.
            if name in part.attrib and not part.get(name).startswith(("scale", "matrix")):
                part.set(name, _shorten(part.get(name)))
        if part.get("transform", "").startswith("rotate(0 "):
            del part.attrib["transform"]
        if "style" in part.attrib:
            style = _COLOUR.sub(colour, _FAMILY.sub("", part.get("style")))
            part.set("style", re.sub(r"\s*([:;,])\s*", r"\1", style).strip("; "))
    return ElementTree.tostring(element, encoding="unicode").replace(" />", "/>")


def _shorten(text: str) -> str:
    """Rounds numbers to a hundredth of a unit, 1/50 of a pixel in the page, and drops spaces a path does not need."""

    def rounded(match: re.Match) -> str:
        short = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
        return "0" if short == "-0" else short

    text = _NUMBER.sub(rounded, text.replace("rotate(-0 ", "rotate(0 "))
    return re.sub(r"\s*([MLQCVHAz])\s*", r"\1", re.sub(r"\s+", " ", text).strip()) if text[:1] == "M" else text

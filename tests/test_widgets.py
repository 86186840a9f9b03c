"""Live figures: each frame is the still figure of its values, and a page can afford them."""

from __future__ import annotations

import gzip
import html
import itertools
import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from adatemp import _picture, plotting, widgets

TEMPERATURES, SPREADS = [0.25, 1.0, 4.0], [1, 1_024]


def draw(temperature: float, spread: int) -> Figure:
    fig, axes = plotting.figure(4, 3)
    logits = spread * np.linspace(0, 1, 8)
    weights = np.exp((logits - logits.max()) / temperature)
    axes.bar(range(8), weights / weights.sum(), color=plotting.palette["plain"])
    axes.plot(range(8), weights / weights.sum(), marker="o", color=plotting.palette["ours"])  # has identifiers
    axes.set_ylim(0, 1)
    return fig


def alt(temperature: float, spread: int) -> str:
    return f"Bars: eight weights of logits with spread {spread} at temperature {temperature}, rising to the right."


def live(**changes) -> widgets.LiveFigure:
    arguments = {"draw": draw, "values": {"temperature": TEMPERATURES, "spread": SPREADS}, "alt": alt} | changes
    return widgets.live_figure(arguments.pop("draw"), arguments.pop("values"), **arguments)


def data(figure: widgets.LiveFigure) -> dict:
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', figure.html, re.DOTALL)[1])


def svg(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", text, re.DOTALL)[0])


def frames(figure: widgets.LiveFigure) -> list[str]:
    """The pictures the script can show, put together here from the stored parts."""
    stored, picture = data(figure), re.search(r"<svg.*?</svg>", figure.html, re.DOTALL)[0]
    shown = [parts[choice] for parts, choice in zip(stored["parts"], stored["frames"][stored["start"]])]
    pictures = []
    for choices in stored["frames"]:
        page = picture
        for slot, (before, choice) in enumerate(zip(shown, choices)):
            held = f'<g data-part="{slot}">{before}</g>'
            assert page.count(held) == 1
            page = page.replace(held, stored["parts"][slot][choice])
        pictures.append(page)
    return pictures


def without_names(picture: str) -> str:
    """The picture without its description and the names of its identifiers, which count frames together."""
    return re.sub(r"adatemp-[0-9a-f]{8}-[\d-]+", "id", re.sub(r'aria-label="[^"]*"', "", picture))


def test_each_frame_is_the_still_figure_of_its_values() -> None:
    moved = frames(live())
    for picture, (temperature, spread) in zip(moved, itertools.product(TEMPERATURES, SPREADS), strict=True):
        still = plotting.show(draw(temperature, spread), alt=alt(temperature, spread)).html
        assert without_names(picture) == without_names(re.search(r"<svg.*?</svg>", still)[0])


def test_frames_with_images_and_colour_bars_keep_the_still_figure_s_layout() -> None:
    def heat(shift: int) -> Figure:
        fig, axes = plotting.figure(4, 3)
        image = axes.imshow(np.roll(np.eye(4), shift, 0), cmap=plotting.colormap(), vmin=0, vmax=1)
        fig.colorbar(image)
        return fig

    def described(shift: int) -> str:
        return f"Heat map of an identity matrix of size four, rolled down by {shift} rows."

    moved = frames(widgets.live_figure(heat, {"shift": [0, 1, 2]}, alt=described))
    for shift, picture in enumerate(moved):
        still = plotting.show(heat(shift), alt=described(shift)).html
        assert without_names(picture) == without_names(re.search(r"<svg.*?</svg>", still)[0])


def test_each_frame_has_its_own_description() -> None:
    figure = live()
    expected = [alt(*values) for values in itertools.product(TEMPERATURES, SPREADS)]
    assert data(figure)["alts"] == expected == list(figure.alts)


def test_it_starts_where_told() -> None:
    figure = live(start={"temperature": 4.0, "spread": 1_024})
    assert svg(figure.html).get("aria-label") == alt(4.0, 1_024) == repr(figure)
    assert re.findall(r'value="(\d)" aria-valuetext="([^"]*)"', figure.html) == [("2", "4"), ("1", "1,024")]
    assert re.findall(r"<output[^>]*>([^<]*)", figure.html) == ["4", "1,024"]
    assert repr(live()) == alt(0.25, 1)


def test_without_scripts_the_sliders_are_hidden_and_it_says_so() -> None:
    page = live().html
    assert '<div class="adatemp-controls" hidden>' in page
    assert '<p class="adatemp-still">One of the 6 frames of a figure that moves where scripts run.</p>' in page


def test_sliders_are_labelled() -> None:
    page = live(labels={"temperature": "temperature θ < 5"}).html
    assert re.findall(r"<label><span>([^<]*)</span><input", page) == [html.escape("temperature θ < 5"), "spread"]


def test_identifiers_are_shared_by_frames_but_not_by_figures() -> None:
    one, two = live(), live()
    for figure in (one, two):
        for picture in frames(figure):
            own = [element.get("id") for element in svg(picture).iter() if "id" in element.attrib]
            assert own and set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', picture)) >= {("", own[0])}
            assert len(set(own)) == len(own)
    assert not set(re.findall('id="([^"]+)', frames(one)[0])) & set(re.findall('id="([^"]+)', frames(two)[0]))


def test_moving_one_figure_gives_what_new_figures_give() -> None:
    fig, axes = plotting.figure(4, 3)
    axes.set_ylim(0, 1)
    bars = axes.bar(range(3), 3 * [0.0], color=plotting.palette["plain"])

    def moved(height: float) -> Figure:
        for bar in bars:
            bar.set_height(height)
        return fig

    def new(height: float) -> Figure:
        fig, axes = plotting.figure(4, 3)
        axes.set_ylim(0, 1)
        axes.bar(range(3), 3 * [height], color=plotting.palette["plain"])
        return fig

    def described(height: float) -> str:
        return f"Three bars of height {height}, drawn once and moved, or drawn anew each time."

    one, two = (widgets.live_figure(way, {"height": [0.2, 0.9]}, alt=described) for way in (moved, new))
    assert list(map(without_names, frames(one))) == list(map(without_names, frames(two)))


def test_frames_do_not_jump_when_labels_change_their_width() -> None:
    def wide(top: float) -> Figure:
        fig, axes = plotting.figure(4, 3)
        axes.plot([0, 1], [0, top], color=plotting.palette["plain"], linestyle="-")
        axes.set_ylim(0, top)
        return fig

    figure = widgets.live_figure(
        wide, {"top": [1, 1_000_000]}, alt=lambda top: f"A straight line that rises from nought to {top} at the right."
    )
    lines = [re.findall(r'd="([^"]+)"[^>]*stroke:var\(--adatemp-plain\)', picture) for picture in frames(figure)]
    assert lines[0] == lines[1] and len(lines[0]) == 1  # the same line on axes whose labels need more room


def test_sixty_three_frames_of_two_panels_stay_light() -> None:
    fig, (left, right) = plotting.figure(5, 4, nrows=2)
    left.set_ylim(0, 8)
    right.set_ylim(0, 1)
    heights = np.linspace(0, 1, 12)
    logits = left.bar(range(12), heights, color=plotting.palette["neutral"])
    weights = right.bar(range(12), heights, color=plotting.palette["plain"])

    def move(temperature: float, spread: float) -> Figure:
        powers = np.exp(spread * (heights - 1) / temperature)
        for bar, height in zip([*logits, *weights], [*(spread * heights), *(powers / powers.sum())]):
            bar.set_height(height)
        return fig

    values = {"temperature": list(np.linspace(0.2, 5, 9)), "spread": list(np.linspace(0.5, 8, 7))}
    page = widgets.live_figure(move, values, alt=alt).html.encode()
    assert len(page) < 150_000
    assert len(gzip.compress(page)) < 15_000


def test_too_heavy_a_figure_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_picture, "_MOST_BYTES", 5_000)
    with pytest.raises(ValueError, match=r"live_figure: draw weighs 0\.0 MB.*at most 0.005.*fewer values"):
        live()


def other_size(temperature: float, spread: int) -> Figure:
    return plotting.figure(4 if spread == 1 else 5, 3)[0]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"draw": "softmax"}, TypeError, "draw must be a function of temperature, spread, got 'softmax'"),
        ({"draw": lambda temperature, spread: None}, TypeError, r"draw\(temperature=0.25, spread=1\).*got NoneType"),
        ({"draw": other_size}, ValueError, r"spread=1024\) returned a figure of \(360.0, 216.0\) points"),
        ({"alt": "one for all the frames of this figure, forty long"}, TypeError, "alt must be a function"),
        (
            {"alt": lambda temperature, spread: "Bars."},
            ValueError,
            r"alt\(temperature=0.25, spread=1\) has 5 characters",
        ),
        ({"alt": lambda temperature, spread: 3}, TypeError, "must be a string, got int"),
        ({"values": [1, 2]}, TypeError, "values must map names to sequences"),
        ({"values": {}}, ValueError, "1 to 3 parameters, got 0"),
        ({"values": {name: [1, 2] for name in "abcd"}}, ValueError, r"got 4: \['a', 'b', 'c', 'd'\]"),
        ({"values": {"temperature": 1.0, "spread": [1, 2]}}, TypeError, r"values\['temperature'\].*got 1.0"),
        ({"values": {"temperature": "12", "spread": [1, 2]}}, TypeError, "must be a sequence of values, got '12'"),
        ({"values": {"temperature": [1.0], "spread": [1, 2]}}, ValueError, "has 1 values, a slider needs at least 2"),
        ({"values": {"temperature": range(1, 30), "spread": range(9)}}, ValueError, "29 x 9 = 261 frames, at most 200"),
        ({"start": {"temperature": 3}}, ValueError, r"start\['temperature'\]=3 is not one of .*\[0.25, 1.0, 4.0\]"),
        (
            {"start": {"theta": 1}},
            ValueError,
            r"start names \['theta'\], but values has only \['temperature', 'spread'\]",
        ),
        ({"labels": {"theta": "θ"}}, ValueError, r"labels names \['theta'\]"),
    ],
)
def test_errors_name_the_argument_and_the_fix(changes, error, message) -> None:
    with pytest.raises(error, match=message):
        live(**changes)

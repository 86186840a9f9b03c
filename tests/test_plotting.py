"""Still figures: what reaches the page is the drawing, in the page's colours, described, and the same every time."""

from __future__ import annotations

import gzip
import io
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from adatemp import _picture, plotting

ALT = "Line chart of one curve that falls from 0.9 at 8 items to 0.02 at 16,384."


def svg(picture: plotting.Picture) -> ElementTree.Element:
    """The picture as an XML parser reads it, which is stricter than a browser."""
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", picture.html, re.DOTALL)[0])


def busy_figure() -> Figure:
    """Something of everything a chapter draws."""
    fig, (left, right) = plotting.figure(5, 5, nrows=2)
    sizes = 2.0 ** np.arange(3, 15)
    for name in ("plain", "adaptive", "argmax", "published", "ours", "bound", "tight", "neutral", "highlight"):
        left.plot(sizes, sizes**-0.5, label=name, **plotting.role(name))
    left.fill_between(sizes, 0.1 / sizes, sizes**-0.5, color=plotting.palette["bound"], alpha=0.2)
    left.set(xscale="log", yscale="log", xlabel="items n < 16,384 & more", ylabel="largest weight", title="δ = 2θ")
    left.grid(True)
    left.legend(ncols=2)
    left.annotate("here", (64, 0.1), xytext=(16, 0.01), arrowprops={"arrowstyle": "->"})
    right.bar(range(4), [1, 3, 2, 4])
    right.errorbar(range(4), [1, 3, 2, 4], yerr=0.3, color=plotting.palette["ink"], linestyle="none", capsize=3)
    right.text(1, 3, "black by matplotlib's default", rotation=20)
    right.axhline(2, **plotting.role("tight"))
    return fig


def test_the_colours_are_the_page_s_own() -> None:
    allowed = {f"var(--adatemp-{name})" for name in (*plotting._palette.ROLES, *plotting._palette.SURFACES)}
    painted = set()
    for element in svg(plotting.show(busy_figure(), alt=ALT)).iter():
        assert "fill" not in element.attrib and "stroke" not in element.attrib
        painted |= {
            value
            for name, value in re.findall(r"(fill|stroke):([^;]+)", element.get("style", ""))
            if value != "none" and not value.startswith("url(")
        }
    assert painted <= allowed
    assert len(painted) >= 8  # five series, muted, grid, ground: the figure really used them


def test_black_and_white_by_default_follow_the_page_too() -> None:
    picture = svg(plotting.show(busy_figure(), alt=ALT))
    (text,) = [text for text in picture.iter("text") if text.text == "black by matplotlib's default"]
    assert "fill" not in text.get("style")  # so it inherits the ink that the style sheet gives the whole picture
    assert ".adatemp-figure svg{" in _picture.stylesheet() and "fill:var(--adatemp-ink)" in _picture.stylesheet()
    legend_box = [path for path in picture.iter("path") if "opacity:0.8" in path.get("style", "")]
    assert [re.search("fill:([^;]+)", path.get("style"))[1] for path in legend_box] == ["var(--adatemp-ground)"]


def test_a_colour_outside_the_palette_is_refused_by_name() -> None:
    fig, axes = plotting.figure()
    axes.plot([0, 1], color="red")
    with pytest.raises(ValueError, match=r"colour #ff0000.*plotting.palette"):
        plotting.show(fig, alt=ALT)


def test_points_lie_where_matplotlib_puts_them() -> None:
    # The oracle is the axes' own transform at 72 dots an inch; SVG counts y downwards. Rounded to hundredths of a unit.
    fig, axes = plotting.figure()
    x, y = np.array([0.5, 1.25, 3.0, 4.75]), np.array([0.11, 0.93, 0.2, 0.77])
    axes.plot(x, y, color=plotting.palette["adaptive"], linestyle="-")
    picture = svg(plotting.show(fig, alt=ALT))
    (line,) = [path for path in picture.iter("path") if "stroke:var(--adatemp-adaptive)" in path.get("style", "")]
    drawn = np.array(re.findall(r"-?[\d.]+", line.get("d")), float).reshape(-1, 2)
    expected = axes.transData.transform(np.stack([x, y], 1)) * [1, -1] + [0, 3.2 * 72]
    np.testing.assert_allclose(drawn, expected, atol=0.006)


def test_it_is_described_once() -> None:
    alt = 'Bars: "a" < b & the rest,\n  in two lines of text, to see that quoting holds.'
    picture = svg(plotting.show(busy_figure(), alt=alt))
    assert picture.get("role") == "img"
    assert picture.get("aria-label") == " ".join(alt.split())
    assert [element for element in picture.iter() if element.tag in ("title", "desc", "metadata")] == []


def test_it_displays_as_html_and_prints_as_its_description() -> None:
    picture = plotting.show(busy_figure(), alt=ALT)
    assert picture._repr_html_() == picture.html and picture.html.startswith('<div class="adatemp-figure"')
    assert repr(picture) == ALT


def test_identifiers_are_unique_in_a_page_and_every_reference_resolves() -> None:
    fig, axes = plotting.figure()
    axes.plot([1, 2], marker="o")
    other = busy_figure()
    pictures = [plotting.show(figure, alt=ALT) for figure in (fig, fig, other)]  # one of them twice
    seen: set[str] = set()
    for picture in pictures:
        own = [element.get("id") for element in svg(picture).iter() if "id" in element.attrib]
        assert own and len(set(own)) == len(own) and not seen & set(own)
        seen |= set(own)
        used = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', picture.html)
        assert {one or two for one, two in used} == set(own)


@pytest.mark.parametrize("seed", ["0", "1"])
def test_two_processes_write_the_same_bytes(seed: str, tmp_path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_plotting import busy_figure, ALT, plotting;"
        "sys.stdout.buffer.write(plotting.show(busy_figure(), alt=ALT).html.encode())"
    )
    here = __file__.rpartition("/")[0]
    environment = {
        "PYTHONHASHSEED": seed,
        "MPLCONFIGDIR": matplotlib.get_configdir(),
        "PATH": "",
        "HOME": str(tmp_path),
    }
    done = subprocess.run([sys.executable, "-c", program, here], capture_output=True, env=environment, check=True)
    expected = _without_counter(plotting.show(busy_figure(), alt=ALT).html)
    assert _without_counter(done.stdout.decode()) == expected


def _without_counter(html: str) -> str:
    """The picture shown for the n-th time in a process carries n in its identifiers; other processes start at one."""
    return re.sub(r"(adatemp-[0-9a-f]{8}-)(?:\d+-)?(\d+)", r"\1\2", html)


def test_nothing_global_changes_and_pyplot_is_not_needed() -> None:
    before = dict(matplotlib.rcParams)
    plotting.show(busy_figure(), alt=ALT)
    assert dict(matplotlib.rcParams) == before
    program = (
        "import sys\nfrom adatemp import plotting, widgets\nassert 'matplotlib' not in sys.modules\n"
        f"fig, axes = plotting.figure()\nplotting.show(fig, alt={ALT!r})\nassert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_figure_made_with_pyplot_is_closed() -> None:
    from matplotlib import pyplot

    matplotlib.use("agg")
    fig = pyplot.figure(figsize=(5, 3))
    fig.add_subplot().plot([1, 2], color=plotting.palette["plain"])
    plotting.show(fig, alt=ALT)
    assert not pyplot.fignum_exists(fig.number)


def test_text_stays_text_in_the_reader_s_font() -> None:
    picture = plotting.show(busy_figure(), alt=ALT)
    texts = [text.text for text in svg(picture).iter("text")]
    assert {"δ = 2θ", "items n < 16,384 & more", "largest weight", "here"} <= set(texts)
    assert "DejaVu" not in picture.html


@pytest.mark.parametrize(("base", "label"), [(10, "10⁻²"), (2, "2⁻³")])
def test_powers_on_logarithmic_axes_stay_text(base: int, label: str) -> None:
    fig, axes = plotting.figure()
    axes.plot([1, 2, 3], [base**-4.0, base**-1.0, 1.0])
    axes.set_yscale("log", base=base)
    picture = svg(plotting.show(fig, alt=ALT))
    assert label in [text.text for text in picture.iter("text")]
    assert list(picture.iter("tspan")) == []


def test_mathematics_is_drawn_as_outlines() -> None:
    def paths(label: str) -> int:
        fig, axes = plotting.figure()
        axes.set_title(label)
        picture = svg(plotting.show(fig, alt=ALT))
        assert not any("$" in (text.text or "") for text in picture.iter("text")) and not list(picture.iter("tspan"))
        return len(list(picture.iter("path")))

    assert paths(r"$e^{-\delta/\theta}$") > paths("exp(−δ/θ)")


def test_a_heat_map_is_embedded_and_its_colours_allowed() -> None:
    fig, axes = plotting.figure(4, 3)
    axes.imshow(np.arange(16.0).reshape(4, 4), cmap=plotting.colormap())
    axes.scatter(range(4), range(4), c=range(4), cmap=plotting.colormap())
    (image,) = svg(plotting.show(fig, alt=ALT)).iter("image")
    assert image.get("href").startswith("data:image/png;base64,")


def test_an_image_drawn_pixel_by_pixel_fills_its_axes() -> None:
    # The factor from pixels to units is small, so rounding it like a length would miss the axes by a visible margin.
    fig, axes = plotting.figure(4, 3)
    axes.imshow(np.zeros((999, 999)), cmap=plotting.colormap(), interpolation="none")
    (image,) = svg(plotting.show(fig, alt=ALT)).iter("image")
    numbers = re.match(r"matrix\(([^)]*)\)|translate", image.get("transform"))[1].split()
    width = float(image.get("width")) * float(numbers[0])
    assert width == pytest.approx(axes.get_window_extent().width, abs=0.05)


def test_every_named_panel_has_the_house_style() -> None:
    fig, axes = plotting.figure(5, 5, mosaic=[["a", "b"], ["c", "c"]])
    assert set(axes) == {"a", "b", "c"} == {panel.get_label() for panel in fig.axes}
    for panel in fig.axes:
        assert not panel.spines["top"].get_visible()
        assert panel.plot([1, 2])[0].get_color() == plotting.palette["plain"]


def test_the_page_carries_less_than_matplotlib_writes() -> None:
    fig, axes = plotting.figure()
    for shift in range(3):
        axes.plot(np.linspace(0, 1, 200), np.sin(np.linspace(0, 9, 200) + shift))
    stock = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        fig.savefig(stock, format="svg")
    drawing = re.search(r"<svg.*</svg>", plotting.show(fig, alt=ALT).html)[0]
    assert len(drawing) < 0.75 * len(stock.getvalue())
    assert len(gzip.compress(drawing.encode())) < 0.75 * len(gzip.compress(stock.getvalue().encode()))


@pytest.mark.parametrize("colour", ["light", "dark"])
def test_paper_is_always_light(colour: str) -> None:
    printed = re.search(r"@media print\{(.*?)\}\}", _picture.stylesheet())[1]
    dark = plotting._palette.declarations("dark")
    assert plotting._palette.declarations("light") in printed and dark not in printed
    assert plotting._palette.declarations(colour) in _picture.stylesheet()


def test_text_too_small_for_a_phone_is_refused_with_the_size_to_use() -> None:
    fig, axes = plotting.figure(8, 3)
    axes.set_title("wide")
    with pytest.raises(ValueError, match=r"10 pt, which is 5.7 pixels.*use 15.8 pt or more.*8 inches"):
        plotting.show(fig, alt=ALT)


def test_a_picture_too_heavy_for_a_page_is_refused_with_what_would_help() -> None:
    fig, axes = plotting.figure(4, 3)
    axes.imshow(np.random.default_rng(0).random((999, 999)), cmap=plotting.colormap(), interpolation="none")
    with pytest.raises(ValueError, match=r"figure weighs 4.\d MB in a page, at most 1.5 are allowed.*a smaller image"):
        plotting.show(fig, alt=ALT)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda fig: plotting.show(fig, alt="A line chart."), ValueError, "alt has 13 characters, at least 40"),
        (lambda fig: plotting.show(fig, alt=" " * 60), ValueError, "alt has 0 characters"),
        (lambda fig: plotting.show(fig, alt=None), TypeError, "alt must be a string, got NoneType"),
        (lambda fig: plotting.show(fig.axes[0], alt=ALT), TypeError, "figure must be a matplotlib Figure, got Axes"),
        (lambda fig: plotting.role("softmax"), ValueError, "name='softmax' is not one of plain, adaptive"),
    ],
)
def test_errors_name_the_argument_and_what_is_allowed(call, error, message) -> None:
    fig, _ = plotting.figure()
    with pytest.raises(error, match=message):
        call(fig)

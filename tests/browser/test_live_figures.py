"""A live figure in a browser: it moves by mouse and keyboard, is described, and reads on every ground and width.

Most tests open a page written here, from a file, as a reader without a server would; the last ones use the built site.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from adatemp import _palette, plotting, widgets

RATES, SIZES = [0.25, 1.0, 4.0], [8, 1_024]
DARK_HOSTS = {
    "the book": '<html data-theme="dark"><body>',
    "JupyterLab": '<html><body data-jp-theme-light="false">',
    "Colab": '<html theme="dark"><body>',
}
LIGHT_HOSTS = {
    "the book": '<html data-theme="light"><body>',
    "JupyterLab": '<html><body data-jp-theme-light="true">',
    "a bare page": "<html><body>",
}


def alt(rate: float, size: int) -> str:
    return f"Bars and a line: eight weights for {size} items, falling at rate {rate:g} from left to right."


def draw(rate: float, size: int):
    fig, axes = plotting.figure()
    weights = np.exp(-rate * np.arange(8) / np.log(size))
    axes.bar(range(8), weights / weights.sum(), color=plotting.palette["plain"])
    axes.plot(range(8), weights / weights.sum(), **plotting.role("ours"))
    axes.set(ylim=(0, 1), xlabel="item", ylabel="weight", title="Weights of eight items")
    return fig


@pytest.fixture(scope="module")
def figure() -> widgets.LiveFigure:
    return widgets.live_figure(
        draw, {"rate": RATES, "size": SIZES}, alt=alt, start={"rate": 1.0}, labels={"rate": "rate θ", "size": "items n"}
    )


@pytest.fixture
def open_html(browser, tmp_path: Path) -> Iterator[Callable]:
    """Writes a page and opens it from its file; a page error fails the test."""
    contexts, errors = [], []

    def opened(body: str, host: str = "<html><body>", width: int = 1000, **context):
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(
            f'<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">{host}{body}'
        )
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}, **context))
        page = contexts[-1].new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert errors == []


def described(page) -> str:
    return page.locator(".adatemp-live svg").get_attribute("aria-label")


def picture(page) -> str:
    return page.locator(".adatemp-live svg").inner_html()


def computed(page, selector: str, name: str) -> str:
    return page.locator(selector).first.evaluate(f"element => getComputedStyle(element).getPropertyValue('{name}')")


def rgb(colour: str) -> str:
    return "rgb({}, {}, {})".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))


def test_every_combination_of_the_sliders_shows_its_own_frame(open_html, figure) -> None:
    page = open_html(figure.html)
    rate, size = page.locator("input").all()
    shown = {}
    for (i, a), (j, b) in itertools.product(enumerate(RATES), enumerate(SIZES)):
        rate.fill(str(i))
        size.fill(str(j))
        assert described(page) == alt(a, b)
        assert page.locator("output").all_inner_texts() == [f"{a:g}", f"{b:,}"]
        assert [control.get_attribute("aria-valuetext") for control in (rate, size)] == [f"{a:g}", f"{b:,}"]
        # The oracle: the same values drawn as a still picture, laid out by the browser.
        still = open_html(plotting.show(draw(a, b), alt=alt(a, b)).html)
        boxes = (
            "() => [...document.querySelectorAll('svg path, svg use, svg text')]"
            ".map(element => element.getBBox().height.toFixed(1))"
        )
        shown[a, b] = page.evaluate(boxes)
        assert shown[a, b] == still.evaluate(boxes)
    assert len({tuple(heights) for heights in shown.values()}) == 6


def test_the_mouse_moves_it(open_html, figure) -> None:
    page = open_html(figure.html)
    before = picture(page)
    slider = page.get_by_role("slider", name="rate θ")
    box = slider.bounding_box()
    page.mouse.click(box["x"] + box["width"] - 3, box["y"] + box["height"] / 2)
    assert described(page) == alt(4.0, 8)
    assert picture(page) != before
    page.mouse.click(box["x"] + 3, box["y"] + box["height"] / 2)
    assert described(page) == alt(0.25, 8)


def test_the_keyboard_moves_it_even_where_the_page_wants_the_arrow_keys(open_html, figure) -> None:
    # JupyterLab listens on the document as keys come down, and keeps the arrows for itself.
    greedy = """<script>
      window.taken = [];
      const take = event => { taken.push(event.key); event.preventDefault(); };
      document.addEventListener("keydown", take, true);
    </script>"""
    page = open_html(greedy + figure.html + "<p tabindex=0 id=after>after</p>")
    slider = page.get_by_role("slider", name="rate θ")
    slider.focus()
    for key, value in (("ArrowRight", 4.0), ("ArrowLeft", 1.0), ("Home", 0.25), ("End", 4.0)):
        slider.press(key)
        assert described(page) == alt(value, 8), key
    assert page.evaluate("taken") == []
    slider.press("Escape")  # not the slider's own
    page.locator("#after").focus()
    page.keyboard.press("ArrowRight")  # no longer the slider's
    assert page.evaluate("taken") == ["Escape", "ArrowRight"]
    assert described(page) == alt(4.0, 8)


def test_a_screen_reader_hears_the_frame_where_the_slider_rests(open_html, figure) -> None:
    page = open_html(figure.html)
    said = page.get_by_role("status")
    assert said.text_content() == ""
    page.evaluate("window.heard = []")
    said.evaluate(
        "element => new MutationObserver(() => element.textContent && heard.push(element.textContent))"
        ".observe(element, {childList: true})"
    )
    slider = page.get_by_role("slider", name="rate θ")
    for key in ("Home", "ArrowRight", "End"):
        slider.press(key)
    page.wait_for_function("heard.length > 0")
    assert page.evaluate("heard") == [alt(4.0, 8)]  # once, not for each step on the way
    assert page.locator("output").first.get_attribute("aria-hidden") == "true"  # aria-valuetext says it already


def test_two_figures_in_a_page_do_not_move_each_other(open_html, figure) -> None:
    other = widgets.live_figure(draw, {"rate": RATES, "size": SIZES}, alt=alt)
    page = open_html(f"<script>window.names = Object.keys(window)</script>{figure.html}{other.html}")
    page.get_by_role("slider", name="rate θ").press("End")
    assert page.get_by_role("img").evaluate_all("all => all.map(svg => svg.ariaLabel)") == [alt(4.0, 8), alt(0.25, 8)]
    assert page.evaluate("Object.keys(window).filter(name => !names.includes(name))") == ["names"]
    ids = page.locator("svg [id]").evaluate_all("all => all.map(element => element.id)")
    assert ids and len(set(ids)) == len(ids)


def test_without_scripts_its_first_frame_stands_without_dead_sliders(open_html, figure) -> None:
    page = open_html(figure.html, java_script_enabled=False)
    assert page.get_by_role("img", name=alt(1.0, 8)).bounding_box()["height"] > 200
    assert not page.locator(".adatemp-controls").is_visible()
    assert page.get_by_text("One of the 6 frames").is_visible()
    assert open_html(figure.html).get_by_text("One of the 6 frames").count() == 0


@pytest.mark.parametrize("host", DARK_HOSTS)
def test_it_is_dark_on_a_dark_page_and_light_on_paper(open_html, figure, host: str) -> None:
    page = open_html(figure.html, DARK_HOSTS[host])
    for selector, name, role in (("svg path[style*=plain]", "fill", "plain"), ("svg text", "fill", "ink")):
        assert computed(page, selector, name) == rgb(_palette.ROLES[role][1])
    assert computed(page, ".adatemp-controls", "color") == rgb(_palette.ROLES["ink"][1])
    page.emulate_media(media="print")
    for selector, name, role in (("svg path[style*=plain]", "fill", "plain"), ("svg text", "fill", "ink")):
        assert computed(page, selector, name) == rgb(_palette.ROLES[role][0])
    assert not page.locator("input").first.is_visible()
    assert page.get_by_text("rate θ").is_visible() and page.locator("output").first.is_visible()


@pytest.mark.parametrize("system", ["light", "dark"])
@pytest.mark.parametrize("host", LIGHT_HOSTS)
def test_it_is_light_on_a_light_page_whatever_the_system_prefers(open_html, figure, host: str, system: str) -> None:
    page = open_html(figure.html, LIGHT_HOSTS[host], color_scheme=system)
    assert computed(page, "svg text", "fill") == rgb(_palette.ROLES["ink"][0])


def test_a_page_that_follows_the_system_is_followed(open_html, figure) -> None:
    for column, system in enumerate(("light", "dark")):
        page = open_html(figure.html, '<html data-theme="auto"><body>', color_scheme=system)
        assert computed(page, "svg text", "fill") == rgb(_palette.ROLES["ink"][column])


@pytest.mark.parametrize("family", [None, "Liberation Sans", "DejaVu Sans"])
def test_on_a_phone_it_fits_and_its_text_is_legible(open_html, figure, family: str | None) -> None:
    # Two fonts far apart in width stand for what readers have; matplotlib laid the text out with the wider.
    font = f"<style>.adatemp-figure svg{{font-family:'{family}'!important}}</style>" if family else ""
    page = open_html(
        f'<main style="margin:16px">{figure.html}{font}</main>', '<html><body style="margin:0">', width=360
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    whole = page.locator("svg").bounding_box()
    assert whole["width"] <= 328
    scale = whole["width"] / float(page.locator("svg").get_attribute("viewBox").split()[2])
    boxes = []
    for text in page.locator("svg text").all():
        assert float(text.evaluate("e => getComputedStyle(e).fontSize").removesuffix("px")) * scale >= 9
        boxes.append(text.bounding_box())
        assert boxes[-1]["x"] >= whole["x"] - 0.5
        assert boxes[-1]["x"] + boxes[-1]["width"] <= whole["x"] + whole["width"] + 0.5
    for one, other in itertools.combinations(boxes, 2):
        apart = (
            one["x"] + one["width"] <= other["x"]
            or other["x"] + other["width"] <= one["x"]
            or one["y"] + one["height"] <= other["y"] + 3  # line boxes are taller than their letters
            or other["y"] + other["height"] <= one["y"] + 3
        )
        assert apart, "two texts overlap"
    for slider in page.locator("input").all():
        assert slider.bounding_box()["height"] >= 24  # WCAG 2.2, target size


def test_on_a_wide_screen_it_does_not_grow_without_end(open_html, figure) -> None:
    page = open_html(figure.html, width=1600)
    assert page.locator("svg").bounding_box()["width"] == 540  # 5 inches at 108 pixels


def test_it_asks_for_nothing(figure) -> None:
    assert re.findall(r"https?://|src=|@import|url\((?!#)", figure.html) == []


# -- on the built site ------------------------------------------------------------------------------------------------

CHAPTER = "chapters/01_softmax_and_attention.html"


def test_the_chapter_s_figure_moves_in_the_built_page(open_page) -> None:
    visit = open_page(CHAPTER)
    live = visit.page.locator(".adatemp-live").first
    before = live.locator("svg").inner_html(), live.locator("svg").get_attribute("aria-label")
    live.locator("input").first.focus()
    visit.page.keyboard.press("End")
    visit.page.keyboard.press("ArrowLeft")
    after = live.locator("svg").inner_html(), live.locator("svg").get_attribute("aria-label")
    assert after[0] != before[0] and after[1] != before[1]
    assert visit.page.url.endswith(CHAPTER)  # the arrow keys turned no page
    assert visit.errors == []


@pytest.mark.parametrize("width", [1280, 360])
def test_the_chapter_s_figures_follow_its_theme(open_page, width: int) -> None:
    for column, theme in enumerate(("light", "dark")):
        visit = open_page(CHAPTER, theme=theme, width=width)
        assert computed(visit.page, ".adatemp-figure svg text", "fill") == rgb(_palette.ROLES["ink"][column])
        ground = visit.page.locator(".adatemp-figure svg").first.evaluate(
            """element => {
              for (let e = element; e; e = e.parentElement) {
                const colour = getComputedStyle(e).backgroundColor;
                if (colour !== "rgba(0, 0, 0, 0)") return colour;
              }
              return "rgb(255, 255, 255)";
            }"""
        )
        assert ground == rgb(_palette.GROUNDS[theme][0])  # what lies behind is the page, not a panel of the theme


def test_the_chapter_s_numbered_figures_are_legible_on_a_phone(open_page) -> None:
    page = open_page(CHAPTER, width=360).page
    smallest = page.locator("figure .adatemp-figure svg").evaluate_all(
        """all => all.map(svg => Math.min(...[...svg.querySelectorAll("text")].map(
             text => parseFloat(getComputedStyle(text).fontSize) * svg.getScreenCTM().a)))"""
    )
    assert smallest and min(smallest) >= 9

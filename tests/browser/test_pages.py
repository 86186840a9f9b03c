"""Every page of the book as a reader meets it: quiet, self-contained, readable in both themes and on a phone."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from screens import DESKTOP, PHONE

from tools.check_pages import BUDGET, pages_of_the_book
from tools.page_facts import transferred_bytes

PAGES = [f"{name}.html" for name in pages_of_the_book()]
GENERATED = ["search.html", "genindex.html", "404.html"]


def _open_everything(page) -> None:
    """Opens what a reader can open, so that what is inside is looked at too: at once, since what fades in is pale."""
    page.add_style_tag(content="* { animation: none !important; transition: none !important; }")
    page.evaluate(
        """() => {
            document.querySelectorAll('article details').forEach(details => { details.open = true });
            document.querySelectorAll('article .toggle-hidden').forEach(box => box.classList.remove('toggle-hidden'));
        }"""
    )


@pytest.mark.parametrize("name", PAGES)
def test_page_is_quiet_self_contained_and_within_its_weight(open_page, site_url, site_dir, name):
    visit = open_page(name)
    assert visit.page.locator("article h1").first.inner_text().strip()
    assert visit.errors == []

    here = urlsplit(site_url).netloc
    assert [address for address in visit.requests if urlsplit(address).netloc not in ("", here)] == []

    files = {site_dir / urlsplit(address).path.removeprefix(urlsplit(site_url).path) for address in visit.requests}
    weight = transferred_bytes(path for path in files if path.is_file())
    mathematics = visit.page.evaluate("Boolean(window.MathJax?.version)")
    assert weight <= BUDGET["with mathematics" if mathematics else "without"], f"{weight / 1e6:.2f} MB over the wire"


@pytest.mark.parametrize("name", PAGES)
def test_equations_are_typeset(open_page, site_dir, name):
    written = (site_dir / name).read_text("utf-8").count('class="math notranslate')
    page = open_page(name).page
    assert page.locator("article .math mjx-container").count() >= written
    # A formula that MathJax cannot read is shown in red, or, with an undefined command, with the command in red.
    assert page.locator("mjx-merror").count() == 0
    assert page.locator("mjx-mtext[style*='red']").count() == 0


@pytest.mark.parametrize("name", [*PAGES, *GENERATED])
def test_no_page_scrolls_sideways_on_a_phone(open_page, name):
    page = open_page(name, width=PHONE, height=740).page
    _open_everything(page)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE, f"{width} px wide"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", [*PAGES, *GENERATED])
def test_axe_finds_nothing(open_page, name, theme):
    # The dark pages are looked at on a phone, so that both themes and both layouts are seen in half the runs.
    page = open_page(name, theme=theme, width=DESKTOP if theme == "light" else PHONE).page
    _open_everything(page)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground(open_page, theme):
    page = open_page(PAGES[0], theme=theme).page
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    lightness = """property => {
        const [red, green, blue] = getComputedStyle(document.body)[property].match(/[\\d.]+/g).map(Number);
        return (red + green + blue) / 3;
    }"""
    text, ground = page.evaluate(lightness, "color"), page.evaluate(lightness, "backgroundColor")
    assert (text < 100 < 200 < ground) if theme == "light" else (ground < 60 < 160 < text)


def test_page_can_be_read_without_javascript(browser, site_url):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site_url + PAGES[0])
    assert page.locator("article h1").is_visible()
    assert page.locator("article p").first.is_visible()
    context.close()

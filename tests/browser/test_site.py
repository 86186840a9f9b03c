"""What belongs to the site as a whole: its root, the search, the page for what is not there, the way on a phone."""

from __future__ import annotations

from urllib.parse import urlsplit

from screens import PHONE


def test_root_leads_to_the_landing_page(browser, site_url):
    page = browser.new_page()
    page.goto(site_url)
    page.wait_for_url(f"{site_url}book/index.html")
    assert page.locator("article h1").is_visible()
    page.close()


def test_search_finds_a_chapter_and_shows_an_excerpt(open_page, site_url):
    page = open_page("search.html?q=softmax").page
    page.wait_for_selector("#search-results ul.search li a")
    page.wait_for_selector("#search-results ul.search li .context")
    found = page.locator("#search-results ul.search li a").evaluate_all("links => links.map(link => link.pathname)")
    assert f"{urlsplit(site_url).path}chapters/01_softmax_and_attention.html" in found
    assert "softmax" in page.locator("#search-results ul.search li .context").first.inner_text().lower()


def test_search_opens_from_any_page_by_keyboard(open_page):
    page = open_page("book/glossary.html").page
    page.keyboard.press("Control+k")
    page.wait_for_selector("#pst-search-dialog input:visible")
    page.keyboard.type("entropy")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=entropy*")
    page.wait_for_selector("#search-results ul.search li a")


def test_missing_page_is_answered_in_the_book_s_own_words(open_page, site_url):
    visit = open_page("chapters/no-such-page.html")
    # The address itself is answered 404, everything that the page then asks for is there.
    assert [error for error in visit.errors if "no-such-page" not in error and "404" not in error] == []
    assert sum(error.startswith("404: ") for error in visit.errors) == 1
    assert "not found" in visit.page.locator("h1").last.inner_text().lower()
    style = visit.page.locator("link[href*='book.css']").get_attribute("href")
    assert style.startswith(f"{urlsplit(site_url).path}_static/")


def test_contents_open_on_a_phone(open_page):
    page = open_page("book/index.html", width=PHONE, height=740).page
    page.locator("button.primary-toggle").first.click()
    link = page.locator("#pst-primary-sidebar-modal a", has_text="Glossary")
    link.wait_for(state="visible")
    link.click()
    page.wait_for_url("**/book/glossary.html")


def test_colour_mode_can_be_changed_and_is_kept(browser, site_url):
    context = browser.new_context(color_scheme="light")
    page = context.new_page()
    page.goto(site_url + "book/index.html")
    seen = set()
    for _ in range(3):  # the button goes round three modes: dark, light, as the system has it
        page.locator("button.theme-switch-button:visible").first.click()
        seen.add(page.evaluate("document.documentElement.dataset.mode"))
    assert seen == {"auto", "dark", "light"}
    while page.evaluate("document.documentElement.dataset.mode") != "dark":
        page.locator("button.theme-switch-button:visible").first.click()
    page.goto(site_url + "book/glossary.html")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    context.close()


def test_page_opens_from_a_file(open_page, site_dir):
    visit = open_page((site_dir / "chapters" / "01_softmax_and_attention.html").as_uri())
    assert visit.errors == []
    assert visit.page.locator("article h1").is_visible()

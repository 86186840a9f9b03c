"""A Chromium that opens the built site: served under its prefix, in either theme, at any width."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from screens import DESKTOP

from book._ext.book_address import read_address
from tools.check_pages import ROOT, built_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

PREFIX = read_address(ROOT).prefix


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


class Visit(NamedTuple):
    """An open page with what it said and asked for. The lists go on filling while the page is used."""

    page: Page
    errors: list[str]  # console errors, uncaught exceptions, failed or refused requests
    requests: list[str]  # every address asked for


class _SiteHandler(SimpleHTTPRequestHandler):
    """Serves the site as its host does: under the prefix, and 404.html for what is not there."""

    def translate_path(self, path: str) -> str:
        inside = path.removeprefix(PREFIX) if path.startswith(PREFIX) else "outside-the-site"
        return super().translate_path("/" + inside)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        page = Path(self.directory) / "404.html"
        if code != 404 or not page.exists():
            return super().send_error(code, message, explain)
        body = page.read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass

    def handle(self) -> None:
        with suppress(ConnectionResetError, BrokenPipeError):  # the browser drops connections as it leaves a page
            super().handle()


@pytest.fixture(scope="session")
def site_dir() -> Path:
    """The built site."""
    return built_site()


@pytest.fixture(scope="session")
def site_url(site_dir: Path) -> Iterator[str]:
    """The address of the site's root on a local server, with a slash at the end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_SiteHandler, directory=str(site_dir)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}{PREFIX}"
    server.shutdown()
    server.server_close()
    thread.join()


def find_chromium() -> str | None:
    """The Chromium to use: CHROMIUM, then one that the system has; None for playwright's own."""
    named = os.environ.get("CHROMIUM")
    if named:
        return named
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        found = shutil.which(name)
        if found:
            return found
    return None


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One headless Chromium for all tests."""
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        except Error as error:
            pytest.fail(
                f"No Chromium could be started: {error}\nInstall one with the system's package manager, run "
                "`playwright install chromium`, or put its path into the variable CHROMIUM."
            )
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser, site_url: str) -> Iterator[Callable[..., Visit]]:
    """Opens a page of the site: `open_page("chapters/02_sharpness.html", theme="dark", width=360)`.

    An address with a scheme (file://, http://) is opened as it is. The page is ready when its `load` event has passed
    and MathJax, where the page has it, has typeset.
    """
    contexts = []

    def opened(path: str, *, theme: str = "light", width: int = DESKTOP, height: int = 900) -> Visit:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
        contexts.append(context)
        # The site keeps the reader's choice in its storage; "auto" would follow color_scheme, but be explicit.
        context.add_init_script(
            f"try {{ localStorage.setItem('mode', '{theme}'); localStorage.setItem('theme', '{theme}'); }} catch {{}}"
        )
        page = context.new_page()
        page.set_default_timeout(60_000)  # generous, for machines that do other work as well
        visit = Visit(page, [], [])
        page.on("console", lambda message: message.type == "error" and visit.errors.append(message.text))
        page.on("pageerror", lambda error: visit.errors.append(f"uncaught: {error}"))
        page.on("request", lambda request: visit.requests.append(request.url))
        page.on("requestfailed", lambda request: visit.errors.append(f"failed: {request.url} {request.failure}"))
        page.on(
            "response",
            lambda response: response.status >= 400 and visit.errors.append(f"{response.status}: {response.url}"),
        )
        page.goto(path if "://" in path else site_url + path, wait_until="load")
        page.evaluate("window.MathJax?.startup?.promise")
        return visit

    yield opened
    for context in contexts:
        context.close()

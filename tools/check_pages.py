"""Looks at the built site and says what is missing or broken: python -m tools.check_pages [_build/html].

Jupyter Book can exit 0 having built nothing, so that a page exists is checked, not assumed. The rest is what a reader
would meet: a traceback, a dead link, a picture without words, a heading out of order, a request to someone else's
server, a page too heavy for a phone.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

import yaml

from book._ext.book_address import read_address
from book._ext.book_mathjax import files_of_a_page
from tools.page_facts import PageFacts, page_facts, transferred_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
GENERATED = ("index.html", "search.html", "genindex.html", "404.html")  # pages that no source stands behind
SHORTEST_ALT = 20  # characters; a shorter text names a picture without saying what it shows
BUDGET = {"with mathematics": 1_200_000, "without": 600_000}  # bytes over the wire, compressed


def built_site() -> Path:
    """The folder of the built site: the one that ADATEMP_SITE names, else _build/html.

    Raises:
      FileNotFoundError: there is no site in it.
    """
    folder = Path(os.environ.get("ADATEMP_SITE", ROOT / "_build" / "html"))
    if not (folder / "index.html").is_file():
        raise FileNotFoundError(f"There is no site in {folder}. Build it first: make book.")
    return folder


def pages_of_the_book(root: Path = ROOT) -> list[str]:
    """The sources named in _toc.yml, in reading order, without their ending."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))

    def files(entry: dict) -> Iterator[str]:
        if "file" in entry:
            yield entry["file"].removesuffix(".md")
        for key in ("parts", "chapters", "sections"):
            for child in entry.get(key, []):
                yield from files(child)

    return [toc["root"].removesuffix(".md"), *files(toc)]


def _contents(facts: PageFacts) -> Iterator[str]:
    if not facts.title:
        yield "no heading of the first level with text"
    if facts.tracebacks:
        yield f"{facts.tracebacks} output(s) with a traceback"
    levels = [level for level, _ in facts.headings]
    if levels and levels[0] != 1:
        yield f"begins with a heading of level {levels[0]}: {facts.headings[0][1]!r}"
    for (above, _), (level, text) in zip(facts.headings, facts.headings[1:], strict=False):
        if level > above + 1:
            yield f"heading {text!r} of level {level} follows one of level {above}"
        if level == 1:
            yield f"a second heading of the first level: {text!r}"
    for duplicate in facts.duplicate_ids:
        yield f"the id {duplicate!r} stands more than once"


def _pictures(facts: PageFacts) -> Iterator[str]:
    for what, alt in facts.pictures:
        if alt is None:
            yield f"{what} has no text for readers who cannot see it"
        elif len(alt) < SHORTEST_ALT or "jupyter_execute" in alt:
            yield f"{what} says too little to readers who cannot see it: {alt!r}"


def _requests(facts: PageFacts) -> Iterator[str]:
    for address in facts.requests:
        if urlsplit(address).netloc:
            yield f"asks a third party for {address}"


def _links(name: str, facts: PageFacts, everything: dict[str, PageFacts], site: Path, address: str) -> Iterator[str]:
    for link in facts.links:
        target = urlsplit(urljoin(address + name, link))
        if not target.geturl().startswith(address):
            continue  # another site, or no page at all (mailto:, javascript:)
        page = unquote(target.path.removeprefix(urlsplit(address).path)) or "index.html"
        path = site / page
        if not path.is_file():
            yield f"link to {link}, which does not exist"
        elif target.fragment and path.suffix == ".html":
            if page not in everything:
                everything[page] = page_facts(path)
            if unquote(target.fragment) not in everything[page].ids:
                yield f"link to {link}: the page has no such place"


def page_weight(name: str, facts: PageFacts, site: Path, address: str) -> int:
    """Bytes a first visit transfers, compressed, from what the page's source asks for."""
    asked = {site / name}
    for request in facts.requests:
        target = urlsplit(urljoin(address + name, request))
        asked.add(site / unquote(target.path.removeprefix(urlsplit(address).path)))
    if facts.has_mathematics:
        asked.update(site / "_static" / "mathjax" / file for file in files_of_a_page())
    return transferred_bytes(path for path in asked if path.is_file())


def check(site: Path, root: Path = ROOT) -> list[str]:
    """Every fault of the site, one sentence each; an empty list if there is none."""
    address = read_address(root).site
    names = [*(f"{name}.html" for name in pages_of_the_book(root)), *GENERATED]
    faults = [f"{name}: the page was not built" for name in names if not (site / name).is_file()]
    everything = {name: page_facts(site / name) for name in names if (site / name).is_file()}
    for name, facts in list(everything.items()):
        found = [*_pictures(facts), *_requests(facts), *_links(name, facts, everything, site, address)]
        if name not in GENERATED:
            found += _contents(facts)
            weight = page_weight(name, facts, site, address)
            allowed = BUDGET["with mathematics" if facts.has_mathematics else "without"]
            if weight > allowed:
                found.append(f"weighs {weight / 1e6:.2f} MB over the wire, more than {allowed / 1e6:.1f}")
        faults += [f"{name}: {fault}" for fault in found]
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", nargs="?", type=Path, help="a folder; by default the site that make book built")
    parser.add_argument("--weights", action="store_true", help="also print what each page weighs")
    arguments = parser.parse_args()
    site = arguments.site or built_site()
    faults = check(site)
    for fault in faults:
        print(f"  {fault}", file=sys.stderr)
    if arguments.weights:
        address = read_address(ROOT).site
        for name in (f"{page}.html" for page in pages_of_the_book()):
            if (site / name).is_file():
                print(f"{page_weight(name, page_facts(site / name), site, address) / 1e3:8.0f} kB  {name}")
    pages = len(pages_of_the_book())
    print(f"{pages} pages looked at: {'no fault' if not faults else f'{len(faults)} fault(s)'}.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""What one built HTML page holds: headings, ids, links, pictures, and the files it asks for, in one pass."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
LOADS = {tag: "src" for tag in ("script", "img", "iframe", "source", "video", "audio", "embed")}
LOADING_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "prefetch"}
COMPRESSED_ALREADY = {".woff", ".woff2", ".png", ".jpg", ".gif", ".webp"}


@dataclass
class PageFacts:
    """The facts; headings, pictures and tracebacks are those of the article, not of the bars around it."""

    headings: list[tuple[int, str]] = field(default_factory=list)
    ids: Counter[str] = field(default_factory=Counter)
    links: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    pictures: list[tuple[str, str | None]] = field(default_factory=list)  # (what it is, its text or None)
    tracebacks: int = 0
    has_mathematics: bool = False

    @property
    def title(self) -> str:
        """The text of the first heading of level one, or an empty string."""
        return next((text for level, text in self.headings if level == 1), "")

    @property
    def duplicate_ids(self) -> list[str]:
        return [name for name, count in self.ids.items() if count > 1]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.facts = PageFacts()
        self._article = 0  # depth of open elements since <article>; 0 outside
        self._svg = 0  # likewise since the outermost <svg>
        self._heading: tuple[int, list[str]] | None = None
        self._headerlink = False
        self._style = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attributes}
        facts = self.facts
        if given.get("id"):
            facts.ids[given["id"]] += 1
        if tag == "a" and given.get("href"):
            facts.links.append(given["href"])
            self._headerlink = "headerlink" in given.get("class", "")
        if tag in LOADS and given.get(LOADS[tag]) and not given[LOADS[tag]].startswith("data:"):
            facts.requests.append(given[LOADS[tag]])
            facts.has_mathematics |= "/mathjax/" in given[LOADS[tag]]
        if tag == "link" and LOADING_LINKS & set(given.get("rel", "").split()) and given.get("href"):
            facts.requests.append(given["href"])
        facts.requests += _addresses_in_css(given.get("style", ""))
        self._style = tag == "style"
        if self._article:
            self._in_article(tag, given)
        if tag not in VOID:
            self._article += bool(self._article) or tag == "article"
            self._svg += bool(self._svg) or tag == "svg"

    def _in_article(self, tag: str, given: dict[str, str]) -> None:
        if re.fullmatch("h[1-6]", tag):
            self._heading = (int(tag[1]), [])
        if "traceback" in given.get("class", "").split():
            self.facts.tracebacks += 1
        if tag == "img":
            self.facts.pictures.append((f"the image {given.get('src', '')[:80]}", given.get("alt") or None))
        # An svg inside another, or hidden from screen readers, is part of something that has its own text.
        if tag == "svg" and not self._svg and given.get("aria-hidden") != "true":
            text = given.get("aria-label") or given.get("aria-labelledby")
            what = f"drawing {sum('drawing' in name for name, _ in self.facts.pictures) + 1} of the page"
            self.facts.pictures.append((what, text if text and given.get("role") == "img" else None))

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if self._heading and tag == f"h{self._heading[0]}":
            level, words = self._heading
            self.facts.headings.append((level, " ".join("".join(words).split())))
            self._heading = None
        if tag == "a":
            self._headerlink = False
        self._article = max(self._article - 1, 0)
        self._svg = max(self._svg - 1, 0)
        self._style = False

    def handle_data(self, data: str) -> None:
        if self._heading and not self._headerlink:
            self._heading[1].append(data)
        if self._style:
            self.facts.requests += _addresses_in_css(data)


def _addresses_in_css(css: str) -> list[str]:
    found = re.findall(r"url\(\s*['\"]?([^'\")]+)", css) + re.findall(r"@import\s+['\"]([^'\"]+)", css)
    return [address for address in found if not address.startswith(("data:", "#"))]


def page_facts(path: Path) -> PageFacts:
    """Reads the page at `path`."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    return reader.facts


def transferred_bytes(paths: Iterable[Path]) -> int:
    """What a web server sends for these files: compressed with gzip, except what is compressed already."""
    total = 0
    for path in paths:
        content = path.read_bytes()
        total += len(content) if path.suffix in COMPRESSED_ALREADY else len(gzip.compress(content, 6))
    return total

"""Numbers and addresses of everything a chapter can refer to, computed from the sources as the site computes them.

Figures, equations, theorems and exercises are numbered by chapter and by order within it, each kind for itself; only
labelled equations count. A chapter in a part of _toc.yml that says `numbered: true` has the number its file name begins
with; book/_ext/book_numbers.py makes the site do the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml

from tools.notebook_source import Block, SourceError, front_matter, walk

if TYPE_CHECKING:
    from pathlib import Path

PROOF_KINDS = {"theorem", "lemma", "proposition", "definition", "corollary", "remark", "example", "conjecture"}
# The environments of amsmath that stand alone; aligned, cases and the like stand inside an equation.
_NUMBERED = re.compile(r"\s*\\begin\{(equation|align|alignat|flalign|gather|multline)\}")
_FORMATS = {"figure": "Fig. {}", "table": "Table {}", "section": "Section {}", "equation": "({})"}


@dataclass(frozen=True)
class Target:
    """Something with a label: where it is, what it is called, how the site numbers it."""

    kind: str  # section, figure, table, equation, exercise, solution or one of PROOF_KINDS
    number: str  # "" where the site shows none
    title: str
    docname: str
    anchor: str

    @property
    def name(self) -> str:
        """What the site writes for it: Theorem 1.2, Fig. 2.1, (1.3)."""
        return _FORMATS.get(self.kind, self.kind.title() + " {}").format(self.number).strip()


@dataclass
class Book:
    """All pages of the book: their titles and chapter numbers, what can be referred to, the glossary's terms."""

    titles: dict[str, str] = field(default_factory=dict)
    chapters: dict[str, int] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    numbered: dict[tuple[str, int], Target] = field(default_factory=dict)  # by file and line, labelled or not
    terms: dict[str, str] = field(default_factory=dict)  # term in lower case -> its anchor
    glossary: str = ""


def read_book(root: Path) -> Book:
    """Reads every page named in _toc.yml that exists; pages of a chapter must all exist to be exported.

    Raises:
      SourceError: a label is used twice, or a page has no title.
    """
    book = Book()
    unnumbered = Counter()  # pages outside the chapters share one count, as on the site
    for docname, chapter in _pages(root):
        path = root / f"{docname}.md"
        if not path.exists():
            continue
        if chapter:
            book.chapters[docname] = chapter
        text = path.read_text(encoding="utf-8")
        header = front_matter(text)[1]
        relative = path.relative_to(root).as_posix()
        page = _Page(book, docname, relative, (chapter,) if chapter else (), Counter() if chapter else unnumbered)
        for block in walk("\n".join(text.split("\n")[header:]), relative, header + 1):
            page.read(block)
        if docname not in book.titles:
            raise SourceError("a page begins with its title, as in `# Softmax`", relative, header + 1)
    return book


def _pages(root: Path) -> list[tuple[str, int]]:
    """The pages of _toc.yml in order, each with its chapter's number or 0."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    pages = [(toc["root"], 0)]
    for part in toc.get("parts", [toc]):
        for entry in part.get("chapters", ()):
            found = re.match(r"(?:.*/)?(\d+)_", entry["file"]) if part.get("numbered") else None
            pages.append((entry["file"], int(found[1]) if found else 0))
    return pages


@dataclass
class _Page:
    """The state of reading one page: open labels, counts by kind, the section it is in."""

    book: Book
    docname: str
    path: str
    prefix: tuple[int, ...]
    counts: Counter
    waiting: list[str] = field(default_factory=list)
    section: list[int] = field(default_factory=list)

    def read(self, block: Block) -> None:
        match block.kind:
            case "heading":
                self._heading(block)
            case "target":
                self.waiting.append(block.name)
            case "math":
                self._equation(block, block.name)
            case "directive":
                self._directive(block)
            case "prose" | "verbatim":
                self.waiting.clear()  # a label belongs to what follows it at once

    def _heading(self, block: Block) -> None:
        if block.level == 1:
            self.book.titles.setdefault(self.docname, block.text)
        else:
            depth = block.level - 1
            self.section = (self.section + [0] * depth)[:depth]
            self.section[-1] += 1
        number = ".".join(map(str, (*self.prefix, *self.section))) if self.prefix else ""
        for label in self.waiting:
            self._add(label, Target("section", number, block.text, self.docname, make_id(label)), block.line)
        self.waiting.clear()

    def _equation(self, block: Block, label: str) -> None:
        if label:
            number = self._next("equation")
            target = Target("equation", number, "", self.docname, f"equation-{make_id(label)}")
            self._add(label, target, block.line)
        elif _NUMBERED.match(block.text) and block.kind == "math":
            self._next("equation")  # an amsmath environment without a star is numbered by itself

    def _directive(self, block: Block) -> None:
        name, options = block.name, block.options
        kind = name.removeprefix("prf:")
        label = str(options.get("label") or options.get("name") or "")
        title = block.argument
        if name == "math":
            if label:
                self._equation(Block("directive", block.text, block.line), label)
            return
        if name == "glossary":
            self.book.glossary = self.docname
            for line in block.text.split("\n"):
                if line.strip() and not line[0].isspace():
                    term = line.strip()
                    self.book.terms[term.lower()] = f"term-{_term_id(term)}"
            return
        if name == "code-cell":
            figure = (options.get("mystnb") or {}).get("figure") or {}
            if not figure:
                return
            kind, label, title = "figure", figure.get("name", ""), figure.get("caption", "")
        elif name in {"exercise", "exercise-start"}:
            kind = "exercise"
        elif name == "figure":
            title = block.text
            if not title:
                return  # without a caption the site gives it no number
        elif name != "table" and not (name.startswith("prf:") and kind in PROOF_KINDS):
            return
        number = "" if "nonumber" in options else self._next(kind)
        anchor = label if name.startswith("prf:") or kind == "exercise" else make_id(label)
        target = Target(kind, number, " ".join(str(title).split()), self.docname, anchor)
        self.book.numbered[self.path, block.line] = target
        if label:
            self._add(label, target, block.line)
        self.waiting.clear()

    def _next(self, kind: str) -> str:
        self.counts[kind] += 1
        return ".".join(map(str, (*self.prefix, self.counts[kind])))

    def _add(self, label: str, target: Target, line: int) -> None:
        known = self.book.targets.get(label)
        if known:
            raise SourceError(f"the label {label!r} is used before, in {known.docname}.md", self.path, line)
        self.book.targets[label] = target


def make_id(label: str) -> str:
    """The anchor docutils makes of a label: lower case, hyphens for all else, no digit or hyphen in front."""
    plain = unicodedata.normalize("NFKD", label.lower()).encode("ascii", "ignore").decode()
    return re.sub(r"^[-0-9]+|-+$", "", re.sub(r"[^a-z0-9]+", "-", plain))


def _term_id(term: str) -> str:
    """The anchor Sphinx makes of a glossary term: as `make_id`, but capitals, dots and underscores stay."""
    plain = unicodedata.normalize("NFKD", term).encode("ascii", "ignore").decode()
    return re.sub(r"-+$", "", re.sub(r"[^a-zA-Z0-9._]+", "-", " ".join(plain.split())))

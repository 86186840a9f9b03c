"""Turns the roles and links inside a paragraph into plain Markdown: references, citations, terms, relative links."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.notebook_citations import Bibliography, in_text
from tools.notebook_source import SourceError

if TYPE_CHECKING:
    from tools.notebook_numbers import Book, Target
    from tools.notebook_source import Block
    from tools.project import Project

# Read from left to right, the first that fits wins: what stands in code or in mathematics is left alone.
_PIECES = re.compile(
    r"(?P<escape>\\[\\`*_{}\[\]()#+.!$<>|~-])"
    r"|\{(?P<role>[A-Za-z][\w:+.-]*)\}(?P<fence>`+)(?P<content>.+?)(?<!`)(?P=fence)(?!`)"
    r"|(?P<code>(?P<ticks>`+).+?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<math>\$\$.+?\$\$|\$(?![\s$])(?:\\.|[^$\\])*?(?<!\s)\$(?!\d))"
    r"|(?P<image>!?)\[(?P<text>(?:\\.|\$[^$]*\$|`[^`]*`|[^\[\]])*)\]\((?P<link>[^()\s]+)(?P<title>\s+\"[^\"]*\")?\)"
    r"(?P<attributes>\{[^}]*\})?",
    flags=re.DOTALL,
)
_EXPLICIT = re.compile(r"(?P<text>.+?)\s*<(?P<target>[^<>]+)>$", flags=re.DOTALL)


@dataclass(frozen=True)
class Context:
    """Everything a page's references can point at, and the page that points."""

    project: Project
    book: Book
    works: Bibliography
    docname: str
    path: str  # of the source, for messages
    cited: frozenset[str] = frozenset()  # keys of all works the page cites

    def href(self, target: Target) -> str:
        """Within the notebook where the target is in it, else on the site."""
        if target.docname == self.docname:
            return f"#{target.anchor}"
        return self.project.page(target.docname, target.anchor)

    def at(self, block: Block) -> Target:
        """What the site numbers at a block of this page."""
        return self.book.numbered[self.path, block.line]

    def fail(self, message: str, line: int) -> SourceError:
        return SourceError(message, self.path, line)


def convert(text: str, context: Context, line: int) -> str:
    """Converts one paragraph, heading, list or table.

    Args:
      text: the Markdown, which may span lines.
      context: what references resolve against.
      line: where it begins in the source, for messages.

    Raises:
      SourceError: a role that is not known, or a reference to something that does not exist.
    """

    def piece(match: re.Match) -> str:
        here = line + text.count("\n", 0, match.start())
        if match["role"]:
            return _role(match["role"], " ".join(match["content"].split()), context, here)
        if match["math"]:
            # A quotation mark at the start of a continued line would become part of the formula.
            return " ".join(match["math"].split("\n"))
        if match["link"]:
            return _link(match, context, here, line)
        return match[0]

    return _PIECES.sub(piece, text)


def cited_keys(text: str) -> set[str]:
    """The keys of the works that a stretch of prose cites."""
    roles = (match for match in _PIECES.finditer(text) if (match["role"] or "").partition(":")[0] == "cite")
    return {key.strip() for match in roles for key in match["content"].split(",")}


def without_code(text: str) -> str:
    """The text without what stands in backticks."""
    return _PIECES.sub(lambda match: "" if match["code"] else match[0], text)


def _role(role: str, content: str, context: Context, line: int) -> str:
    explicit = _EXPLICIT.match(content)
    text, target = (explicit["text"], explicit["target"]) if explicit else ("", content)
    match role:
        case "math":
            return f"${content}$"
        case "eq" | "prf:ref" | "ref" | "numref":
            return _reference(role, text, target, context, line)
        case "term":
            anchor = context.book.terms.get(target.lower())
            if anchor is None:
                raise context.fail(f"the glossary has no term {target!r}", line)
            return f"[{text or target}]({context.project.page(context.book.glossary, anchor)})"
        case "doc":
            docname = _resolve(target, context)
            if docname not in context.book.titles:
                raise context.fail(
                    f"{{doc}} names {target!r}, but _toc.yml has no such page, or it is not written yet", line
                )
            return f"[{text or context.book.titles[docname]}]({context.project.page(docname)})"
        case "cite" | "cite:p" | "cite:t":
            return _citation(content, role == "cite:t", context, line)
        case _:
            raise context.fail(
                f"the role {{{role}}} has no export; see tools/notebook_inline.py for those that do", line
            )


def _reference(role: str, text: str, label: str, context: Context, line: int) -> str:
    target = context.book.targets.get(label)
    if target is None:
        raise context.fail(f"{{{role}}} names the label {label!r}, which no page defines", line)
    if role == "numref":
        if not target.number:
            raise context.fail(f"{{numref}} names {label!r}, which has no number", line)
        shown = text.replace("%s", target.number).replace("{number}", target.number) if text else target.name
    elif role == "ref" and target.kind not in {"exercise", "solution"}:
        # A caption may itself hold links, which cannot stand inside the text of another.
        shown = text or re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", convert(target.title, context, line))
    else:
        shown = text or target.name
    if not shown:
        raise context.fail(f"{{{role}}} names {label!r}, which has no title to show; write {{ref}}`text <label>`", line)
    return f"[{shown}]({context.href(target)})"


def _citation(keys: str, textual: bool, context: Context, line: int) -> str:
    cited = []
    for key in (part.strip() for part in keys.split(",")):
        if key not in context.works:
            raise context.fail(f"references.bib has no entry {key!r}", line)
        cited.append(in_text(context.works[key], textual=textual))
    return ", ".join(cited) if textual else f"({'; '.join(cited)})"


def _link(match: re.Match, context: Context, here: int, line: int) -> str:
    """Relative links lead to the site or the repository, since a notebook in Colab has nothing beside it."""
    link, text = match["link"], convert(match["text"], context, line)
    path, _, anchor = link.partition("#")
    if re.match(r"[a-z]+:", link):
        target = link
    elif not path:
        return _reference("ref", text, anchor, context, here)
    elif path.endswith(".md"):
        docname = _resolve(path.removesuffix(".md"), context)
        if docname not in context.book.titles:
            raise context.fail(
                f"the link {link!r} leads to a page that _toc.yml does not have, or that is not written yet", here
            )
        target, text = context.project.page(docname, anchor), text or context.book.titles[docname]
    elif match["image"]:
        target = context.project.image(_resolve(path, context))
    else:
        target = context.project.file(_resolve(path, context))
    return f"{match['image']}[{text}]({target}{match['title'] or ''})"


def _resolve(path: str, context: Context) -> str:
    """A path written in a page, from the root of the book."""
    if path.startswith("/"):
        return path[1:]
    return posixpath.normpath(posixpath.join(posixpath.dirname(context.docname), path))

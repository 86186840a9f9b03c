"""Reads a MyST page into blocks (prose, directives, code cells, labels) with the parser that builds the site."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import yaml
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# The list in _config.yml; tests/notebooks/test_notebook_source.py holds the two together.
EXTENSIONS = frozenset({"amsmath", "attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath", "tasklist"})

# Directives whose body is no Markdown.
LITERAL = frozenset({"code-cell", "code-block", "code", "math", "figure", "image", "glossary", "bibliography", "raw"})

# What plain Markdown can show. Anything else (footnotes, definition lists, spans with attributes) would be debris.
_PLAIN_TOKENS = re.compile(
    r"paragraph_|heading_|inline$|text$|softbreak$|hardbreak$|code_inline$|code_block$|em_|strong_|link_|image$|html_|"
    r"bullet_list_|ordered_list_|list_item_|table_|thead_|tbody_|tr_|th_|td_|blockquote_|hr$|fence$|colon_fence$|"
    r"math_|amsmath$|myst_target$|myst_block_break$|myst_line_comment$|myst_role$|front_matter$"
)


class SourceError(Exception):
    """Something in a page that plain Markdown cannot show, with the file and line where it stands."""

    def __init__(self, message: str, path: str, line: int) -> None:
        super().__init__(f"{path}:{line}: {message}")


@dataclass(frozen=True)
class Block:
    """One piece of a page. `line` counts from 1 in the file; `indent` is the white space before a nested fence.

    kind: prose, heading, directive, math, verbatim, target, break or comment.
    """

    kind: str
    text: str
    line: int
    indent: str = ""
    name: str = ""  # directive's name, target's label, or label of an equation
    argument: str = ""
    options: dict = field(default_factory=dict)
    level: int = 0  # of a heading
    body_line: int = 0  # where a directive's body begins


@cache
def _parser() -> MarkdownIt:
    return create_md_parser(MdParserConfig(enable_extensions=set(EXTENSIONS)), RendererHTML)


def front_matter(text: str) -> tuple[dict, int]:
    """The YAML header of a page and the number of lines it takes."""
    found = re.match(r"---\n(.*?\n)---\n", text, flags=re.DOTALL)
    return (yaml.safe_load(found[1]), found[0].count("\n")) if found else ({}, 0)


def blocks(text: str, path: str, first_line: int = 1, *, exported: bool = True) -> list[Block]:
    """Splits Markdown into blocks, in order; a directive's body stays text, to be split in its turn.

    Args:
      text: the Markdown of a page without its front matter, or of a directive's body.
      path: the file it stands in, for messages.
      first_line: where in that file the text begins.
      exported: whether it must be possible to say all of it in plain Markdown.

    Raises:
      SourceError: an unclosed fence; and, in what is exported, a directive inside a quotation or a construct that
        plain Markdown lacks.
    """
    lines = text.split("\n")
    found: list[Block] = []
    position = 0
    tokens = _parser().parse(text)
    if exported:
        _require_plain(tokens, lines, path, first_line)
    for token in _spans(tokens):
        start, end = _lines_of(token)
        if start < position:  # inside a block that was taken whole
            continue
        found += _prose(lines, position, start, first_line)
        found.append(_block(token, lines, path, first_line))
        position = end
    found += _prose(lines, position, len(lines), first_line)
    return found


def walk(text: str, path: str, first_line: int = 1) -> Iterator[Block]:
    """Every block of a page in document order, going down into the bodies of directives, whatever else it holds."""
    for block in blocks(text, path, first_line, exported=False):
        yield block
        if block.kind == "directive" and block.name not in LITERAL:
            yield from walk(block.text, path, block.body_line)


def _require_plain(tokens: list[Token], lines: list[str], path: str, first_line: int) -> None:
    """Raises SourceError at the first token that has no counterpart in plain Markdown."""
    for token in tokens:
        line = first_line + (token.map[0] if token.map else 0)
        for part in (token, *(token.children or ())):
            if not _PLAIN_TOKENS.match(part.type):
                raise SourceError(f"{part.type} has no counterpart in plain Markdown; write it another way", path, line)
        if token.info.strip().startswith("{") and lines[token.map[0]].lstrip().startswith(">"):
            raise SourceError("a directive inside a quotation cannot be exported", path, line)


def _spans(tokens: list[Token]) -> Iterator[Token]:
    """The tokens that are not prose, in order of their lines."""
    for token in tokens:
        if token.type in {"fence", "colon_fence", "code_block", "amsmath", "myst_target", "myst_line_comment"}:
            yield token
        elif token.type in {"math_block", "math_block_label", "myst_block_break", "heading_open", "html_block"}:
            yield token


def _lines_of(token: Token) -> tuple[int, int]:
    """First line and the one after the last; the parser leaves the last line of an amsmath environment out."""
    start, end = token.map
    return (start, start + token.content.rstrip("\n").count("\n") + 1) if token.type == "amsmath" else (start, end)


def _block(token: Token, lines: list[str], path: str, first_line: int) -> Block:
    start, end = _lines_of(token)
    line = first_line + start
    source = "\n".join(lines[start:end])
    indent = re.match(r"\s*", lines[start])[0]
    match token.type:
        case "heading_open":
            heading = lines[start].strip()
            if not heading.startswith("#"):
                raise SourceError("write headings with # signs, not underlined", path, line)
            marks, _, title = heading.partition(" ")
            return Block("heading", title.strip().rstrip("#").strip(), line, level=len(marks))
        case "fence" | "colon_fence" if token.info.strip().startswith("{"):
            if not lines[end - 1].lstrip(" >").startswith(token.markup):
                raise SourceError(f"the fence {token.markup}{token.info.strip()} is never closed", path, line)
            return _directive(token, path, line, indent)
        case "math_block" | "math_block_label" | "amsmath":
            return Block("math", token.content.strip("\n"), line, indent, name=token.info.strip())
        case "myst_target":
            return Block("target", "", line, name=token.content)
        case "myst_block_break":
            return Block("break", "", line)
        case "myst_line_comment":
            return Block("comment", "", line)
        case _:
            return Block("verbatim", source, line, indent)


def _prose(lines: list[str], start: int, end: int, first_line: int) -> list[Block]:
    text = "\n".join(lines[start:end])
    return [Block("prose", text, first_line + start)] if text.strip() else []


def _directive(token: Token, path: str, line: int, indent: str) -> Block:
    """Separates a directive's options (`:key: value` lines or a YAML block) from its body, as MyST does."""
    heading = re.match(r"\{([\w:+.-]+)\}\s*(.*)", token.info.strip())
    if not heading:
        raise SourceError(f"cannot read the directive {token.info.strip()!r}", path, line)
    body = token.content.split("\n")
    taken, yaml_lines = 0, []
    if body and body[0].strip() == "---":
        closing = next((i for i, text in enumerate(body[1:], 1) if text.strip() == "---"), None)
        if closing is None:
            raise SourceError("the option block that begins with --- is never closed", path, line)
        yaml_lines, taken = body[1:closing], closing + 1
    else:
        while taken < len(body) and body[taken].startswith(":"):
            yaml_lines.append(body[taken][1:])
            taken += 1
    try:
        options = yaml.safe_load("\n".join(yaml_lines)) or {}
    except yaml.YAMLError as error:
        raise SourceError(f"options of {heading[1]} are not YAML: {error}", path, line) from error
    return Block(
        "directive",
        "\n".join(body[taken:]).strip("\n"),
        line,
        indent,
        name=heading[1],
        argument=heading[2].strip(),
        options={key: "" if value is None else value for key, value in options.items()},
        body_line=line + 1 + taken + _leading_blank(body[taken:]),
    )


def _leading_blank(lines: list[str]) -> int:
    return next((i for i, text in enumerate(lines) if text.strip()), 0)

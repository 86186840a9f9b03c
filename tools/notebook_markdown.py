"""Renders MyST blocks as the Markdown that Jupyter and Colab show: no directive, role or label survives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tools.notebook_citations import full, label
from tools.notebook_inline import Context, convert
from tools.notebook_numbers import PROOF_KINDS, make_id
from tools.notebook_source import Block, blocks

if TYPE_CHECKING:
    from collections.abc import Callable

ADMONITIONS = {"note", "tip", "hint", "warning", "important", "caution", "attention", "danger", "error", "seealso"}
_ALIGNED = {"align*": "aligned", "gather*": "gathered", "equation*": "aligned", "multline*": "gathered"}


def render(text: str, context: Context, line: int, *, level: int = 1) -> str:
    """Renders a stretch of Markdown without code cells.

    Args:
      text: MyST Markdown.
      context: the page and what it refers to.
      line: where the text begins in the source.
      level: of the heading above, for the headings that exercises get.

    Returns:
      Markdown without surrounding blank lines.

    Raises:
      SourceError: anything that has no export, with its file and line.
    """
    return render_blocks(blocks(text, context.path, line), context, level=level)


def render_blocks(parts: list[Block], context: Context, *, level: int = 1) -> str:
    """Renders blocks already split; see `render`."""
    rendered, waiting = [], []
    for block in parts:
        if block.kind == "heading":
            level = block.level
        if block.kind == "target":
            waiting.append(make_id(block.name))
            continue
        shown = _render_block(block, context, level)
        if shown and waiting:
            shown = "".join(anchor(name) for name in waiting) + "\n\n" + shown
            waiting.clear()
        if shown:
            rendered.append(shown.strip("\n"))
    return "\n\n".join(rendered)


def anchor(name: str) -> str:
    """A place that links inside the notebook lead to; Colab follows names, JupyterLab ids."""
    return f'<a id="{name}" name="{name}"></a>' if name else ""


def _render_block(block: Block, context: Context, level: int) -> str:
    match block.kind:
        case "prose":
            return _prose(block, context)
        case "heading":
            return "#" * block.level + " " + convert(block.text, context, block.line)
        case "math":
            return _indent(_math(block.text, block.name, context, block.line), block.indent)
        case "directive":
            return _indent(_directive(block, context, level), block.indent)
        case "verbatim":
            return block.text
        case _:
            return ""  # comments, cell breaks


def _prose(block: Block, context: Context) -> str:
    """Paragraph by paragraph, so that a stray dollar or backtick cannot reach into the next one."""
    line, shown = block.line, []
    for part in re.split(r"(\n[ \t]*\n)", block.text):
        shown.append(convert(part, context, line))
        line += part.count("\n")
    return "".join(shown)


def _math(text: str, label: str, context: Context, line: int) -> str:
    """One display formula on one line, which survives quotations and lists; its number as a tag."""
    if re.search(r"(?<!\\)%", text) or re.search(r"\n\s*\n", text.strip()):
        raise context.fail("a formula may hold neither comments nor blank lines, which end it in a notebook", line)
    environment = re.match(r"\s*\\begin\{(\w+\*?)\}", text)
    if environment and environment[1].rstrip("*") + "*" in _ALIGNED:
        if not environment[1].endswith("*"):
            raise context.fail(f"number {environment[1]} by a label: $$ ... $$ (label) around aligned", line)
        plain = _ALIGNED[environment[1]]
        text = text.replace(environment[1], plain)
    elif r"\\" in text and not environment:
        text = rf"\begin{{aligned}} {text} \end{{aligned}}"
    formula = " ".join(text.split())
    if not label:
        return f"$$ {formula} $$"
    target = context.book.targets[label]
    return f"{anchor(target.anchor)}\n\n$$ {formula} \\tag{{{target.number}}} $$"


def _directive(block: Block, context: Context, level: int) -> str:
    kind = block.name.removeprefix("prf:")
    if block.name.startswith("prf:") and kind in PROOF_KINDS:
        return _theorem(block, kind, context, level)
    if block.name in ADMONITIONS:
        title = "See also" if block.name == "seealso" else block.name.title()
        return _admonition(block, title, context, level)
    renderer = _DIRECTIVES.get(block.name)
    if renderer is None:
        raise context.fail(
            f"the directive {{{block.name}}} has no export; tools/notebook_markdown.py lists those that do", block.line
        )
    return renderer(block, context, level)


def _body(block: Block, context: Context, level: int) -> str:
    return render(block.text, context, block.body_line, level=level) if block.text.strip() else ""


def _title(block: Block, context: Context) -> str:
    return convert(block.argument, context, block.line)


def _theorem(block: Block, kind: str, context: Context, level: int) -> str:
    target = context.at(block)
    title = f" ({_title(block, context)})" if block.argument else ""
    return _quote(f"{anchor(target.anchor)}**{target.name}{title}.**\n\n{_body(block, context, level)}")


def _proof(block: Block, context: Context, level: int) -> str:
    body = _body(block, context, level)
    return f"*Proof.* {body}" + ("\n\n∎" if body.endswith("$$") else " ∎")


def _admonition(block: Block, title: str, context: Context, level: int) -> str:
    body = _body(block, context, level)
    if "dropdown" in str(block.options.get("class", "")).split():
        return details(title, body)
    if "<details" in body:  # Colab does not fold inside a quotation
        return f"**{title}**\n\n{body}"
    return _quote(f"**{title}**\n\n{body}")


def _exercise(block: Block, context: Context, level: int) -> str:
    target = context.at(block)
    if not target.anchor:
        raise context.fail("an exercise needs a :label:, as its solution and its check refer to it", block.line)
    heading = f"{target.name}: {_title(block, context)}" if block.argument else target.name
    marks = "#" * min(level + 1, 6)
    return f"{anchor(target.anchor)}\n\n{marks} {heading}\n\n{_body(block, context, level + 1)}"


def _solution(block: Block, context: Context, level: int) -> str:
    return details(solution_title(block.argument, context, block.line), _body(block, context, level))


def solution_title(label: str, context: Context, line: int) -> str:
    """What a solution is called, for its fold and for the form of its code cells."""
    target = context.book.targets.get(label)
    if target is None or target.kind != "exercise":
        raise context.fail(f"a solution names the exercise {label!r}, which no page defines", line)
    return f"Solution to {target.name}"


def details(summary: str, body: str) -> str:
    """Text behind a fold."""
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def _figure(block: Block, context: Context, level: int) -> str:
    alt = block.options.get("alt")
    if not alt:
        raise context.fail("a figure needs an :alt: text", block.line)
    picture = convert(f"![{alt}]({block.argument})", context, block.line)
    return f"{picture}\n\n{caption(block, block.text, context)}" if block.text.strip() else picture


def caption(block: Block, text: str, context: Context) -> str:
    """The number and caption of a figure, in italics, under the picture that `block` shows."""
    target = context.at(block)
    return f"{anchor(target.anchor)}*{target.name}. {convert(' '.join(text.split()), context, block.line)}*"


def _table(block: Block, context: Context, level: int) -> str:
    target = context.at(block)
    return f"{anchor(target.anchor)}*{target.name}. {_title(block, context)}*\n\n{_body(block, context, level)}"


def _bibliography(block: Block, context: Context, level: int) -> str:
    """The works cited in this page, in order of their authors."""
    if str(block.options.get("filter", "")).strip() != "docname in docnames":
        raise context.fail("a chapter's bibliography has `:filter: docname in docnames`", block.line)
    cited = [context.works[key] for key in context.cited if key in context.works]  # a missing one fails where it stands
    return "\n".join(
        f"- {full(work)}" for work in sorted(cited, key=lambda work: [part.lower() for part in label(work)])
    )


def _code(block: Block, context: Context, level: int) -> str:
    return f"```{block.argument}\n{block.text}\n```"


def _directive_math(block: Block, context: Context, level: int) -> str:
    return _math(block.text, str(block.options.get("label", "")), context, block.line)


def _titled(block: Block, context: Context, level: int) -> str:
    return _admonition(block, _title(block, context), context, level)


def _dropdown(block: Block, context: Context, level: int) -> str:
    return details(_title(block, context), _body(block, context, level))


_DIRECTIVES: dict[str, Callable[[Block, Context, int], str]] = {
    "admonition": _titled,
    "bibliography": _bibliography,
    "code": _code,
    "code-block": _code,
    "dropdown": _dropdown,
    "exercise": _exercise,
    "exercise-start": _exercise,
    "exercise-end": lambda block, context, level: "",
    "figure": _figure,
    "image": _figure,
    "math": _directive_math,
    "prf:proof": _proof,
    "solution": _solution,
    "table": _table,
}


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.strip("\n").split("\n"))


def _indent(text: str, indent: str) -> str:
    return "\n".join(indent + line if line else "" for line in text.split("\n")) if indent else text

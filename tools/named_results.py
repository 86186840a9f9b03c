"""The numbered results of the pages and the property tests they name: each has one, and the tests' markers agree.

python -m tools.named_results    print every fault, and what there is

A page names, beneath each theorem, lemma, proposition and corollary, the tests that show it:

    Property tests: `tests/test_x.py::test_this_holds`, `tests/test_x.py::test_it_is_attained`

and each of those tests carries the label of the result: `@pytest.mark.result("thm-ch03-tight")`. A result's tests stand
before the next result and the next section. "Test of the code:" names a test of a cell's code instead, of no result.
Whether the named tests pass is the business of `tools.run_named_tests`.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
TESTED = ("theorem", "lemma", "proposition", "corollary")  # a definition states nothing that could be wrong

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,}|:{3,})(\{[^}]+\})?")
_RESULT = re.compile(rf"\{{prf:({'|'.join(TESTED)})\}}")
_LABEL = re.compile(r":label:\s*(\S+)|label:\s*(\S+)")
_LINE = re.compile(r"(Property tests?|Tests? of the code): *(.*)")
_TEST = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")


@dataclass
class Result:
    """A numbered result of a page and the tests named beneath it."""

    page: str  # below the repository's root
    line: int
    kind: str
    label: str = ""
    tests: list[str] = field(default_factory=list)  # tests/test_x.py::test_name

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: the {self.kind} {self.label or 'without a label'}"


@dataclass
class Page:
    """What one page states, and what it names that belongs to no result."""

    results: list[Result] = field(default_factory=list)
    tests_of_code: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def tests(self) -> list[str]:
        """Every test that the page names."""
        return [*(test for result in self.results for test in result.tests), *self.tests_of_code]


def pages(root: Path = ROOT) -> list[Path]:
    """The sources that may state a result."""
    return sorted([*(root / "chapters").glob("*.md"), *(root / "book").glob("*.md")])


def read_page(text: str, name: str) -> Page:
    """Reads the results and the named tests of a page's source.

    Args:
        text: the page, in MyST.
        name: what to call it in a fault.
    """
    page, above, open_result = Page(), None, None
    fences: list[tuple[str, str]] = []  # fence and directive of the blocks that are open
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence and fences and not fence[2] and _closes(fence[1], fences[-1][0]):
            fences.pop()
            open_result = open_result if fences else None
        elif fence and not _in_code(fences):
            fences.append((fence[1], fence[2] or ""))
            found = _RESULT.fullmatch(fence[2] or "")
            if found:
                above = open_result = Result(name, number, found[1])
                page.results.append(above)
        elif fences and fences[-1][1].startswith("{prf:") and open_result and (label := _LABEL.match(line)):
            open_result.label = label[1] or label[2]
        elif not fences and line.startswith("## "):
            above = None
        elif not fences and (named := _LINE.match(line)):
            _take_line(page, above, named, f"{name}:{number}")
    page.faults += [f"{result}: label it, so that tests can name it" for result in page.results if not result.label]
    return page


def read_markers(root: Path = ROOT) -> dict[str, list[str]]:
    """The labels that each marked test of the repository carries, by the test's path and name.

    Raises:
        ValueError: a marker is not on a function of a module's top level, or its labels are not written out.
    """
    return {test: labels for test, labels in _all_tests(root).items() if labels}


def faults(root: Path = ROOT) -> list[str]:
    """What is wrong between pages and tests, a sentence each; an empty list if nothing is."""
    read = {path: read_page(path.read_text("utf-8"), path.relative_to(root).as_posix()) for path in pages(root)}
    try:
        tests = _all_tests(root)
    except ValueError as error:
        return [str(error)]
    found = [fault for page in read.values() for fault in page.faults]
    results: dict[str, Result] = {}
    for result in (result for page in read.values() for result in page.results):
        if result.label in results:
            found.append(f"{result}: {results[result.label]} has the same label")
        results.setdefault(result.label, result)
        if not result.tests:
            found.append(f"{result} names no property test before the next result or section")
        for test in result.tests:
            if test in tests and result.label and result.label not in tests[test]:
                found.append(f'{result} names {test}, which is not marked @pytest.mark.result("{result.label}")')
    for path, page in read.items():
        absent = [test for test in page.tests if test not in tests]
        found += [f"{path.relative_to(root).as_posix()} names {test}, which does not exist" for test in absent]
    for test, labels in tests.items():
        for label in labels:
            if label not in results:
                found.append(f"{test} is marked with {label!r}, which no page has")
            elif test not in results[label].tests:
                found.append(f"{test} is marked with {label!r}, and {results[label]} does not name it")
    return found


def named_tests(root: Path = ROOT) -> list[str]:
    """Every test that a page names, each once, sorted."""
    return sorted({test for path in pages(root) for test in read_page(path.read_text("utf-8"), "").tests})


def _closes(fence: str, opened: str) -> bool:
    return fence[0] == opened[0] and len(fence) >= len(opened)


def _in_code(fences: list[tuple[str, str]]) -> bool:
    """Whether the innermost open block is shown or run as it stands: what looks like markup in it is none."""
    return bool(fences) and fences[-1][1] in ("", "{code-cell}", "{code}", "{code-block}", "{math}")


def _take_line(page: Page, above: Result | None, named: re.Match[str], place: str) -> None:
    """Files the tests of one line under the result above it."""
    tests = [name.strip() for name in named[2].strip().removesuffix(".").split(", ")]
    wrong = [name for name in tests if not _TEST.fullmatch(name)]
    if wrong:
        page.faults.append(f"{place}: {wrong[0]!r} is not `tests/test_x.py::test_name`; separate several by commas")
        return
    if named[1].startswith("Test"):
        page.tests_of_code += [name.strip("`") for name in tests]
    elif above is None:
        page.faults.append(
            f"{place}: a property test of no result, as there is none above it in this section. Name it beneath its "
            'result, or, if it is of the code and not of a result, after "Test of the code:"'
        )
    else:
        above.tests += [name.strip("`") for name in tests]


def _all_tests(root: Path) -> dict[str, list[str]]:
    """Every test function of the repository with the labels it is marked with, most often none."""
    found = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        text = path.read_text("utf-8")
        top = ast.parse(text).body
        for node in top:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[f"{name}::{node.name}"] = list(_labels(node, name))
        if "mark.result" in text:
            _refuse_other_markers(top, name)
    return found


def _labels(function: ast.FunctionDef, file: str) -> Iterator[str]:
    for decorator in filter(_is_marker, function.decorator_list):
        arguments = decorator.args if isinstance(decorator, ast.Call) else []
        if not arguments or not all(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in arguments):
            raise ValueError(
                f"{file}::{function.name}: write the labels of the results out, as in "
                '@pytest.mark.result("thm-ch03-tight")'
            )
        yield from (argument.value for argument in arguments)


def _is_marker(node: ast.AST) -> bool:
    name = node.func if isinstance(node, ast.Call) else node
    return isinstance(name, ast.Attribute) and ast.unparse(name) == "pytest.mark.result"


def _refuse_other_markers(top: list[ast.stmt], file: str) -> None:
    """A marker elsewhere than on a test function would be read by pytest and not by this tool."""
    functions = [node for node in top if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    read = sum(_is_marker(decorator) for function in functions for decorator in function.decorator_list)
    written = sum(
        isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.result"
        for statement in top
        for node in ast.walk(statement)
    )
    if written != read:
        raise ValueError(f"{file}: a result marker stands elsewhere than on a test function of the module's top level")


def main() -> int:
    found = faults()
    for fault in found:
        print(f"  {fault}", file=sys.stderr)
    read = [read_page(path.read_text("utf-8"), path.name) for path in pages()]
    results = sum(len(page.results) for page in read)
    print(f"{results} numbered results, {len(named_tests())} tests named: {len(found) or 'no'} fault(s).")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

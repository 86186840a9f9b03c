"""The functions that a chapter builds in its cells, for tests of the results it states about them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

CHAPTERS = Path(__file__).parents[2] / "chapters"
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONS = re.compile(r"\A(---\n.*?^---\n|(:\w+:[^\n]*\n)+)", re.MULTILINE | re.DOTALL)


def functions_of(chapter: str) -> SimpleNamespace:
    """Runs the imports, the definitions and the literal constants of a chapter's cells, and nothing else of them.

    Of two definitions of one name the first counts: later ones are solutions.
    """
    text = (CHAPTERS / f"{chapter}.md").read_text("utf-8")
    kept, seen = [], set()
    for cell in CELL.findall(text):
        for node in ast.parse(OPTIONS.sub("", cell)).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                kept.append(node)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in seen:
                seen.add(node.name)
                kept.append(node)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                kept.append(node)  # BLOCK = 128
    namespace: dict[str, object] = {}
    exec(compile(ast.Module(kept, type_ignores=[]), f"{chapter}.md", "exec"), namespace)
    return SimpleNamespace(**{name: namespace[name] for name in seen})


@pytest.fixture(scope="session")
def chapter01() -> SimpleNamespace:
    return functions_of("01_softmax_and_attention")


@pytest.fixture(scope="session")
def chapter02() -> SimpleNamespace:
    return functions_of("02_sharpness")


@pytest.fixture(scope="session")
def chapter06() -> SimpleNamespace:
    return functions_of("06_failing_at_reasoning")


@pytest.fixture(scope="session")
def chapter10() -> SimpleNamespace:
    return functions_of("10_streaming_entropy")


@pytest.fixture(scope="session")
def chapter11() -> SimpleNamespace:
    return functions_of("11_pallas_kernel")


@pytest.fixture(scope="session")
def chapter03() -> SimpleNamespace:
    return functions_of("03_dispersion")


@pytest.fixture(scope="session")
def chapter04() -> SimpleNamespace:
    return functions_of("04_transformers_disperse")


@pytest.fixture(scope="session")
def chapter05() -> SimpleNamespace:
    return functions_of("05_price_of_sharpness")


@pytest.fixture(scope="session")
def chapter07() -> SimpleNamespace:
    return functions_of("07_depth")

"""A hash of the code that can change a result's numbers: its script and what that imports from here, comments aside."""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("adatemp", "tools")
ROOT = Path(__file__).resolve().parent.parent

# Modules that carry numbers and cannot change them: files, progress, the reader of stored results.
CARRIERS = {"_checkpoint", "_progress", "_stored_results", "runtime"}

EVERYTHING = "*"


def depends_on(script: Path, *, root: Path = ROOT) -> list[Path]:
    """The script and every module of the project that it imports, directly or through others, in a fixed order.

    A module's imports count when the module uses them or when they are what was asked of it: who imports the quartic
    from `adatemp.temperature` does not depend on the fit that is to be had there too.
    """
    seen, waiting = set(), [(script, EVERYTHING)]
    while waiting:
        path, name = asked = waiting.pop()
        if asked not in seen:
            seen.add(asked)
            waiting += _imports(path, name, root)
    return sorted({path for path, _ in seen})


def code_hash(script: Path, *data: Path, root: Path = ROOT) -> str:
    """First 16 digits of the SHA-256 of the code a result depends on, and of the data files it reads.

    Comments, docstrings and blank lines do not count: a better sentence should not cost ten minutes of training.
    """
    digest = hashlib.sha256()
    for path in depends_on(script, root=root):
        digest.update(f"{path.relative_to(root).as_posix()}\n{code_only(path.read_text('utf-8'))}\n".encode())
    for path in data:
        content = path.read_bytes() if path.exists() else b"not made yet"
        digest.update(path.relative_to(root).as_posix().encode() + b"\n" + content)
    return digest.hexdigest()[:16]


def code_only(source: str) -> str:
    """Source without comments, docstrings and blank lines."""
    lines = source.splitlines()
    # A tokeniser finds comments and a parser docstrings; both give positions in the text, so the rest stays as it was.
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node, clean=False) is not None:
                docstring = node.body[0]
                lines[docstring.lineno - 1 : docstring.end_lineno] = [""] * (
                    docstring.end_lineno - docstring.lineno + 1
                )
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _imports(path: Path, asked: str, root: Path) -> Iterator[tuple[Path, str]]:
    """Where a file takes from what it needs to provide the name asked of it: files, and the name asked of each."""
    statements, used, waiting = [], set(), [ast.parse(path.read_text("utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue  # types cannot change a number
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            statements.append(node)
        elif isinstance(node, ast.Name):
            used.add(node.id)
    for statement in statements:
        for alias in statement.names:
            bound = alias.asname or alias.name.split(".")[0]
            if asked in (EVERYTHING, bound) or bound in used:
                yield from _target(statement, alias.name, path, root)


def _target(statement: ast.Import | ast.ImportFrom, name: str, path: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """The file of the project that one imported name lives in, none for other packages and carriers."""

    def file(module: str) -> Path:
        return root / Path(*module.split(".")).with_suffix(".py")

    if isinstance(statement, ast.Import):
        module, name = name, EVERYTHING
    else:
        module = statement.module or ""
        if file(f"{module}.{name}").is_file():
            module, name = f"{module}.{name}", EVERYTHING
    if module.split(".")[0] not in PACKAGES or module.split(".")[-1] in CARRIERS:
        return
    if not file(module).is_file():
        raise ValueError(f"{path}: imports {name} from {module}, a package; import it from the module it lives in.")
    yield file(module), name

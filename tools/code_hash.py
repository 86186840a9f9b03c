"""A hash of the code that can change a result's numbers: its script and what that imports from here, comments aside."""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Modules that carry numbers and cannot change them: files, progress, the reader of stored results.
CARRIERS = {"_checkpoint", "_progress", "_stored_results", "runtime", "__init__"}


def depends_on(script: Path, *, root: Path = ROOT) -> list[Path]:
    """The script and every module of the project that it imports, directly or through others, in a fixed order."""
    found, waiting = set(), [script]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imports(path, root)
    return sorted(found)


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


def _imports(path: Path, root: Path) -> list[Path]:
    """Files of the project that a file imports anywhere, unless for its type annotations or only to carry numbers."""
    names, waiting = set(), [ast.parse(path.read_text("utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from adatemp.tasks import max_retrieval` may name a module as well as a value.
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    files = []
    for name in names:
        if name.split(".")[0] in ("adatemp", "tools") and name.split(".")[-1] not in CARRIERS:
            module = root / Path(*name.split("."))
            files += [file for file in [module.with_suffix(".py")] if file.is_file()]
    return files

"""Builds the site strictly and looks at what came out: python -m tools.build_book (which is what `make book` runs).

The property tests that the pages name run first, and a page shows that its own passed. Every warning is an error.
Progress is a line a page; the whole log is in _build/book.log.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from book._ext import book_cache, book_mathjax, book_named_tests
from tools.check_pages import ROOT, check, pages_of_the_book
from tools.run_named_tests import RECORD, NamedTestsFailed, make_sure

ANSI = re.compile(r"\x1b\[[0-9;]*m")
NOISE = re.compile(r"\[IPKernelApp\] WARNING \| Kernel is running over TCP without encryption")
WORTH_A_LINE = [
    (re.compile(r"reading sources\.\.\. +\[( *\d+)%\] (\S+)"), r"[\1%] reading \2"),
    (re.compile(r".*/([\w-]+/[\w-]+)\.md: Executing notebook.*"), r"       running \1 ..."),
    (re.compile(r".*/([\w-]+/[\w-]+)\.md: Executed notebook in ([\d.]+) seconds.*"), r"       ran in \2 s"),
    (re.compile(r"writing output\.\.\. +\[( *\d+)%\] (\S+)"), r"[\1%] writing \2"),
]


class WrongEnvironment(RuntimeError):
    """The environment cannot build this book."""


def require_jupyter_book_1(installed: str | None) -> None:
    """Raises WrongEnvironment unless `installed`, a version or None, is Jupyter Book 1.

    Version 2 is another engine: it does not read _config.yml, builds nothing and still exits 0.
    """
    if installed is None or not re.match(r"1\.", installed):
        raise WrongEnvironment(
            f"The book is built with Jupyter Book 1, but {installed or 'no version'} of jupyter-book is installed for "
            f"{sys.executable}. Use the environment that `make book` makes from requirements.lock."
        )


def installed_jupyter_book() -> str | None:
    try:
        return version("jupyter-book")
    except PackageNotFoundError:
        return None


def progress(line: str) -> str | None:
    """What to show of a line of the build's output; None for nothing."""
    for pattern, shown in WORTH_A_LINE:
        match = pattern.fullmatch(line.strip())
        if match:
            return match.expand(shown)
    return None


def build(root: Path, output: Path, named_tests: Path) -> int:
    """Runs Jupyter Book strictly, shows progress and warnings, and returns its exit status.

    Args:
        root: the folder of _config.yml.
        output: the folder in which _build is made.
        named_tests: the record of the property tests that passed.
    """
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(root)]
    command += ["--path-output", str(output), "-W", "-n", "--keep-going"]
    log_path = output / "_build" / "book.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", book_named_tests.VARIABLE: str(named_tests.resolve())}
    process = subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    with process, log_path.open("w", encoding="utf-8") as log:
        in_trouble = False  # a warning goes on over the lines that follow, until the next line of progress
        for raw in process.stdout:
            line = ANSI.sub("", raw).rstrip()
            log.write(line + "\n")
            shown = progress(line)
            in_trouble = not shown and (in_trouble or bool(re.search(r"WARNING|ERROR|CRITICAL|Error\b", line)))
            if NOISE.search(line):
                in_trouble = False
            elif shown or in_trouble:
                print(shown or line, flush=True)
    return process.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fresh", action="store_true", help="run every named test and every page again")
    parser.add_argument("--output", type=Path, default=ROOT, help="the folder in which _build is made")
    parser.add_argument(
        "--fingerprint", action="store_true", help="print the name of the state that executed pages depend on, and stop"
    )
    arguments = parser.parse_args()
    if arguments.fingerprint:
        print(book_cache.fingerprint(ROOT))
        return 0
    try:
        require_jupyter_book_1(installed_jupyter_book())
        book_mathjax.source_folder()
    except (WrongEnvironment, FileNotFoundError, PackageNotFoundError) as error:
        print(error, file=sys.stderr)
        return 2

    folder = arguments.output / "_build"
    named_tests = arguments.output / RECORD
    if arguments.fresh:
        named_tests.unlink(missing_ok=True)
        for name in ("html", ".doctrees", ".jupyter_cache", "jupyter_execute"):
            shutil.rmtree(folder / name, ignore_errors=True)
    try:
        make_sure(ROOT, named_tests)
    except NamedTestsFailed as error:
        print(f"The book was not built. {error}", file=sys.stderr)
        return 1
    pages = len(pages_of_the_book())
    print(f"Building {pages} pages at the {os.environ.get('ADATEMP_SCALE', 'fast')} scale ...", flush=True)
    start = time.monotonic()
    status = build(ROOT, arguments.output, named_tests)
    seconds = time.monotonic() - start
    if status:
        print(f"The book did not build. The whole log is in {folder / 'book.log'}.", file=sys.stderr)
        return 1
    faults = check(folder / "html")
    if faults:
        print("The book was built, and these things in it are wrong:", file=sys.stderr)
        print("\n".join(f"  {fault}" for fault in faults), file=sys.stderr)
        return 1
    print(f"\nBuilt and checked {pages} pages in {seconds:.0f} s. Open {(folder / 'html' / 'index.html').as_uri()}")
    print(f"or serve it, so that the search shows excerpts: python -m http.server --directory {folder / 'html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

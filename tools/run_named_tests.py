"""Runs the property tests that the pages name, those whose last pass does not stand for the code as it is now.

python -m tools.run_named_tests          run what has to be run; `make book` does the same
python -m tools.run_named_tests --fresh  run all of them

What passed is written to _build/named_tests.json under a hash of what the tests of a file depend on. The book's pages
show the mark of a passed test from there, and only after a build has made sure of all of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from book._ext import book_cache
from tools.named_results import ROOT, faults, named_tests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RECORD = Path("_build", "named_tests.json")
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy", "hypothesis")
PROCESSES = 2
CELLS = re.compile(r"^```\{code-cell\}[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)


class NamedTestsFailed(RuntimeError):
    """A test that a page names failed, or pages and tests do not agree on what is named."""


def state(file: str, root: Path = ROOT) -> str:
    """A short name for all that the outcome of a test file can depend on.

    That is the file, the library, the stored results, the tools, what tests share, the versions installed, and for a
    file of tests/chapters the cells of its chapter. Prose is not: a better sentence costs no test run.
    """
    digest = hashlib.sha256(book_cache.fingerprint(root).encode())
    digest.update(repr([version(package) for package in PACKAGES]).encode())
    for path, content in _contents(file, root):
        digest.update(f"\0{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def make_sure(root: Path = ROOT, record: Path | None = None) -> dict[str, dict]:
    """Runs those of the named tests that have not passed at the present state, and returns the record of all.

    Args:
        root: the repository.
        record: the file of what has passed; _build/named_tests.json by default.

    Returns:
        For each file of tests: its state, the date of its last run in UTC, and the names of the tests that passed.

    Raises:
        NamedTestsFailed: with a line for each fault and each test that failed.
    """
    wrong = faults(root)
    if wrong:
        raise NamedTestsFailed("Pages and tests do not agree:\n" + "\n".join(f"  {fault}" for fault in wrong))
    record = record or root / RECORD
    before = json.loads(record.read_text("utf-8")) if record.is_file() else {}
    tests = named_tests(root)
    now = {}
    for file in sorted({_file(test) for test in tests}):
        known, at = before.get(file, {}), state(file, root)
        now[file] = {**known, "state": at} if known.get("state") == at else {"state": at, "date": "", "passed": []}
    waiting = [test for test in tests if _function(test) not in now[_file(test)]["passed"]]
    if waiting:
        print(f"Running {len(waiting)} of the {len(tests)} property tests that pages name ...", flush=True)
        start = time.monotonic()
        failed = _run_and_note(waiting, now, root)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
        if failed:
            raise NamedTestsFailed("Property tests that pages name did not pass:\n" + "\n".join(failed))
        print(f"all passed, in {time.monotonic() - start:.0f} s", flush=True)
    return now


def _run_and_note(tests: list[str], record: dict[str, dict], root: Path) -> list[str]:
    """Runs tests, writes those that passed into the record, and returns a line for each of the others."""
    today, failed = datetime.now(UTC).date().isoformat(), []
    for test, outcome in run(tests, root).items():
        noted = record[_file(test)]
        if outcome == "passed":
            noted |= {"date": today, "passed": sorted({*noted["passed"], _function(test)})}
        else:
            failed.append(f"  {test}: {outcome}")
    return failed


def _file(test: str) -> str:
    return test.partition("::")[0]


def _function(test: str) -> str:
    return test.partition("::")[2]


def run(tests: Iterable[str], root: Path = ROOT) -> dict[str, str]:
    """Runs tests and says of each "passed", or else what happened: the first line of its error, or that it was skipped.

    Raises:
        NamedTestsFailed: pytest did not run one of them; with the end of what it printed.
    """
    tests = list(tests)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        if len(tests) > 1:
            command += ["-n", str(min(PROCESSES, os.cpu_count() or 1))]
        done = subprocess.run([*command, *tests], cwd=root, capture_output=True, text=True)
        found = _outcomes(report) if report.is_file() else {}
    absent = [test for test in tests if test not in found]
    if absent:
        said = (done.stdout + done.stderr)[-3000:]
        raise NamedTestsFailed(f"pytest did not run {absent[0]}, and ended with {done.returncode}:\n{said}")
    return {test: next(filter(None, found[test]), "passed") for test in tests}


def _contents(file: str, root: Path) -> Iterator[tuple[Path, bytes]]:
    shared = [path for path in sorted((root / "tests").rglob("*.py")) if not path.name.startswith("test_")]
    for path in (root / file, *shared, *sorted((root / "tools").rglob("*.py"))):
        yield path, path.read_bytes()
    chapter = re.search(r"tests/chapters/test_ch(\d\d)", file)
    for path in sorted((root / "chapters").glob(f"{chapter[1]}_*.md")) if chapter else ():
        yield path, "\0".join(CELLS.findall(path.read_text("utf-8"))).encode()


def _outcomes(report: Path) -> dict[str, list[str]]:
    """What a JUnit report says of each test, one entry for each set of its parameters; empty for a pass."""
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("classname", "").replace(".", "/") + ".py"
        function = case.get("name", "").split("[")[0]
        outcome = [part for part in case if part.tag in ("failure", "error", "skipped")]
        said = [f"{part.tag}: {' '.join(part.get('message', '').split())[:200]}" for part in outcome]
        found.setdefault(f"{file}::{function}", []).append("; ".join(said))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fresh", action="store_true", help="run every one of them again")
    if parser.parse_args().fresh:
        (ROOT / RECORD).unlink(missing_ok=True)
    try:
        record = make_sure()
    except NamedTestsFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{sum(len(file['passed']) for file in record.values())} named tests have passed at the present state.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

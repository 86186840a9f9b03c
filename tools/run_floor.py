"""Runs the unit tests, the setup cell and two notebooks at Colab's versions, in .venv-floor.

The environment is made on Python 3.13, which Colab runs, where the machine has it, else on the Python there is. It is
made again only when the versions change. The test tools, which Colab lacks, are the lock's.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import time

from tools.make_environment import ROOT, create, find_python, fingerprint, pip_install

FOLDER = ROOT / ".venv-floor"
COLAB = ROOT / "constraints" / "colab.txt"
LOCK = ROOT / "requirements.lock"
NEEDED = "jax flax optax numpy scipy matplotlib ipywidgets ipython ipykernel nbclient nbformat".split()
NEEDED += "gguf safetensors tokenizers".split()
TOOLS = "pytest pytest-xdist hypothesis jaxtyping hatchling editables".split()


# Tests of attention that compile hundreds of programs and hardly depend on the versions: with --everything only.
LONG = tuple(
    f"tests/attention/test_{name}.py"
    for name in ("edges", "known_bugs", "long_rows", "options", "oracle", "spans", "transforms")
)

# The site's tests need the book's packages, which Colab lacks.
UNIT_TESTS = (
    *"-m pytest -n 2 -q --ignore tests/book --ignore tests/browser".split(),
    *("-m", "not book and not browser and not notebooks and not gpu and not compile", "tests"),
)


def constraints() -> str:
    """Colab's versions, and the lock's for whatever Colab does not have."""
    colab = COLAB.read_text(encoding="utf-8")
    theirs = {_normal(name) for name in re.findall(r"^([\w.-]+)==", colab, flags=re.MULTILINE)}
    lock = re.findall(r"^([\w.-]+)(==[^\\\n]+)", LOCK.read_text(encoding="utf-8"), flags=re.MULTILINE)
    ours = [f"{name}{pin.rstrip()}" for name, pin in lock if _normal(name) not in theirs]
    return colab + "\n".join(ours) + "\n"


def ready() -> None:
    """Makes the environment, unless it is the right one already."""
    pinned = constraints()
    wanted = hashlib.sha256("\n".join((pinned, *NEEDED, *TOOLS)).encode()).hexdigest()
    stamp, project = FOLDER / "complete", fingerprint(ROOT / "pyproject.toml")
    before = stamp.read_text().split() if stamp.exists() else []
    if before[:1] != [wanted]:
        python, version = find_python(prefer="3.13")
        create(FOLDER, python)
        if version != "3.13":
            print(f"  Colab's Python is 3.13; this machine has {version}, so the floor runs on that", flush=True)
        (FOLDER / "constraints.txt").write_text(pinned, encoding="utf-8")
        pip_install(FOLDER, ["--constraint", str(FOLDER / "constraints.txt"), *NEEDED, *TOOLS])
    if before != [wanted, project]:
        pip_install(FOLDER, ["--no-deps", "--no-build-isolation", "-e", str(ROOT)])
    stamp.write_text(f"{wanted}\n{project}\n")


def run(title: str, *arguments: str) -> None:
    """Runs one step with the environment's Python; a failing one ends the run with its status."""
    print(f"\n== {title}", flush=True)
    start = time.monotonic()
    paths = {
        "PATH": f"{FOLDER / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(FOLDER),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    status = subprocess.run(
        [str(FOLDER / "bin" / "python"), *arguments], cwd=ROOT, env={**os.environ, **paths}
    ).returncode
    print(f"== {'failed' if status else 'done'} after {time.monotonic() - start:.0f} s", flush=True)
    if status:
        sys.exit(status)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--notebooks-only", action="store_true", help="the setup cell and the notebooks, no unit tests")
    parser.add_argument("--everything", action="store_true", help="the long tests of attention too")
    parser.add_argument("--all-notebooks", action="store_true", help="every notebook instead of the first two")
    arguments = parser.parse_args()
    ready()
    if not arguments.notebooks_only:
        left_out = [] if arguments.everything else [word for path in LONG for word in ("--ignore", path)]
        run("unit tests at Colab's versions", *UNIT_TESTS, *left_out)
    run(
        "the setup cell in an environment that holds Colab's versions",
        *"-m pytest -q -m notebooks tests/notebooks".split(),
    )
    notebooks = sorted((ROOT / "chapters").glob("*.ipynb"))
    if not notebooks:
        sys.exit("chapters/ holds no notebooks; run `make chapters`")
    for path in notebooks if arguments.all_notebooks else notebooks[:2]:
        run(f"{path.relative_to(ROOT)}", "-m", "tools.run_notebook", str(path))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()

"""The generated setup cell, run where it has to work: in an environment that holds exactly Colab's versions.

The environment is a copy of the one that runs the tests, without adatemp; nothing is fetched from a network.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest

from adatemp import runtime

pytestmark = pytest.mark.notebooks

ROOT = Path(__file__).resolve().parents[2]
PINS = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints/colab.txt").read_text(), flags=re.MULTILINE))
WATCHED = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy", "matplotlib", "ipywidgets", "ipython")

# What a test looks at afterwards, in the process that ran the cell.
AFTERWARDS = f"""
import json, importlib.metadata
print("RESULT " + json.dumps({{
    "versions": {{name: importlib.metadata.version(name) for name in {WATCHED}}},
    "preallocate": os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"],
    "results": os.environ.get("ADATEMP_RESULTS"),
    "adatemp": importlib.util.find_spec("adatemp").origin,
}}))
"""


class Run(NamedTuple):
    status: int
    output: str
    errors: str

    @property
    def result(self) -> dict:
        return json.loads(self.output.split("RESULT ")[1])


@pytest.fixture(scope="module")
def cell() -> str:
    """The setup cell of a committed notebook."""
    first = sorted((ROOT / "chapters").glob("*.ipynb"))[0]
    code = [cell.source for cell in nbformat.read(first, as_version=4).cells if cell.cell_type == "code"]
    assert code[0].startswith("# @title Setup")
    return code[0]


@pytest.fixture(scope="module")
def environment():
    """An environment with the packages of this one, hard-linked, but without adatemp."""
    # Beside the repository's other products: hard links do not cross file systems.
    folder = ROOT / "_build" / f"colab-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    venv.EnvBuilder(with_pip=True).create(folder)
    site = next(folder.glob("lib/python3.*/site-packages"))
    here = Path(sys.prefix) / site.relative_to(folder)
    for entry in here.iterdir():
        if re.match(r"pip\b|setuptools|adatemp|_editable_impl_adatemp|__pycache__", entry.name):
            continue
        if entry.is_dir():
            shutil.copytree(entry, site / entry.name, copy_function=_link_or_copy)
        else:
            shutil.copy2(entry, site / entry.name)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def colab(environment):
    """The environment, without adatemp again after a test that installed it."""
    yield environment
    subprocess.run([str(environment / "bin" / "pip"), "uninstall", "--yes", "--quiet", "adatemp"], check=True)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture
def archive(tmp_path) -> Path:
    return pack(tmp_path / "archive.zip", (ROOT / "pyproject.toml").read_text())


def pack(target: Path, pyproject: str) -> Path:
    """An archive like the one a repository's host makes: everything below one folder."""
    with zipfile.ZipFile(target, "w") as packed:
        packed.writestr("adatemp-main/pyproject.toml", pyproject)
        for name in ("README.md", "LICENSE"):
            packed.write(ROOT / name, f"adatemp-main/{name}")
        for folder in ("adatemp", "book/results"):
            for path in sorted((ROOT / folder).rglob("*")):
                if "__pycache__" not in path.parts:
                    packed.write(path, f"adatemp-main/{path.relative_to(ROOT)}")
    return target


def run(environment: Path, script: str, tmp_path: Path, **variables: str) -> Run:
    """Runs a script as the only code of a process, in an empty folder and without a network index."""
    folder = tmp_path / "content"
    folder.mkdir(exist_ok=True)
    clean = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "COLAB_RELEASE_TAG"}}
    settings = {
        "TMPDIR": str(tmp_path),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it as "no isolation": the build tool is there already
        "JAX_PLATFORMS": "cpu",
    }
    command = [str(environment / "bin" / "python"), "-c", script]
    done = subprocess.run(
        command, cwd=folder, env={**clean, **settings, **variables}, capture_output=True, text=True, timeout=300
    )
    return Run(done.returncode, done.stdout, done.stderr)


def test_environment_holds_colabs_versions():
    from importlib.metadata import version

    differing = {name: (version(name), PINS[name]) for name in WATCHED if version(name) != PINS[name]}
    assert not differing, f"run this through tools/run_floor.py, which makes Colab's environment: {differing}"


def test_installs_adatemp_and_moves_nothing(cell, colab, archive, tmp_path):
    release = {"COLAB_RELEASE_TAG": "release", "ADATEMP_SOURCE": archive.as_uri()}
    done = run(colab, cell + AFTERWARDS, tmp_path, **release)
    assert done.status == 0, done.errors
    assert done.result["versions"] == {name: PINS[name] for name in WATCHED}
    assert done.result["preallocate"] == "false"
    assert str(colab) in done.result["adatemp"]
    stored = {path.name for path in (ROOT / "book/results").glob("*.json")}
    assert stored <= {path.name for path in Path(done.result["results"]).iterdir()}
    for said in (f"jax {PINS['jax']}", f"flax {PINS['flax']}", "Device: cpu", "Expected time:", "T4 GPU"):
        assert said in done.output
    assert "newer" not in done.output

    again = run(colab, cell + AFTERWARDS, tmp_path, **release)
    assert again.status == 0, again.errors
    assert again.result == done.result


def test_library_and_stored_results_are_there_after_the_cell(cell, colab, archive, tmp_path):
    use = """
import adatemp, jax.numpy as jnp
print(adatemp.runtime.results("table1").provenance["command"])
print(adatemp.adaptive_temperature_softmax(jnp.arange(4.0)).sum())
"""
    done = run(colab, cell + use, tmp_path, ADATEMP_SOURCE=archive.as_uri())
    assert done.status == 0, done.errors
    command, total = done.output.strip().split("\n")[-2:]
    assert command == runtime.results("table1").provenance["command"]
    # Four float32 weights sum to one within a few units in the last place.
    assert float(total) == pytest.approx(1.0, abs=1e-6)


def test_newer_runtime_is_named_with_the_last_tested_one(cell, colab, archive, tmp_path):
    older = cell.replace(f'"jax": "{PINS["jax"]}"', '"jax": "0.7.1"')
    assert older != cell
    done = run(colab, older, tmp_path, ADATEMP_SOURCE=archive.as_uri())
    assert done.status == 0, done.errors
    assert "newer jax than the last tested one: Colab's package list of" in done.output


def test_version_that_would_move_jax_is_refused(cell, colab, tmp_path):
    pyproject = (ROOT / "pyproject.toml").read_text()
    greedy = pyproject.replace('"jax>=0.7.2"', '"jax>=999"')
    assert greedy != pyproject
    archive = pack(tmp_path / "greedy.zip", greedy)
    done = run(colab, cell, tmp_path, ADATEMP_SOURCE=archive.as_uri())
    assert done.status != 0
    assert "adatemp does not fit this runtime" in done.errors
    after = run(colab, "import jax; print(jax.__version__)", tmp_path)
    assert after.output.strip() == PINS["jax"]


def test_unreachable_archive_says_what_to_do(cell, colab, tmp_path):
    done = run(colab, cell, tmp_path, ADATEMP_SOURCE=(tmp_path / "missing.zip").as_uri())
    assert done.status != 0
    assert "Cannot fetch" in done.errors and "run this cell again" in done.errors


def test_elsewhere_nothing_is_installed(cell, colab, tmp_path):
    done = run(colab, cell, tmp_path)
    assert done.status != 0
    assert "adatemp is not installed here. Run: pip install https://" in done.errors
    assert run(colab, "import adatemp", tmp_path).status != 0


def test_with_adatemp_at_hand_it_only_reports(cell, tmp_path):
    done = run(Path(sys.prefix), cell + AFTERWARDS, tmp_path)
    assert done.status == 0, done.errors
    assert done.result["results"] is None
    assert "jax" in done.output and "T4" not in done.output

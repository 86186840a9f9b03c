"""Makefile, workflows and environment: pinned, documented, and failing loudly."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import make_environment

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = {
    "book",
    "test",
    "test-fast",
    "compile",
    "lab",
    "chapters",
    "results",
    "bench",
    "lint",
    "floor",
    "clean",
    "help",
}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_by_commit_with_its_version(workflow):
    uses = re.findall(r"uses:\s*(.+)", workflow.read_text(encoding="utf-8"))
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_ask_for_no_more_rights_than_they_need(workflow):
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    assert content["permissions"] == {"contents": "read"}
    for job in content["jobs"].values():
        assert job["timeout-minutes"] <= 60
        writes = {right for right, level in job.get("permissions", {}).items() if level == "write"}
        assert writes <= {"issues", "pages", "id-token"}


def test_address_is_written_in_no_workflow_and_no_tool():
    address = re.search(r'Repository = "https://github.com/([^"]+)"', (ROOT / "pyproject.toml").read_text())[1]
    files = [*WORKFLOWS, ROOT / "Makefile", ROOT / ".ci/run", *(ROOT / "tools").glob("*.py")]
    assert [path.name for path in files if address in path.read_text(encoding="utf-8")] == []


def test_help_lists_every_target():
    shown = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r"make ([a-z-]+)", shown)) == TARGETS


@pytest.mark.parametrize("target", ["lint", "test-fast", "book", "bench", "results"])
def test_failure_of_a_tool_fails_its_target(target, tmp_path):
    # An interpreter that always fails stands in for the environment's.
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\nexit 7\n")
    failing.chmod(0o755)
    command = ["make", "--old-file", ".venv/complete", f"RUN={failing}", target]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode != 0


@pytest.mark.parametrize("script", [".ci/run", ".github/open_issue.sh"])
def test_scripts_can_be_run_and_stop_at_the_first_error(script):
    path = ROOT / script
    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in path.read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_find_python_passes_over_what_does_not_work(tmp_path, monkeypatch):
    broken = tmp_path / "python3.13"
    broken.write_text("#!/bin/sh\nexit 127\n")  # as a version manager's stand-in for a version that is not active
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    program, version = make_environment.find_python(prefer="3.13")
    assert program != str(broken)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"Python {version}.")
    assert version in make_environment.SUPPORTED


def test_machine_without_a_python_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    monkeypatch.setattr(make_environment.glob, "glob", lambda pattern: [])
    with pytest.raises(SystemExit, match="apt-get install python3 python3-venv"):
        make_environment.find_python()


def test_pip_failure_is_shown_and_fails(tmp_path, capsys):
    pip = tmp_path / "bin" / "python"
    pip.parent.mkdir()
    pip.write_text("#!/bin/sh\necho 'Collecting jax==0.10.2'\necho 'ERROR: hashes do not match'\nexit 1\n")
    pip.chmod(0o755)
    with pytest.raises(SystemExit, match="pip failed"):
        make_environment.pip_install(tmp_path, ["-r", "requirements.lock"], 12)
    said = capsys.readouterr()
    assert "[1/12] jax==0.10.2" in said.out
    assert "hashes do not match" in said.err


def test_readers_requirements_are_the_projects_own():
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    assert lines == ["-e .[chapters]"]
    assert re.search(r"^chapters = \[", (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)

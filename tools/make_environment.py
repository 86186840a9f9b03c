"""Makes .venv from requirements.lock with nothing but Python's own library: python3 tools/make_environment.py.

`make` runs it before anything else; it does nothing when the environment is the lock's already. It must itself run on
a Python too old for the book, to be able to say so.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ("3.13", "3.12", "3.11")
_PROBE = "import ensurepip, sys, venv; print(*sys.version_info[:2], sep='.')"


def find_python(prefer: str | None = None) -> tuple[str, str]:
    """The interpreter to make an environment with, and its version.

    Args:
      prefer: a version to look for first, such as "3.13"; by default the interpreter that runs this.

    Raises:
      SystemExit: no interpreter of a supported version works; says what to install.
    """
    wanted = ([prefer] if prefer else []) + [version for version in SUPPORTED if version != prefer]
    homes = os.path.expanduser("~/.pyenv/versions/{}.*/bin/python"), "/opt/python/{}*/bin/python"
    candidates = [] if prefer else [sys.executable]
    for version in wanted:
        candidates.append("python" + version)
        candidates += [path for home in homes for path in sorted(glob.glob(home.format(version)), reverse=True)]
    candidates.append("python3")
    for candidate in candidates:
        program = shutil.which(candidate)
        if program:
            probe = subprocess.run([program, "-c", _PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            version = probe.stdout.decode().strip()
            if probe.returncode == 0 and version in SUPPORTED:
                return program, version
    here = ".".join(map(str, sys.version_info[:2]))
    raise SystemExit(
        f"No Python {', '.join(SUPPORTED)} with venv and pip was found (this one is {here}). Install one, on Debian "
        "and Ubuntu by `apt-get install python3 python3-venv`, or name it: make PYTHON=/path/to/python3.12"
    )


def create(folder: Path, python: str) -> None:
    """An empty environment at `folder`, which is emptied first."""
    print(f"making {folder.relative_to(ROOT)} with {python}", flush=True)
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)


def pip_install(folder: Path, arguments: list[str], expected: int = 0) -> None:
    """Runs pip in the environment, a line of progress for each package.

    Args:
      folder: the environment.
      arguments: what follows `pip install`.
      expected: about how many packages there are, for the progress; 0 if unknown.

    Raises:
      SystemExit: pip failed; its whole output is shown.
    """
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=str(ROOT))
    seen, log, of = 0, [], f"/{expected}" if expected else ""
    with process:
        for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip()
            log.append(line)
            if line.startswith(("Collecting ", "Processing ")):  # from an index, from a file
                seen += 1
                print(f"  [{seen}{of}] {line.split()[1].rpartition('/')[2]}", flush=True)
            elif line.startswith("Installing collected packages"):
                print("  installing them", flush=True)
    if process.returncode:
        print("\n".join(log), file=sys.stderr)
        raise SystemExit("pip failed: " + " ".join(command))


def fingerprint(*paths: Path) -> str:
    """A short name for the content of files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def main() -> None:
    folder, lock = ROOT / ".venv", ROOT / "requirements.lock"
    stamp = folder / "complete"
    locked, project = fingerprint(lock), fingerprint(ROOT / "pyproject.toml")
    before = stamp.read_text().split() if stamp.exists() else []
    if before[:1] != [locked]:
        python, _ = find_python()
        create(folder, python)
        packages = sum(1 for line in lock.read_text().splitlines() if line[:1].isalnum())
        pip_install(folder, ["--require-hashes", "-r", str(lock)], packages)
    if before != [locked, project]:
        pip_install(folder, ["--no-deps", "--no-build-isolation", "-e", str(ROOT)])
    stamp.write_text(f"{locked}\n{project}\n")


if __name__ == "__main__":
    main()

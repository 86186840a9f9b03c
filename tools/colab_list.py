"""Compares constraints/colab.txt with the list of packages that Colab publishes, or makes it anew.

python -m tools.colab_list --check                       fail, and say what has moved, when versions differ
python -m tools.colab_list --date "19 August 2026"       write Colab's present versions of the same packages
"""

from __future__ import annotations

import argparse
import re
import sys
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints" / "colab.txt"
PUBLISHED = "https://raw.githubusercontent.com/googlecolab/backend-info/main/pip-freeze.gpu.txt"
_PIN = re.compile(r"^([\w.-]+)==(\S+)$", flags=re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    """Versions by name, in the order and spelling of the text."""
    return dict(_PIN.findall(text))


def moved(ours: str, published: str) -> dict[str, tuple[str, str | None]]:
    """The packages of our list whose version differs: ours, and Colab's or None where Colab has it no more."""
    theirs = {_normal(name): version for name, version in pins(published).items()}
    return {
        name: (version, theirs.get(_normal(name)))
        for name, version in pins(ours).items()
        if theirs.get(_normal(name)) != version
    }


def renewed(ours: str, published: str, date: str) -> str:
    """Our list with Colab's present versions; a package that Colab dropped is left out."""
    theirs = {_normal(name): version for name, version in pins(published).items()}
    lines = []
    for line in ours.splitlines():
        pin = _PIN.match(line)
        if pin and _normal(pin[1]) in theirs:
            lines.append(f"{pin[1]}=={theirs[_normal(pin[1])]}")
        elif not pin:
            lines.append(f"# Colab's package list of {date}" if line.startswith("# Colab's package list of ") else line)
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="fail when versions differ")
    action.add_argument("--date", help="write the versions of today, as the list of this date")
    parser.add_argument("--source", default=PUBLISHED, help="address of the published list")
    chosen = parser.parse_args(arguments)
    with urllib.request.urlopen(chosen.source, timeout=60) as answer:
        published = answer.read().decode()
    ours = CONSTRAINTS.read_text(encoding="utf-8")
    if not pins(published):
        print(f"{chosen.source} holds no versions; has the list moved?", file=sys.stderr)
        return 2
    different = moved(ours, published)
    for name, (here, there) in different.items():
        print(f"{name}: {here} here, {there or 'gone'} in Colab")
    if chosen.date:
        CONSTRAINTS.write_text(renewed(ours, published, chosen.date), encoding="utf-8")
        print("Now check the line that names Python, run `make floor chapters`, and commit what changed.")
        return 0
    return 1 if different else 0


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())

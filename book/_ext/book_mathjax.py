"""Serves MathJax from the site itself, so that a page asks no third party for anything and works offline.

The files come from the installed package sphinx-mathjax-offline, which the lock pins; nothing of it is in the
repository. Only what a page can ask for is copied: the loader, TeX input with its extensions, HTML output with its
fonts, and the hidden MathML that screen readers use. The right-click menu stays out: its speech engine alone is larger
than a page.
"""

from __future__ import annotations

import shutil
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

VERSION = "3.2.2"
COMPONENTS = ["input/tex", "output/chtml", "a11y/assistive-mml"]
FILES = [  # relative to the folder of MathJax
    "startup.js",
    "core.js",
    "input/tex.js",
    "input/mml.js",
    "input/tex/extensions/*.js",
    "output/chtml.js",
    "output/chtml/fonts/tex.js",
    "output/chtml/fonts/woff-v2/*.woff",
    "a11y/assistive-mml.js",
]
UNUSED = {"all-packages.js"}  # every extension again, in one file

NOTICE = f"""MathJax {VERSION}, copyright The MathJax Consortium, https://www.mathjax.org
Licensed under the Apache License, version 2.0, which follows. These are unmodified files of that release.

"""


def source_folder() -> Path:
    """Where the installed package keeps the files of MathJax.

    Raises:
      FileNotFoundError: the package is installed without them, or with another version of MathJax.
    """
    folder = Path(distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline/static/mathjax"))
    startup = folder / "startup.js"
    if not startup.exists() or f'"{VERSION}"' not in startup.read_text(encoding="utf-8"):
        raise FileNotFoundError(
            f"MathJax {VERSION} is not at {startup}. Install the environment again from requirements.lock, or, "
            "if the lock has moved to another MathJax, change VERSION in book/_ext/book_mathjax.py and look at a page."
        )
    return folder


def files_of_a_page() -> list[str]:
    """What every page with mathematics loads; fonts and rarer TeX come on top, as its formulas need them."""
    return [file for file in FILES if "*" not in file]


def copy_files(destination: Path, license_text: str) -> None:
    """Copies what pages need into `destination`, with the licence beside it."""
    source = source_folder()
    for pattern in FILES:
        found = sorted(path for path in source.glob(pattern) if path.name not in UNUSED)
        if not found:
            raise FileNotFoundError(f"MathJax: nothing matches {pattern} in {source}.")
        for path in found:
            target = destination / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    (destination / "LICENSE.txt").write_text(NOTICE + license_text, encoding="utf-8")


def _configure(app: Sphinx, config: Config) -> None:
    config.mathjax_path = "mathjax/startup.js"
    config.mathjax3_config = {"loader": {"load": COMPONENTS}, **(config.mathjax3_config or {})}


def _copy(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        copy_files(Path(app.outdir) / "_static/mathjax", (Path(app.srcdir) / "LICENSE").read_text(encoding="utf-8"))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", _configure, priority=100)
    app.connect("build-finished", _copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

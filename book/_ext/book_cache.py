"""Keeps executed pages only as long as the library, the stored results and the versions that made them stay the same.

The executed-notebook cache of myst-nb knows a page by its cells. A cell that imports `adatemp` depends on more than
its own text, so the cache lives in a folder named by a fingerprint of everything else a page reads, and Sphinx is told
to read every page again when the fingerprint changes. Both halves are needed: a new folder alone leaves unchanged
pages unread, and a re-read alone finds the old outputs.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx
    from sphinx.config import Config

KEPT = 3  # fingerprints whose pages stay, so that going back to the last version of the library costs nothing


def inputs(root: Path) -> Iterator[Path]:
    """Every file, other than the page itself, that can change what a page's cells print."""
    for folder in ("adatemp", "book/results"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                yield path
    yield from sorted((root / "book").glob("*.py"))
    yield from (root / name for name in ("pyproject.toml", "requirements.lock") if (root / name).exists())


def fingerprint(root: Path, scale: str | None = None, python: str | None = None) -> str:
    """A short name for the state of everything that executed pages depend on.

    Args:
      root: the repository's root.
      scale: the profile the pages run at; the environment's ADATEMP_SCALE if None.
      python: the interpreter's version; the running one's if None.

    Returns:
      Sixteen hexadecimal digits.
    """
    digest = hashlib.sha256()
    settings = (scale or os.environ.get("ADATEMP_SCALE", "fast"), python or platform.python_version())
    digest.update("\0".join(settings).encode())
    for path in inputs(root):
        content = path.read_bytes()
        # The length keeps a byte moved from one file's end to the next one's start from going unseen.
        digest.update(f"\0{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _use_cache_of_this_library(app: Sphinx, config: Config) -> None:
    config.book_fingerprint = fingerprint(Path(app.srcdir))
    caches = Path(app.outdir).parent / ".jupyter_cache"
    current = caches / config.book_fingerprint
    current.mkdir(parents=True, exist_ok=True)
    os.utime(current)
    for old in sorted(caches.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        shutil.rmtree(old)
    config.nb_execution_cache_path = str(current)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("book_fingerprint", "", rebuild="env", types=str)
    app.connect("config-inited", _use_cache_of_this_library)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The repository's address, read from pyproject.toml and given to every part of the theme that links to it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config


class Address(NamedTuple):
    """Where the source and the site live."""

    repository: str  # without a slash at the end
    site: str  # with a slash at the end

    @property
    def prefix(self) -> str:
        """The path under which the site is served, with a slash at both ends."""
        return urlsplit(self.site).path or "/"


def read_address(root: Path) -> Address:
    """Reads Repository and Documentation of [project.urls].

    Args:
      root: the folder that holds pyproject.toml.

    Raises:
      ValueError: one of the two is missing or no https address.
    """
    urls = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    for key in ("Repository", "Documentation"):
        if not urls.get(key, "").startswith("https://"):
            raise ValueError(
                f"pyproject.toml: [project.urls] {key} is {urls.get(key)!r}, but must be an address that begins with "
                "https://. The whole book takes its links from it."
            )
    return Address(urls["Repository"].rstrip("/"), urls["Documentation"].rstrip("/") + "/")


def _configure(app: Sphinx, config: Config) -> None:
    address = read_address(Path(app.srcdir))
    config.html_baseurl = address.site
    config.notfound_urls_prefix = address.prefix
    config.html_theme_options |= {
        "repository_url": address.repository,
        "repository_branch": "main",
        "path_to_docs": "",
        "use_repository_button": True,
        "use_edit_page_button": True,
        "use_issues_button": True,
        "launch_buttons": {"colab_url": "https://colab.research.google.com", "notebook_interface": "jupyterlab"},
    }


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", _configure, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

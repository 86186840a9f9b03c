"""What every generated file says of the project: its version and its addresses, all taken from pyproject.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from book._ext.book_address import read_address

ROOT = Path(__file__).resolve().parent.parent
BADGE = "https://colab.research.google.com/assets/colab-badge.svg"


@dataclass(frozen=True)
class Project:
    """The project's version and addresses, and the links that are made of them."""

    repository: str  # without a slash at the end
    site: str  # with a slash at the end
    version: str

    @property
    def released(self) -> bool:
        """Whether this version has a tag of its own."""
        return ".dev" not in self.version

    @property
    def reference(self) -> str:
        """The tag or branch that holds this version."""
        return f"v{self.version}" if self.released else "main"

    @property
    def archive(self) -> str:
        """One file that holds the library and the stored results of this version."""
        kind = "tags" if self.released else "heads"
        return f"{self.repository}/archive/refs/{kind}/{self.reference}.zip"

    def page(self, docname: str, anchor: str = "") -> str:
        """A page of the site."""
        return f"{self.site}{docname}.html" + (f"#{anchor}" if anchor else "")

    def file(self, path: str) -> str:
        """A file as the repository shows it."""
        return f"{self.repository}/blob/main/{path}"

    def image(self, path: str) -> str:
        """A file's bytes, as a picture in a notebook needs them."""
        return f"{self.repository}/raw/main/{path}"

    def colab(self, notebook: str) -> str:
        """The address that opens a committed notebook in Colab."""
        owner_and_name = self.repository.removeprefix("https://github.com/")
        return f"https://colab.research.google.com/github/{owner_and_name}/blob/main/{notebook}"


def read_project(root: Path = ROOT) -> Project:
    """Reads pyproject.toml.

    Args:
      root: the folder that holds it.

    Raises:
      ValueError: an address is missing, or the repository is not on GitHub, where Colab reads notebooks from.
    """
    address = read_address(root)
    if not address.repository.startswith("https://github.com/"):
        raise ValueError(
            f"pyproject.toml: [project.urls] Repository is {address.repository!r}, but must begin with "
            "https://github.com/: Colab opens notebooks from there."
        )
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return Project(address.repository, address.site, version)

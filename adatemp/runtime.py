"""Where the code runs: device, versions, profile, Colab, and the stored results that belong to the book."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
from html import escape
from importlib import metadata
from typing import Literal

from adatemp._stored_results import StoredResult, repository, results, results_file

__all__ = [
    "Description",
    "StoredResult",
    "describe",
    "device",
    "in_colab",
    "repository",
    "results",
    "results_file",
    "scale",
    "versions",
]

PACKAGES = ("adatemp", "jax", "jaxlib", "flax", "optax", "numpy")


def scale() -> Literal["fast", "full"]:
    """How large a chapter's own experiments are: "fast" for two CPU cores, "full" for the papers' scale on a GPU.

    Reads the environment variable ADATEMP_SCALE; "fast" when it is not set.
    """
    value = os.environ.get("ADATEMP_SCALE", "fast")
    if value not in ("fast", "full"):
        raise ValueError(f"ADATEMP_SCALE={value!r}: allowed are 'fast' and 'full'; unset it for 'fast'.")
    return value


def in_colab() -> bool:
    """Whether this is a Google Colab machine."""
    return "COLAB_RELEASE_TAG" in os.environ


def device() -> str:
    """The device that JAX computes on, and how many there are, in words."""
    import jax

    devices = jax.devices()
    if devices[0].platform == "cpu":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return f"CPU, {platform.machine()}, {cores} core{'s' if cores != 1 else ''}"
    count = f"{len(devices)} x " if len(devices) > 1 else ""
    return f"{count}{devices[0].platform.upper()}, {devices[0].device_kind}"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide numbers; packages that are not installed are left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@dataclasses.dataclass(frozen=True)
class Description:
    """What a page was run on; prints as lines and shows as a table."""

    device: str
    scale: str
    date: str
    versions: dict[str, str]

    def _rows(self) -> list[tuple[str, str]]:
        software = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return [("Device", self.device), ("Profile", self.scale), ("Date", self.date), ("Software", software)]

    def __str__(self) -> str:
        return "\n".join(f"{name + ':':10}{value}" for name, value in self._rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in self._rows()
        )
        return f'<table class="adatemp-table"><caption>This page was run on</caption><tbody>{rows}</tbody></table>'


def describe() -> Description:
    """Device, profile, date (UTC) and versions: the last cell of every chapter."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    where = device() + (", Colab" if in_colab() else "")
    return Description(device=where, scale=scale(), date=today, versions=versions())

"""The messages about missing and mismatched packages."""

from __future__ import annotations

from importlib import metadata

import jax.numpy as jnp
import pytest

from adatemp import _compat


@pytest.fixture
def installed(monkeypatch):
    def pretend(**versions):
        def version(package):
            if package not in versions:
                raise metadata.PackageNotFoundError(package)
            return versions[package]

        monkeypatch.setattr(metadata, "version", version)

    return pretend


@pytest.mark.parametrize(
    ("jax", "flax", "needed"),
    [
        ("0.7.2", "0.11.2", None),
        ("0.10.2", "0.12.8", None),
        ("0.10.2", "0.11.2", "0.12"),
        ("0.9.0.dev20251201", "0.11.2", "0.12"),
        ("0.8.1", "0.10.0", "0.11.2"),
    ],
)
def test_a_pair_that_cannot_import_is_named_with_the_flax_it_needs(installed, jax, flax, needed):
    installed(jax=jax, flax=flax)
    message = _compat.flax_mismatch()
    assert message is None if needed is None else f"pip install 'flax>={needed}'" in message


def test_without_flax_there_is_no_mismatch(installed):
    installed(jax="0.10.2")
    assert _compat.flax_mismatch() is None


def test_a_missing_package_is_answered_with_the_extra_that_brings_it():
    with pytest.raises(ModuleNotFoundError, match=r"needs no_such_package: pip install 'adatemp\[models\]'"):
        _compat.require("no_such_package", extra="models")


def test_an_installed_package_is_returned():
    assert _compat.require("numpy", extra="models").__name__ == "numpy"


def test_sixty_four_bits_are_on_inside_the_block_only():
    assert jnp.ones(1).dtype == "float32"
    with _compat.enable_x64(True):
        assert jnp.ones(1).dtype == "float64"
    assert jnp.ones(1).dtype == "float32"

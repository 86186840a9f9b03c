"""Every example in a docstring of the library runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import adatemp

MODULES = ["adatemp", *(module.name for module in pkgutil.walk_packages(adatemp.__path__, "adatemp."))]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert result.failed == 0

"""Where the code runs: what is said is what is so, and a wrong setting is named."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import sys
from html.parser import HTMLParser

import pytest

from adatemp import runtime


def test_scale_is_fast_unless_told_and_nothing_else(monkeypatch):
    monkeypatch.delenv("ADATEMP_SCALE", raising=False)
    assert runtime.scale() == "fast"
    for value in ("fast", "full"):
        monkeypatch.setenv("ADATEMP_SCALE", value)
        assert runtime.scale() == value
    for value in ("Full", "", "slow"):
        monkeypatch.setenv("ADATEMP_SCALE", value)
        with pytest.raises(ValueError, match=f"ADATEMP_SCALE='{value}'.*'fast' and 'full'"):
            runtime.scale()


def test_versions_are_those_installed_and_absent_packages_are_left_out(monkeypatch):
    import jax

    found = runtime.versions()
    assert found["jax"] == jax.__version__ and found["python"] == ".".join(map(str, sys.version_info[:3]))
    monkeypatch.setattr(runtime, "PACKAGES", ("jax", "a-package-that-is-not-there"))
    assert set(runtime.versions()) == {"python", "jax"}


def test_the_device_is_the_one_jax_uses():
    import jax

    assert runtime.device().lower().startswith(jax.default_backend())
    if jax.default_backend() == "cpu":
        assert f"{len(os.sched_getaffinity(0))} core" in runtime.device()


def test_colab_is_told_from_elsewhere(monkeypatch):
    monkeypatch.delenv("COLAB_RELEASE_TAG", raising=False)
    assert not runtime.in_colab() and "Colab" not in str(runtime.describe())
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab-1")
    assert runtime.in_colab() and "Colab" in str(runtime.describe())


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.texts, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_description_says_the_same_as_text_and_as_a_table(monkeypatch):
    monkeypatch.setenv("ADATEMP_SCALE", "full")
    described = runtime.describe()
    cells = Cells()
    cells.feed(described._repr_html_())
    assert cells.open == []
    for value in (runtime.device(), "full", datetime.datetime.now(datetime.UTC).date().isoformat()):
        assert value in str(described) and value in cells.texts
    assert f"jax {importlib.metadata.version('jax')}" in repr(described)


def test_html_is_escaped():
    odd = runtime.Description(device="<b>&", scale="fast", date="2025-01-01", versions={})
    assert "&lt;b&gt;&amp;" in odd._repr_html_() and "<b>" not in odd._repr_html_()

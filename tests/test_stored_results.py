"""Stored results: a named folder, a clone, or the project's address, in that order, or an error that says how."""

from __future__ import annotations

import io
import json
import urllib.error
from importlib import metadata

import pytest

from adatemp import _stored_results, runtime


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A library outside any clone, an empty working folder, no variable, no network unless a test says so."""
    monkeypatch.setattr(_stored_results, "__file__", str(tmp_path / "site-packages" / "adatemp" / "_stored_results.py"))
    (tmp_path / "work" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "deep")
    monkeypatch.delenv("ADATEMP_RESULTS", raising=False)

    def no_network(address, timeout):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(_stored_results.urllib.request, "urlopen", no_network)
    _stored_results._fetch.cache_clear()


def put(folder, value, name="table1"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"provenance": {"commit": "abc"}, "data": value}), "utf-8")


def clone(root, value):
    (root / "adatemp").mkdir(parents=True)
    put(root / "book" / "results", value)


def test_a_named_folder_is_the_only_place(tmp_path, monkeypatch):
    clone(tmp_path / "work", "clone")
    put(tmp_path / "named", "named")
    monkeypatch.setenv("ADATEMP_RESULTS", str(tmp_path / "named"))
    result = runtime.results("table1")
    assert (result.name, result.data, result.provenance) == ("table1", "named", {"commit": "abc"})
    with pytest.raises(FileNotFoundError, match=r"ADATEMP_RESULTS=.*no table2\.json.*There is table1\.json"):
        runtime.results("table2")


def test_the_clone_of_the_library_comes_before_that_of_the_working_folder(tmp_path, monkeypatch):
    clone(tmp_path / "work", "working folder")
    assert runtime.results("table1").data == "working folder"
    clone(tmp_path / "library", "library")
    monkeypatch.setattr(_stored_results, "__file__", str(tmp_path / "library" / "adatemp" / "_stored_results.py"))
    assert runtime.results("table1").data == "library"


def test_a_results_folder_of_another_project_is_passed_by(tmp_path):
    put(tmp_path / "work" / "book" / "results", "not ours")
    with pytest.raises(FileNotFoundError, match="No clone"):
        runtime.results("table1")


def test_a_clone_without_the_result_says_what_it_has(tmp_path):
    clone(tmp_path / "work", "there")
    with pytest.raises(FileNotFoundError, match=r"no table2\.json.*There is table1\.json.*make results"):
        runtime.results("table2")


def test_without_a_clone_the_address_of_this_version_is_read(monkeypatch):
    asked = []

    def answer(address, timeout):
        asked.append(address)
        return io.BytesIO(b'{"provenance": {}, "data": [1]}')

    monkeypatch.setattr(_stored_results.urllib.request, "urlopen", answer)
    assert runtime.results("table1").data == [1]
    assert runtime.results("table1").data == [1] and len(asked) == 1  # kept for the process
    owner_and_name = runtime.repository().removeprefix("https://github.com/")
    assert asked[0].startswith(f"https://raw.githubusercontent.com/{owner_and_name}/")
    assert asked[0].endswith("/book/results/table1.json")


@pytest.mark.parametrize(
    ("version", "revision"), [("0.1.0", "v0.1.0"), ("1.2.3", "v1.2.3"), ("0.2.0.dev3", "main"), ("0.2.0rc1", "main")]
)
def test_a_release_reads_its_tag_and_a_development_version_the_main_branch(monkeypatch, version, revision):
    monkeypatch.setattr(_stored_results.metadata, "version", lambda name: version)
    assert _stored_results._address_of_results().split("/")[-3:] == [revision, "book", "results"]


def test_the_repository_is_read_from_the_metadata(monkeypatch):
    urls = metadata.metadata("adatemp").get_all("Project-URL")
    assert any(url.split(", ", 1)[1].rstrip("/") == runtime.repository() for url in urls)


def test_without_anything_the_error_says_how_to_get_it():
    with pytest.raises(FileNotFoundError, match=r"No clone.*no network.*Clone https://.*ADATEMP_RESULTS"):
        runtime.results("table1")


@pytest.mark.parametrize("name", ["../secret", "a/b", "", "Table1", "x.json"])
def test_what_cannot_be_a_name_is_refused(name):
    with pytest.raises(ValueError, match="names no stored result"):
        runtime.results(name)

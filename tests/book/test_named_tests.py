"""Every numbered result names its property tests, the tests name their results, and a claim cannot outlive its test."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tools.named_results import ROOT, faults, named_tests, pages, read_markers, read_page

PAGE = """# A page

## First

````{prf:definition} Spread
:label: def-x
A definition states nothing.
````

````{prf:theorem} It holds
:label: thm-x

```{math}
:label: eq-x
x \\ge 0
```
````

````{prf:proof}
Look.
````

```{code-cell} ipython3
text = \"\"\"
## No heading
Property test: `tests/test_none.py::test_none`
\"\"\"
```

Property tests: `tests/test_x.py::test_it_holds`, `tests/test_x.py::test_it_is_attained`

## Second

Test of the code: `tests/test_x.py::test_the_code`
"""
TESTS = """import pytest


@pytest.mark.result("thm-x")
def test_it_holds():
    assert True


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.result("thm-x")
def test_it_is_attained(n):
    assert n


def test_the_code():
    assert True
"""


def repository(tmp_path, page=PAGE, tests=TESTS):
    """A repository of one page and one file of tests."""
    for name, text in {"chapters/01_x.md": page, "tests/test_x.py": tests}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_pages_and_tests_agree_on_every_result_of_the_book():
    assert faults() == []


def test_every_chapter_is_read_and_none_states_nothing():
    chapters = [path for path in pages() if path.parent.name == "chapters"]
    assert chapters == sorted((ROOT / "chapters").glob("*.md"))
    for path in chapters:
        written = sum(path.read_text("utf-8").count(f"{{prf:{kind}}}") for kind in ("theorem", "lemma"))
        written += sum(path.read_text("utf-8").count(f"{{prf:{kind}}}") for kind in ("proposition", "corollary"))
        assert len(read_page(path.read_text("utf-8"), path.name).results) == written


def test_pytest_selects_the_tests_whose_labels_the_tool_reads(tmp_path):
    root = repository(tmp_path)
    (root / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nmarkers = result(*labels)\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "result",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests",
    ]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    selected = {line.split("[")[0] for line in listed.splitlines() if "::" in line}
    assert (
        selected
        == set(read_markers(root))
        == {"tests/test_x.py::test_it_holds", "tests/test_x.py::test_it_is_attained"}
    )


def test_a_page_and_its_tests_without_fault(tmp_path):
    root = repository(tmp_path)
    assert faults(root) == []
    assert named_tests(root) == [
        "tests/test_x.py::test_it_holds",
        "tests/test_x.py::test_it_is_attained",
        "tests/test_x.py::test_the_code",
    ]
    page = read_page(PAGE, "page")
    assert [(result.kind, result.label) for result in page.results] == [("theorem", "thm-x")]
    assert page.tests_of_code == ["tests/test_x.py::test_the_code"]
    assert read_markers(root)["tests/test_x.py::test_it_is_attained"] == ["thm-x"]


LINE = "Property tests: `tests/test_x.py::test_it_holds`, `tests/test_x.py::test_it_is_attained`\n"
ANOTHER = "````{prf:lemma} Between\n:label: lem-y\nText.\n````\n\n"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (LINE, "", "the theorem thm-x names no property test before the next result or section"),
        ("## Second", ANOTHER + "## Second", "the lemma lem-y names no property test"),
        (LINE, ANOTHER + LINE, "the theorem thm-x names no property test"),
        (
            LINE,
            ANOTHER + LINE,
            "the lemma lem-y names tests/test_x.py::test_it_holds, which is not marked @pytest.mark",
        ),
        (LINE, "## Between\n\n" + LINE, "a property test of no result"),
        ("Test of the code:", "Property test:", "a property test of no result"),
        (":label: thm-x\n", "", "the theorem without a label: label it"),
        (":label: thm-x", ":label: thm-z", "is marked with 'thm-x', which no page has"),
        ("test_it_holds`", "test_it_held`", "names tests/test_x.py::test_it_held, which does not exist"),
        (
            "test_x.py::test_the_code",
            "test_y.py::test_the_code",
            "names tests/test_y.py::test_the_code, which",
        ),
        (", `tests/test_x.py::test_it_is_attained`", "", "and chapters/01_x.md:10: the theorem thm-x does not name it"),
        ("`, `", "` and `", "separate several by commas"),
        ("`tests/test_x.py::test_it_holds`", "tests/test_x.py::test_it_holds", "is not `tests/test_x.py::test_name`"),
        ("## Second", LINE.replace("tests:", "test:") + "\n" + ANOTHER.replace("lem-y", "thm-x"), "has the same label"),
    ],
)
def test_a_fault_of_the_page_is_found(tmp_path, old, new, fault):
    assert old in PAGE
    found = faults(repository(tmp_path, page=PAGE.replace(old, new, 1)))
    assert any(fault in line for line in found), found


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('@pytest.mark.result("thm-x")\ndef test_it_holds', "def test_it_holds", "which is not marked"),
        ('result("thm-x")', 'result("thm-x", "thm-y")', "is marked with 'thm-y', which no page has"),
        ('result("thm-x")', 'result("def-x")', "is marked with 'def-x', which no page has"),
        ("def test_the_code", '@pytest.mark.result("thm-x")\ndef test_the_code', "the theorem thm-x does not name it"),
        ('result("thm-x")', "result(LABEL)", "write the labels of the results out"),
        ('result("thm-x")', "result", "write the labels of the results out"),
        ("import pytest\n", 'import pytest\n\npytestmark = pytest.mark.result("thm-x")\n', "stands elsewhere"),
    ],
)
def test_a_fault_of_a_marker_is_found(tmp_path, old, new, fault):
    assert old in TESTS
    found = faults(repository(tmp_path, tests=TESTS.replace(old, new, 1)))
    assert any(fault in line for line in found), found


def test_a_test_may_show_two_results(tmp_path):
    second = ANOTHER + "Property test: `tests/test_x.py::test_it_holds`\n\n## Second"
    tests = TESTS.replace('("thm-x")', '("thm-x", "lem-y")', 1)
    assert faults(repository(tmp_path, PAGE.replace("## Second", second), tests)) == []

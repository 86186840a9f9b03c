"""The build runs the tests that pages name, once for each state of what they depend on, and a failing one stops it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import book_named_tests
import pytest
from docutils import nodes

from tools import build_book, run_named_tests
from tools.run_named_tests import NamedTestsFailed, make_sure, run, state

PAGE = """# A page

````{prf:theorem} It holds
:label: thm-x
Text.
````

Property test: `tests/test_a.py::test_it_holds`

Test of the code: `tests/chapters/test_ch01_results.py::test_the_code`

```{code-cell} ipython3
x = 1
```
"""
FILES = {
    "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["result"]\n',
    "adatemp/__init__.py": "WORD = 1\n",
    "chapters/01_x.md": PAGE,
    "tests/shared.py": "ONE = 1\n",
    "tests/test_a.py": 'import pytest\n\n\n@pytest.mark.result("thm-x")\ndef test_it_holds():\n    assert 1 == 1\n',
    "tests/chapters/test_ch01_results.py": "def test_the_code():\n    pass\n\n\ndef test_other():\n    assert False\n",
}
HOLDS, CODE = "tests/test_a.py::test_it_holds", "tests/chapters/test_ch01_results.py::test_the_code"


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def asked(monkeypatch):
    """What was asked of pytest; nothing runs, and everything passes."""
    asked = []

    def passes(tests, root):
        asked.append(sorted(tests))
        return dict.fromkeys(tests, "passed")

    monkeypatch.setattr(run_named_tests, "run", passes)
    return asked


def edit(path, old, new):
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_only_named_tests_run_and_the_record_says_what_passed(root):
    record = make_sure(root)  # test_other would fail
    assert {file: entry["passed"] for file, entry in record.items()} == {
        "tests/test_a.py": ["test_it_holds"],
        "tests/chapters/test_ch01_results.py": ["test_the_code"],
    }
    assert json.loads((root / "_build/named_tests.json").read_text("utf-8")) == record
    assert all(len(entry["date"]) == 10 and entry["state"] for entry in record.values())


def test_a_planted_failing_test_stops_the_build_by_name_and_is_not_recorded(root, monkeypatch):
    edit(root / "tests/test_a.py", "1 == 1", "1 == 2")
    with pytest.raises(NamedTestsFailed, match=r"tests/test_a.py::test_it_holds: failure: assert 1 == 2"):
        make_sure(root)
    record = json.loads((root / "_build/named_tests.json").read_text("utf-8"))
    assert [record[file]["passed"] for file in sorted(record)] == [["test_the_code"], []]
    asked = []
    monkeypatch.setattr(run_named_tests, "run", lambda tests, root: asked.append(tests) or {HOLDS: "failure: again"})
    with pytest.raises(NamedTestsFailed, match=r"test_it_holds: failure: again"):
        make_sure(root)  # the failed one is not known as passed the second time either, the other is
    assert asked == [[HOLDS]]


OUTCOMES = """import pytest


@pytest.fixture
def broken():
    raise RuntimeError("no data")


def test_passes():
    pass


def test_is_skipped():
    pytest.skip("no device")


def test_raises():
    raise ValueError("first\\nsecond")


def test_has_a_broken_fixture(broken):
    pass


@pytest.mark.parametrize("n", [1, 2])
def test_fails_for_one_of_two(n):
    assert n == 1
"""


def test_a_test_has_passed_only_if_all_of_it_ran_and_held(root):
    (root / "tests/test_b.py").write_text(OUTCOMES, encoding="utf-8")
    said = {
        "passes": "passed",
        "is_skipped": "skipped: no device",
        "raises": "failure: ValueError: first second",
        "has_a_broken_fixture": 'error: failed on setup with "RuntimeError: no data"',
        "fails_for_one_of_two": "failure: assert 2 == 1",
    }
    named = {f"tests/test_b.py::test_{name}": outcome for name, outcome in said.items()}
    assert run(named, root) == named


@pytest.mark.parametrize("tests", [[HOLDS], [HOLDS, CODE]], ids=["alone", "with others"])
def test_a_file_that_cannot_be_imported_is_told(root, tests):
    edit(root / "tests/test_a.py", "import pytest", "import pytest, no_such_module")
    with pytest.raises(NamedTestsFailed, match="no_such_module"):
        run(tests, root)


def test_pages_and_tests_that_disagree_stop_it_before_anything_runs(root, asked):
    edit(root / "tests/test_a.py", "thm-x", "thm-y")
    with pytest.raises(NamedTestsFailed, match="which is not marked"):
        make_sure(root)
    assert asked == []


def test_nothing_runs_twice_at_one_state(root, asked):
    first = make_sure(root)
    assert make_sure(root) == first
    assert asked == [[CODE, HOLDS]]


@pytest.mark.parametrize(
    ("name", "old", "new", "again"),
    [
        ("adatemp/__init__.py", "WORD = 1", "WORD = 2", [CODE, HOLDS]),
        ("tests/shared.py", "ONE = 1", "ONE = 2", [CODE, HOLDS]),
        ("tests/test_a.py", "1 == 1", "2 == 2", [HOLDS]),
        ("chapters/01_x.md", "x = 1", "x = 2", [CODE]),
        ("chapters/01_x.md", "Text.", "A better sentence.", None),
    ],
)
def test_what_a_test_depends_on_calls_for_another_run(root, asked, name, old, new, again):
    make_sure(root)
    edit(root / name, old, new)
    make_sure(root)
    assert asked[1:] == ([again] if again else [])


def test_other_versions_call_for_another_run(root, monkeypatch):
    before = state("tests/test_a.py", root)
    monkeypatch.setattr(run_named_tests, "version", lambda package: "99.0")
    assert state("tests/test_a.py", root) != before


def test_a_newly_named_test_of_a_known_file_runs_alone(root, asked):
    make_sure(root)
    named = "tests/chapters/test_ch01_results.py::test_other"
    edit(root / "chapters/01_x.md", f"`{CODE}`", f"`{CODE}`, `{named}`")
    record = make_sure(root)
    assert asked[1:] == [[named]]
    assert record["tests/chapters/test_ch01_results.py"]["passed"] == ["test_other", "test_the_code"]


def test_the_build_stops_before_sphinx_and_says_which_test_failed(tmp_path, monkeypatch, capsys):
    def fails(root, record):
        raise NamedTestsFailed("tests/test_x.py::test_it_holds: failure: assert 1 == 2")

    monkeypatch.setattr(build_book, "make_sure", fails)
    monkeypatch.setattr(build_book, "build", lambda *_: pytest.fail("Sphinx was started"))
    monkeypatch.setattr("sys.argv", ["build_book", "--output", str(tmp_path)])
    assert build_book.main() == 1
    assert "The book was not built. tests/test_x.py::test_it_holds" in capsys.readouterr().err


# The page.


def document(*paragraphs):
    """A page of one section, with code in backticks."""
    page = nodes.section()
    for text in paragraphs:
        parts = text.split("`")
        page += nodes.paragraph(
            "", "", *(nodes.literal("", part) if i % 2 else nodes.Text(part) for i, part in enumerate(parts))
        )
    root = nodes.Element()
    root += page
    return root


RECORD = {
    "tests/a.py": {"date": "2026-03-01", "passed": ["test_b", "test_c"]},
    "tests/d.py": {"date": "2026-03-02", "passed": ["test_e"]},
}


def test_the_page_shows_the_mark_beneath_each_result_and_the_date_once():
    page = document(
        "Text with `tests/a.py::test_b`.",
        "Property tests: `tests/a.py::test_b`, `tests/a.py::test_c`",
        "Test of the code: `tests/a.py::test_b`",
        "The end.",
    )
    book_named_tests.mark(page, RECORD, "page")
    assert [paragraph.astext() for paragraph in page.findall(nodes.paragraph)] == [
        "Text with tests/a.py::test_b.",
        "Property tests: tests/a.py::test_b, tests/a.py::test_c all passed in this build",
        "Test of the code: tests/a.py::test_b passed in this build",
        "The end.",
        "The 2 tests named on this page passed on 1 March 2026, with the library, the chapter's code and the versions "
        "this page was built with.",
    ]
    marked = [inline for inline in page.findall(nodes.inline) if inline["classes"] == ["test-passed"]]
    assert len(marked) == 2


def test_runs_of_two_days_are_told():
    page = document("Property tests: `tests/a.py::test_b`, `tests/d.py::test_e`")
    book_named_tests.mark(page, RECORD, "page")
    assert "passed between 1 March 2026 and 2 March 2026" in page.astext()


def test_a_page_without_named_tests_gets_no_foot():
    page = document("Property of a test", "The end.")
    book_named_tests.mark(page, RECORD, "page")
    assert page.astext() == document("Property of a test", "The end.").astext()


def test_a_test_that_is_not_in_the_record_is_a_warning_and_no_mark(caplog):
    page = document("Property test: `tests/a.py::test_z`")
    warned = []
    logger = SimpleNamespace(warning=lambda text, location: warned.append((text, location)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(book_named_tests, "logger", logger)
        book_named_tests.mark(page, RECORD, "chapters/01_x")
    assert warned == [("tests/a.py::test_z is named and did not pass in this build", "chapters/01_x")]
    assert "passed in" not in page.astext()


def test_without_a_record_nothing_is_said(monkeypatch):
    monkeypatch.delenv(book_named_tests.VARIABLE, raising=False)
    config = SimpleNamespace()
    book_named_tests._read_record(None, config)
    page = document("Property test: `tests/a.py::test_b`")
    book_named_tests._mark(SimpleNamespace(config=config), page, "page")
    assert page.astext() == "Property test: tests/a.py::test_b"


@pytest.mark.book
def test_a_new_record_changes_the_page_and_runs_none_of_its_cells(miniature, tmp_path, monkeypatch):
    book, record = miniature(), tmp_path / "record.json"
    chapter = (book.root / "chapters/01_first.md").read_text("utf-8")
    book.write("chapters/01_first.md", chapter + "\nProperty test: `tests/a.py::test_b`\n")
    monkeypatch.delenv(book_named_tests.VARIABLE, raising=False)
    assert book.build().returncode == 0
    assert "passed" not in book.page("chapters/01_first.html")

    record.write_text(json.dumps(RECORD))
    monkeypatch.setenv(book_named_tests.VARIABLE, str(record))
    marked = book.build()
    assert marked.returncode == 0, marked.stdout
    assert "Executing notebook" not in marked.stdout
    page = book.page("chapters/01_first.html")
    assert page.count('<span class="test-passed">passed in this build</span>') == 1
    assert "passed on 1 March 2026" in page

    record.write_text(json.dumps({"tests/a.py": {"date": "2026-03-01", "passed": []}}))
    refused = book.build()
    assert refused.returncode
    assert "tests/a.py::test_b is named and did not pass in this build" in refused.stdout

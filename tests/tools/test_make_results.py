"""Making results: the hash follows the code and not its words, cells survive an interruption, provenance is true."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace

import pytest

from tools import code_hash, make_results

CODE = '''"""What lives here."""

from adatemp.part import value

# why
X = "# not a comment"  # why


def f():
    """Says what.

    In two paragraphs.
    """
    return value  + 1
'''


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one script and two library files, under git, with results of its own."""
    for path, text in {
        "tools/stored_results/thing.py": CODE,
        "adatemp/part.py": "from adatemp import deeper, runtime\nvalue = deeper.y\n",
        "adatemp/deeper.py": "y = 2\n",
        "adatemp/runtime.py": "z = 3\n",
        "adatemp/stranger.py": "w = 4\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Code"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(make_results, "ROOT", tmp_path)
    monkeypatch.setattr(make_results, "STORED", tmp_path / "book" / "results")
    monkeypatch.setattr(make_results, "CELLS", tmp_path / "_build" / "results")
    monkeypatch.setattr(make_results, "depends_on", lambda script: code_hash.depends_on(script, root=tmp_path))
    return tmp_path


def script(project, run=lambda cell: {"cell": cell, "value": 1 / 3}):
    return SimpleNamespace(
        __file__=str(project / "tools" / "stored_results" / "thing.py"),
        CELLS=("seed 0", "seed 1", "seed 2"),
        SECONDS=60,
        DATA=(),
        run=run,
        assemble=lambda parts: {"rows": parts},
    )


def result(project, first=None, **options):
    made = script(project, **options)
    path = project / "tools" / "stored_results" / "thing.py"
    return make_results.Result("thing", made, code_hash.code_hash(path, root=project), made.CELLS[:first])


def stored(project):
    return json.loads((project / "book" / "results" / "thing.json").read_text())


def test_comments_docstrings_and_blank_lines_are_not_code():
    assert code_hash.code_only(CODE).splitlines() == [
        "from adatemp.part import value",
        'X = "# not a comment"',
        "def f():",
        "    return value  + 1",
    ]


def test_the_hash_covers_what_is_imported_through_others_and_no_more(project):
    path = project / "tools" / "stored_results" / "thing.py"
    names = [file.name for file in code_hash.depends_on(path, root=project)]
    assert sorted(names) == ["deeper.py", "part.py", "thing.py"]  # neither stranger.py nor runtime.py

    def after(file, old, new):
        text = (project / file).read_text()
        assert old in text
        (project / file).write_text(text.replace(old, new))
        changed = code_hash.code_hash(path, root=project)
        (project / file).write_text(text)
        return changed

    before = code_hash.code_hash(path, root=project)
    assert after("adatemp/deeper.py", "y = 2", "y = 3") != before
    assert after("tools/stored_results/thing.py", "+ 1", "+ 2") != before
    assert after("tools/stored_results/thing.py", "Says what", "Says more") == before
    assert after("adatemp/deeper.py", "y = 2", "# more\ny = 2") == before
    assert after("adatemp/stranger.py", "w = 4", "w = 5") == before


def test_a_name_passed_on_counts_for_those_who_ask_for_it_alone(project):
    path = project / "tools" / "stored_results" / "thing.py"
    (project / "adatemp" / "part.py").write_text(
        "from adatemp.deeper import y\nfrom adatemp.stranger import w\nvalue = y\n"
    )
    assert "stranger.py" not in [file.name for file in code_hash.depends_on(path, root=project)]
    path.write_text(CODE.replace("import value", "import value, w"))
    assert "stranger.py" in [file.name for file in code_hash.depends_on(path, root=project)]
    path.write_text(
        CODE.replace("from adatemp.part import value", "from adatemp import part").replace("value ", "part.w ")
    )
    assert "stranger.py" in [file.name for file in code_hash.depends_on(path, root=project)]


def test_a_name_taken_from_a_package_is_refused_since_it_hides_where_it_lives(project):
    path = project / "tools" / "stored_results" / "thing.py"
    (project / "adatemp" / "part.py").write_text("from adatemp import PAPER\nvalue = PAPER\n")
    with pytest.raises(ValueError, match="imports PAPER from adatemp, a package"):
        code_hash.depends_on(path, root=project)


def test_types_do_not_count_and_data_do(project):
    path = project / "tools" / "stored_results" / "thing.py"
    typed = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from adatemp import stranger\nvalue: stranger = 1\n"
    )
    (project / "adatemp" / "part.py").write_text(typed)
    assert [file.name for file in code_hash.depends_on(path, root=project)] == ["part.py", "thing.py"]
    data = project / "head.npz"
    hashes = [code_hash.code_hash(path, data, root=project)]
    for content in (b"one", b"two"):
        data.write_bytes(content)
        hashes.append(code_hash.code_hash(path, data, root=project))
    assert len(set(hashes)) == 3


def test_an_interrupted_run_goes_on_where_it_stopped(project):
    computed = []

    def run(cell):
        if cell == "seed 1" and computed == ["seed 0"]:
            computed.append("interrupted")
            raise KeyboardInterrupt
        computed.append(cell)
        return {"cell": cell}

    with pytest.raises(KeyboardInterrupt):
        make_results.make(result(project, run=run), "command")
    assert not (project / "book" / "results" / "thing.json").exists()
    make_results.make(result(project, run=run), "command")
    assert computed == ["seed 0", "interrupted", "seed 1", "seed 2"]
    assert [row["cell"] for row in stored(project)["data"]["rows"]] == ["seed 0", "seed 1", "seed 2"]


def test_what_is_stored_under_the_same_code_is_not_computed_again(project, capsys):
    make_results.make(result(project), "command")
    before = (project / "book" / "results" / "thing.json").read_bytes()

    def never(cell):
        raise AssertionError("computed again")

    for folder in (project / "_build").rglob("*.json"):
        folder.unlink()  # the stored file alone is enough
    make_results.make(result(project, run=never), "command")
    assert (project / "book" / "results" / "thing.json").read_bytes() == before
    assert make_results.announce(result(project)) == 0 and "same code" in capsys.readouterr().out

    (project / "adatemp" / "deeper.py").write_text("y = 5\n")
    assert make_results.announce(result(project)) == 180
    with pytest.raises(AssertionError, match="computed again"):
        make_results.make(result(project, run=never), "command")


def test_a_first_look_is_completed_later(project):
    make_results.make(result(project, first=1), "command --first 1")
    assert stored(project)["provenance"]["cells"] == ["seed 0"]
    assert result(project).missing == ["seed 1", "seed 2"]
    make_results.make(result(project), "command")
    assert stored(project)["provenance"]["cells"] == ["seed 0", "seed 1", "seed 2"]


def test_provenance_names_the_code_that_made_it(project):
    make_results.make(result(project), "python -m tools.make_results thing")
    provenance = stored(project)["provenance"]
    head = subprocess.run(
        ["git", "-C", str(project), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert provenance["commit"] == head
    assert provenance["command"] == "python -m tools.make_results thing"
    assert {"code_hash", "device", "date", "versions", "seconds"} <= set(provenance)

    (project / "adatemp" / "stranger.py").write_text("w = 5\n")  # not among what it depends on
    assert make_results.commit_of_code(result(project)) == head
    (project / "adatemp" / "deeper.py").write_text("y = 5\n")
    assert make_results.commit_of_code(result(project)) == head + "-dirty"


def test_numbers_are_short_and_nan_is_never_stored(project):
    make_results.make(result(project), "command")
    assert stored(project)["data"]["rows"][0]["value"] == 0.33333
    with pytest.raises(ValueError, match="not JSON compliant|Out of range"):
        make_results.make(
            result(project, first=1, run=lambda cell: {"value": float("nan")})._replace(code_hash="x"), ""
        )


def test_the_layout_is_the_same_json():
    value = {"rows": [{"a": list(range(60)), "b": "β"}, {"a": [], "b": None}], "short": [1.5, True]}
    text = make_results.layout(value)
    assert json.loads(text) == value and max(map(len, text.splitlines())) < 260


@pytest.mark.parametrize(("arguments", "complaint"), [(["tabel1"], "tabel1"), (["--first", "0"], "at least 1")])
def test_wrong_arguments_are_named(arguments, complaint, capsys):
    with pytest.raises(SystemExit):
        make_results.main(arguments)
    assert complaint in capsys.readouterr().err

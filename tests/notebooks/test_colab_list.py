"""The list of Colab's versions: compared, renewed, complete."""

from __future__ import annotations

import re

from tools import colab_list, run_floor

OURS = "# Colab's package list of 1 May 2026\n# Python 3.13\n\nflax==0.11.2\nopt_einsum==3.4.0\nold==1.0\n"
PUBLISHED = "Flax==0.12.0\nopt-einsum==3.4.0\nother @ git+https://example.org/other\ntorch==2.11.0+cu128\n"


def test_moved_names_what_differs_whatever_the_spelling():
    assert colab_list.moved(OURS, PUBLISHED) == {"flax": ("0.11.2", "0.12.0"), "old": ("1.0", None)}


def test_renewed_keeps_our_packages_with_their_versions():
    assert colab_list.renewed(OURS, PUBLISHED, "2 June 2026") == (
        "# Colab's package list of 2 June 2026\n# Python 3.13\n\nflax==0.12.0\nopt_einsum==3.4.0\n"
    )
    assert not colab_list.moved(colab_list.renewed(OURS, PUBLISHED, "2 June 2026"), PUBLISHED)


def test_check_fails_when_versions_differ(tmp_path, monkeypatch, capsys):
    (tmp_path / "ours.txt").write_text(OURS)
    (tmp_path / "published.txt").write_text(PUBLISHED)
    monkeypatch.setattr(colab_list, "CONSTRAINTS", tmp_path / "ours.txt")
    source = ["--source", (tmp_path / "published.txt").as_uri()]
    assert colab_list.main(["--check", *source]) == 1
    assert "flax: 0.11.2 here, 0.12.0 in Colab" in capsys.readouterr().out
    assert colab_list.main(["--date", "2 June 2026", *source]) == 0
    assert colab_list.main(["--check", *source]) == 0


def test_empty_answer_is_no_agreement(tmp_path):
    (tmp_path / "published.txt").write_text("moved elsewhere\n")
    assert colab_list.main(["--check", "--source", (tmp_path / "published.txt").as_uri()]) == 2


def test_floor_has_colabs_version_wherever_colab_has_one():
    pins = re.findall(r"^([\w.-]+)==(\S+)", run_floor.constraints(), flags=re.MULTILINE)
    names = [re.sub(r"[-_.]+", "-", name).lower() for name, _ in pins]
    colab = colab_list.pins(colab_list.CONSTRAINTS.read_text(encoding="utf-8"))
    assert colab.items() <= dict(pins).items()
    # Some packages have a line a Python version in the lock; those of Colab's list have exactly one.
    for name in colab:
        assert names.count(re.sub(r"[-_.]+", "-", name).lower()) == 1
    tools = {"pytest-xdist", "hypothesis", "jaxtyping", "hatchling"}
    assert tools <= set(names)


def test_what_the_chapters_import_is_pinned():
    colab = colab_list.pins(colab_list.CONSTRAINTS.read_text(encoding="utf-8"))
    assert {"jax", "jaxlib", "flax", "optax", "numpy", "scipy", "matplotlib", "ipywidgets", "ipython"} <= set(colab)

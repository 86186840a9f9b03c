"""The progress line: overwritten in a terminal, one output in a notebook, one line in a pipe."""

from __future__ import annotations

import sys

import pytest

from adatemp import _progress
from adatemp._progress import ProgressLine


class Clock:
    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(_progress, "time", clock)
    return clock


def test_in_a_terminal_one_line_is_overwritten(capsys, monkeypatch, clock):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    line = ProgressLine(100, "steps")
    clock.now += 2.0
    line.update(25)
    clock.now += 2.0
    line.update(50, "loss 0.5")
    clock.now += 4.0
    line.update(100)
    first, second, last = capsys.readouterr().out.split("\r")[1:]
    # The first report sets no pace; the second does: 25 steps took 2 s, so 50 take 4.
    assert "25/100 steps, 2.0 s" in first and "left" not in first
    assert "50/100 steps, 4.0 s, 4 s left, loss 0.5" in second
    assert last.endswith("100/100 steps, 8.0 s\n") and "left" not in last
    assert first.count("━") * 4 == 24 and second.count("━") * 2 == 24 and "╌" not in last


def test_a_resumed_run_is_paced_by_what_it_did_itself(capsys, monkeypatch, clock):
    """Steps done before the first report may have taken no time at all: they were in a checkpoint."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    line = ProgressLine(100, "steps")
    line.update(90)
    clock.now += 5.0
    line.update(95)
    assert "5 s left" in capsys.readouterr().out


def test_in_a_pipe_only_the_end_is_printed(capsys):
    line = ProgressLine(3, "sizes")
    for done in (1, 2, 3):
        line.update(done)
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and "3/3 sizes" in out


def test_in_a_notebook_one_output_is_updated_and_nothing_is_printed(capsys, monkeypatch):
    import IPython
    import IPython.display

    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(content["text/plain"])

    class Shell:
        kernel = object()

    monkeypatch.setattr(IPython, "get_ipython", lambda: Shell())
    monkeypatch.setattr(IPython.display, "display", lambda content, raw, display_id: Handle())
    line = ProgressLine(2, "steps")
    line.update(1)
    line.update(2)
    assert [text.split(" steps")[0][-3:] for text in shown] == ["1/2", "2/2"]
    assert capsys.readouterr().out == ""

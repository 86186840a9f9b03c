"""One line that says how far a long computation is: redrawn in a terminal or a notebook, printed once elsewhere."""

from __future__ import annotations

import sys
import time

WIDTH = 24


class ProgressLine:
    """A progress line on standard output.

    In a terminal the line is overwritten; in a notebook one output is updated in place, so a saved page holds the last
    state alone; anywhere else (a log, a pipe) only the finished line is printed.
    """

    def __init__(self, total: int, unit: str):
        self.total, self.unit = total, unit
        self.start, self.first = time.perf_counter(), None
        self._redraw = _terminal if sys.stdout.isatty() else _notebook_display()

    def update(self, done: int, note: str = "") -> None:
        """Show that `done` of the total are finished."""
        now = time.perf_counter()
        if self.first is None:  # what was done before the first report may come from a checkpoint: it sets no pace
            self.first = (done, now)
        finished = done >= self.total
        if self._redraw is None and not finished:
            return
        filled = WIDTH * done // self.total
        line = f"{'━' * filled}{'╌' * (WIDTH - filled)} {done:,}/{self.total:,} {self.unit}, {now - self.start:.1f} s"
        since, at = self.first
        if not finished and done > since:
            line += f", {(now - at) * (self.total - done) / (done - since):.0f} s left"
        line += f", {note}" if note else ""
        if self._redraw is None:
            print(line)
        else:
            self._redraw(line, finished)


def _terminal(line: str, finished: bool) -> None:
    print(f"\r\033[K{line}", end="\n" if finished else "", flush=True)


def _notebook_display():
    """A function that draws into one output of a notebook; None outside one."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    handle = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda line, finished: handle.update({"text/plain": line}, raw=True)

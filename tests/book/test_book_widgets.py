"""An ipywidgets explorer shows its default view on the static page, and loads no script of its own."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.book

EXPLORER = '''
```{code-cell} ipython3
import ipywidgets


class Explorer:
    """A slider with a view for pages without a kernel."""

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {**ipywidgets.IntSlider()._repr_mimebundle_(), "text/html": "<p>the default view</p>"}


Explorer()
```
'''


def test_explorer_shows_its_default_view_and_no_script(miniature):
    book = miniature()
    chapter = book.root / "chapters" / "01_first.md"
    chapter.write_text(chapter.read_text() + EXPLORER)
    built = book.build()
    assert built.returncode == 0, built.stdout
    page = book.page("chapters/01_first.html")
    assert '<div class="output text_html"><p>the default view</p></div>' in page
    assert "vnd.jupyter.widget" not in page
    assert "https://cdn" not in page
    assert "require.js" not in page

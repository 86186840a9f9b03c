"""Takes out of the site what pages load and never use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from book_repairs import Repair, has_layout, holding

if TYPE_CHECKING:
    from pathlib import Path

REPAIRS = [
    Repair(
        "1.5 MB of script that draws icons which the stylesheet draws as well",
        r'<script defer src="[^"]*scripts/fontawesome\.js\?[^"]*"></script>',
        "",
        has_layout,
    ),
    Repair(
        "a second font of icons, loaded for the repository's mark alone",
        r'class="fab fa-github"',
        'class="fas fa-code-branch"',
        holding("dropdown-source-buttons"),
    ),
    Repair(
        "the state of widgets, which no script on the page reads",
        r'(?s)<script type="application/vnd\.jupyter\.widget-state\+json">.*?</script>',
        "",
        holding('type="application/vnd.jupyter.widget-state+json"'),
    ),
]

# Source maps, font formats that no browser of this decade asks for, and the files behind the repairs above.
UNUSED_FILES = ["**/*.map", "**/*.ttf", "**/fa-brands-400.woff2", "**/scripts/fontawesome.js*"]


def remove_unused_files(site: Path) -> None:
    """Deletes the files of the theme that no page asks for."""
    for pattern in UNUSED_FILES:
        for path in (site / "_static").glob(pattern):
            path.unlink()

"""Repairs to the HTML that the theme and the extensions write, each loud when the text it replaces is gone.

What is wrong stands in someone else's template, so a page is mended after it is written. Each repair says on which
pages its text must stand. When an update of the theme changes that text, the build fails and names the repair, instead
of quietly serving the fault again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Repair(NamedTuple):
    """Replaces what `pattern` matches by `new`, on the pages for which `expected(page)` is true."""

    fault: str  # what a reader would suffer from
    pattern: str  # a regular expression
    new: str  # as re.sub takes it
    expected: Callable[[str], bool]


class RepairNotFound(ValueError):
    """A page no longer holds the text that a repair replaces."""


def has_layout(page: str) -> bool:
    """True for the pages made by the theme's layout, which is all of them but the redirect at the root."""
    return 'id="main-content"' in page


def holding(text: str) -> Callable[[str], bool]:
    """A condition for pages that hold `text`."""
    return lambda page: text in page


def matching(pattern: str) -> Callable[[str], bool]:
    """A condition for pages with a place that matches a regular expression."""
    return lambda page: bool(re.search(pattern, page))


def mend(page: str, repairs: Iterable[Repair], name: str) -> str:
    """Applies every repair that the page calls for.

    Args:
      page: the HTML as it was written.
      repairs: in the order in which they apply; conditions look at the page as it was.
      name: what to call the page in an error.

    Raises:
      RepairNotFound: the page calls for a repair whose text it does not hold.
    """
    mended = page
    for repair in repairs:
        if not repair.expected(page):
            continue
        mended, count = re.subn(repair.pattern, repair.new, mended)
        if not count:
            raise RepairNotFound(
                f"{name}: nothing matches the repair of '{repair.fault}':\n  {repair.pattern}\n"
                "The theme or an extension has changed. Look at the page: drop the repair if the fault is gone, or "
                "give it the new text."
            )
    return mended

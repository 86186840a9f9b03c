"""What axe-core finds wrong with the pages as the theme and the extensions write them, and the repair of each."""

from __future__ import annotations

from book_repairs import Repair, has_layout, holding, matching

NUMBERED = r'<div class="proof \w+ admonition"'  # a theorem, a definition, a remark
PROOF = '<div class="proof admonition"'

REPAIRS = [
    # label-content-name-mismatch: a label that hides the button's own words from whoever speaks to the page.
    Repair(
        "the search button shows 'Search Ctrl+K' and is called 'Search'",
        r'(<button class="btn search-button-field[^>]*) title="Search" aria-label="Search"',
        r"\1",
        has_layout,
    ),
    Repair(
        "the switch of a hidden cell shows one thing and is called another",
        r'<summary aria-label="Toggle hidden content">',
        "<summary>",
        holding('<details class="admonition hide'),
    ),
    # region: everything on a page belongs to a landmark.
    Repair(
        "the book's title in the left bar belongs to no landmark",
        r'<div id="pst-primary-sidebar" class="',
        '<div id="pst-primary-sidebar" role="complementary" aria-label="The book" class="',
        has_layout,
    ),
    # aria-required-children, aria-allowed-role: roles that the bibliography's elements do not fill.
    Repair(
        "the bibliography is called a list and has no items",
        r'<div role="list" class="citation-list">',
        '<div class="citation-list">',
        holding("citation-list"),
    ),
    Repair(
        "entries of the bibliography have a role that is no longer one",
        r' role="doc-biblioentry"',
        "",
        holding('class="citation"'),
    ),
    # An id must be unique, or a link to it and a label by it mean the first one only.
    Repair("every theorem's statement has the same id", r' id="proof-content"', "", matching(NUMBERED)),
    Repair("every proof has the same id", r'(<div class="proof admonition") id="proof"', r"\1", holding(PROOF)),
    Repair("every exercise's text has the same id", r' id="exercise-content"', "", holding('<div class="exercise ')),
    Repair("every solution's text has the same id", r' id="solution-content"', "", holding('<div class="solution ')),
]

"""Sharing between frames loses nothing and stores the common parts once."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from adatemp._live_figure import Control, Slot, compose, share, start_frame

element = st.sampled_from(["<a/>", "<b/>", "<c/>", "<d/>"])


def assembled(parts: list, frame: int) -> str:
    return "".join(part.contents[part.choice[frame]] if isinstance(part, Slot) else part for part in parts)


@given(st.lists(st.lists(element, min_size=1, max_size=6), min_size=1, max_size=5))
def test_every_frame_comes_back_whole(frames: list[list[str]]) -> None:
    parts = share(frames)
    for i, frame in enumerate(frames):
        assert assembled(parts, i) == "".join(frame)


@given(st.lists(element, min_size=1, max_size=6), st.integers(1, 5))
def test_equal_frames_leave_nothing_to_exchange(frame: list[str], copies: int) -> None:
    assert share(copies * [frame]) == ["".join(frame)]


def test_what_depends_on_one_slider_is_stored_once_for_each_of_its_values() -> None:
    frames = [["<axis/>", f"<x{x}/>", "<axis/>", f"<y{y}/>", f"<z{y}/>"] for x in range(3) for y in range(4)]
    axis, x, again, y = share(frames)
    assert (axis, again) == ("<axis/>", "<axis/>")
    assert x.contents == ("<x0/>", "<x1/>", "<x2/>")
    assert y.contents == tuple(f"<y{i}/><z{i}/>" for i in range(4))
    assert y.choice == 3 * (0, 1, 2, 3)


def test_frames_of_different_length_share_their_beginning_and_end() -> None:
    head, middle, tail = share([["<a/>", "<b/>", "<d/>"], ["<a/>", "<b/>", "<c/>", "<c/>", "<d/>"]])
    assert (head, tail) == ("<a/><b/>", "<d/>")
    assert middle.contents == ("", "<c/><c/>")


def test_the_last_slider_moves_fastest() -> None:
    controls = [Control("a", ("1", "2", "3"), 2), Control("b", ("1", "2"), 1)]
    assert start_frame(controls) == 5


def test_no_description_can_end_the_script_that_stores_it() -> None:
    alts = ["a frame said to hold </script> and <!-- and </SCRIPT >", "another"]
    page = compose("<svg>", share([["<a/>"], ["<b/>"]]), alts, [Control("a", ("1", "2"), 0)])
    stored = re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)[1]
    assert "<!" not in stored and "</" not in stored
    assert json.loads(stored)["alts"] == alts

"""The HTML of a live figure: every frame in one page, what the frames share stored once.

A frame is a list of SVG elements. Elements equal in all frames are written in the picture; each run of elements that
differ becomes a numbered slot, and its distinct contents are kept as data for the script to exchange. A grid of frames
over two sliders thus costs little more than what moves.
"""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Sequence
from importlib import resources
from itertools import groupby
from typing import NamedTuple


class Slot(NamedTuple):
    """A run of elements that differs between frames: its distinct contents, and which of them each frame shows."""

    contents: tuple[str, ...]
    choice: tuple[int, ...]


class Control(NamedTuple):
    """One slider: its visible label, the texts of its values, and where it starts."""

    label: str
    values: tuple[str, ...]
    start: int


def share(frames: Sequence[Sequence[str]]) -> list[str | Slot]:
    """Splits frames into what they share (strings) and what differs (slots), in painting order.

    Args:
        frames: the elements of each frame. With equal counts they are compared one by one; otherwise everything between
            the common beginning and the common end is one slot.
    """
    shortest = min(map(len, frames))
    if shortest == max(map(len, frames)):
        columns = list(zip(*frames))
    else:
        same = [len({frame[i] for frame in frames}) == 1 for i in range(shortest)]
        head = next((i for i, equal in enumerate(same) if not equal), shortest)
        same = [len({frame[-1 - i] for frame in frames}) == 1 for i in range(shortest - head)]
        tail = next((i for i, equal in enumerate(same) if not equal), shortest - head)
        middle = tuple("".join(frame[head : len(frame) - tail]) for frame in frames)
        columns = [*zip(*(frame[:head] for frame in frames)), middle]
        columns += zip(*(frame[len(frame) - tail :] for frame in frames))

    parts: list[str | Slot] = []
    for moves, run in groupby(columns, key=lambda column: len(set(column)) > 1):
        texts = ["".join(texts) for texts in zip(*run)]
        if moves:
            contents = tuple(dict.fromkeys(texts))
            parts.append(Slot(contents, tuple(contents.index(text) for text in texts)))
        else:
            parts.append(texts[0])
    return parts


def compose(svg_open: str, parts: Sequence[str | Slot], alts: Sequence[str], controls: Sequence[Control]) -> str:
    """Writes the sliders, the picture at its start, the data of the other frames and the script that exchanges them."""
    start = start_frame(controls)
    slots = [part for part in parts if isinstance(part, Slot)]

    picture, number = [svg_open], 0
    for part in parts:
        if isinstance(part, Slot):
            picture.append(f'<g data-part="{number}">{part.contents[part.choice[start]]}</g>')
            number += 1
        else:
            picture.append(part)
    data = {
        "start": start,
        "values": [control.values for control in controls],
        "alts": [" ".join(alt.split()) for alt in alts],
        "frames": [[slot.choice[i] for slot in slots] for i in range(len(alts))],
        "parts": [slot.contents for slot in slots],
    }
    stored = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # Neither the end of the script nor a comment may appear inside it.
    stored = stored.replace("</", "\\u003c/").replace("<!", "\\u003c!")
    return "".join(
        (
            '<div class="adatemp-controls" hidden>',
            *map(_slider, controls),
            "</div>",
            *picture,
            "</svg>",
            '<span class="adatemp-said" role="status"></span>',
            f'<p class="adatemp-still">One of the {len(alts)} frames of a figure that moves where scripts run.</p>',
            f'<script type="application/json">{stored}</script>',
            f"<script>{read('_live_figure.js')}</script>",
        )
    )


def start_frame(controls: Sequence[Control]) -> int:
    """Returns the number of the frame the sliders start at; the last slider moves fastest."""
    frame = 0
    for control in controls:
        frame = frame * len(control.values) + control.start
    return frame


def _slider(control: Control) -> str:
    text = html.escape(control.values[control.start])
    # The value is announced through aria-valuetext, so the visible one is hidden from screen readers.
    return (
        f'<div><label><span>{html.escape(control.label)}</span><input type="range" min="0" '
        f'max="{len(control.values) - 1}" step="1" value="{control.start}" aria-valuetext="{text}" autocomplete="off">'
        f'</label><output aria-hidden="true">{text}</output></div>'
    )


@functools.cache
def read(name: str) -> str:
    """Returns the text of a file that lies beside this module."""
    return resources.files("adatemp").joinpath(name).read_text(encoding="utf-8").strip()

"""The colours of the book's figures: one name per meaning, a value for light grounds and one for dark.

A figure is drawn with the light values. Each is distinct, so it marks its role in the finished SVG, where the CSS
custom property of that role takes its place; the page then chooses light or dark, and prints light.

The values were searched for: every role of `ROLES` reads as text (contrast at least 4.5) on every ground of `GROUNDS`,
and any two stay apart under simulated protanopia, deuteranopia and tritanopia. tests/test_plotting.py measures both.
"""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.colors import ListedColormap

# name: (on light, on dark). Meanings first, then the parts every figure has.
ROLES = MappingProxyType(
    {
        "plain": ("#0a41ce", "#7ac0f8"),  # plain softmax
        "adaptive": ("#9e4f0a", "#f3a584"),  # softmax with adaptive temperature
        "argmax": ("#007753", "#56f8a7"),  # the hard maximum
        "published": ("#721482", "#efccf4"),  # numbers taken from a paper
        "ours": ("#aa043c", "#f777a2"),  # numbers measured here, where a paper's stand beside them
        "ink": ("#1b1f24", "#eceef1"),  # text and axes; the tight form of a bound
        "muted": ("#59606a", "#a9b1bb"),  # what the eye may skip; the simple form of a bound
    }
)
SURFACES = MappingProxyType(
    {
        "grid": ("#d5d9de", "#3d444d"),  # grid lines and box edges: decoration, never the only carrier of a fact
        "ground": ("#ffffff", "#14181e"),  # behind legends
    }
)
ALIASES = MappingProxyType({"bound": "muted", "tight": "ink", "neutral": "muted", "highlight": "ours"})

# Page grounds: paper and the light themes; the book's, JupyterLab's and Colab's dark themes.
GROUNDS = MappingProxyType({"light": ("#ffffff",), "dark": ("#14181e", "#111111", "#383838")})

# Colour is never the only cue: each role also has its own line and marker.
STROKES = MappingProxyType(
    {
        "plain": ("-", "o"),
        "adaptive": ((0, (6, 1.5)), "s"),
        "argmax": ((0, (1.2, 1.4)), "^"),
        "published": ((0, (5, 1.5, 1.2, 1.5)), "D"),
        "ours": ("-", "v"),
        "ink": ("-", None),
        "muted": ((0, (3, 2)), None),
        "bound": ((0, (3, 2)), None),
        "tight": ("-", None),
        "neutral": ((0, (1, 1)), "x"),
        "highlight": ("-", "*"),
    }
)

# matplotlib's own defaults, which reach artists made outside the house style (an annotation, a legend's box).
_DEFAULTS = {"#000000": "ink", "#cccccc": "grid", "#b0b0b0": "grid"}


def light(name: str) -> str:
    """Returns the hexadecimal value that draws role `name`."""
    name = ALIASES.get(name, name)
    return (ROLES.get(name) or SURFACES[name])[0]


def variables() -> dict[str, str]:
    """Returns the CSS custom property that takes the place of each colour a figure may be drawn with."""
    names = {light(name): name for name in (*ROLES, *SURFACES)} | _DEFAULTS
    return {colour: f"var(--adatemp-{name})" for colour, name in names.items()}


def declarations(theme: str) -> str:
    """Returns the custom properties' declarations for `theme`, "light" or "dark"."""
    column = ("light", "dark").index(theme)
    return ";".join(f"--adatemp-{name}:{pair[column]}" for name, pair in (ROLES | SURFACES).items())


@functools.cache
def colormap() -> ListedColormap:
    """Returns cividis without its ends, so that it reads on both grounds; made for colour-blind readers.

    References:
        Nuñez, Anderton, Renslow (2018), Optimizing colormaps with consideration for color vision deficiency, PLOS ONE.
    """
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["cividis"](range(24, 244)), name="adatemp")


@functools.cache
def colormap_colours() -> frozenset[str]:
    """Returns the hexadecimal colours of `colormap`, which stay as they are in light and dark."""
    from matplotlib.colors import to_hex

    return frozenset(map(to_hex, colormap().colors))

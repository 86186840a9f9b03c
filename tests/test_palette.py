"""The figures' colours: legible on every ground, apart for colour-blind readers, never the only cue."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from adatemp import _palette

THEMES = ("light", "dark")

# Machado, Oliveira and Fernandes (2009), A physiologically-based model for simulation of color vision deficiency, at
# severity 1.0; the matrices act on linear RGB.
SIGHT = {
    "full colour vision": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])  # sRGB, D65


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio, 1 to 21."""
    dark, bright = sorted(float(XYZ[1] @ linear(colour)) for colour in (one, other))
    return (bright + 0.05) / (dark + 0.05)


def lab(colour: str, sight: np.ndarray) -> np.ndarray:
    """CIE 1976 L*a*b* of a colour as seen; about 2.3 apart is just noticeable."""
    seen = XYZ @ np.clip(sight @ linear(colour), 0, 1) / XYZ.sum(1)
    x, y, z = np.where(seen > 216 / 24389, np.cbrt(seen), (24389 / 27 * seen + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_the_measures_have_their_known_values() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # the well-known near miss of 4.5
    np.testing.assert_allclose(lab("#ffffff", SIGHT["full colour vision"]), [100, 0, 0], atol=0.02)
    np.testing.assert_allclose(lab("#ff0000", SIGHT["full colour vision"]), [53.2, 80.1, 67.2], atol=0.3)
    for sight in SIGHT.values():  # grey stays grey for everyone
        assert np.abs(lab("#808080", sight)[1:]).max() < 0.1


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", _palette.ROLES)
def test_every_role_reads_as_text_on_every_ground(name: str, theme: str) -> None:
    colour = _palette.ROLES[name][THEMES.index(theme)]
    for ground in _palette.GROUNDS[theme]:
        assert contrast(colour, ground) >= 4.5, f"{name} {colour} on {ground}"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("sight", SIGHT)
def test_roles_stay_apart_for_colour_blind_readers(sight: str, theme: str) -> None:
    seen = {name: lab(pair[THEMES.index(theme)], SIGHT[sight]) for name, pair in _palette.ROLES.items()}
    # Four times the just noticeable difference, in thin lines on both grounds.
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 9.2, f"{one} and {other}"


def test_colour_is_never_the_only_cue() -> None:
    drawn_together = ("plain", "adaptive", "argmax", "published", "ours", "bound", "tight")
    for one, other in itertools.combinations(drawn_together, 2):
        assert _palette.STROKES[one] != _palette.STROKES[other], f"{one} and {other} share line and marker"


def test_each_colour_of_a_drawing_names_one_declared_property() -> None:
    drawn = [pair[0] for pair in (_palette.ROLES | _palette.SURFACES).values()]
    assert len(set(drawn)) == len(drawn), "two roles drawn alike could not be told apart in the SVG"
    for theme in THEMES:
        declared = {entry.split(":")[0] for entry in _palette.declarations(theme).split(";")}
        assert {value.removeprefix("var(").removesuffix(")") for value in _palette.variables().values()} == declared


def test_the_colour_map_is_monotone_in_lightness_and_keeps_clear_of_both_grounds() -> None:
    from matplotlib.colors import to_hex

    colours = [to_hex(colour) for colour in _palette.colormap().colors]
    for name, sight in SIGHT.items():
        lightness = np.array([lab(colour, sight)[0] for colour in colours])
        if name != "tritanopia":  # cividis is made for red-green deficiency, by far the commonest
            # Neighbours differ by less than a step of 8-bit colour, so compare eight steps apart.
            assert (lightness[8:] > lightness[:-8]).all(), name
    assert np.linalg.norm(lab(colours[0], np.eye(3)) - lab("#14181e", np.eye(3))) > 9.2
    assert np.linalg.norm(lab(colours[-1], np.eye(3)) - lab("#ffffff", np.eye(3))) > 9.2

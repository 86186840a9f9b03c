"""The explorer: moved by a kernel, still without one, and written to what Colab's ipywidgets has."""

from __future__ import annotations

import sys

import ipywidgets
import pytest
from matplotlib.figure import Figure

from adatemp import plotting, widgets

VIEW = "application/vnd.jupyter.widget-view+json"


def draw(rate: float) -> Figure:
    fig, axes = plotting.figure(4, 3)
    if rate < 0:
        raise ValueError("a rate below <zero> has no picture")
    axes.bar([0, 1], [rate, 1.0], color=plotting.palette["plain"])
    return fig


def alt(rate: float) -> str:
    return f"Two bars, the first at {rate} and the second, for comparison, at one."


def test_without_a_kernel_it_shows_its_starting_view_and_says_how_to_move_it() -> None:
    figure = widgets.explorer(draw, {"rate": [0.1, 0.5]}, alt=alt, start={"rate": 0.5})
    shown = figure._repr_mimebundle_()
    assert f'aria-label="{alt(0.5)}"' in shown["text/html"]
    assert "open the page in Colab or JupyterLab" in shown["text/html"]
    assert "<script" not in shown["text/html"]
    assert shown["text/plain"] == alt(0.5) == repr(figure)


def test_with_a_kernel_it_offers_its_controls() -> None:
    figure = widgets.explorer(draw, {"rate": [0.1, 0.5]}, alt=alt)
    figure.box = type("Box", (), {"model_id": "4711"})()  # what ipywidgets gives where a kernel talks to a page
    assert figure._repr_mimebundle_()[VIEW] == {"version_major": 2, "version_minor": 0, "model_id": "4711"}
    figure.box.model_id = None
    assert VIEW not in figure._repr_mimebundle_()


def test_moving_a_control_draws_the_picture_anew() -> None:
    figure = widgets.explorer(draw, {"rate": [0.1, 0.5]}, alt=alt, labels={"rate": "learning rate"})
    slider, picture = figure.box.children
    assert slider.description == "learning rate" and alt(0.1) in picture.value
    slider.value = 0.5
    assert alt(0.5) in picture.value and alt(0.1) not in picture.value


def test_a_control_of_the_reader_s_own_choice_works() -> None:
    control = ipywidgets.FloatSlider(value=0.3, min=-1, max=1)
    figure = widgets.explorer(draw, {"rate": control}, alt=alt)
    assert repr(figure) == alt(0.3)
    control.value = 0.7
    assert alt(0.7) in figure.box.children[1].value


def test_what_goes_wrong_while_moving_is_shown_in_place_of_the_picture() -> None:
    control = ipywidgets.FloatSlider(value=0.3, min=-1, max=1)
    figure = widgets.explorer(draw, {"rate": control}, alt=alt)
    control.value = -0.5
    assert figure.box.children[1].value == "<pre>ValueError: a rate below &lt;zero&gt; has no picture</pre>"
    control.value = 0.5
    assert alt(0.5) in figure.box.children[1].value


def test_a_missing_ipywidgets_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(ImportError, match=r"pip install 'adatemp\[figures\]'.*live_figure works without it"):
        widgets.explorer(draw, {"rate": [0.1, 0.5]}, alt=alt)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"draw": 3}, TypeError, "draw must be a function of rate, got 3"),
        ({"alt": "two bars"}, TypeError, "alt must be a function of rate"),
        ({"alt": lambda rate: "two bars"}, ValueError, "8 characters"),
        ({"controls": {"rate": 0.1}}, TypeError, r"controls\['rate'\] must be a sequence or an ipywidgets control"),
        ({"controls": {"rate": []}}, ValueError, r"controls\['rate'\] is empty"),
        ({"start": {"rate": 3}}, ValueError, r"start\['rate'\]=3 is not one of"),
        ({"start": {"speed": 3}}, ValueError, r"names \['speed'\], but controls has only \['rate'\]"),
        (
            {"controls": {"rate": ipywidgets.FloatSlider()}, "start": {"rate": 3}},
            ValueError,
            "give the control its value",
        ),
    ],
)
def test_errors_name_the_argument(arguments, error, message) -> None:
    arguments = {"draw": draw, "controls": {"rate": [0.1, 0.5]}, "alt": alt} | arguments
    with pytest.raises(error, match=message):
        widgets.explorer(arguments.pop("draw"), arguments.pop("controls"), **arguments)

"""A figure drawn by the kernel as its controls move: for free values, or for the reader's own data.

On the book's pages, where no kernel runs, it shows its starting view; there `live_figure` is what moves. Only what
ipywidgets 7.7.1 (Colab's) and 8 have in common is used.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adatemp import _picture, plotting

if TYPE_CHECKING:
    from ipywidgets import Widget
    from matplotlib.figure import Figure

_STILL = "This is its starting view. It has sliders where Python runs: open the page in Colab or JupyterLab."


class Explorer:
    """A figure with controls, in `box`; without a kernel its starting view, as a `Picture` with a note."""

    def __init__(self, box: Widget, picture: plotting.Picture) -> None:
        self.box = box
        self.picture = picture

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        note = f'<p class="adatemp-note">{_STILL}</p>'
        bundle = {"text/plain": repr(self), "text/html": self.picture.html + note}
        if self.box.model_id is not None:  # ipywidgets 7 has no model where there is no kernel
            view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
            bundle["application/vnd.jupyter.widget-view+json"] = view
        return bundle

    def __repr__(self) -> str:
        return self.picture.alt


def explorer(
    draw: Callable[..., Figure],
    controls: Mapping[str, Sequence[Any] | Widget],
    *,
    alt: Callable[..., str],
    labels: Mapping[str, str] | None = None,
    start: Mapping[str, Any] | None = None,
    max_width: int | None = None,
) -> Explorer:
    """Lets the reader move a figure that the kernel draws anew at every change.

    Args:
        draw: takes the parameters by name, returns a figure from `plotting.figure`.
        controls: for each parameter, the values its slider stops at, or an ipywidgets control that has a `value`.
        alt: takes the same parameters, returns what the figure then shows (at least 40 characters).
        labels: the visible name of a parameter, by default its own name with spaces.
        start: the value a slider starts at, by default its first.
        max_width: CSS pixels the figure may take on a wide screen.

    Returns:
        An `Explorer`. As the last expression of a cell it is displayed.

    Raises:
        ImportError: ipywidgets is not installed.
        TypeError: `draw` or `alt` cannot be called, or a control is neither a sequence nor a control.
        ValueError: a start that is not among the values, or what `plotting.show` would refuse.
    """
    try:
        import ipywidgets
    except ImportError as error:
        raise ImportError(
            "widgets.explorer needs ipywidgets, which is not installed: pip install 'adatemp[figures]'. "
            "widgets.live_figure works without it."
        ) from error

    for name, function in (("draw", draw), ("alt", alt)):
        if not callable(function):
            raise TypeError(f"explorer: {name} must be a function of {', '.join(controls)}, got {function!r}")
    inputs = {
        name: _control(name, control, (labels or {}).get(name, name.replace("_", " ")), start or {})
        for name, control in controls.items()
    }
    if unknown := sorted({*(labels or {}), *(start or {})} - set(controls)):
        raise ValueError(f"explorer: labels or start names {unknown}, but controls has only {list(controls)}")

    def picture() -> plotting.Picture:
        frame = {name: control.value for name, control in inputs.items()}
        return plotting.show(draw(**frame), alt=alt(**frame), max_width=max_width)

    first = picture()
    shown = ipywidgets.HTML(value=first.html)

    def redraw(change: Any) -> None:
        try:
            shown.value = picture().html
        except Exception as error:  # a callback's exception would vanish, and the old picture would look current
            shown.value = f"<pre>{html.escape(type(error).__name__)}: {html.escape(str(error))}</pre>"

    for control in inputs.values():
        control.observe(redraw, names="value")
    return Explorer(ipywidgets.VBox([*inputs.values(), shown]), first)


def _control(name: str, control: Any, label: str, start: Mapping[str, Any]) -> Any:
    """Returns the control itself, or a slider over its values."""
    import ipywidgets

    if isinstance(control, ipywidgets.Widget) and hasattr(control, "value"):
        if name in start:
            raise ValueError(f"explorer: start[{name!r}] is for a sequence; give the control its value instead")
        return control
    if isinstance(control, str) or not hasattr(control, "__len__") or not hasattr(control, "__getitem__"):
        raise TypeError(f"explorer: controls[{name!r}] must be a sequence or an ipywidgets control, got {control!r}")
    values = list(control)
    if not values:
        raise ValueError(f"explorer: controls[{name!r}] is empty, a slider needs values to stop at")
    first = start.get(name, values[0])
    if first not in values:
        raise ValueError(f"explorer: start[{name!r}]={first!r} is not one of controls[{name!r}]={values}")
    options = [(_picture.value_text(value), value) for value in values]
    return ipywidgets.SelectionSlider(
        options=options, value=first, description=label, style={"description_width": "initial"}
    )

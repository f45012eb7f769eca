"""What every figure shares: style, colours, and SVG text that repeats to the byte."""

import io
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Blue and orange keep apart for colour-blind readers and in grey print.
BLUE, ORANGE, GREY = "#1f5fa8", "#d9730d", "#8a8f98"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "jaxcontam",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
}
"""For `matplotlib.rc_context`."""


def figure_axes(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """A figure of one plot; its size is in inches."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()


def svg_text(figure: Figure) -> str:
    """The `<svg>` element of a figure, to stand in a page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    # The declaration before <svg> is for files of their own.
    return text[text.index("<svg") :]

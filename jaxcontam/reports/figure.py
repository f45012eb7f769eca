"""Style and colours of every figure, and SVG text that repeats to the byte."""

import contextlib
import html
import io
import warnings
from collections.abc import Iterator
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Blue and orange keep apart for colour-blind readers and in grey print.
BLUE, ORANGE, GREY = "#1f5fa8", "#d9730d", "#8a8f98"
# Characters of a name beside the axes.
_NAME = 32
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "jaxcontam",
    # Names of models and files hold dollar signs, which are no formulas.
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
}
"""For `matplotlib.rc_context`."""


def shortened(name: str) -> str:
    """A name without its middle, where it would leave no room to the axes."""
    half = _NAME // 2
    return name if len(name) <= _NAME else f"{name[:half]}…{name[-half:]}"


def figure_axes(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """A figure of one plot; its size is in inches."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()


@contextlib.contextmanager
def plotted(size: tuple[float, float]) -> Iterator[tuple[Figure, Axes]]:
    """A figure of one plot for the block that draws it, in the style of reports."""
    with matplotlib.rc_context(STYLE):
        yield figure_axes(size)


def svg_text(figure: Figure, label: str | None = None) -> str:
    """The `<svg>` element of a figure, to stand in a page.

    `label` says what it shows to those who cannot see it; pages of reports need one.
    """
    buffer = io.StringIO()
    metadata = {"Date": None} if label is None else {"Date": None, "Title": label}
    with warnings.catch_warnings():
        # The text stands in the page, whose reader's fonts draw it.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        with matplotlib.rc_context(STYLE):
            figure.savefig(buffer, format="svg", metadata=metadata)
    text = buffer.getvalue()
    # The declaration before <svg> is for files of their own.
    text = text[text.index("<svg") :]
    if label is None:
        return text
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1)

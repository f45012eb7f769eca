"""`membership.html`: all studies of a folder on one page, with plots."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from eval.membership.table import TITLES, Document, grids
from jaxcontam.analyses.method_notes import named_rows
from jaxcontam.report.document import replace_bytes
from jaxcontam.report.figure import BLUE, GREY, ORANGE, STYLE, figure_axes, svg_text
from jaxcontam.report.page import render
from jaxcontam.report.page_words import PageWords
from jaxcontam.report.provenance import command_line
from jaxcontam.report.section import Figure, Heading, Page, Part, Section, Table

PAGE_NAME = "membership.html"
_WORDS = PageWords(
    assumed=(
        "Members and non-members were drawn at random from one pool, so that an AUC "
        "says what the model remembers; classifiers that read the texts alone are at "
        "0.5 but for chance.",
    ),
    limits=(
        "These are small models of one corpus each. In which direction a score moves "
        "is what they were made to show; how far it moves elsewhere is not known.",
        "Intervals are over the texts and models here, not over corpora.",
    ),
)
_SIZE = (8.4, 3.4)
_MARKERS = "os^Dv*PX<>hp8d"
# Of these scores the paper has curves or tables, and they come first in a legend.
_FIRST = ("min_k", "loss")
_LABELS = {
    "copies": "copies in the training data",
    "corpus": "tokens of background",
    "indistribution": "texts of the corpus",
    "occurrence": "occurrences",
    "rate": "learning rate",
    "sizes": "weights of the model",
}


def write_page(documents: Sequence[Document], out: Path) -> Path:
    """Write the page; returns where it stands."""
    cells = [cell for document in documents for cell in document["cells"]]
    page = Page(
        title="Membership studies",
        subtitle="Small models trained on texts that are known: what scores tell "
        "members from others, and when. Means over seeds and tasks; ± is one standard "
        "error.",
        sections=[_section(document) for document in documents],
        assumed=_WORDS.assumed,
        methods=named_rows([cell["method"] for cell in cells]),
        limits=_WORDS.limits,
        command=command_line(documents[-1]["command"]),
        check="This line made the last study, those below the others; the JSON of each "
        "stands beside this file.",
        provenance=[
            (TITLES[document["study"]], _provenance(document)) for document in documents
        ],
    )
    replace_bytes(out / PAGE_NAME, render(page).encode())
    return out / PAGE_NAME


def _section(document: Document) -> Section:
    """The figure and the tables of one study."""
    svg = study_figure(document)
    parts: list[Part] = []
    if svg is not None:
        parts.append(Figure(svg, look="wide", label="figure of the study"))
    for grid in grids(document):
        parts += [Heading(grid.title), Table(grid.header, grid.rows, grid.title)]
    return Section(parts, TITLES[document["study"]], boxed=True)


def study_figure(document: Document) -> str | None:
    """AUC against what was varied; accuracy as bars; None where nothing was varied."""
    name = document["study"]
    if document["accuracy"]:
        return _accuracy_figure(document["accuracy"])
    if name not in _LABELS:
        return None
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SIZE)
        if name == "sizes":
            _draw_lengths(axes, document["cells"])
        else:
            _draw_scores(axes, document["cells"], document["blind"])
        axes.axhline(0.5, color="black", lw=0.6)
        axes.set_xscale("log")
        ticks = sorted({one["x"] for one in document["cells"]})
        axes.set_xticks(
            ticks, [f"{tick:g}" if tick < 1 else f"{tick:,.0f}" for tick in ticks]
        )
        axes.minorticks_off()
        axes.set_xlabel(_LABELS[name])
        axes.set_ylabel("AUC ± 95 % interval")
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
        return svg_text(figure, f"AUC by {_LABELS[name]}")


def _draw_scores(
    axes: Axes, cells: Sequence[Mapping[str, Any]], blind: Sequence[Mapping[str, Any]]
) -> None:
    """A curve a score, and in grey those of classifiers that read the texts alone."""
    methods = sorted(
        dict.fromkeys(one["method"] for one in cells),
        key=lambda method: method not in _FIRST,
    )
    for number, method in enumerate(methods):
        colour = {"min_k": ORANGE, "loss": BLUE}.get(
            method, matplotlib.colormaps["viridis"](number / len(methods))
        )
        _draw_curve(
            axes,
            [one for one in cells if one["method"] == method],
            color=colour,
            marker=_MARKERS[number % len(_MARKERS)],
            label=method,
            zorder=3 if method in _FIRST else 2,
        )
    for method in dict.fromkeys(one["method"] for one in blind):
        _draw_curve(
            axes,
            [one for one in blind if one["method"] == method],
            color=GREY,
            ls="--",
            label=f"blind: {method}",
        )


def _draw_lengths(axes: Axes, cells: Sequence[Mapping[str, Any]]) -> None:
    """Min-K%, a curve a length."""
    own = [one for one in cells if one["method"] == _FIRST[0]]
    lengths = list(dict.fromkeys(one["task"] for one in own))
    for number, length in enumerate(lengths):
        _draw_curve(
            axes,
            [one for one in own if one["task"] == length],
            color=matplotlib.colormaps["viridis"](0.85 * number / len(lengths)),
            marker=_MARKERS[number],
            label=f"{_FIRST[0]}, {length}",
        )


def _draw_curve(axes: Axes, cells: Sequence[Mapping[str, Any]], **style: Any) -> None:
    auc, low, high = (
        np.array([one[name] for one in cells])
        for name in ("auc", "auc_low", "auc_high")
    )
    axes.errorbar(
        [one["x"] for one in cells],
        auc,
        yerr=np.stack([auc - low, high - auc]).clip(min=0),
        lw=1,
        ms=3.5,
        elinewidth=0.6,
        **style,
    )


def _accuracy_figure(rows: Sequence[Mapping[str, Any]]) -> str:
    """How much more the seen examples of all tasks gained, by setting."""
    every = [one for one in rows if one["task"] == "all"]
    gain, low, high = (
        np.array([one[name] for one in every])
        for name in ("gain", "gain_low", "gain_high")
    )
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SIZE)
        axes.errorbar(
            range(len(every)),
            gain,
            yerr=np.stack([gain - low, high - gain]).clip(min=0),
            fmt="o",
            color=BLUE,
        )
        axes.axhline(0, color="black", lw=0.6)
        axes.set_xticks(range(len(every)), [one["setting"] for one in every])
        axes.set_ylabel("gain in accuracy, seen minus unseen")
        return svg_text(figure, "Gain in accuracy of seen over unseen examples")


def _provenance(document: Document) -> str:
    seeds = document["seeds"]
    return (
        f"python -m {' '.join(document['command'])}; seeds {seeds[0]} to {seeds[-1]}; "
        f"{document['cpu']}, {document['cpu_seconds']:.0f} CPU seconds in this run; "
        f"code {document['code']}; {document['started']}"
    )

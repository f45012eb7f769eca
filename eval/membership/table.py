"""Studies as tables of words and figures, from the fields of their JSON files."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from eval.study import Grid, grouped
from jaxcontam.report.figure import BLUE, GREY, ORANGE, STYLE, figure_axes, svg_text

Row = Mapping[str, Any]

# Shi et al. have curves or tables of these scores.
_FIRST = ("min_k", "loss")
_SIZE = (8.4, 3.4)
_MARKERS = "os^Dv*PX<>hp8d"
_LABELS = {
    "copies": "copies in the training data",
    "corpus": "tokens of background",
    "indistribution": "texts of the corpus",
    "occurrence": "occurrences",
    "rate": "learning rate",
    "sizes": "weights of the model",
}
TITLES = {
    "copies": "Known members, by copies",
    "tasks": "Downstream contamination, by task",
    "corpus": "Outliers, by tokens of background",
    "indistribution": "Members like the rest, by texts of the corpus",
    "occurrence": "By occurrence",
    "rate": "By learning rate",
    "accuracy": "Accuracy on seen and unseen examples",
    "sizes": "By size of the model and length of the text",
}


def grids(study: str, found: Mapping[str, Any]) -> list[Grid]:
    """The tables of one study.

    Args:
        study: Its name.
        found: Fields of `Found`.
    """
    title, tables = TITLES[study], []
    cells, blind = found["cells"], found["blind"]
    if study == "sizes":
        for method in _FIRST:
            words = {
                (f"{one['x'] / 1e6:.2f} M", one["task"]): _auc_words(one)
                for one in cells
                if one["method"] == method
            }
            name = f"{title}: AUC of {method}"
            tables.append(Grid.crossed(name, "weights", words))
    elif cells:
        by_score = grouped(cells, lambda one: one["method"])
        by_score |= grouped(blind, lambda one: f"blind: {one['method']}")
        # The best on average first, those without a model last.
        ranked = sorted(
            by_score,
            key=lambda name: (
                name.startswith("blind: "),
                -statistics.fmean(one["auc"] for one in by_score[name]),
            ),
        )
        settings = dict.fromkeys(one["setting"] for one in (*cells, *blind))
        numbers = {"AUC": _auc_words}
        if any(one["tpr"] is not None for one in (*cells, *blind)):
            numbers["share found at 5 % false alarms"] = _tpr_words
        for name, number in numbers.items():
            words = {
                (score, one["setting"]): number(one)
                for score in ranked
                for one in by_score[score]
            }
            tables.append(
                Grid.crossed(f"{title}: {name}", "score", words, columns=settings)
            )
    if found["trends"]:
        tables.append(
            Grid.of(
                "From the first setting to the last: change of AUC, 95 % interval",
                found["trends"],
                {
                    "score": "{r[method]}",
                    "from": "{r[first]}",
                    "to": "{r[last]}",
                    "change": "{r[difference]:+.3f}",
                    "interval": "{r[low]:+.3f} to {r[high]:+.3f}",
                    "paper": "{r[paper]}",
                    "here": "{r[found]}",
                },
            )
        )
    if found["accuracy"]:
        tables.append(
            Grid.of(
                f"{title} (gain: beyond the same difference before training)",
                found["accuracy"],
                {
                    "setting": "{r[setting]}",
                    "task": "{r[task]}",
                    "seen": "{r[seen]:.1%}",
                    "unseen": "{r[unseen]:.1%}",
                    "difference": "{r[difference]:+.1%}",
                    "gain": "{r[gain]:+.1%}",
                    "its interval": "{r[gain_low]:+.1%} to {r[gain_high]:+.1%}",
                },
            )
        )
    return tables


def _auc_words(one: Row) -> str:
    return f"{one['auc']:.3f}±{one['auc_se']:.3f}".replace("±0.", "±.")


def _tpr_words(one: Row) -> str:
    return "" if one["tpr"] is None else f"{one['tpr']:.1%}"


def study_figure(study: str, found: Mapping[str, Any]) -> str | None:
    """AUC against what was varied, or gains in accuracy; None where neither is there.

    Args:
        study: Its name.
        found: Fields of `Found`.
    """
    if found["accuracy"]:
        return _accuracy_figure(found["accuracy"])
    if study not in _LABELS:
        return None
    cells, label = found["cells"], _LABELS[study]
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SIZE)
        if study == "sizes":
            own = [one for one in cells if one["method"] == _FIRST[0]]
            curves = grouped(own, lambda one: f"{_FIRST[0]}, {one['task']}")
        else:
            curves = grouped(cells, lambda one: one["method"])
            curves = dict(
                sorted(curves.items(), key=lambda item: item[0] not in _FIRST)
            )
        for number, (name, rows) in enumerate(curves.items()):
            shade = matplotlib.colormaps["viridis"](0.9 * number / len(curves))
            _draw_curve(
                axes,
                rows,
                color={"min_k": ORANGE, "loss": BLUE}.get(name, shade),
                marker=_MARKERS[number % len(_MARKERS)],
                label=name,
                zorder=3 if name in _FIRST else 2,
            )
        for name, rows in grouped(found["blind"], lambda one: one["method"]).items():
            _draw_curve(axes, rows, color=GREY, ls="--", label=f"blind: {name}")
        axes.axhline(0.5, color="black", lw=0.6)
        axes.set_xscale("log")
        ticks = sorted({one["x"] for one in cells})
        axes.set_xticks(
            ticks, [f"{tick:g}" if tick < 1 else f"{tick:,.0f}" for tick in ticks]
        )
        axes.minorticks_off()
        axes.set_xlabel(label)
        axes.set_ylabel("AUC ± 95 % interval")
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
        return svg_text(figure, f"AUC by {label}")


def _draw_curve(axes: Axes, rows: Sequence[Row], **style: Any) -> None:
    axes.errorbar(
        [one["x"] for one in rows],
        *_with_errors(rows, "auc"),
        lw=1,
        ms=3.5,
        elinewidth=0.6,
        **style,
    )


def _accuracy_figure(rows: Sequence[Row]) -> str:
    """How much more the seen examples of all tasks gained, by setting."""
    every = [one for one in rows if one["task"] == "all"]
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SIZE)
        places = range(len(every))
        axes.errorbar(places, *_with_errors(every, "gain"), fmt="o", color=BLUE)
        axes.axhline(0, color="black", lw=0.6)
        axes.set_xticks(places, [one["setting"] for one in every])
        axes.set_ylabel("gain in accuracy, seen minus unseen")
        return svg_text(figure, "Gain in accuracy of seen over unseen examples")


def _with_errors(rows: Sequence[Row], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Values of a field, and the distances to the ends of their intervals."""
    value, low, high = (
        np.array([one[f"{name}{end}"] for one in rows]) for end in ("", "_low", "_high")
    )
    return value, np.stack([value - low, high - value]).clip(min=0)

"""Studies as tables of words and figures, from the fields of their JSON files."""

import statistics
from collections.abc import Mapping
from typing import Any

from eval.curves import Curve, curves_svg
from eval.study import Grid, grouped

Row = Mapping[str, Any]

# Shi et al. have curves or tables of these scores.
_FIRST = ("min_k", "loss")
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
    """AUC against what was varied; None where nothing was.

    Args:
        study: Its name.
        found: Fields of `Found`.
    """
    if study not in _LABELS:
        return None
    cells, label = found["cells"], _LABELS[study]
    if study == "sizes":
        own = [one for one in cells if one["method"] == _FIRST[0]]
        curves = grouped(own, lambda one: f"{_FIRST[0]}, {one['task']}")
    else:
        curves = grouped(cells, lambda one: one["method"])
        curves = dict(sorted(curves.items(), key=lambda item: item[0] not in _FIRST))
        curves |= grouped(found["blind"], lambda one: f"blind: {one['method']}")
    return curves_svg(
        [
            Curve(
                label=name,
                x=[one["x"] for one in rows],
                y=[one["auc"] for one in rows],
                # More bands than two hide each other.
                low=[one["auc_low"] for one in rows] if name in _FIRST else (),
                high=[one["auc_high"] for one in rows] if name in _FIRST else (),
                dashed=name.startswith("blind: "),
            )
            for name, rows in curves.items()
        ],
        x_label=label,
        y_label="AUC (bands: 95 % intervals)",
        log_x=True,
        x_ticks=sorted({one["x"] for one in cells}),
        level=0.5,
    )

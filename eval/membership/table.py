"""Studies as tables of words: for the terminal and for the page."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from eval.study import Grid, print_grid

Document = Mapping[str, Any]

# Other scores of that study stand in its file.
_OF_SIZES = ("min_k", "loss")


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


def grids(document: Document) -> list[Grid]:
    """The tables of one study."""
    found = []
    title = TITLES[document["study"]]
    if document["study"] == "sizes":
        found += [_sizes_grid(title, document["cells"], name) for name in _OF_SIZES]
    elif document["cells"]:
        blind = [
            {**one, "method": f"blind: {one['method']}"} for one in document["blind"]
        ]
        cells = [*document["cells"], *blind]
        found.append(_matrix(f"{title}: AUC", cells, _auc_words))
        if any(one["tpr"] is not None for one in cells):
            found.append(
                _matrix(f"{title}: share found at 5 % false alarms", cells, _tpr_words)
            )
    if document["trends"]:
        found.append(_trend_grid(document["trends"]))
    if document["accuracy"]:
        found.append(_accuracy_grid(title, document["accuracy"]))
    return found


def print_study(document: Document, console: Console) -> None:
    """Print the tables of one study."""
    for grid in grids(document):
        print_grid(grid, console)
    console.print(
        f"{document['wall_seconds']:.0f} s, of one core {document['cpu_seconds']:.0f}",
        highlight=False,
    )


def _matrix(
    title: str,
    cells: Sequence[Mapping[str, Any]],
    words: Callable[[Mapping[str, Any]], str],
) -> Grid:
    """A row a score, a column a setting; the best on average first, blind ones last."""
    settings = list(dict.fromkeys(one["setting"] for one in cells))
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for one in cells:
        found.setdefault(one["method"], {})[one["setting"]] = one
    ranked = sorted(
        found,
        key=lambda name: (
            name.startswith("blind: "),
            -statistics.fmean(one["auc"] for one in found[name].values()),
        ),
    )
    return Grid(
        title,
        ("score", *settings),
        tuple(
            (
                name,
                *(
                    words(found[name][setting]) if setting in found[name] else ""
                    for setting in settings
                ),
            )
            for name in ranked
        ),
    )


def _sizes_grid(title: str, cells: Sequence[Mapping[str, Any]], method: str) -> Grid:
    """A row a size, a column a length."""
    own = [one for one in cells if one["method"] == method]
    lengths = list(dict.fromkeys(one["task"] for one in own))
    return Grid(
        f"{title}: AUC of {method}",
        ("weights", *lengths),
        tuple(
            (
                f"{size / 1e6:.2f} M",
                *(
                    _auc_words(one)
                    for length in lengths
                    for one in own
                    if (one["x"], one["task"]) == (size, length)
                ),
            )
            for size in dict.fromkeys(one["x"] for one in own)
        ),
    )


def _auc_words(one: Mapping[str, Any]) -> str:
    return f"{one['auc']:.3f}±{one['auc_se']:.3f}".replace("±0.", "±.")


def _tpr_words(one: Mapping[str, Any]) -> str:
    return "" if one["tpr"] is None else f"{one['tpr']:.1%}"


def _trend_grid(trends: Sequence[Mapping[str, Any]]) -> Grid:
    return Grid(
        "From the first setting to the last: change of AUC, 95 % interval",
        ("score", "from", "to", "change", "interval", "paper", "here"),
        tuple(
            (
                one["method"],
                one["first"],
                one["last"],
                f"{one['difference']:+.3f}",
                f"{one['low']:+.3f} to {one['high']:+.3f}",
                one["paper"],
                one["found"],
            )
            for one in trends
        ),
    )


def _accuracy_grid(title: str, rows: Sequence[Mapping[str, Any]]) -> Grid:
    return Grid(
        f"{title} (gain: beyond the same difference before training)",
        ("setting", "task", "seen", "unseen", "difference", "gain", "its interval"),
        tuple(
            (
                one["setting"],
                one["task"],
                f"{one['seen']:.1%}",
                f"{one['unseen']:.1%}",
                f"{one['difference']:+.1%}",
                f"{one['gain']:+.1%}",
                f"{one['gain_low']:+.1%} to {one['gain_high']:+.1%}",
            )
            for one in rows
        ),
    )

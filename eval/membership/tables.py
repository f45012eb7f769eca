"""The study as tables of words."""

import statistics

from eval.membership.cells import Cell
from eval.membership.copies import Found
from eval.study import Grid, grouped

_TITLE = "Known members, by copies"
_BLIND = "blind: "


def grids(found: Found) -> list[Grid]:
    """The tables: AUC, and the share found where there are non-members enough."""
    by_score = grouped(found.cells, lambda one: one.method)
    by_score |= grouped(found.blind, lambda one: _BLIND + one.method)
    # The best on average first, those without a model last.
    ranked = sorted(
        by_score,
        key=lambda name: (
            name.startswith(_BLIND),
            -statistics.fmean(one.auc for one in by_score[name]),
        ),
    )
    numbers = {"AUC": _auc_words}
    if any(one.tpr is not None for one in found.cells):
        numbers["share found at 5 % false alarms"] = _tpr_words
    return [
        Grid.crossed(
            f"{_TITLE}: {name}",
            "score",
            {
                (score, one.setting): number(one)
                for score in ranked
                for one in by_score[score]
            },
        )
        for name, number in numbers.items()
    ]


def _auc_words(one: Cell) -> str:
    return f"{one.auc:.3f}±{one.auc_se:.3f}".replace("±0.", "±.")


def _tpr_words(one: Cell) -> str:
    return "" if one.tpr is None else f"{one.tpr:.1%}"

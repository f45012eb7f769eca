"""The study as tables of words and a figure."""

import statistics

from eval.curves import Curve, curves_svg
from eval.membership.cells import Cell
from eval.membership.copies import Found
from eval.study import Grid, grouped

_TITLE = "Known members, by copies"
# Shi et al. have curves or tables of these scores.
_FIRST = ("min_k", "loss")
_BLIND = "blind: "


def grids(found: Found) -> list[Grid]:
    """The tables: AUC, and the share found where there are non-members enough."""
    cells = (*found.cells, *found.blind)
    by_score = _by_score(found)
    # The best on average first, those without a model last.
    ranked = sorted(
        by_score,
        key=lambda name: (
            name.startswith(_BLIND),
            -statistics.fmean(one.auc for one in by_score[name]),
        ),
    )
    numbers = {"AUC": _auc_words}
    if any(one.tpr is not None for one in cells):
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
            columns=dict.fromkeys(one.setting for one in cells),
        )
        for name, number in numbers.items()
    ]


def _by_score(found: Found) -> dict[str, list[Cell]]:
    by_score = grouped(found.cells, lambda one: one.method)
    return by_score | grouped(found.blind, lambda one: _BLIND + one.method)


def _auc_words(one: Cell) -> str:
    return f"{one.auc:.3f}±{one.auc_se:.3f}".replace("±0.", "±.")


def _tpr_words(one: Cell) -> str:
    return "" if one.tpr is None else f"{one.tpr:.1%}"


def copies_figure(found: Found) -> str:
    """AUC against copies, as SVG."""
    curves = _by_score(found)
    curves = dict(
        sorted(
            curves.items(),
            key=lambda item: (item[0].startswith(_BLIND), item[0] not in _FIRST),
        )
    )
    return curves_svg(
        [
            Curve(
                label=name,
                x=[one.x for one in rows],
                y=[one.auc for one in rows],
                # More bands than two hide each other.
                low=[one.auc_low for one in rows] if name in _FIRST else (),
                high=[one.auc_high for one in rows] if name in _FIRST else (),
                dashed=name.startswith(_BLIND),
            )
            for name, rows in curves.items()
        ],
        x_label="copies in the training data",
        y_label="AUC (bands: 95 % intervals)",
        log_x=True,
        x_ticks=sorted({one.x for one in found.cells}),
        level=0.5,
    )

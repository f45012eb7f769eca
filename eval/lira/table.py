"""Tables and figures of the study."""

from collections.abc import Callable, Sequence

from eval.curves import Curve, curves_svg
from eval.lira.found import (
    BLIND,
    OFFLINE,
    ONE_REFERENCE,
    ONLINE,
    UNREAD,
    Found,
    ScoreRow,
    ShadowRow,
)
from eval.lira.rates import FPRS, Rates
from eval.study import Grid

_DRAWN = (ONLINE, OFFLINE, UNREAD, ONE_REFERENCE, "min_k_pp", "min_k", "loss")


def grids(found: Found, copies: Sequence[int]) -> list[Grid]:
    """AUC, true positives and shadow numbers, with intervals."""
    n_targets = max(row.rates.n_targets for row in found.rows)
    scores = list(dict.fromkeys(row.score for row in found.rows))
    blind = [row.rates.n_targets for row in found.rows if row.score.startswith(BLIND)]
    note = f" (blind: {max(blind)} targets)" if blind else ""
    tables = [
        Grid(
            f"AUC by copies, {n_targets} targets{note}; 95 % over targets and texts",
            _header("score", copies),
            tuple(_row(found.rows, name, copies, _auc) for name in scores),
        )
    ]
    for i, fpr in enumerate(FPRS):
        tables.append(
            Grid(
                f"Share of members found at {fpr:.0%} false positives",
                _header("score", copies),
                tuple(
                    _row(found.rows, name, copies, lambda one, i=i: _tpr(one, i))
                    for name in scores
                ),
            )
        )
    tables.append(
        Grid(
            f"AUC of {ONLINE!r} minus that of the score, same resamples",
            _header("score", copies),
            tuple(
                _row(found.rows, name, copies, _behind)
                for name in scores
                if name != ONLINE and not name.startswith(BLIND)
            ),
        )
    )
    tables.append(
        Grid(
            "AUC of LiRA, online, by number of shadows",
            _header("shadows", copies),
            tuple(
                (
                    f"{number}, {'one variance' if pooled else 'one a text'}",
                    *(
                        _auc(row.rates)
                        for count in copies
                        for row in found.shadows
                        if (row.n_shadows, row.pooled, row.copies)
                        == (number, pooled, count)
                    ),
                )
                for number, pooled in dict.fromkeys(
                    (row.n_shadows, row.pooled) for row in found.shadows
                )
            ),
        )
    )
    return tables


def figures(found: Found) -> dict[str, str]:
    """Three plots: AUC and true positives by copies, AUC by shadows."""
    by_shadows: dict[tuple[int, bool], list[ShadowRow]] = {}
    for row in found.shadows:
        by_shadows.setdefault((row.copies, row.pooled), []).append(row)
    return {
        "lira-auc": _by_copies(
            found, "AUC", lambda one: (one.auc, one.auc_low, one.auc_high)
        ),
        "lira-tpr": _by_copies(
            found,
            f"found at {FPRS[0]:.0%} false positives",
            lambda one: (one.tpr[0], one.tpr_low[0], one.tpr_high[0]),
        ),
        "lira-shadows": curves_svg(
            [
                Curve(
                    label=_count(copies) + ("" if pooled else ", one a text"),
                    x=[row.n_shadows for row in rows],
                    y=[row.rates.auc for row in rows],
                    low=[row.rates.auc_low for row in rows] if pooled else (),
                    high=[row.rates.auc_high for row in rows] if pooled else (),
                    dashed=not pooled,
                )
                for (copies, pooled), rows in by_shadows.items()
            ],
            x_label="shadow models (solid: one variance for all texts)",
            y_label="AUC of LiRA, online",
            log_x=True,
            x_ticks=sorted({row.n_shadows for row in found.shadows}),
            level=0.5,
        ),
    }


def _by_copies(
    found: Found, y_label: str, of: Callable[[Rates], tuple[float, float, float]]
) -> str:
    curves = []
    for name in _DRAWN:
        rows = [row for row in found.rows if row.score == name]
        values = [of(row.rates) for row in rows]
        curves.append(
            Curve(
                label=name,
                x=[row.copies for row in rows],
                y=[value for value, _, _ in values],
                low=[low for _, low, _ in values],
                high=[high for _, _, high in values],
                dashed=name.startswith("reference"),
            )
        )
    return curves_svg(
        curves,
        x_label="copies",
        y_label=y_label,
        log_x=True,
        x_ticks=sorted({row.copies for row in found.rows}),
    )


def _header(name: str, copies: Sequence[int]) -> tuple[str, ...]:
    return (
        name,
        *map(_count, copies),
    )


def _count(copies: int) -> str:
    return "1 copy" if copies == 1 else f"{copies} copies"


def _row(
    rows: Sequence[ScoreRow],
    name: str,
    copies: Sequence[int],
    words: Callable[[Rates], str],
) -> tuple[str, ...]:
    found = {row.copies: row.rates for row in rows if row.score == name}
    return (name, *(words(found[count]) for count in copies))


def _auc(one: Rates) -> str:
    return f"{one.auc:.3f} ({one.auc_low:.3f}-{one.auc_high:.3f})"


def _tpr(one: Rates, i: int) -> str:
    return f"{one.tpr[i]:.1%} ({one.tpr_low[i]:.1%}-{one.tpr_high[i]:.1%})"


def _behind(one: Rates) -> str:
    if one.behind is None or one.behind_low is None or one.behind_high is None:
        return ""
    return f"{one.behind:+.3f} ({one.behind_low:+.3f} to {one.behind_high:+.3f})"

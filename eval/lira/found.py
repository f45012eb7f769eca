"""What a population says: every score of every target, at each number of copies.

Dimension key
    N  models, each a target once
    E  texts
    M  scores of one pass
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from eval.curves import Curve, curves_svg
from eval.intervals import Share
from eval.lira.rates import FPRS, Rates, rates_of
from eval.lira.ratio import (
    beside_others,
    beside_unread,
    enough_shadows,
    lira_scores,
    token_logit,
)
from eval.lira.shadows import SCORE_NAMES, Pool, Shadow
from eval.study import Grid, grouped
from jaxcontam.methods.membership.blind import NAMES as BLIND_NAMES
from jaxcontam.methods.membership.blind import blind_baselines

ONLINE, OFFLINE = "lira, online", "lira, offline"
POOLED, OF_MIN_K = "lira, online, one variance", "lira, online, of min_k"
ONE_REFERENCE = "reference, 1 model without the text"
UNREAD, OTHERS = "reference, all without the text", "reference, all others"
BLIND = "blind: "


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """How results are made of records.

    Attributes:
        n_boot: Resamples of an interval.
        shadow_counts: Numbers of shadows that LiRA is tried with, beside all.
        blind_targets: Targets whose texts are judged without a model.
    """

    n_boot: int
    shadow_counts: tuple[int, ...]
    blind_targets: int


FULL_ANALYSIS = Analysis(n_boot=400, shadow_counts=(4, 8, 16, 32, 64), blind_targets=8)
TINY_ANALYSIS = Analysis(n_boot=100, shadow_counts=(4,), blind_targets=1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One score at one number of copies.

    Attributes:
        score: Its name.
        copies: How often members were read.
        rates: What it finds.
    """

    score: str
    copies: int
    rates: Rates


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRow:
    """LiRA, online, with some of the shadows.

    Attributes:
        n_shadows: Half of them read the text; the last number is all others, as coins
            fell.
        pooled: One variance for all texts of a number of copies.
        copies: How often members were read.
        rates: What it finds.
    """

    n_shadows: int
    pooled: bool
    copies: int
    rates: Rates


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """All rows; scores in the order in which they are listed here."""

    rows: tuple[ScoreRow, ...]
    shadows: tuple[ShadowRow, ...]


def found_of(
    shadows: Sequence[Shadow], pool: Pool, analysis: Analysis, *, seed: int
) -> Found:
    """Judge every target by every score.

    Args:
        shadows: At least 3 models.
        pool: Their texts.
        analysis: How.
        seed: Seeds resamples and folds.
    """
    read_NE = np.stack([one.read for one in shadows])
    values_NEM = np.stack([one.values for one in shadows])
    scores = _scores(values_NEM, read_NE, pool.copies)
    n_blind = min(analysis.blind_targets, len(shadows))
    blind = _blind(pool.texts, read_NE[:n_blind], seed=seed)
    by_number = _by_number(values_NEM, read_NE, pool.copies, analysis)
    rows: list[ScoreRow] = []
    of_shadows: list[ShadowRow] = []
    for copies in np.unique(pool.copies).tolist():
        mine_E = pool.copies == copies
        judged = rates_of(
            {name: all_NE[:, mine_E] for name, all_NE in scores.items()},
            read_NE[:, mine_E],
            n_boot=analysis.n_boot,
            seed=seed,
            best=ONLINE,
        ) | rates_of(
            {name: all_NE[:, mine_E] for name, all_NE in blind.items()},
            read_NE[:n_blind, mine_E],
            n_boot=analysis.n_boot,
            seed=seed,
        )
        rows += [
            ScoreRow(score=name, copies=copies, rates=one)
            for name, one in judged.items()
        ]
        tried = rates_of(
            {
                f"{number} {pooled}": all_NE[:, mine_E]
                for (number, pooled), all_NE in by_number.items()
            },
            read_NE[:, mine_E],
            n_boot=analysis.n_boot,
            seed=seed,
        )
        of_shadows += [
            ShadowRow(n_shadows=number, pooled=pooled, copies=copies, rates=one)
            for (number, pooled), one in zip(by_number, tried.values(), strict=True)
        ]
    return Found(tuple(rows), tuple(of_shadows))


def _scores(
    values_NEM: np.ndarray, read_NE: np.ndarray, copies_E: np.ndarray
) -> dict[str, np.ndarray]:
    """Name -> (N, E) of scores of one pass, references and LiRA."""
    passes = {name: values_NEM[:, :, i] for i, name in enumerate(SCORE_NAMES)}
    mean_NE = passes["loss"]
    logit_NE = token_logit(mean_NE)
    return passes | {
        ONE_REFERENCE: beside_unread(mean_NE, read_NE, n_references=1),
        UNREAD: beside_unread(mean_NE, read_NE),
        OTHERS: beside_others(mean_NE),
        OFFLINE: lira_scores(logit_NE, read_NE, copies_E, kind="offline"),
        ONLINE: lira_scores(logit_NE, read_NE, copies_E),
        POOLED: lira_scores(logit_NE, read_NE, copies_E, pooled=True),
        OF_MIN_K: lira_scores(token_logit(passes["min_k"]), read_NE, copies_E),
    }


def _by_number(
    values_NEM: np.ndarray,
    read_NE: np.ndarray,
    copies_E: np.ndarray,
    analysis: Analysis,
) -> dict[tuple[int, bool], np.ndarray]:
    """(shadows, one variance?) -> (N, E) of LiRA; numbers that coins allow, and all."""
    logit_NE = token_logit(values_NEM[:, :, SCORE_NAMES.index("loss")])
    numbers: list[int | None] = [
        number for number in analysis.shadow_counts if enough_shadows(read_NE, number)
    ]
    return {
        (number or len(read_NE) - 1, pooled): lira_scores(
            logit_NE, read_NE, copies_E, pooled=pooled, n_shadows=number
        )
        for number in [*numbers, None]
        for pooled in (True, False)
    }


def _blind(
    texts: Sequence[str], read_NE: np.ndarray, *, seed: int
) -> dict[str, np.ndarray]:
    """Name -> (N, E) of what texts alone say; none where they are too few."""
    scores_NEB = np.stack(
        [blind_baselines(texts, read_E, seed=seed).scores for read_E in read_NE]
    )
    return {
        BLIND + name: scores_NEB[:, :, i]
        for i, name in enumerate(BLIND_NAMES[: scores_NEB.shape[2]])
    }


_VARIANCES = {True: "one variance", False: "one a text"}
_DRAWN = (ONLINE, OFFLINE, UNREAD, ONE_REFERENCE, "min_k_pp", "min_k", "loss")


def grids(found: Found, copies: Sequence[int]) -> list[Grid]:
    """AUC, true positives and shadow numbers, with intervals."""
    cells = {(row.score, row.copies): row.rates for row in found.rows}
    scores = list(dict.fromkeys(row.score for row in found.rows))
    n_targets = max(rates.n_targets for rates in cells.values())
    blind = [
        one.n_targets for (name, _), one in cells.items() if name.startswith(BLIND)
    ]
    note = f" (blind: {max(blind)} targets)" if blind else ""

    def grid(title: str, words: Callable[[Rates], str], names: Sequence[str]) -> Grid:
        found = {
            (name, _count(n)): words(cells[name, n]) for name in names for n in copies
        }
        return Grid.crossed(title, "score", found)

    others = [name for name in scores if name != ONLINE and not name.startswith(BLIND)]
    return [
        grid(
            f"AUC by copies, {n_targets} targets{note}; 95 % over targets and texts",
            _auc,
            scores,
        ),
        *(
            grid(
                f"Share of members found at {fpr:.0%} false positives",
                lambda one, i=i: _tpr(one, i),
                scores,
            )
            for i, fpr in enumerate(FPRS)
        ),
        grid(
            f"AUC of {ONLINE!r} minus that of the score, same resamples",
            _behind,
            others,
        ),
        Grid.crossed(
            "AUC of LiRA, online, by number of shadows",
            "shadows",
            {
                (
                    f"{row.n_shadows}, {_VARIANCES[row.pooled]}",
                    _count(row.copies),
                ): _auc(row.rates)
                for row in found.shadows
            },
        ),
    ]


def figures(found: Found) -> dict[str, str]:
    """Three plots: AUC and true positives by copies, AUC by shadows."""
    by_shadows = grouped(found.shadows, lambda row: (row.copies, row.pooled))
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
        shares = {}
        for row in found.rows:
            if row.score == name:
                value, low, high = of(row.rates)
                shares[row.copies] = Share(value=value, low=low, high=high)
        is_reference = name.startswith("reference")
        curves.append(Curve.of_shares(name, shares, dashed=is_reference))
    return curves_svg(
        curves,
        x_label="copies",
        y_label=y_label,
        log_x=True,
        x_ticks=sorted({row.copies for row in found.rows}),
    )


def _count(copies: int) -> str:
    return "1 copy" if copies == 1 else f"{copies} copies"


def _auc(one: Rates) -> str:
    return f"{one.auc:.3f} ({one.auc_low:.3f}-{one.auc_high:.3f})"


def _tpr(one: Rates, i: int) -> str:
    return f"{one.tpr[i]:.1%} ({one.tpr_low[i]:.1%}-{one.tpr_high[i]:.1%})"


def _behind(one: Rates) -> str:
    if one.behind is None or one.behind_low is None or one.behind_high is None:
        return ""
    return f"{one.behind:+.3f} ({one.behind_low:+.3f} to {one.behind_high:+.3f})"

"""What a population says: every score of every target, at each number of copies.

Dimension key
    N  models, each a target once
    E  texts
    M  scores of one pass
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eval.lira.rates import Rates, rates_of
from eval.lira.ratio import (
    beside_others,
    beside_unread,
    enough_shadows,
    lira_scores,
    token_logit,
)
from eval.lira.shadows import SCORE_NAMES, Pool, Shadow
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
        seed: Of resamples and folds.
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

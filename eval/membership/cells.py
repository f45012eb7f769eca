"""Numbers of the study: AUC and TPR over several seeds.

Members are compared with non-members of the same seed alone, and the comparisons
averaged: scores of different models do not compare.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from eval.study import grouped
from jaxcontam.stats.proportions import wilson_interval
from jaxcontam.stats.roc import auc_delong, auc_interval, tpr_at_fpr

FPR = 0.05


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Stratum:
    """Scores under one model, higher = more likely a member.

    Attributes:
        members: float64, one per text.
        nonmembers: Likewise.
    """

    members: np.ndarray
    nonmembers: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One score at one number of copies: a row of the study's table.

    Attributes:
        setting: `4 copies`.
        method: The score.
        n_members: Over all strata.
        n_nonmembers: Likewise.
        n_strata: Seeds.
        auc: Mean over strata, weighted by their members.
        auc_se: From DeLong's standard errors of the strata. What training the same
            model again would change is in it as far as seeds differ.
        auc_low: Lower end of the 95 % interval (logit scale).
        auc_high: Upper end.
        tpr: Share of members above the threshold that at most `FPR` of the non-members
            of their stratum exceed; likewise averaged.
        tpr_low: Lower end of Wilson's 95 % interval, the thresholds taken as given.
        tpr_high: Upper end.
    """

    setting: str
    method: str
    n_members: int
    n_nonmembers: int
    n_strata: int
    auc: float
    auc_se: float
    auc_low: float
    auc_high: float
    tpr: float | None
    tpr_low: float | None
    tpr_high: float | None


def cells(strata: Sequence[tuple[str, int, Stratum]]) -> tuple[Cell, ...]:
    """One a score and number of copies, of strata with both; scores as they come."""
    return tuple(
        cell([one for _, _, one in own], copies=copies, method=method)
        for method, found in grouped(strata, lambda one: one[0]).items()
        for copies, own in grouped(found, lambda one: one[1]).items()
    )


def cell(strata: Sequence[Stratum], *, copies: int, method: str) -> Cell:
    """Average the AUC and the TPR of a score over strata.

    Args:
        strata: Each with at least 2 members and 2 non-members.
        copies: How often members were planted.
        method: The score.
    """
    auc, se = _averaged(
        strata, [auc_delong(one.members, one.nonmembers) for one in strata]
    )
    n_members = sum(len(one.members) for one in strata)
    n_nonmembers = sum(len(one.nonmembers) for one in strata)
    low, high = auc_interval(auc, se, n=min(n_members, n_nonmembers))
    tpr = tpr_low = tpr_high = None
    if all(len(one.nonmembers) * FPR >= 1 for one in strata):
        tpr, _ = _averaged(strata, [(_tpr(one), 0.0) for one in strata])
        tpr_low, tpr_high = wilson_interval(round(tpr * n_members), n_members)
    return Cell(
        setting=f"{copies} copies",
        method=method,
        n_members=n_members,
        n_nonmembers=n_nonmembers,
        n_strata=len(strata),
        auc=auc,
        auc_se=se,
        auc_low=low,
        auc_high=high,
        tpr=tpr,
        tpr_low=tpr_low,
        tpr_high=tpr_high,
    )


def _averaged(
    strata: Sequence[Stratum], found: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Mean of numbers of strata, weighted by their members, and its standard error."""
    counts = np.array([len(one.members) for one in strata], np.float64)
    weights = counts / counts.sum()
    values, errors = np.array(found).T
    return float(weights @ values), math.sqrt(float(weights**2 @ errors**2))


def _tpr(one: Stratum) -> float:
    """Share of members above the threshold that at most `FPR` of the others exceed."""
    return tpr_at_fpr(one.members, one.nonmembers, FPR)[0]

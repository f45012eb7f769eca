"""Numbers of a study: AUC, TPR and accuracy over several seeds and tasks.

Members are compared with non-members of the same task and the same seed alone, and
the comparisons averaged: scores of different models and forms of text do not compare.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from eval.membership.texts import Item
from jaxcontam.methods.membership.text_model import TextModel
from jaxcontam.stats.roc import auc_delong, auc_interval, paired_delong, tpr_at_fpr
from jaxcontam.stats.shares import wilson_interval

FPR = 0.05
_Z = 1.959964


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Stratum:
    """Scores of one task under one model, higher = more likely a member.

    Attributes:
        members: float64, one per text.
        nonmembers: Likewise.
    """

    members: np.ndarray
    nonmembers: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One score in one setting: a row of a study's table.

    Attributes:
        study: Such as `corpus`.
        setting: What was varied, in words.
        x: The same as a number, for plots.
        task: `all`, or the name of one.
        method: The score.
        n_members: Over all strata.
        n_nonmembers: Likewise.
        n_strata: Tasks times seeds.
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

    study: str
    setting: str
    x: float
    task: str
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """AUC in the last setting minus that in the first.

    Attributes:
        study: Such as `corpus`.
        method: The score.
        first: Setting.
        last: Setting.
        difference: Mean over strata.
        low: Lower end of the 95 % interval; DeLong's for pairs where both settings
            score the same texts.
        high: Upper end.
        paper: What Shi et al. found: `rises`, `falls`.
        found: `rises` or `falls` where the interval leaves 0 out, else `not seen`.
    """

    study: str
    method: str
    first: str
    last: str
    difference: float
    low: float
    high: float
    paper: str
    found: str


class Strata:
    """Strata by score and setting, and what they come to."""

    def __init__(self, study: str):
        """Collect the strata of a study."""
        self.study = study
        self._found: dict[str, dict[tuple[str, float, str], list[Stratum]]] = {}

    def add(
        self,
        method: str,
        setting: str,
        x: float,
        members: np.ndarray,
        nonmembers: np.ndarray,
        *,
        task: str = "all",
    ) -> None:
        """Scores of one task under one model; arguments as the fields of `Cell`."""
        settings = self._found.setdefault(method, {})
        strata = settings.setdefault((setting, x, task), [])
        strata.append(Stratum(members, nonmembers))

    def cells(self) -> tuple[Cell, ...]:
        """One a score and setting."""
        return tuple(
            cell(
                strata, study=self.study, setting=setting, x=x, method=method, task=task
            )
            for method, settings in self._found.items()
            for (setting, x, task), strata in settings.items()
        )

    def trends(self, *, paper: str, paired: bool, first: int = 0) -> tuple[Trend, ...]:
        """The last setting against the first (or another one), of each score."""
        return tuple(
            trend(
                list(settings.values())[first],
                list(settings.values())[-1],
                settings=(list(settings)[first][0], list(settings)[-1][0]),
                study=self.study,
                method=method,
                paper=paper,
                paired=paired,
            )
            for method, settings in self._found.items()
        )


def cell(
    strata: Sequence[Stratum],
    *,
    study: str,
    setting: str,
    x: float,
    method: str,
    task: str = "all",
) -> Cell:
    """Average the AUC and the TPR of a score over strata.

    Args:
        strata: Each with at least 2 members and 2 non-members.
        study: See `Cell`, like the rest.
        setting: In words.
        x: As a number.
        method: The score.
        task: Task of the strata.
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
        study=study,
        setting=setting,
        x=x,
        task=task,
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


def trend(
    first: Sequence[Stratum],
    last: Sequence[Stratum],
    *,
    settings: tuple[str, str],
    study: str,
    method: str,
    paper: str,
    paired: bool,
) -> Trend:
    """Compare two settings of a study.

    Args:
        first: Its strata.
        last: Likewise; where `paired`, of the same texts in the same order.
        settings: Their names.
        study: See `Trend`, like the rest.
        method: The score.
        paper: `rises` or `falls`.
        paired: Whether both score the same texts.
    """
    if paired:
        pairs = [
            paired_delong(b.members, b.nonmembers, a.members, a.nonmembers)
            for a, b in zip(first, last, strict=True)
        ]
        difference, se = _averaged(first, [(one.difference, one.se) for one in pairs])
    else:
        a, b = (
            cell(strata, study=study, setting="", x=0.0, method=method)
            for strata in (first, last)
        )
        difference, se = b.auc - a.auc, math.hypot(a.auc_se, b.auc_se)
    low, high = difference - _Z * se, difference + _Z * se
    return Trend(
        study=study,
        method=method,
        first=settings[0],
        last=settings[1],
        difference=difference,
        low=low,
        high=high,
        paper=paper,
        found="rises" if low > 0 else "falls" if high < 0 else "not seen",
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


Answered = Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]]
"""Task -> for each seed, whether each seen and each unseen example was answered."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyRow:
    """Accuracy on seen and on unseen examples of one task in one setting.

    Attributes:
        setting: Such as a learning rate; `before` is the base model.
        task: Name, or `all`.
        n_seen: Examples, over all seeds.
        n_unseen: Likewise.
        seen: Share answered rightly.
        unseen: Likewise.
        difference: `seen` minus `unseen`.
        low: Lower end of its 95 % interval.
        high: Upper end.
        gain: `difference` minus that of the base model, which saw neither: how much
            more the seen examples gained.
        gain_low: Lower end of its 95 % interval, from the same examples before and
            after (normal).
        gain_high: Upper end.
    """

    setting: str
    task: str
    n_seen: int
    n_unseen: int
    seen: float
    unseen: float
    difference: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float


def right_answers(model: TextModel, items: Sequence[Item]) -> np.ndarray:
    """Whether the likeliest version of each item is the one with the right option.

    The versions of an item share its question, so the sum over the whole text ranks
    them as the sum over the option does, wherever tokens begin and end. Longer options
    are at a disadvantage, of seen and of unseen examples alike.

    Returns:
        (n_items,) bool.
    """
    texts = [version for item in items for version in item.versions]
    sums_N = model.plain.log_likelihoods(model.sequences(texts))
    ends = np.cumsum([len(item.versions) for item in items])[:-1]
    return np.array(
        [
            int(versions.argmax()) == item.answer
            for item, versions in zip(items, np.split(sums_N, ends), strict=True)
        ]
    )


def accuracy_rows(
    setting: str, answered: Answered, before: Answered
) -> list[AccuracyRow]:
    """One row a task, and one for all.

    Args:
        setting: See `AccuracyRow`.
        answered: See `Answered`.
        before: The same examples, answered by the base model.
    """
    rows = []
    every, every_before = (
        [both for of_seeds in found.values() for both in of_seeds]
        for found in (answered, before)
    )
    for task, now, then in [
        *((task, answered[task], before[task]) for task in answered),
        ("all", every, every_before),
    ]:
        seen, unseen = (np.concatenate(side) for side in zip(*now, strict=True))
        difference, low, high = share_difference(
            int(seen.sum()), len(seen), int(unseen.sum()), len(unseen)
        )
        changes = [
            after.astype(np.float64) - np.concatenate(side)
            for after, side in zip((seen, unseen), zip(*then, strict=True), strict=True)
        ]
        gain = float(changes[0].mean() - changes[1].mean())
        half = _Z * math.sqrt(sum(float(one.var()) / len(one) for one in changes))
        rows.append(
            AccuracyRow(
                setting=setting,
                task=task,
                n_seen=len(seen),
                n_unseen=len(unseen),
                seen=float(seen.mean()),
                unseen=float(unseen.mean()),
                difference=difference,
                low=low,
                high=high,
                gain=gain,
                gain_low=gain - half,
                gain_high=gain + half,
            )
        )
    return rows


def share_difference(
    successes_a: int, trials_a: int, successes_b: int, trials_b: int
) -> tuple[float, float, float]:
    """Difference of two shares with its 95 % interval, by Wilson's limits of each.

    Source:
        Newcombe (1998), "Interval estimation for the difference between independent
        proportions", method 10.
    """
    a, b = successes_a / trials_a, successes_b / trials_b
    a_low, a_high = wilson_interval(successes_a, trials_a)
    b_low, b_high = wilson_interval(successes_b, trials_b)
    return (
        a - b,
        a - b - math.hypot(a - a_low, b_high - b),
        a - b + math.hypot(a_high - a, b - b_low),
    )

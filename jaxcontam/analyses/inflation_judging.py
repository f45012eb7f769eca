"""What scores on two sides say of inflation; needs no model.

`judged_inflation` is called once scores exist, and by `verify` with what `texts.jsonl`
holds.

Dimension key
    R  references
    N  published items
    P  other items
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxcontam.analyses.inflation_items import (
    FEWEST_GROUPS,
    GROUP_FIELD,
    ComparedItems,
    Row,
    compared_items,
)
from jaxcontam.data.benchmark import fingerprint
from jaxcontam.errors import InputError
from jaxcontam.results.inflation import (
    InflationEstimate,
    InflationReason,
    InflationResult,
    InflationVerdict,
    ModelAccuracy,
)
from jaxcontam.stats.inflation import (
    FEWEST,
    ConStatEstimate,
    GapEstimate,
    constat,
    gap_estimate,
)

MIN_POINTS = 5.0
"""Inflation that matters unless a user says otherwise."""

NAME_ONCE = "name each model once, and MODEL as no reference of itself"
"""What to do about a model that stands twice: it hides how much models differ."""

UNPAIRED, EQUALLY_HARD, LEAST = "--unpaired", "--equally-hard", "--min-points"
"""What decides a verdict beside the scores, as it is typed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is compared with what, and what is known of it.

    Attributes:
        paired: Whether those are rewrites of items of the same name.
        chance: Mean score of guessing; None where it is not known.
        group_field: Field whose equal values name items that are drawn together.
        seed: Seeds the bootstrap of `constat`.
    """

    benchmark: str = ""
    against: str = ""
    paired: bool = True
    equally_hard: bool = False
    metric: str = ""
    chance: float | None = None
    min_points: float = MIN_POINTS
    group_field: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.min_points) and self.min_points > 0):
            raise InputError(f"{LEAST} must be positive, got {self.min_points}")

    @property
    def words(self) -> tuple[str, ...]:
        """What the user says of the comparison, as flags."""
        words = [UNPAIRED] * (not self.paired) + [EQUALLY_HARD] * self.equally_hard
        if self.min_points != MIN_POINTS:
            words += [LEAST, str(self.min_points)]
        if self.group_field is not None:
            words += [GROUP_FIELD, self.group_field]
        return tuple(words)

    @classmethod
    def said(cls, words: Sequence[str], **known: Any) -> "Comparison":
        """The comparison that the words of a command ask for."""
        if LEAST in words:
            known["min_points"] = float(words[list(words).index(LEAST) + 1])
        if GROUP_FIELD in words:
            known["group_field"] = words[list(words).index(GROUP_FIELD) + 1]
        paired, equally_hard = UNPAIRED not in words, EQUALLY_HARD in words
        return cls(paired=paired, equally_hard=equally_hard, **known)


def judged_inflation(
    rows: Sequence[Row],
    models: Sequence[str],
    asked: Comparison,
    notes: Sequence[str] = (),
) -> InflationResult:
    """Estimate the inflation of the first model's score and choose the word."""
    n_references = len(models) - 1
    items = compared_items(rows, models, paired=asked.paired)
    published_MN, other_MP = items.published, items.other
    _refuse_twins(np.hstack([published_MN, other_MP]), models)
    estimate = functools.partial(gap_estimate, paired=asked.paired, groups=items.groups)
    gaps = [
        estimate(published_MN[m, None], other_MP[m, None]) for m in range(len(models))
    ]
    first, estimates = gaps[0], [_points("gap", gaps[0])]
    warnings = [*notes, *items.notes]
    if n_references:
        beside = estimate(published_MN, other_MP)
        estimates.append(_points("difference in differences", beside))
        if not asked.equally_hard:
            # Nobody vouches that the model's own gap is inflation.
            first, estimates = beside, estimates[::-1]
        references = estimate(
            published_MN[1:].mean(axis=0)[None], other_MP[1:].mean(axis=0)[None]
        )
        warnings += _of_references(references)
    if n_references >= FEWEST:
        found, warning = _curve(items, asked)
        estimates += found
        warnings += warning
    verdict, reason = inflation_verdict(
        first,
        n_groups=items.n_groups,
        n_references=n_references,
        equally_hard=asked.equally_hard,
        min_points=asked.min_points,
    )
    accuracies = tuple(
        ModelAccuracy(
            model=name,
            reference=m > 0,
            published=float(published_MN[m].mean()),
            other=float(other_MP[m].mean()),
            gap=100 * gaps[m].estimate,
            gap_low=100 * gaps[m].low,
            gap_high=100 * gaps[m].high,
        )
        for m, name in enumerate(models)
    )
    told = dataclasses.asdict(asked)
    return InflationResult(
        **{name: value for name, value in told.items() if name != "seed"},
        fingerprint=fingerprint(
            [f"{row['side']}\t{row['item']}\t{row['text']}" for row in rows]
        ),
        n_published=published_MN.shape[1],
        n_other=other_MP.shape[1],
        n_groups=items.n_groups if items.is_grouped else None,
        verdict=verdict,
        reason=reason,
        accuracies=accuracies,
        estimates=tuple(estimates),
        warnings=tuple(warnings),
    )


def inflation_verdict(
    found: GapEstimate,
    *,
    n_groups: int,
    n_references: int,
    equally_hard: bool,
    min_points: float,
) -> tuple[InflationVerdict, InflationReason]:
    """The word for the estimate that decides, and why it cannot be told.

    `n_groups` are groups of pairs, or of the side that has fewer; without groups pairs
    or items.
    """
    if n_groups < FEWEST_GROUPS:
        return "cannot tell", "items"
    if n_references < 2 and not equally_hard:
        return "cannot tell", "one reference" if n_references else "no reference"
    if found.outside:
        return "cannot tell", "outside"
    if found.low > 0:
        return "inflated", ""
    if 100 * found.mde <= min_points:
        return "no inflation found", ""
    return "cannot tell", "references" if found.rests_on == "models" else "items"


def _curve(
    items: ComparedItems, asked: Comparison
) -> tuple[list[InflationEstimate], list[str]]:
    """ConStat's estimate, if the references give a curve, and what to know of it."""
    try:
        found = constat(
            items.published,
            items.other,
            paired=asked.paired,
            chance=asked.chance,
            groups=items.groups,
            seed=asked.seed,
        )
    except ValueError:
        return [], ["the references score alike, so there is no curve"]
    beyond = (
        "the model scores outside the references on the other items: the curve of "
        "constat is a straight line there"
    )
    return [_points("constat", found)], [beyond] * found.outside


def _refuse_twins(scores_MI: np.ndarray, models: Sequence[str]) -> None:
    for m, name in enumerate(models):
        for n in range(m):
            is_one = (scores_MI[m] == scores_MI[n]).all()
            if is_one and np.ptp(scores_MI[m]) > 0:
                raise InputError(
                    f"{models[n]} and {name} have the same score on every item",
                    hint=NAME_ONCE,
                )


def _of_references(mean: GapEstimate) -> list[str]:
    """What the gap of their mean score shows of the other items."""
    if mean.low <= 0 <= mean.high:
        return []
    word, less = ("harder", "less") if mean.low > 0 else ("easier", "more")
    return [
        f"the other items are {word}: references score "
        f"{100 * abs(mean.estimate):.1f} points {less} on them, which the "
        "difference in differences takes out"
    ]


def _points(estimator: Any, found: GapEstimate | ConStatEstimate) -> InflationEstimate:
    is_gap = isinstance(found, GapEstimate)
    return InflationEstimate(
        estimator=estimator,
        points=100 * found.estimate,
        low=100 * found.low,
        high=100 * found.high,
        p_value=found.p_value,
        mde=100 * found.mde if is_gap else None,
        spread=100 * found.spread if is_gap and found.spread is not None else None,
        rests_on=found.rests_on if is_gap else "items",
    )

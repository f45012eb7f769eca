"""What scores on two sides say of inflation; needs no model.

`judged_inflation` is called once scores exist, and by `verify` with what `texts.jsonl`
holds.

Dimension key
    M  models, the one in question first, then references
    N  published items
    P  other items
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.data.benchmark import fingerprint
from jaxcontam.data.score_columns import OTHER, PUBLISHED
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

FEWEST_ITEMS = 10
"""Items of a side, or pairs, that a verdict needs.

Fewer say next to nothing: where no pair differs, ten find an inflation of 37 points
with a chance of 0.8, five one of 73, three none.
"""

NAME_ONCE = "name each model once, and MODEL as no reference of itself"
"""What to do about a model that stands twice: it hides how much models differ."""

UNPAIRED, EQUALLY_HARD, LEAST = "--unpaired", "--equally-hard", "--min-points"
"""What decides a verdict beside the scores, as it is typed."""

Rows = Sequence[Mapping[str, Any]]
"""`side`, `item`, `text` and `scores` (model -> score or None) of each item."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is compared with what, and what is known of it.

    Attributes:
        benchmark: Name of the published items.
        against: Name of the others.
        paired: Whether those are rewrites of items of the same name.
        equally_hard: The user vouches that they are as hard.
        metric: How an item is scored.
        chance: Mean score of guessing; None where it is not known.
        min_points: Inflation that matters.
        seed: Seeds the bootstrap of `constat`.
    """

    benchmark: str = ""
    against: str = ""
    paired: bool = True
    equally_hard: bool = False
    metric: str = ""
    chance: float | None = None
    min_points: float = MIN_POINTS
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
        return tuple(words)

    @classmethod
    def said(cls, words: Sequence[str], **known: Any) -> "Comparison":
        """The comparison that the words of a command ask for."""
        if LEAST in words:
            known["min_points"] = float(words[list(words).index(LEAST) + 1])
        paired, equally_hard = UNPAIRED not in words, EQUALLY_HARD in words
        return cls(paired=paired, equally_hard=equally_hard, **known)


def judged_inflation(
    rows: Rows, models: Sequence[str], asked: Comparison, notes: Sequence[str] = ()
) -> InflationResult:
    """Estimate the inflation of the first model's score and choose the word.

    Args:
        rows: Items of both sides with their scores.
        models: The model in question, then references.
        asked: What is compared.
        notes: Warnings that come before those of here.

    Raises:
        InputError: If fewer than two items of a side have all scores, or two models
            have the same ones throughout.
    """
    paired, n_references = asked.paired, len(models) - 1
    published_MN, other_MP, left_out = score_tables(rows, models, paired=paired)
    _refuse_twins(np.hstack([published_MN, other_MP]), models)
    gaps = [
        gap_estimate(published_MN[m, None], other_MP[m, None], paired=paired)
        for m in range(len(models))
    ]
    first, estimates = gaps[0], [_points("gap", gaps[0])]
    warnings = [*notes, *left_out]
    if n_references:
        beside = gap_estimate(published_MN, other_MP, paired=paired)
        estimates.append(_points("difference in differences", beside))
        if not asked.equally_hard:
            # Nobody vouches that the model's own gap is inflation.
            first, estimates = beside, estimates[::-1]
        warnings += _of_references(published_MN[1:], other_MP[1:], paired=paired)
    if n_references >= FEWEST:
        found, warning = _curve(published_MN, other_MP, asked)
        estimates += found
        warnings += warning
    verdict, reason = inflation_verdict(
        first,
        n_items=min(published_MN.shape[1], other_MP.shape[1]),
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
        verdict=verdict,
        reason=reason,
        accuracies=accuracies,
        estimates=tuple(estimates),
        warnings=tuple(warnings),
    )


def inflation_verdict(
    found: GapEstimate,
    *,
    n_items: int,
    n_references: int,
    equally_hard: bool,
    min_points: float,
) -> tuple[InflationVerdict, InflationReason]:
    """The word for an estimate, and why it cannot be told.

    Args:
        found: The estimate that decides.
        n_items: Pairs, or items of the smaller side.
        n_references: Models that show how hard the other items are.
        equally_hard: The user vouches for these.
        min_points: Inflation that matters.
    """
    if n_items < FEWEST_ITEMS:
        return "cannot tell", "items"
    if n_references < 2 and not equally_hard:
        return "cannot tell", "one reference" if n_references else "no reference"
    if found.low > 0:
        return "inflated", ""
    if 100 * found.mde <= min_points:
        return "no inflation found", ""
    return "cannot tell", "references" if found.rests_on == "models" else "items"


def score_tables(
    rows: Rows, models: Sequence[str], *, paired: bool
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(M, N) published scores, (M, P) others, and what was left out, in sentences.

    Several rewrites of one item count as their mean.

    Raises:
        InputError: If an item is published twice in pairs, or fewer than two items of a
            side have all scores.
    """
    sides: dict[str, dict[str, list[list[float]]]] = {PUBLISHED: {}, OTHER: {}}
    n_unscored = 0
    for row in rows:
        scores = [row["scores"].get(model) for model in models]
        if any(score is None for score in scores):
            n_unscored += 1
            continue
        sides[row["side"]].setdefault(row["item"], []).append(scores)
    notes = [f"items without a score of each model, left out: {n_unscored}"]
    notes = notes * bool(n_unscored)
    published, other = sides[PUBLISHED], sides[OTHER]
    if paired:
        if twice := [item for item, found in published.items() if len(found) > 1]:
            raise InputError(
                f"item {twice[0]!r} is published twice",
                hint="--id-field names what tells items apart",
            )
        both = [item for item in published if item in other]
        if n_alone := len(published) + len(other) - 2 * len(both):
            notes.append(f"items without a partner, left out: {n_alone}")
        if n_several := sum(len(other[item]) > 1 for item in both):
            notes.append(f"items with several rewrites, taken by mean: {n_several}")
        tables = [
            [np.mean(side[i], axis=0) for i in both] for side in (published, other)
        ]
    else:
        tables = [
            [one for found in side.values() for one in found]
            for side in (published, other)
        ]
    if min(map(len, tables)) < 2:
        counts = " and ".join(str(len(table)) for table in tables)
        raise InputError(
            f"too few items to compare: {counts}",
            hint="rewrites need the ids of their originals; --unpaired takes any",
        )
    published_MN, other_MP = (np.array(table, np.float64).T for table in tables)
    return published_MN, other_MP, notes


def _curve(
    published_MN: np.ndarray, other_MP: np.ndarray, asked: Comparison
) -> tuple[list[InflationEstimate], list[str]]:
    """ConStat's estimate, if the references give a curve, and what to know of it."""
    try:
        found = constat(
            published_MN,
            other_MP,
            paired=asked.paired,
            chance=asked.chance,
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
    """Refuse two models that agree on every item."""
    for m, name in enumerate(models):
        for n in range(m):
            is_one = (scores_MI[m] == scores_MI[n]).all()
            if is_one and np.ptp(scores_MI[m]) > 0:
                raise InputError(
                    f"{models[n]} and {name} have the same score on every item",
                    hint=NAME_ONCE,
                )


def _of_references(
    published_RN: np.ndarray, other_RP: np.ndarray, *, paired: bool
) -> list[str]:
    """What references show of the other items."""
    mean = gap_estimate(
        published_RN.mean(axis=0)[None], other_RP.mean(axis=0)[None], paired=paired
    )
    warnings = []
    if mean.low > 0 or mean.high < 0:
        word, less = ("harder", "less") if mean.low > 0 else ("easier", "more")
        warnings.append(
            f"the other items are {word}: references score "
            f"{100 * abs(mean.estimate):.1f} points {less} on them, which the "
            "difference in differences takes out"
        )
    return warnings


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

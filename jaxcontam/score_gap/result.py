"""Result dataclasses of `jaxcontam inflation`: the row of its `report.json`."""

import dataclasses
from typing import Literal

from jaxcontam.reports.report import Report
from jaxcontam.reports.row import ResultRow

InflationVerdict = Literal["inflated", "no inflation found", "cannot tell"]
"""What a report says of a score; never that a model has or has not read the items."""

InflationReason = Literal[
    "", "no reference", "one reference", "outside", "items", "references"
]
"""Why it cannot be told.

There are fewer than ten pairs, or items of a side, or groups of them; or nothing shows
that the other items are as hard as the published ones; or one model alone does, which
does not show how models differ; or the model scores outside the references on the other
items, so that these may be harder for it by more or less; or an inflation of
`min_points` could have been missed, for want of items, or of references that are more,
or more like the model.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccuracy:
    """Mean scores of one model on both sides, as shares.

    Attributes:
        other: Of items that cannot have been seen.
        gap: `published` less `other`, in points; the 95 % interval beside it likewise.
    """

    model: str
    reference: bool
    published: float
    other: float
    gap: float
    gap_low: float
    gap_high: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InflationEstimate:
    """Points that a score gains by having been seen, by one estimator.

    Attributes:
        estimator: `gap` (the model alone), `difference in differences` (less the mean
            gap of the references), or `constat` (against a curve through them).
        p_value: One-sided, that there is no inflation.
        mde: Smallest inflation that `low` would lie above 0 for with a chance of 0.8;
            None for `constat`.
        spread: Standard deviation of the references' gaps, in points; None with fewer
            than two, and for `constat`.
        rests_on: `models` where that leaves the interval wider than the draw of items.
    """

    estimator: Literal["gap", "difference in differences", "constat"]
    points: float
    low: float
    high: float
    p_value: float
    mde: float | None
    spread: float | None
    rests_on: Literal["items", "models"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InflationResult(ResultRow):
    """Inflation of one score: the row of `results`.

    Attributes:
        benchmark: Name of the published items; the fingerprint is of both sides.
        against: Name of the items that cannot have been seen.
        paired: Whether these are rewrites, in pairs.
        equally_hard: Whether the user vouches that they are as hard as the published.
        metric: How an item is scored.
        n_published: Published items; of pairs, those that have both.
        n_other: Other items; likewise.
        chance: Mean score of guessing; None where it is not known.
        min_points: Inflation that matters.
        group_field: Field whose equal values name items that are drawn together.
        n_groups: Groups of pairs, or of the side that has fewer; None where each item
            is drawn by itself.
        verdict: From the first of `estimates`.
        reason: Why it cannot be told, or "".
        estimates: The one that decides first.
    """

    against: str
    paired: bool
    equally_hard: bool
    metric: str
    n_published: int
    n_other: int
    chance: float | None
    min_points: float
    verdict: InflationVerdict
    reason: InflationReason
    accuracies: tuple[ModelAccuracy, ...]
    estimates: tuple[InflationEstimate, ...]
    group_field: str | None = None
    n_groups: int | None = None
    method: str = "inflation"
    primary: bool = True

    @property
    def decides(self) -> InflationEstimate:
        """The estimate that the verdict rests on."""
        return self.estimates[0]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InflationReport(Report):
    """A report of points gained."""

    results: tuple[InflationResult, ...]

"""Result dataclasses of `jaxcontam inflation`: the row of its `report.json`."""

import dataclasses
from typing import Literal

from jaxcontam.reports.report import Report, ResultRow

InflationVerdict = Literal["inflated", "no inflation found", "cannot tell"]
"""Words of a report for a score; never that a model has or has not read the items."""

InflationReason = Literal[
    "", "no reference", "one reference", "outside", "items", "references"
]
"""Missing for a verdict, or ""; a page says each in a sentence."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccuracy:
    """Mean scores of one model on both sides, as shares; gaps are in points."""

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

    It is that of the model alone, less the mean gap of the references, or against a
    curve through them; see `stats.inflation`.

    Attributes:
        mde: In points; None for `constat`.
        spread: Standard deviation of the references' gaps, in points; None with fewer
            than two, and for `constat`.
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
        n_published: Published items; of pairs, those that have both.
        chance: Mean score of guessing; None where it is not known.
        n_groups: Groups of pairs, or of the side that has fewer; None where each item
            is drawn by itself.
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

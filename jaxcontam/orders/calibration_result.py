"""Result dataclasses of `jaxcontam calibrate`; see `jaxcontam.results`."""

import dataclasses

import numpy as np

from jaxcontam.reports.report import Report
from jaxcontam.reports.terms import Validity
from jaxcontam.stats.result import Rejection

FRESH, RELABELLED = "fresh orders", "relabelled columns"
"""Where the p-values of a calibration come from."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationResult:
    """How often one test rejects where nothing is to be found: a row of `calibrate`.

    It checks the path from the file to p, on one model and one file. It does not show
    that the published order of that file is exchangeable.

    Attributes:
        drawn: `fresh orders`: random orders of the file, each scored as if published;
            `relabelled columns`: one scored order, random columns as published.
        tokens_scored: Target tokens that went through the model, in all draws.
        cached_tokens: Target tokens whose scores were reused.
        ks_statistic: Largest distance of the p-values, ties broken at random, from the
            uniform law.
        ks_p_value: Its p-value.
    """

    benchmark: str
    fingerprint: str
    content_digest: str
    n_examples: int
    method: str
    validity: Validity
    drawn: str
    n_draws: int
    n_strata: int
    n_orders: int
    group_field: str | None
    tokens_scored: int
    cached_tokens: int
    rejections: tuple[Rejection, ...]
    ks_statistic: float
    ks_p_value: float


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class DrawnPValues:
    """p-values of one row of results.

    Attributes:
        p_value: (R,) as reports would show them.
        p_randomised: (R,) with ties broken at random; None for relabelled columns.
    """

    p_value: np.ndarray
    p_randomised: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport(Report):
    """A report of how often tests reject where nothing is to be found."""

    results: tuple[CalibrationResult, ...]

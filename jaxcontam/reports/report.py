"""A report: rows of all kinds, the model, the device.

Rows of `report.json` are these fields under these names; None becomes null.
"""

import dataclasses

from jaxcontam.members.result import (
    BlindBaseline,
    ScoreResult,
    SetResult,
    TextThreshold,
)
from jaxcontam.orders.calibration_result import CalibrationResult
from jaxcontam.proof.result import OrderResult, UnscoredFile
from jaxcontam.replication.result import ComparisonResult, JudgeResult, OverlapResult
from jaxcontam.score_gap.result import InflationResult
from jaxcontam.scoring.info import DeviceInfo, ModelInfo

SCHEMA = 2
"""Schema version of report.json: its fields and their meaning."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MembershipResult:
    """How well a membership score separates a planted set from unseen sets.

    A ranking, never a proof: `p_value` and `verdict` are always None.

    Attributes:
        reference: Names of the never-injected sets that it is compared with.
    """

    benchmark: str
    fingerprint: str
    n_examples: int
    method: str
    auc: float
    auc_se: float
    reference: tuple[str, ...]
    tokens_scored: int
    copies: int | None = None
    copies_shuffled: bool | None = None
    primary: bool = False
    p_value: None = None
    verdict: None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """One of several benchmarks among those worth a closer look.

    Listing all whose number is at most q leaves an expected share of at most q of the
    list false, however the benchmarks depend on each other. Verdicts claim more, that
    each one is true, and rest on `p_adjusted` alone.

    Attributes:
        by: Its primary p-value as adjusted by Benjamini and Yekutieli.
        e_bh: Smallest level at which e-BH lists it, from its e-value.
    """

    benchmark: str
    by: float
    e_bh: float


Result = (
    OrderResult
    | MembershipResult
    | CalibrationResult
    | ScoreResult
    | SetResult
    | OverlapResult
    | JudgeResult
    | ComparisonResult
    | InflationResult
)
"""One row of `results`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that `report.json` holds, under the names of its fields.

    Attributes:
        schema: Schema version of these fields.
        jaxcontam: Version that made it; empty before it is written.
        command: The command line that made it.
        seed: Seeds every random choice of the run.
        started: ISO 8601, UTC.
        wall_seconds: Duration of the whole run.
        model: None where no model was scored.
        device: None where no model was scored.
        versions: Versions of the libraries that computed the numbers.
        min_effect: Effect above which `mde_adjusted` makes a verdict `inconclusive`;
            None where no verdict is given.
        results: One row per test.
        screening: One a benchmark where there are several; else empty.
        blind: What tells members from non-members without a model; of membership.
        thresholds: Scores above which a text counts as a member; of membership.
        study: What a study planted, or what a membership run was asked for; else None.
        unscored: Files that were not scored, since their order failed its checks.
        reference: The model that cannot have seen the files, if one was given.
        earlier: Names of folders beside this one with finished reports of the same
            model on a file of this report, by other tests or flags.
        references: Models that saw neither side, of `inflation`.
        digests: Digest of each file that the numbers follow from.
        digest: That of the text of report.json without it.
    """

    schema: int = SCHEMA
    jaxcontam: str = ""

    command: tuple[str, ...]
    seed: int
    started: str
    wall_seconds: float
    model: ModelInfo | None
    device: DeviceInfo | None
    versions: dict[str, str]
    min_effect: float | None
    results: tuple[Result, ...]
    screening: tuple[Screening, ...] = ()
    blind: tuple[BlindBaseline, ...] = ()
    thresholds: tuple[TextThreshold, ...] = ()
    study: dict[str, object] | None = None
    unscored: tuple[UnscoredFile, ...] = ()
    reference: ModelInfo | None = None
    earlier: tuple[str, ...] = ()
    references: tuple[ModelInfo, ...] = ()
    digests: dict[str, str] = dataclasses.field(default_factory=dict)
    digest: str = ""

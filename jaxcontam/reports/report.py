"""A report: rows of its room, the model, the device.

Rows of `report.json` are these fields under these names; None becomes null.
"""

import dataclasses
from typing import Any

from jaxcontam.scoring.opened import DeviceInfo, ModelInfo

SCHEMA = 2
"""Schema version of report.json: its fields and their meaning."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that `report.json` holds, under the names of its fields.

    Each room says what its rows are, in a class of its own for `read_result`.

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
    results: tuple[Any, ...]
    screening: tuple[Any, ...] = ()
    blind: tuple[Any, ...] = ()
    thresholds: tuple[Any, ...] = ()
    study: dict[str, object] | None = None
    unscored: tuple[Any, ...] = ()
    reference: ModelInfo | None = None
    earlier: tuple[str, ...] = ()
    references: tuple[ModelInfo, ...] = ()
    digests: dict[str, str] = dataclasses.field(default_factory=dict)
    digest: str = ""

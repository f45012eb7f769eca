"""Flags of `jaxcontam prove`, and what a proof must be able to find.

Nothing slow is imported, so that --help and a word that does not parse
are answered at once; a command imports its work when it runs.
"""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxcontam.reports.flags import (
    ReportFlags,
    check_min_effect,
    in_order,
)

MIN_EFFECT = 0.5
"""Nats per boundary that a `no evidence` must have been able to find."""


@in_order
@dataclasses.dataclass(frozen=True, kw_only=True)
class Prove(ReportFlags):
    """Test a matrix of scores: rows are strata, column 0 the published version.

    Examples:
        # a row per stratum, the published version first
        jaxcontam prove matrix.csv
    """

    matrix: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MATRIX")]
    """A .csv, with or without names of columns, .npy or .npz: (K, m + 1) numbers."""
    statistic: Literal["centred", "studentised", "auto"] = "centred"
    """Scaling of the rows before the test."""
    boundaries: str | None = None
    """Boundaries per row, one number or a file of K, for an effect in nats per
    boundary."""
    min_effect: float = MIN_EFFECT
    """Effect that `no evidence` must have been able to find, in its own unit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_min_effect(self.min_effect)

    def run(self) -> dict:
        """Test, write the report, print; returns the report."""
        from jaxcontam.proof.command import prove_matrix

        return prove_matrix(self)

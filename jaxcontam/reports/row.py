"""Fields that all rows of `report.json` share."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """One row of `results`.

    Attributes:
        benchmark: Name of the file, set or partition.
        fingerprint: Digest of its texts in their order.
        method: Name of what was computed, mostly a row of METHODS.
        primary: True for the one row of a benchmark that decides.
        warnings: What the reader should know, one sentence each.
    """

    benchmark: str
    fingerprint: str
    method: str
    primary: bool = False
    warnings: tuple[str, ...] = ()

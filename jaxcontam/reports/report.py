"""A report: rows of its room, the model, the device.

Rows of `report.json` are these fields under these names; None becomes null.
"""

import dataclasses
import datetime
import importlib.metadata
import platform
import time
from collections.abc import Iterable, Sequence
from typing import Any

from jaxcontam.scoring.opened import DeviceInfo, ModelInfo

SCHEMA = 2
"""Schema version of report.json: its fields and their meaning."""


_PACKAGES = ("jax", "jaxlib", "flax", "numpy", "scipy", "transformers", "tokenizers")


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


class Stopwatch:
    """Runs from its construction."""

    def __init__(self):
        self.started = utc_now()
        self._clock = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._clock

    def report(
        self,
        command: Sequence[str],
        seed: int,
        results: Iterable[Any],
        *,
        model: ModelInfo | None = None,
        device: DeviceInfo | None = None,
        min_effect: float | None = None,
        **more: Any,
    ) -> Report:
        """The report of a run that ends now; `more` are further fields of it."""
        return Report(
            command=tuple(command),
            seed=seed,
            started=self.started,
            wall_seconds=self.seconds,
            model=model,
            device=device,
            versions=library_versions(),
            min_effect=min_effect,
            results=tuple(results),
            **more,
        )


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that compute the numbers."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def utc_now() -> str:
    """ISO 8601 to the second, UTC."""
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return now.isoformat().replace("+00:00", "Z")

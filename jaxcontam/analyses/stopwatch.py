"""When a run began, how long it took, and the report that says so."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from jaxcontam.report.page import library_versions, utc_now
from jaxcontam.results import DeviceInfo, ModelInfo, Report
from jaxcontam.results.report import Result


class Stopwatch:
    """Runs from its construction.

    Attributes:
        started: ISO 8601, UTC.
    """

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
        results: Iterable[Result],
        *,
        model: ModelInfo | None,
        device: DeviceInfo | None,
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

"""When a run began, how long it took, and the report that says so."""

import datetime
import importlib.metadata
import platform
import time
from collections.abc import Iterable, Sequence
from typing import Any

from jaxcontam.reports.report import Report
from jaxcontam.scoring.opened import DeviceInfo, ModelInfo

_PACKAGES = ("jax", "jaxlib", "flax", "numpy", "scipy", "transformers", "tokenizers")


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

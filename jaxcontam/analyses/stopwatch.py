"""When a run began, and how long it took."""

import time

from jaxcontam.report.provenance import utc_now


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

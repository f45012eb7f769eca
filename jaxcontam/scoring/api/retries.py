"""Retries of requests to a server, and how many requests it gets together."""

import math
import random
from collections.abc import Sequence

from jaxcontam.scoring.api.address import ApiError
from jaxcontam.scoring.api.answers import Failure

# With waits of at most 1, 2, 4, ... 64, 64 s: a limit by the minute is waited for.
_TRIES = 10
# It has never answered: a mistyped address or setting should not take minutes.
_FIRST_TRIES = 4
# A late answer may be paid for, and each try takes the whole timeout; a malformed one
# that comes three times is no coincidence.
_SAME_TRIES = 3
_LONGEST_WAIT = 64.0
# A server that asks for more is waited for so long, and named if it stays busy.
_LONGEST_ASKED = 120.0
# Rounds of answers before concurrency rises: each rise may cost a rejection.
_ROUNDS = 4


class Policy:
    """Retries and concurrency of one server; times are in seconds of any clock.

    When a server says that it is busy, all requests wait, not only the rejected one;
    then concurrency is halved, and raised by one after every few rounds of answers.
    """

    def __init__(self, concurrency: int, rng: random.Random):
        """Start with `concurrency` requests together, the highest number."""
        self.has_answered = False
        self._most = concurrency
        self._rng = rng
        self._limit = float(concurrency)
        self._n_inside = 0
        self._not_before = -math.inf
        self._cut_at = -math.inf

    @property
    def limit(self) -> int:
        """Requests that may be on their way together."""
        return int(self._limit)

    @property
    def is_open(self) -> bool:
        """True if one more may go out."""
        return self._n_inside < self.limit

    def pause(self, now: float) -> float:
        """Seconds until the next request may go out."""
        return max(0.0, self._not_before - now)

    def enter(self) -> None:
        """One more is on its way."""
        self._n_inside += 1

    def leave(self) -> None:
        """Count one request as answered or given up."""
        self._n_inside -= 1

    def answered(self) -> None:
        """The server gave an answer."""
        self.has_answered = True
        self._limit = min(float(self._most), self._limit + 1 / (_ROUNDS * self._limit))

    def failed(
        self, failures: Sequence[Failure], *, sent: float, now: float, tries: int | None
    ) -> float | None:
        """Seconds before a request that failed once more is tried again, or None.

        The wait is exponential with full jitter (uniform between 0 and a bound that
        doubles), or what the server asks for, up to two minutes.
        """
        failure, wait = failures[-1], None
        if len(failures) < (tries or self._tries(failures)):
            bound = min(_LONGEST_WAIT, 2.0 ** (len(failures) - 1))
            wait = self._rng.uniform(0.0, bound)
            if failure.wait is not None:
                wait = min(failure.wait, _LONGEST_ASKED)
        if failure.kind == "busy":
            # Rejections of requests sent before the last cut say nothing new.
            if sent >= self._cut_at:
                self._limit = max(1.0, self._limit / 2)
                self._cut_at = now
            self._not_before = max(self._not_before, now + (wait or 0.0))
        return wait

    def error(self, url: str, failures: Sequence[Failure]) -> ApiError:
        """The error that ends a request after its last try."""
        failure = failures[-1]
        times = "" if len(failures) == 1 else f", {len(failures)} times"
        asked = ""
        if failure.wait is not None and failure.wait > _LONGEST_ASKED:
            asked = f"; the server asks to wait {failure.wait:.0f} s"
        hint = "run the same command again later: what is answered is not asked again"
        if failure.kind == "broken" and not self.has_answered:
            hint = "is a server running at that address and port?"
        if failure.kind == "garbled":
            hint = "the URL ends before /chat/completions, such as https://host/v1"
        return ApiError(
            f"{url}: {failure.words}{times}{asked}", hint=hint, status=failure.status
        )

    def _tries(self, failures: Sequence[Failure]) -> int:
        """Tries that a request with these failures may have in all."""
        for kinds in (("late",), ("garbled", "unusable")):
            n_same = sum(failure.kind in kinds for failure in failures)
            if failures[-1].kind in kinds and n_same >= _SAME_TRIES:
                return len(failures)
        is_unknown = failures[-1].kind == "broken" and not self.has_answered
        return _FIRST_TRIES if is_unknown else _TRIES

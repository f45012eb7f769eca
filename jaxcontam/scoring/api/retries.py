"""When a request is tried again, and how many a server gets together."""

import math
import random
import threading
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


def seconds_to_wait(
    failures: Sequence[Failure],
    has_answered: bool,
    rng: random.Random,
    tries: int | None = None,
) -> float | None:
    """Seconds before a request that failed so far is tried again; None for no more.

    The wait is exponential with full jitter (uniform between 0 and a bound that
    doubles), or what the server asks for, up to two minutes. Without `tries` the
    faults decide how many there are; `has_answered` is of the server.
    """
    n, last = len(failures), failures[-1]
    if tries is None:
        is_unknown = last.kind == "broken" and not has_answered
        tries = _FIRST_TRIES if is_unknown else _TRIES
        for kinds in (("late",), ("garbled", "unusable")):
            n_same = sum(failure.kind in kinds for failure in failures)
            if last.kind in kinds and n_same >= _SAME_TRIES:
                return None
    if n >= tries:
        return None
    if last.wait is not None:
        return min(last.wait, _LONGEST_ASKED)
    return rng.uniform(0.0, min(_LONGEST_WAIT, 2.0 ** (n - 1)))


def last_error(url: str, failures: Sequence[Failure], has_answered: bool) -> ApiError:
    """The error that ends a request after its last try."""
    last = failures[-1]
    times = "" if len(failures) == 1 else f", {len(failures)} times"
    asked = ""
    if last.wait is not None and last.wait > _LONGEST_ASKED:
        asked = f"; the server requests a wait of {last.wait:.0f} s"
    hint = "run the same command again later: answers are kept"
    if last.kind == "broken" and not has_answered:
        hint = "check that a server is running at that address and port"
    if last.kind == "garbled":
        hint = "the URL ends before /chat/completions, such as https://host/v1"
    return ApiError(f"{url}: {last.words}{times}{asked}", hint=hint, status=last.status)


class Pace:
    """Requests that a server gets together; times are in seconds of any clock.

    When it says that it is busy, all requests wait, not only the rejected one; then
    their number is halved, and raised by one after every few rounds of answers.
    """

    def __init__(self, concurrency: int):
        """Start with `concurrency` requests together, the highest number."""
        self.has_answered = False
        self._most = concurrency
        self._limit = float(concurrency)
        self._n_inside = 0
        self._not_before = self._cut_at = -math.inf
        self._changed = threading.Condition()

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
        with self._changed:
            self._n_inside += 1

    def leave(self) -> None:
        """Count one request as answered or given up."""
        with self._changed:
            self._n_inside -= 1
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait until a request leaves, at most so long."""
        with self._changed:
            self._changed.wait(seconds)

    def answered(self) -> None:
        """The server gave an answer."""
        with self._changed:
            self.has_answered = True
            rise = 1 / (_ROUNDS * self._limit)
            self._limit = min(float(self._most), self._limit + rise)

    def busy(self, *, sent: float, now: float, wait: float) -> None:
        """The server rejected what was sent then, and is to be left alone."""
        with self._changed:
            # Rejections of requests sent before the last cut say nothing new.
            if sent >= self._cut_at:
                self._limit = max(1.0, self._limit / 2)
                self._cut_at = now
            self._not_before = max(self._not_before, now + wait)

"""What broke on the way, and how often and when to try again."""

import os
import random
import socket
import ssl
from collections import Counter

import httpx2

from jaxcontam.scoring.api.answers import Fault, without_key
from jaxcontam.scoring.api.errors import ApiError

# With waits of at most 1, 2, 4, ... 64, 64 s: a limit by the minute is waited for.
_TRIES = 10
# It has never answered: a mistyped address or setting should not take minutes.
_FIRST_TRIES = 4
# What is late may be paid for, and each try takes the whole time.
_LATE_TRIES = 3
# The same wrong form again and again is no accident.
_GARBLED_TRIES = 3
_LONGEST_WAIT = 64.0
# A server that asks for more is waited for so long, and named if it stays busy.
_LONGEST_ASKED = 120.0


class Tries:
    """The tries of one request."""

    def __init__(self, rng: random.Random, *, most: int | None = None):
        """No try has failed yet.

        Args:
            rng: Draws the waits.
            most: Most tries; None: as many as the fault deserves.
        """
        self._rng = rng
        self._most = most
        self._n_failed = 0
        self._has_answered = True
        self._of_kind: Counter[str] = Counter()

    def wait(self, fault: Fault, *, has_answered: bool) -> float | None:
        """Seconds before the next try, or None if there is none.

        Exponential with full jitter (uniform between 0 and a bound that doubles), or
        what the server asks for, up to two minutes.

        Args:
            fault: How this try failed.
            has_answered: Whether the server has ever given an answer.
        """
        self._n_failed += 1
        self._has_answered = has_answered
        self._of_kind[fault.kind] += 1
        if self._n_failed >= self._most_tries(fault, has_answered):
            return None
        if fault.wait is not None:
            return min(fault.wait, _LONGEST_ASKED)
        bound = min(_LONGEST_WAIT, 2.0 ** (self._n_failed - 1))
        return self._rng.uniform(0.0, bound)

    def error(self, url: str, fault: Fault) -> ApiError:
        """That it fails for good."""
        times = "" if self._n_failed == 1 else f", {self._n_failed} times"
        asked = ""
        if fault.wait is not None and fault.wait > _LONGEST_ASKED:
            asked = f"; the server asks to wait {fault.wait:.0f} s"
        hint = "run the same command again later: what is answered is not asked again"
        if fault.kind == "broken" and not self._has_answered:
            hint = "is a server running at that address and port?"
        if fault.kind == "garbled":
            hint = "the URL ends before /chat/completions, such as https://host/v1"
        return ApiError(
            f"{url}: {fault.words}{times}{asked}", hint=hint, status=fault.status
        )

    def _most_tries(self, fault: Fault, has_answered: bool) -> int:
        if self._most is not None:
            return self._most
        if fault.kind == "late" and self._of_kind["late"] >= _LATE_TRIES:
            return self._n_failed
        n_garbled = self._of_kind["garbled"] + self._of_kind["unusable"]
        if fault.kind in ("garbled", "unusable") and n_garbled >= _GARBLED_TRIES:
            return self._n_failed
        is_unknown = fault.kind == "broken" and not has_answered
        return _FIRST_TRIES if is_unknown else _TRIES


def read_failure(
    url: str,
    error: Exception,
    *,
    timeout: float,
    api_key: str | None,
    has_answered: bool,
) -> Fault:
    """What an error of the network means.

    Args:
        url: Of the server.
        error: Of httpx2, or a timeout.
        timeout: Most seconds of a request.
        api_key: Not in what comes out.
        has_answered: Whether the server has ever given an answer.

    Raises:
        ApiError: If trying again would not help.
    """
    causes = _causes(error)
    words = without_key(" ".join(_words(causes[-1]).split()), api_key)
    for cause in causes:
        if isinstance(cause, ssl.SSLError) and not _is_broken(cause):
            reason = getattr(cause, "verify_message", "") or cause.reason or words
            raise ApiError(
                f"{url}: no secure connection ({reason})",
                hint="check the certificate of the server (SSL_CERT_FILE names "
                "authorities of your own), and whether it speaks https at all",
            ) from None
        is_unknown = isinstance(cause, socket.gaierror) and (
            cause.errno == socket.EAI_NONAME
        )
        if is_unknown and not has_answered:
            raise ApiError(f"{url}: no such host", hint="check the URL") from None
    if type(error) is TimeoutError:
        return Fault("late", f"no whole answer within {timeout:g} s")
    if isinstance(error, httpx2.TimeoutException):
        return Fault("broken", "no answer (no connection in time)")
    return Fault("broken", f"no answer ({words})")


def _words(error: BaseException) -> str:
    """What an error says, without numbers and names of Python's where it can be."""
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _causes(error: BaseException) -> list[BaseException]:
    """An error and what it comes from, the first cause last."""
    found = [error]
    while (cause := found[-1].__cause__ or found[-1].__context__) is not None:
        if cause in found:
            break
        found.append(cause)
    return found


def _is_broken(error: ssl.SSLError) -> bool:
    """Whether a connection that was secure ended in the middle."""
    return isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)

"""Transient faults of requests, and their classification from network errors."""

import dataclasses
import os
import socket
import ssl
from typing import Literal

import httpx2

from jaxcontam.scoring.api.errors import ApiError

# Fewer characters of a key help nobody, and are a part of many words.
_SHORTEST_END = 6


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """Why there is no answer yet; the same request may have one later.

    Attributes:
        kind: busy: the server wants fewer requests; late: no whole answer in time;
            broken: the connection; garbled: an answer of another form; unusable: one
            of the protocol that does not hold what was asked for.
        words: In one line.
        wait: Seconds that the server asks to wait, if it does.
        status: The HTTP status, if there is one.
    """

    kind: Literal["busy", "late", "broken", "garbled", "unusable"]
    words: str
    wait: float | None = None
    status: int | None = None


def without_key(words: str, api_key: str | None) -> str:
    """Servers may repeat a wrong key in what they say, or its two ends."""
    key = api_key or ""
    lengths = range(len(key), min(len(key), _SHORTEST_END) - 1, -1) if key else ()
    for n in lengths:
        words = words.replace(key[:n], "***").replace(key[-n:], "***")
    return words


def read_failure(
    url: str,
    error: Exception,
    *,
    timeout: float,
    api_key: str | None,
    has_answered: bool,
) -> Fault:
    """Classify a network error.

    Raises:
        ApiError: If trying again would not help.
    """
    causes = _causes(error)
    words = without_key(" ".join(_words(causes[-1]).split()), api_key)
    for cause in causes:
        # A secure connection that ends in the middle is a broken one.
        if isinstance(cause, ssl.SSLError) and not isinstance(
            cause, ssl.SSLEOFError | ssl.SSLZeroReturnError
        ):
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
    """An error's message without errno and Python names, where possible."""
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

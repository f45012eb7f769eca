"""Connections to a server, which another thread cuts when their time is over.

A socket's timeout starts anew with each byte, and headers are read within one call of
httpx2. So each request has a client with one connection, whose socket is known, and
whoever waits for the answers looks at the clock.
"""

import contextlib
import math
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

import httpx2

from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import Server
from jaxcontam.scoring.api.answers import Reply

_CONNECT_SECONDS = 10.0


class LongAnswerError(Exception):
    """An answer is longer than the request allows; the rest was not read."""


class Connections:
    """Connections to one server, as many as are used together.

    Times are those of `time.monotonic`.
    """

    def __init__(self, server: Server, transport: httpx2.BaseTransport | None):
        """Nothing is sent yet."""
        self._seconds = server.timeout_seconds
        headers = {"Content-Type": "application/json"}
        if server.api_key is not None:
            headers["Authorization"] = f"Bearer {server.api_key}"
        connect = min(_CONNECT_SECONDS, self._seconds)
        try:
            self._settings: dict[str, Any] = {
                "headers": headers,
                # A thread that nobody looks after any more ends, too.
                "timeout": httpx2.Timeout(self._seconds, connect=connect),
                "follow_redirects": False,
                "verify": httpx2.create_ssl_context(),
                "transport": transport,
            }
            self._all = [_Connection(httpx2.Client(**self._settings))]
        except (ImportError, ValueError, OSError, httpx2.InvalidURL) as e:
            # Bad proxy or certificate settings in the environment.
            raise InputError(
                f"no connection can be made ({type(e).__name__})",
                hint="check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE",
            ) from None
        self._idle = list(self._all)

    def post(self, url: str, content: bytes, most_bytes: int) -> Reply:
        """Send a request, and read its answer whole.

        Raises:
            TimeoutError: If it is not there in time, however slowly it comes.
            LongAnswerError: If it is longer than `most_bytes`.
        """
        try:
            one = self._idle.pop()
        except IndexError:
            one = _Connection(httpx2.Client(**self._settings))
            self._all.append(one)
        try:
            return one.post(url, content, most_bytes, self._seconds)
        finally:
            self._idle.append(one)

    def cut_late(self) -> float:
        """Cut requests whose time is over; gives when the oldest began, or infinity."""
        now = time.monotonic()
        for one in self._all:
            one.cut(now - self._seconds)
        return min(one.began for one in self._all)

    def cut(self) -> None:
        """Cut all that are in use."""
        for one in self._all:
            one.cut()

    def close(self) -> None:
        """Close all; once more does no harm."""
        for one in self._all:
            one.http.close()


class _Connection:
    """A connection for one request at a time, which began then, or never: infinity."""

    def __init__(self, http: httpx2.Client):
        self.http = http
        self.began = math.inf
        self._socket: socket.socket | None = None
        self._is_cut = False
        # Held while a request begins, ends or is cut: no other one is cut in its place.
        self._lock = threading.Lock()

    def post(self, url: str, content: bytes, most_bytes: int, seconds: float) -> Reply:
        with self._lock:
            self._is_cut = False
            began = self.began = time.monotonic()
        data = bytearray()
        try:
            with self.http.stream(
                "POST", url, content=content, extensions={"trace": self._note_socket}
            ) as response:
                for piece in response.iter_bytes():
                    data += piece
                    if len(data) > most_bytes:
                        raise LongAnswerError
        except (OSError, httpx2.HTTPError) as e:
            if time.monotonic() >= began + seconds:
                raise TimeoutError from e
            raise
        finally:
            with self._lock:
                self.began = math.inf
        if self._is_cut:
            # An answer without a length ends where its connection does.
            raise TimeoutError
        headers = {name.lower(): words for name, words in response.headers.items()}
        return Reply(response.status_code, headers, bytes(data))

    def cut(self, began_by: float = math.inf) -> None:
        """Cut the request that is on its way, if it began by then."""
        with self._lock:
            if self.began < math.inf and self.began <= began_by:
                self._is_cut = True
                self._shut()

    def _note_socket(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by httpx2 with what it does."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
                if self._is_cut:
                    self._shut()

    def _shut(self) -> None:
        """End all reading and writing; unlike a close, it wakes up who waits for it."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # Not the SSL socket's own, which changes what the other thread uses.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

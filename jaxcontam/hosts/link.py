"""Connections between the processes of one run: every process to process 0.

A frame is a kind (one byte), a length (8 bytes, big endian) and that many bytes:

    `H` who I am, JSON         `W` welcome
    `D` bytes of an exchange   `P` I am alive         `B` I am done
    `F` I stop: JSON with `kind`, `message` and `hint`

The other end's death closes the connection, which is seen at once; a machine that
vanishes is silent, which is seen after `SILENCE_SECONDS`. Nothing but bytes and JSON
is read, and nobody is authenticated: the port belongs in a network that is trusted,
as that of JAX's own coordinator does.
"""

import collections
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Sequence

from jaxcontam.errors import InputError, LostProcessError

# A process that sent nothing for so long is gone; each sends a sign of life often.
SILENCE_SECONDS = 40.0
_PING_SECONDS = 5.0
_PIECE_BYTES = 1 << 20
# The last two exchanges of a run.
_END, _LEFT = "end", "left"
HEADER = struct.Struct(">cQ")
"""Kind and length of a frame."""


class Link:
    """This process's connections, one thread each that reads them.

    Attributes:
        process: Index of this process.
        count: Processes in all.
        error: Why the run can't go on, once that is known.
    """

    def __init__(self, process: int, count: int):
        """No connections yet."""
        self.process, self.count = process, count
        self.error: LostProcessError | InputError | None = None
        self._changed = threading.Condition()
        self._sockets: dict[int, socket.socket] = {}
        self._sending: dict[int, threading.Lock] = {}
        self._frames: dict[int, collections.deque[bytes]] = {}
        self._finished: set[int] = set()
        self._done: set[int] = set()
        self._stopping = False
        self._closed = False

    def add(self, peer: int, connection: socket.socket) -> None:
        """Read from a peer from now on."""
        connection.settimeout(SILENCE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            self._sockets[peer] = connection
            self._sending[peer] = threading.Lock()
            self._frames[peer] = collections.deque()
        for target in (self._read, self._ping):
            threading.Thread(target=target, args=(peer,), daemon=True).start()

    @property
    def peers(self) -> set[int]:
        """Peers that are connected."""
        return set(self._sockets)

    def gather(self, data: bytes, name: str) -> list[bytes]:
        """Bytes of every process, by process.

        Args:
            data: Those of this process.
            name: Of the exchange; the same in every process.

        Raises:
            LostProcessError: If a process is gone.
            InputError: If a process stopped because of its input, or the processes are
                at different exchanges, since they work on different things.
        """
        own = packed([name.encode(), data])
        if self.process == 0:
            parts = [own, *(self._receive(peer) for peer in range(1, self.count))]
            everything = packed(parts)
            for peer in range(1, self.count):
                self.send(peer, b"D", everything)
        else:
            self.send(0, b"D", own)
            parts = unpacked(self._receive(0))
        found = [unpacked(part) for part in parts]
        names = [part[0].decode() for part in found]
        if set(names) != {name}:
            process = next(i for i, other in enumerate(names) if other != names[0])
            raise InputError(
                f"--distributed: process {process} does other work than process 0 "
                f"({names[process]!r} against {names[0]!r})",
                hint="run the same command on the same files on every host",
            )
        return [part[1] for part in found]

    def send(self, peer: int, kind: bytes, data: bytes = b"") -> None:
        """Send a frame; a peer that is gone shows in the next `gather`."""
        try:
            with self._sending[peer]:
                self._sockets[peer].sendall(HEADER.pack(kind, len(data)))
                # The time limit is of one call: a slow network is not a lost process.
                for start in range(0, len(data), _PIECE_BYTES):
                    self._sockets[peer].sendall(data[start : start + _PIECE_BYTES])
        except OSError as e:
            self._lose(peer, e)

    def stop(self, kind: str, message: str, hint: str = "") -> None:
        """Tell all others that this process stops, and why.

        What the input of one process lacks, that of another may have: they say whose.
        """
        if kind == "input" and not message.startswith("--distributed:"):
            message = f"process {self.process}: {message}"
        words = {"kind": kind, "message": message, "hint": hint}
        words["process"] = str(self.process)
        for peer in list(self._sockets):
            self.send(peer, b"F", json.dumps(words).encode())

    def finish(self) -> None:
        """Say that this process has worked, and wait until all have.

        From then on process 0, which may write for long, misses it no more.
        """
        self.gather(b"", _END)

    def leave(self) -> None:
        """Say that this process is done, and wait until all are."""
        self.gather(b"", _LEFT)
        for peer in list(self._sockets):
            self.send(peer, b"B")
        # A reset would swallow frames that the other end has not read yet.
        deadline = time.monotonic() + 5
        with self._changed:
            while self._done < set(self._sockets) and time.monotonic() < deadline:
                self._changed.wait(0.1)

    def close(self) -> None:
        """Close all connections."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for connection in self._sockets.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def wait_for_error(self, seconds: float) -> LostProcessError | InputError | None:
        """The error, if one comes up within so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.error is not None, seconds)
        return self.error

    def fail(self, error: LostProcessError | InputError) -> None:
        """Note why the run can't go on; the first reason counts."""
        with self._changed:
            if self.error is None and not self._closed:
                self.error = error
            self._changed.notify_all()

    def _receive(self, peer: int) -> bytes:
        """Next data frame of a peer."""
        with self._changed:
            while not self._frames[peer]:
                if self.error is not None:
                    raise self.error
                if peer in self._finished and peer in self._done:
                    return packed([_LEFT.encode(), b""])
                self._changed.wait()
            return self._frames[peer].popleft()

    def _read(self, peer: int) -> None:
        """Take frames until the connection ends."""
        connection = self._sockets[peer]
        try:
            while True:
                kind, data = read_frame(connection)
                if kind == b"F":
                    self._hear(peer, json.loads(data))
                with self._changed:
                    if kind == b"D":
                        self._frames[peer].append(data)
                        if self.process == 0 and data.startswith(
                            packed([_END.encode()])
                        ):
                            self._finished.add(peer)
                    elif kind == b"B":
                        self._done.add(peer)
                    self._changed.notify_all()
        except (OSError, ValueError) as e:
            self._lose(peer, e)

    def _ping(self, peer: int) -> None:
        """Signs of life, until the end."""
        while not self._closed and self.error is None:
            self.send(peer, b"P")
            time.sleep(_PING_SECONDS)

    def _lose(self, peer: int, why: Exception) -> None:
        if peer in self._done or self._needs_no_more(peer):
            return
        said = "is gone"
        if isinstance(why, TimeoutError):
            said = f"gave no sign of life for {SILENCE_SECONDS:g} s"
        self._spread(
            {
                "kind": "lost",
                "process": str(peer),
                "message": f"process {peer} of {self.count} {said}",
                "hint": "",
            }
        )

    def _needs_no_more(self, peer: int) -> bool:
        """Whether a peer that stops had worked to the end; then it counts as done."""
        with self._changed:
            if peer in self._finished:
                self._done.add(peer)
                self._changed.notify_all()
            return peer in self._finished

    def _hear(self, peer: int, words: dict[str, str]) -> None:
        """A peer stops: so does this process, and process 0 tells the others."""
        if self._needs_no_more(peer):
            return
        self._done.add(peer)
        self._spread(words)

    def _spread(self, words: dict[str, str]) -> None:
        """Stop, for the first reason that is known; process 0 tells the others."""
        with self._changed:
            if self._stopping or self.error is not None or self._closed:
                return
            self._stopping = True
        # First: once this process knows, it closes its connections, and the others
        # would miss this process in place of the one that is gone.
        if self.process == 0:
            for peer in list(self._sockets):
                if str(peer) != words["process"] and peer not in self._done:
                    self.send(peer, b"F", json.dumps(words).encode())
        if words["kind"] == "input":
            self.fail(InputError(words["message"], hint=words["hint"]))
        else:
            self.fail(LostProcessError(words["message"]))


def read_frame(
    connection: socket.socket, kinds: bytes = b"DPBF", longest: int = 1 << 20
) -> tuple[bytes, bytes]:
    """Kind and bytes of the next frame.

    Args:
        connection: To read from.
        kinds: That may come.
        longest: Bytes that it may have, where it is not of an exchange.

    Raises:
        OSError: If the connection ends or is silent.
        ValueError: If what comes is no frame.
    """
    kind, length = HEADER.unpack(_exactly(connection, HEADER.size))
    if kind not in kinds or (kind != b"D" and length > longest):
        raise ValueError("not a frame")
    return kind, _exactly(connection, length)


def _exactly(connection: socket.socket, n: int) -> bytes:
    parts = bytearray()
    while len(parts) < n:
        part = connection.recv(min(n - len(parts), 1 << 20))
        if not part:
            raise ConnectionError("closed")
        parts += part
    return bytes(parts)


def packed(parts: Sequence[bytes]) -> bytes:
    """Byte strings as one."""
    return b"".join(struct.pack(">Q", len(part)) + part for part in parts)


def unpacked(data: bytes) -> list[bytes]:
    """Undo `packed`."""
    parts, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from(">Q", data, at)
        parts.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    return parts

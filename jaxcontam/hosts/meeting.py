"""How the processes of a run find each other at its start.

Process 0 listens at the coordinator's address until all others have said who they are;
then the same port serves JAX's coordination service, and the connections stay.
"""

import contextlib
import json
import socket
import time

from jaxcontam.errors import InputError
from jaxcontam.hosts.link import HEADER, Link, read_frame

_NAME = "jaxcontam hosts 1"
_HELLO_SECONDS = 1.0


def accept(port: int, count: int, version: str, seconds: float) -> Link:
    """Process 0: wait until all others are connected.

    Raises:
        InputError: If the port is taken, or a process does not come or is another
            version's.
    """
    link, deadline = Link(0, count), time.monotonic() + seconds
    with _listener(port, min(deadline, time.monotonic() + 30)) as listener:
        listener.settimeout(0.2)
        while len(link.peers) < count - 1 and link.error is None:
            if time.monotonic() > deadline:
                link.fail(
                    InputError(
                        f"--distributed: {len(link.peers) + 1} of {count} processes "
                        f"came in {seconds:.0f} s",
                        hint="start the same command on every host, each with its "
                        "own JAX_PROCESS_ID",
                    )
                )
                break
            with contextlib.suppress(OSError, ValueError):
                connection = listener.accept()[0]
                try:
                    _welcome(link, connection, version)
                except (OSError, ValueError):
                    connection.close()
                    raise
    return _checked(link)


def _listener(port: int, deadline: float) -> socket.socket:
    """A listening socket; a run that was killed frees its port after seconds."""
    while True:
        try:
            return socket.create_server(("", port), backlog=1024)
        except OSError as e:
            if time.monotonic() > deadline:
                raise InputError(
                    f"--distributed: can't listen on port {port} ({e.strerror})",
                    hint="name a free port of process 0's host in "
                    "JAX_COORDINATOR_ADDRESS",
                ) from e
        time.sleep(0.5)


def _welcome(link: Link, connection: socket.socket, version: str) -> None:
    """Take a process in, or send it away and say why.

    Raises:
        OSError: If it went, or says nothing.
        ValueError: If it is a stranger.
    """
    # A process says who it is as soon as it is connected.
    connection.settimeout(_HELLO_SECONDS)
    peer, count, its_version = _hello(read_frame(connection, b"H", 1 << 16)[1])
    wrong = ""
    if count != link.count:
        wrong = f"process {peer} is one of {count}, process 0 of {link.count}"
    elif not 0 < peer < link.count or peer in link.peers:
        wrong = f"two processes say that they are process {peer}"
    elif its_version != version:
        wrong = f"process {peer} runs jaxcontam {its_version}, process 0 {version}"
    connection.sendall(HEADER.pack(b"W", 0))
    if wrong:
        error = InputError(
            f"--distributed: {wrong}",
            hint="give all processes the same JAX_NUM_PROCESSES, each its own "
            "JAX_PROCESS_ID, and install the same version on every host",
        )
        words = {"kind": "input", "message": str(error), "hint": error.hint}
        words["process"] = "0"
        data = json.dumps(words).encode()
        connection.sendall(HEADER.pack(b"F", len(data)) + data)
        connection.close()
        link.fail(error)
    else:
        link.add(peer, connection)


def _hello(data: bytes) -> tuple[int, int, str]:
    """Index, number of processes and version that a greeting names.

    Raises:
        ValueError: If it is none.
    """
    try:
        hello = json.loads(data)
        found = hello["process"], hello["count"], hello["version"]
        if hello["name"] != _NAME or list(map(type, found)) != [int, int, str]:
            raise ValueError("no greeting")
    except (KeyError, TypeError, RecursionError) as e:
        raise ValueError("no greeting") from e
    return found


def connect(
    host: str, port: int, process: int, count: int, version: str, seconds: float
) -> Link:
    """Any other process: connect to process 0 as soon as that listens.

    Raises:
        InputError: If process 0 does not answer.
    """
    hello = {"name": _NAME, "process": process, "count": count, "version": version}
    data, deadline = json.dumps(hello).encode(), time.monotonic() + seconds
    while True:
        try:
            connection = _greeted(host, port, data)
            break
        except (OSError, ValueError) as e:
            if time.monotonic() > deadline:
                raise InputError(
                    f"--distributed: process 0 does not answer at {host}:{port} ({e})",
                    hint="start the same command on every host, and check "
                    "JAX_COORDINATOR_ADDRESS",
                ) from e
        time.sleep(0.2)
    link = Link(process, count)
    link.add(0, connection)
    return _checked(link)


def _greeted(host: str, port: int, hello: bytes) -> socket.socket:
    """A connection on which process 0 has answered."""
    connection = socket.create_connection((host, port), timeout=5)
    try:
        connection.sendall(HEADER.pack(b"H", len(hello)) + hello)
        read_frame(connection, b"W", 0)
    except (OSError, ValueError):
        connection.close()
        raise
    return connection


def _checked(link: Link) -> Link:
    """The link, or the error that came up, told to all who are connected."""
    if link.error is not None:
        kind = "input" if isinstance(link.error, InputError) else "lost"
        hint = link.error.hint
        link.stop(kind, str(link.error), hint)
        link.close()
        raise link.error
    return link

"""Connections between processes, here threads: exchanges, losses, strangers."""

import concurrent.futures
import contextlib
import os
import random
import socket
import subprocess
import sys
import time

import pytest

from jaxcontam import hosts
from jaxcontam.cli import main
from jaxcontam.errors import InputError, LostProcessError
from jaxcontam.hosts import link as host_link
from jaxcontam.hosts import meeting
from jaxcontam.hosts.link import HEADER, packed, unpacked
from jaxcontam.hosts.meeting import accept, connect


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def met(n, *, seconds=20.0, version="1", versions=None, counts=None, indices=None):
    """Futures of the links of n processes."""
    port = free_port()
    pool = concurrent.futures.ThreadPoolExecutor(n)
    futures = [pool.submit(accept, port, n, version, seconds)]
    for i in range(1, n):
        count = (counts or {}).get(i, n)
        index = (indices or {}).get(i, i)
        own = (versions or {}).get(i, version)
        futures.append(
            pool.submit(connect, "127.0.0.1", port, index, count, own, seconds)
        )
    return futures, port


@contextlib.contextmanager
def linked(n):
    links = [future.result(20) for future in met(n)[0]]
    try:
        yield links
    finally:
        for link in links:
            link.close()


def in_threads(links, call):
    """What `call(link)` returns for each, or raises."""
    with concurrent.futures.ThreadPoolExecutor(len(links)) as pool:
        futures = [pool.submit(call, link) for link in links]
        concurrent.futures.wait(futures, timeout=30)
        return [future.exception() or future.result() for future in futures]


def test_every_process_receives_the_bytes_of_all_in_their_order():
    with linked(4) as links:
        for length in (0, 1, 3_000_000):
            rng = random.Random(length)
            own = [rng.randbytes(length + i) for i in range(4)]
            found = in_threads(
                links, lambda link, own=own: link.gather(own[link.process], "x")
            )
            assert found == [own] * 4


def test_packed_strings_come_back():
    parts = [b"", b"a", b"", b"\x00" * 9]
    assert unpacked(packed(parts)) == parts
    assert unpacked(packed([])) == []


@pytest.mark.parametrize("gone", [0, 2])
def test_all_others_name_a_process_that_is_gone(gone):
    with linked(3) as links:
        # What the kernel does with the sockets of a killed process.
        links[gone].close()
        rest = [link for link in links if link.process != gone]
        for error in in_threads(rest, lambda link: link.gather(b"", "x")):
            assert isinstance(error, LostProcessError)
            assert str(error) == f"process {gone} of 3 is gone"


def test_silent_machine_counts_as_gone(monkeypatch):
    monkeypatch.setattr(host_link, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(host_link, "_PING_SECONDS", 0.1)
    with linked(2) as links:
        # Signs of life alone keep a process.
        time.sleep(1.0)
        assert links[0].error is None
        # From here on process 1 is connected and says nothing.
        monkeypatch.setattr(links[1], "send", lambda *_: None)
        error = links[0].wait_for_error(20)
        assert str(error) == "process 1 of 2 gave no sign of life for 0.5 s"


def test_bad_input_of_one_process_ends_all_and_says_whose_it_is():
    def call(link):
        if link.process == 2:
            link.stop("input", "b.txt: no such file", "check the path")
            return None
        return link.gather(b"", "x")

    with linked(4) as links:
        found = in_threads(links, call)
        for i in (0, 1, 3):
            assert isinstance(found[i], InputError)
            assert str(found[i]) == "process 2: b.txt: no such file"
            assert found[i].hint == "check the path"


def test_processes_at_different_exchanges_are_told_apart():
    with linked(2) as links:
        found = in_threads(links, lambda link: link.gather(b"", f"step {link.process}"))
        for error in found:
            assert isinstance(error, InputError)
            assert "process 1 does other work than process 0" in str(error)


def test_all_leave_together_and_nobody_is_missed():
    with linked(3) as links:
        assert in_threads(links, lambda link: link.leave()) == [None] * 3
        for link in links:
            link.close()
        assert [link.wait_for_error(0.3) for link in links] == [None] * 3


def test_process_that_dies_after_its_work_is_not_missed():
    with linked(4) as links:
        for link in links[2:]:
            link.send(0, b"D", packed([b"end", b""]))
        links[2].close()
        links[3].stop("lost", "process 3 was interrupted")
        links[3].close()
        # Process 0 still writes.
        assert links[0].wait_for_error(0.3) is None

        def call(link):
            link.finish()
            link.leave()

        assert in_threads(links[:2], call) == [None, None]
        assert [link.error for link in links[:2]] == [None, None]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"counts": {1: 3}}, "process 1 is one of 3, process 0 of 2"),
        ({"indices": {1: 2}}, "two processes say that they are process 2"),
        ({"versions": {1: "9"}}, "process 1 runs jaxcontam 9, process 0 1"),
    ],
)
def test_processes_that_do_not_belong_together_are_refused(wrong, message):
    futures, _ = met(2, **wrong)
    with pytest.raises(InputError, match=message):
        futures[0].result(20)
    # It may hear of it while it connects, or at its first exchange.
    error = futures[1].exception(20)
    if error is None:
        with contextlib.closing(futures[1].result()) as link:
            error = link.wait_for_error(20)
    assert message in str(error)


def test_missing_process_is_said_after_the_wait():
    with pytest.raises(InputError, match="1 of 2 processes came in 0 s"):
        accept(free_port(), 2, "1", 0.3)
    with pytest.raises(InputError, match=r"process 0 does not answer at 127\.0\.0\.1"):
        connect("127.0.0.1", free_port(), 1, 2, "1", 0.3)


def greeting(data):
    return HEADER.pack(b"H", len(data)) + data


def test_strangers_at_the_port_are_sent_away():
    port = free_port()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(accept, port, 2, "1", 20.0)
        for words in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"",
            b"H" + bytes(8),
            b"\xff" * 99,
            greeting(b"[" * 60_000),
            greeting(
                b'{"name": "jaxcontam hosts 1", "process": "1", "count": 2, '
                b'"version": "1"}'
            ),
            HEADER.pack(b"D", 1 << 40),
        ):
            while True:
                try:
                    stranger = socket.create_connection(("127.0.0.1", port))
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            with stranger:
                stranger.sendall(words)
        second = pool.submit(connect, "127.0.0.1", port, 1, 2, "1", 20.0)
        links = [first.result(20), second.result(20)]
        assert [link.error for link in links] == [None, None]
        for link in links:
            link.close()


def test_a_process_that_goes_while_it_is_welcomed_leaves_no_connection(monkeypatch):
    held = []

    def reset(link, connection, version):
        held.append(connection)
        raise ConnectionResetError

    monkeypatch.setattr(meeting, "_welcome", reset)
    port = free_port()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(accept, port, 2, "1", 2.0)
        while not held:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
            time.sleep(0.05)
        with pytest.raises(InputError, match="1 of 2 processes came"):
            first.result(20)
    assert all(connection.fileno() == -1 for connection in held)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "no cluster was detected"),
        ({"JAX_COORDINATOR_ADDRESS": "h:1", "JAX_NUM_PROCESSES": "2"}, "not all of"),
        (
            {
                "JAX_COORDINATOR_ADDRESS": "h",
                "JAX_NUM_PROCESSES": "2",
                "JAX_PROCESS_ID": "0",
            },
            r"must be HOST:PORT \(it is 'h'\)",
        ),
        (
            {
                "JAX_COORDINATOR_ADDRESS": "h:1",
                "JAX_NUM_PROCESSES": "2",
                "JAX_PROCESS_ID": "2",
            },
            r"JAX_PROCESS_ID must be from 0 to 1",
        ),
        ({"JAX_PROCESS_ID": "-1"}, "JAX_PROCESS_ID must be a whole number"),
        ({"JAX_NUM_PROCESSES": "²"}, "JAX_NUM_PROCESSES must be a whole number"),
        (
            {
                "JAX_COORDINATOR_ADDRESS": "h:1",
                "JAX_NUM_PROCESSES": "0",
                "JAX_PROCESS_ID": "0",
            },
            r"JAX_NUM_PROCESSES must be at least 1 \(it is 0\)",
        ),
    ],
)
def test_environment_that_names_no_run_is_one_line(monkeypatch, variables, message):
    for name in hosts._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=message), hosts.joined(True):
        pass


_LOST = """
import atexit, os, sys
atexit.register(os.abort)  # as a library's thread may do
from jaxcontam import hosts
from jaxcontam.cli import run_command
from jaxcontam.hosts.link import Link
link = Link(1, 2)
hosts._met = lambda *_: (link, None)
hosts._initialize = hosts._shut_down = lambda *_, **__: None
def command():
    print("begun")
    with hosts.joined(True):
        link.fail(hosts.LostProcessError("process 0 of 2 is gone"))
        link.gather(b"", "x")
sys.exit(run_command(command))
"""


def test_after_a_loss_the_process_ends_before_libraries_are_taken_down():
    values = dict(zip(hosts._VARIABLES, ("127.0.0.1:1", "2", "1"), strict=True))
    ended = subprocess.run(
        [sys.executable, "-c", _LOST],
        env={**os.environ, **values},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 3
    assert ended.stdout == "begun\n"
    assert ended.stderr.startswith("jaxcontam: error: process 0 of 2 is gone\n  hint")


def test_flags_that_one_process_can_not_read_are_told_to_the_others(
    monkeypatch, capsys
):
    error, port = InputError("unknown flag '--no'", hint="see --help"), free_port()
    values = (f"127.0.0.1:{port}", "2", "1")
    for name, value in zip(hosts._VARIABLES, values, strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(hosts, "_initialize", lambda *_: None)

    def first():
        with contextlib.closing(accept(port, 2, hosts.__version__, 20.0)) as link:
            link.gather(b"", "start")
            return link.wait_for_error(20)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        told = pool.submit(first)
        with pytest.raises(InputError) as caught:
            hosts.refuse_together(error)
    assert caught.value is error
    assert str(told.result(20)) == "process 1: unknown flag '--no'"
    assert "waiting for the others, to tell them" in capsys.readouterr().err


def test_flags_are_refused_at_once_where_there_are_no_others(monkeypatch, capsys):
    for name in hosts._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert main(["audit", "m", "b.txt", "--no", "--distributed"]) == 2
    assert capsys.readouterr().err.startswith("jaxcontam: error: unknown flag '--no'")


def test_names_of_files_need_not_be_utf8(monkeypatch):
    # As the file system gives the byte ff.
    words, told = "b\udcff.txt", []

    def gathered(data, *, name):
        told.append((name, data))
        return [data, data]

    monkeypatch.setattr(hosts, "gather_bytes", gathered)
    hosts.check_same("command", words)
    assert told == [("command", b"b\xff.txt")]


def test_one_process_needs_nobody(monkeypatch):
    values = ("127.0.0.1:1", "1", "0")
    for name, value in zip(hosts._VARIABLES, values, strict=True):
        monkeypatch.setenv(name, value)
    with hosts.joined(True):
        assert (hosts.process_index(), hosts.process_count()) == (0, 1)
        assert hosts.is_first()
        assert hosts.gather_bytes(b"a") == [b"a"]
        assert hosts.broadcast_bytes(b"b") == b"b"
        hosts.barrier("here")

"""The client against servers that break: sockets, time, TLS, kills."""

import gzip
import json
import shutil
import signal
import socket
import subprocess
import threading
import time
import traceback

import pytest

from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import ApiError
from tests.support.api_server import serving
from tests.support.api_transport import KEY, PATH, answer_to, opened, texts
from tests.support.pretrain_processes import free_port

BODY = {"prompt": "p", "max_tokens": 1}
# Much longer than an answer of this process takes on a busy machine, and still short.
SHORT = 0.4


def head(n_bytes, extra=""):
    return f"HTTP/1.1 200 OK\r\n{extra}Content-Length: {n_bytes}\r\n\r\n".encode()


def hang(body, handler):
    """Says nothing until the client has gone."""
    handler.rfile.read(1)


def drip(first, piece):
    """Bytes that never end, each well before any timeout of a socket."""

    def write(body, handler):
        handler.wfile.write(first)
        while True:
            handler.wfile.write(piece)
            time.sleep(SHORT / 20)

    return write


def cut(data):
    """A part of what was promised, and an end of the connection."""

    def write(body, handler):
        handler.wfile.write(data)
        handler.wfile.flush()

    return write


def whole(data, extra=""):
    return cut(head(len(data), extra) + data)


ANSWER = json.dumps(answer_to(BODY)).encode()
FAULTS = {
    "hung": hang,
    "slow drip of the status line": drip(b"", b"H"),
    "slow drip of headers": drip(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
    "slow drip of the body": drip(head(10**6), b" "),
    "closed before the answer": cut(b""),
    "closed in the headers": cut(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "closed in the body": cut(head(len(ANSWER)) + ANSWER[:-9]),
    "closed in a chunk": cut(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n" + ANSWER
    ),
    "truncated JSON": whole(ANSWER[:-9]),
    "no HTTP": cut(b"220 mail.example ESMTP\r\n"),
    "truncated gzip": whole(gzip.compress(ANSWER)[:-12], "Content-Encoding: gzip\r\n"),
    "no gzip": whole(ANSWER, "Content-Encoding: gzip\r\n"),
    "an endless header": cut(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_gone_through_and_else_ends_in_one_clear_line(name, tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    n_faults = [1]

    def answer(body, number, handler):
        if number > n_faults[0]:
            return 200, answer_to(body)
        FAULTS[name](body, handler)
        return None

    is_late = name == "hung" or "drip" in name
    settings = {"timeout_seconds": SHORT if is_late else 60.0, "journal": journal}
    with serving(answer) as (url, seen):
        with opened(url, **settings) as client:
            assert texts([client.post(PATH, BODY)]) == ["P"]
            # A busy machine may be late with a whole answer as well, and a connection
            # that the server closes without a word may take the next request with it.
            assert 2 <= client.n_sent <= 3
        n_faults[0] = 10**6
        with opened(url, **settings) as client, pytest.raises(ApiError) as e:
            client.post(PATH, BODY | {"prompt": "q"})
        assert "\n" not in str(e.value)
        assert str(e.value).startswith(f"{url}: ")
        assert "times" in str(e.value)
        assert 3 <= client.n_sent <= 5
        # What came before is kept, and a rerun goes on.
        n_faults[0] = len(seen)
        with opened(url, **settings) as client:
            found = client.post_all(PATH, [BODY, BODY | {"prompt": "q"}])
            assert texts(found) == ["P", "Q"]
            assert client.n_sent == 1


def test_an_answer_that_inflates_beyond_what_was_asked_is_not_read():
    # 3 kB on the wire, 3 MB of brackets, 75 MB as objects.
    bomb = gzip.compress(b"[" + b"[]," * 2**20)

    def answer(body, number, handler):
        whole(bomb, "Content-Encoding: gzip\r\n")(body, handler)

    with serving(answer) as (url, _), opened(url) as client:
        said = "longer than the 262,912 bytes that it can be"
        with pytest.raises(ApiError, match=said):
            client.post(PATH, BODY)


@pytest.mark.parametrize("presses", [1, 2])
def test_a_request_that_the_user_ends_gives_its_place_back(monkeypatch, presses):
    """Seconds after Ctrl-C, or at another one; no thread goes on with it."""
    seconds = 0.2 if presses == 1 else 600.0
    monkeypatch.setattr("jaxcontam.scoring.api.client._LAST_SECONDS", seconds)

    def answer(body, number, handler):
        if body["prompt"] == "1":
            hang(body, handler)
            return None
        return 200, answer_to(body)

    def press(n_done, _):
        if presses == 2:
            main = threading.main_thread().ident
            words = main, signal.SIGINT
            threading.Timer(0.2, signal.pthread_kill, words).start()
        raise KeyboardInterrupt

    bodies = [{"prompt": str(i)} for i in range(4)]
    with serving(answer) as (url, _), opened(url, concurrency=2) as client:
        with pytest.raises(KeyboardInterrupt):
            client.post_all(PATH, bodies[:2], press)
        # Without its places the next ones would wait for ever.
        found = client.post_all(PATH, bodies[2:])
        assert texts(found) == ["2", "3"]
        for thread in threading.enumerate():
            if thread.name.startswith("api_"):
                thread.join(30)
                assert not thread.is_alive()


def unused_address(*_):
    return f"http://127.0.0.1:{free_port()}/v1"


def unknown_host(error):
    def look_up(*_, **__):
        raise socket.gaierror(error, "not known")

    def address(patch, _):
        patch.setattr(socket, "getaddrinfo", look_up)
        return "http://no-such-host.invalid/v1"

    return address


@pytest.mark.parametrize(
    ("address", "words", "n_waits", "hint"),
    [
        (
            unused_address,
            r"\(Connection refused\), 4 times",
            3,
            "a server is running at",
        ),
        # Unlike a host that cannot be looked up at the moment.
        (unknown_host(socket.EAI_NONAME), "no such host", 0, ""),
        (unknown_host(socket.EAI_AGAIN), r"no answer \(.*\), 4 times", 3, ""),
        # TLS, and a server that speaks none.
        (
            lambda _, plain: plain.replace("http:", "https:"),
            *("no secure connection", 0, "it uses https"),
        ),
    ],
)
def test_a_server_that_cannot_be_reached_is_waited_for_if_that_may_help(
    monkeypatch, address, words, n_waits, hint
):
    waits = []
    with serving(lambda body, *_: (200, answer_to(body))) as (plain, _):
        url = address(monkeypatch, plain)
        with (
            opened(url, sleep=waits.append) as client,
            pytest.raises(ApiError, match=words) as e,
        ):
            client.post(PATH, BODY)
    assert len(waits) == n_waits
    assert hint in e.value.hint


@pytest.mark.parametrize("status", [301, 303, 307])
def test_a_redirection_does_not_take_the_key_elsewhere(status):
    with serving(lambda body, *_: (200, answer_to(body))) as (elsewhere, other):
        reply = status, {}, ("Location", f"{elsewhere}/completions")
        with (
            serving(lambda *_: reply) as (url, seen),
            opened(url) as client,
            pytest.raises(ApiError, match=f"HTTP {status}") as e,
        ):
            client.post(PATH, BODY)
    assert "name the URL" in e.value.hint
    assert (len(seen), other) == (1, [])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Files of a certificate that nobody but itself vouches for, and of its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the program openssl, which makes a certificate")
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    command += " -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    command += " -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), check=True, capture_output=True, cwd=folder)
    return folder / "cert.pem", folder / "key.pem"


def test_a_certificate_that_nobody_vouches_for_is_one_clear_line(certificate):
    """The key must not be sent to whoever holds the address."""
    waits = []
    with (
        serving(lambda body, *_: (200, answer_to(body)), certificate) as (url, seen),
        opened(url, sleep=waits.append) as client,
        pytest.raises(ApiError, match=r"no secure connection \(.*certificate") as e,
    ):
        client.post(PATH, BODY)
    assert waits == seen == []
    assert "SSL_CERT_FILE" in e.value.hint


def test_a_secure_connection_that_drips_is_cut_in_time(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    drips = FAULTS["slow drip of headers"]
    with (
        serving(lambda body, _, handler: drips(body, handler), certificate) as served,
        opened(served[0], timeout_seconds=SHORT) as client,
        pytest.raises(ApiError, match=r"no whole answer within 0.4 s, 3 times"),
    ):
        client.post(PATH, BODY)
    assert len(served[1]) == 3


def test_a_proxy_that_is_none_is_one_clear_line(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "nonsense://" + KEY)
    with pytest.raises(InputError, match="no connection can be made") as e:
        opened("http://host/v1")
    assert "HTTP_PROXY" in e.value.hint
    assert KEY not in "".join(traceback.format_exception(e.value))

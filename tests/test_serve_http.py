"""The server as a client meets it: HTTP, errors, the key, and the command."""

import concurrent.futures
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse

import pytest

from jaxcontam.cli import main
from jaxcontam.errors import InputError
from jaxcontam.serving.model import ServedModel
from jaxcontam.serving.requests import RequestError
from jaxcontam.serving.server import ModelServer, running_server
from tests.served_model import TEXTS, opened, save

KEY = "sk-very-secret"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return opened(tmp_path_factory.mktemp("served"), name="tiny", stop_ids=())


@pytest.fixture(scope="module")
def url(checkpoint):
    with running_server(checkpoint) as url:
        yield url


def send(url, path, body=None, *, method=None, headers=None, raw=None):
    """(status, headers, answer) of one request on a connection of its own."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    data = raw if raw is not None else body and json.dumps(body)
    try:
        connection.request(
            method or ("GET" if data is None else "POST"),
            path,
            data,
            headers or {},
        )
        answer = connection.getresponse()
        return answer.status, answer.headers, json.loads(answer.read())
    finally:
        connection.close()


GREEDY = {"prompt": TEXTS[0], "temperature": 0, "max_tokens": 4}


def test_paths_of_the_protocol(url):
    status, headers, answer = send(url, "/v1/completions", GREEDY)
    assert status == 200
    assert headers["Content-Type"] == "application/json"
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    message = {"role": "user", "content": TEXTS[0]}
    body = {"messages": [message], "temperature": 0, "max_tokens": 4, "model": "tiny"}
    status, _, chat = send(url, "/v1/chat/completions", body)
    assert status == 200
    assert chat["object"] == "chat.completion"
    assert chat["choices"][0]["message"]["content"] == answer["choices"][0]["text"]
    assert send(url, "/health")[2] == {"status": "ok"}
    (listed,) = send(url, "/v1/models")[2]["data"]
    assert (listed["id"], listed["max_model_len"]) == ("tiny", 64)
    for path in ("/v1/models/tiny", "/v1/models/tiny?x=1", "/v1/models/tiny/"):
        assert send(url, path)[2] == listed


def test_head_has_no_body_and_the_body_of_a_get_is_no_request(url):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    connection.request("HEAD", "/v1/models")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 0
    # On the same connection.
    connection.request("GET", "/health", "GET /none HTTP/1.1\r\n\r\n")
    answer = connection.getresponse()
    assert json.loads(answer.read()) == {"status": "ok"}
    assert answer.headers["Connection"] == "close"
    connection.close()


def test_requests_at_once_get_each_its_own_answer(url):
    bodies = [
        {"prompt": text, "max_tokens": 0, "echo": True, "logprobs": 0}
        for text in TEXTS * 4
    ]
    alone = [send(url, "/v1/completions", body)[2]["choices"] for body in bodies[:4]]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(
            pool.map(lambda body: send(url, "/v1/completions", body)[2], bodies)
        )
    assert [answer["choices"] for answer in found] == alone * 4


def test_a_connection_serves_many_requests(url):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    for prompt in ("", TEXTS[0], 5):
        body = json.dumps({"prompt": prompt, "max_tokens": 0})
        connection.request("POST", "/v1/completions", body)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == (400 if prompt == 5 else 200)
        assert connection.sock is not None
    connection.close()


@pytest.mark.parametrize(
    ("path", "how", "status", "message"),
    [
        ("/v1/completions", {"raw": b"{"}, 400, "the body is not JSON"),
        ("/v1/completions", {"raw": b"[" * 10**5}, 400, "the body is not JSON"),
        ("/v1/completions", {"raw": b'{"seed": NaN}'}, 400, "the body is not JSON"),
        ("/v1/completions", {"raw": b"\xff"}, 400, "the body is not JSON"),
        ("/v1/completions", {"raw": b"[]"}, 400, "the body must be a JSON object"),
        ("/v1/completions", {"body": {"n": 1}}, 400, "prompt must be a text"),
        (
            "/v1/completions",
            {"body": GREEDY | {"model": "other"}},
            404,
            "no model 'other' here; there is 'tiny'",
        ),
        ("/v1/embeddings", {"body": GREEDY}, 404, "no such path: '/v1/embeddings'"),
        ("/v1", {}, 404, "no such path: '/v1'"),
        ("/v1/completions", {"method": "PUT"}, 501, "Unsupported method ('PUT')"),
        (
            "/v1/completions",
            {"method": "POST", "headers": {"Content-Length": str(10**9)}},
            413,
            "a body must have at most",
        ),
        (
            "/v1/completions",
            {"method": "POST", "headers": {"Content-Length": "-1"}},
            411,
            "a request must say its Content-Length",
        ),
    ],
)
def test_errors_have_the_form_of_the_protocol_and_the_server_goes_on(
    url, path, how, status, message
):
    found, _, answer = send(url, path, **how)
    assert found == status
    assert answer["error"]["message"].startswith(message)
    assert answer["error"]["type"].endswith("_error")
    assert send(url, "/health")[0] == 200


def test_with_a_key_whoever_lacks_it_gets_nothing(checkpoint):
    with running_server(checkpoint, api_key=KEY) as url:
        right = {"Authorization": f"Bearer {KEY}"}
        for wrong in ({}, {"Authorization": f"Bearer {KEY}x"}, {"Authorization": KEY}):
            for path, body in (("/v1/completions", GREEDY), ("/v1/models", None)):
                status, _, answer = send(url, path, body, headers=wrong)
                assert status == 401
                assert KEY not in json.dumps(answer)
        assert send(url, "/v1/completions", GREEDY, headers=right)[0] == 200
        assert send(url, "/v1/models", headers=right)[0] == 200
        # Says nothing of the model.
        assert send(url, "/health")[0] == 200


def test_a_server_that_ends_leaves_its_port_and_ends_open_connections(checkpoint):
    with running_server(checkpoint) as url:
        parts = urllib.parse.urlsplit(url)
        idle = socket.create_connection((parts.hostname, parts.port), timeout=60)
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        # The body may come apart from what stands before it.
        answer = b""
        while not answer.endswith(b'{"status": "ok"}'):
            answer += idle.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200")
    # The server closed it; without that the read would time out.
    assert idle.recv(65536) == b""
    idle.close()
    with running_server(checkpoint, port=parts.port) as again:
        assert again == url


def test_a_server_that_closes_begins_no_request_and_waits_for_the_last(checkpoint):
    server = ModelServer(ServedModel(checkpoint), host="127.0.0.1", port=0)
    server.one_at_a_time.acquire()
    closing = threading.Thread(target=server.server_close)
    closing.start()
    while not server.is_closing:
        closing.join(0.01)
    assert closing.is_alive()
    server.one_at_a_time.release()
    closing.join()
    with pytest.raises(RequestError, match="the server is closing"), server.device():
        pass


def test_a_port_that_is_taken_is_one_clear_line(url, checkpoint, tmp_path, capsys):
    port = urllib.parse.urlsplit(url).port
    with (
        pytest.raises(InputError, match=r"cannot listen on 127\.0\.0\.1, port"),
        running_server(checkpoint, port=port),
    ):
        pass
    assert main(["serve", str(save(tmp_path)), "--port", str(port)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"jaxcontam: error: cannot listen on 127.0.0.1, port {port} "
        "(Address already in use)\n"
        "  hint: another --port, or --port 0 for a free one\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--port", "65536"], "--port must be from 0 to 65535, got 65536"),
        (["--name", " "], "--name must not be empty"),
        (["--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid"),
    ],
)
def test_what_cannot_be_served_is_one_clear_line(words, message, tmp_path, capsys):
    assert main(["serve", str(save(tmp_path)), *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"jaxcontam: error: {message}")


def test_the_command_says_where_it_is_and_ends_on_ctrl_c(tmp_path, monkeypatch):
    monkeypatch.setenv("API_KEY", KEY)
    model = str(save(tmp_path / "tiny"))
    command = ["serve", model, "--port", "0", "--name", "a name"]
    with subprocess.Popen(
        [sys.executable, "-m", "jaxcontam", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        first, example, audit = (running.stdout.readline() for _ in range(3))
        name, _, url = first.removesuffix(" (ctrl-C stops)\n").partition(" at ")
        assert name == "a name"
        right = {"Authorization": f"Bearer {KEY}"}
        assert send(url, "/v1/models", headers=right)[2]["data"][0]["id"] == "a name"
        assert send(url, "/v1/models")[0] == 401
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 0
    assert example.startswith(f"  curl {url}/completions")
    # The folder holds the tokenizer, and says how much the model reads at once.
    assert f"'api:{url}#a name' BENCHMARK --tokenizer {model}" in audit
    assert (out, err) == ("\nstopped\n", "")
    assert KEY not in first + example + audit

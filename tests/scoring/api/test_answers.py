"""What a client makes of answers: other forms, orders, and errors in disguise."""

import json
import socket

import httpx2
import pytest

from jaxcontam.data.journal import Journal
from jaxcontam.scoring.api import address
from jaxcontam.scoring.api.address import ApiError, ApiModel, RefusedError
from jaxcontam.scoring.api.answers import Failure, Reply, read_failure, read_reply
from tests.support.api_transport import PATH, Server, bodies, fault, opened, texts


def account(code):
    answer = {"error": {"message": "no credit", "code": code}}
    return httpx2.Response(429, json=answer)


@pytest.mark.parametrize(
    ("response", "how", "n_sent", "words", "hint"),
    [
        # A wrong key or address is wrong for all that is asked.
        (fault(401), {}, 1, r"HTTP 401 \(busy\)$", "variable OWN_API_KEY"),
        (fault(403), {}, 1, "HTTP 403", "variable OWN_API_KEY"),
        (fault(404), {}, 1, "HTTP 404", "the URL"),
        (fault(307), {}, 1, "HTTP 307", "redirects to"),
        # No wait brings credit.
        (account("insufficient_quota"), {}, 1, "no credit", "in credit"),
        (account("billing_not_active"), {}, 1, "no credit", "in credit"),
        # It never answered.
        (fault(500), {}, 4, r"HTTP 500 \(busy\), 4 times", ""),
        (fault(500), {"tries": 1}, 1, r"HTTP 500 \(busy\)$", ""),
        (fault(429, Retry_After="3600"), {}, 10, "10 times; .* a wait of 3600 s", ""),
    ],
)
def test_what_ends_a_run_is_no_refusal_and_is_tried_as_often_as_it_may_pass(
    response, how, n_sent, words, hint
):
    server = Server(lambda *_: response)
    with (
        opened(server, key_variable="OWN_API_KEY") as client,
        pytest.raises(ApiError, match=words) as e,
    ):
        client.post(PATH, bodies(1)[0], **how)
    assert not isinstance(e.value, RefusedError)
    assert e.value.status == response.status_code
    assert hint in e.value.hint
    assert len(server.prompts) == n_sent


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"<html>", "not JSON"),
        (b'{"choices": [{"text": "cut', "not JSON"),
        (b'{"choices": [{"index": 0, "text": "a", "x": NaN}]}', "not JSON"),
        (b'{"choices": [{"index": 0, "text": "a", "x": 1e999}]}', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "more values than requested"),
        (b"[]", "not an answer of the protocol"),
        (b"{}", "not an answer of the protocol"),
        (b'{"choices": 1}', "not an answer of the protocol"),
        (b'{"choices": [1]}', "not an answer of the protocol"),
        (b'{"choices": [{"index": 0}, {"index": 0}]}', "2 choices .1 was requested"),
        (b'{"choices": [{"index": 1}]}', r"choices with the indices \[1\]"),
        (b'{"choices": [{"index": "0"}]}', r"choices with the indices \['0'\]"),
        (
            b'{"error": {"message": "overload"}}',
            "an error instead of an answer .overload",
        ),
    ],
)
def test_an_answer_of_another_form_is_asked_again_and_then_one_clear_line(
    tmp_path, answer, words
):
    server = Server(lambda *_: httpx2.Response(200, content=answer))
    journal = Journal(tmp_path / "j.jsonl")
    with (
        opened(server, journal) as client,
        pytest.raises(ApiError, match=f"{words}.*, 3 times") as e,
    ):
        client.post(PATH, bodies(1)[0])
    assert not isinstance(e.value, RefusedError)
    assert "\n" not in str(e.value)
    assert len(server.prompts) == 3
    assert journal.path.read_bytes() == b""
    server.plan = lambda _, number: (
        httpx2.Response(200, content=answer) if number == 4 else None
    )
    with opened(server, journal) as client:
        assert texts([client.post(PATH, bodies(1)[0])]) == ["P0"]


def test_another_servers_error_in_a_200_is_read_as_its_status():
    wrapped = {"error": {"message": "slow down", "code": 429}}
    answers = [{"choices": []}, wrapped, wrapped]
    server = Server(
        lambda *_: httpx2.Response(200, json=answers.pop()) if answers else None
    )
    with opened(server) as client:
        # One without choices is a refusal.
        with pytest.raises(RefusedError, match="without choices"):
            client.post(PATH, bodies(1)[0])
        assert client.n_sent == 3


@pytest.mark.parametrize("status", [400, 401, 429])
def test_a_code_of_an_error_may_be_anything(status):
    data = b'{"error": {"message": "no", "code": [{}]}}'
    try:
        words = reply({}, data, status=status).words
    except ApiError as e:
        words = str(e)
    assert f"HTTP {status} (no)" in words


TOO_MANY = Failure("garbled", "more values than requested")


def test_an_answer_of_more_values_than_were_asked_for_is_never_parsed(monkeypatch):
    """Within its bytes: 2 MB of lists are 45 MB of objects; where a text is long."""
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    bomb = b'{"choices": [{"index": 0, "message": {}, "x": [' + b"[]," * 700_000
    with monkeypatch.context() as patch:
        patch.setattr(json, "loads", lambda *_: pytest.fail("parsed"))
        for data in (bomb + b"0]}]}", bomb + b'"\\', b'"' * 100_000 + bomb):
            for status in (200, 429):
                assert reply(chat, data, status=status) == TOO_MANY
    # As many signs within a text are a text.
    words = '[],{}\\",' * 300_000
    data = json.dumps({"choices": [{"index": 0, "message": {"content": words}}]})
    found = reply(chat, data.encode())
    assert found["choices"][0]["message"]["content"] == words


def test_a_token_with_its_value_has_32_values_of_its_answer():
    """4,096 for the answer, one a token, and 32 for each value that was asked for."""
    body = {"prompt": [[7]], "max_tokens": 999, "logprobs": 2}
    most = 4096 + 1000 * (1 + 32 * 2)

    def found(n_lists):
        # Each is a value, and so is its end.
        many = b"[]," * n_lists
        return reply(body, b'{"choices": [{"text": "x"}], "x": [' + many + b"0]}")

    assert found(most // 2) == TOO_MANY
    assert found(most // 2 - 4) != TOO_MANY


def test_a_host_that_had_answered_may_be_found_again():
    gone = socket.gaierror(socket.EAI_NONAME, "not known")
    assert read_failure(SERVER, gone, has_answered=True).kind == "broken"


SERVER = address.Server(model=ApiModel("url", "m"))


def reply(body, data, *, status=200):
    return read_reply(SERVER, body, Reply(status, {}, data), now=0.0)

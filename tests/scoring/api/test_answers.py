"""What a client makes of answers: other forms, orders, and errors in disguise."""

import json

import httpx2
import pytest

from jaxcontam.data.journal import Journal
from jaxcontam.scoring.api import address
from jaxcontam.scoring.api.address import ApiError, ApiModel, RefusedError
from jaxcontam.scoring.api.answers import Failure, Reply, read_reply
from tests.support.api_transport import PATH, Server, bodies, fault, opened, texts


@pytest.mark.parametrize(
    ("status", "hint"),
    [(401, "API_KEY"), (403, "API_KEY"), (404, "the URL"), (307, "leads to")],
)
def test_a_wrong_key_or_address_ends_at_once_and_is_no_refusal(status, hint):
    server = Server(lambda *_: fault(status))
    with opened(server) as client, pytest.raises(ApiError) as e:
        client.post_all(PATH, bodies(3))
    assert not isinstance(e.value, RefusedError)
    assert e.value.status == status
    assert hint in e.value.hint
    # Those that left with the first one.
    assert len(server.prompts) <= 3


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"<html>", "not JSON"),
        (b'{"choices": [{"text": "cut', "not JSON"),
        (b'{"choices": [{"index": 0, "text": "a", "x": NaN}]}', "not JSON"),
        (b'{"choices": [{"index": 0, "text": "a", "x": 1e999}]}', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "more values than were asked for"),
        (b"[]", "not an answer of the protocol"),
        (b"{}", "not an answer of the protocol"),
        (b'{"choices": 1}', "not an answer of the protocol"),
        (b'{"choices": [1]}', "not an answer of the protocol"),
        (b'{"choices": [{"index": 0}, {"index": 0}]}', "2 choices where 1 are asked"),
        (b'{"choices": [{"index": 1}]}', r"choices with the indices \[1\]"),
        (b'{"choices": [{"index": "0"}]}', r"choices with the indices \['0'\]"),
        (b'{"error": {"message": "overload"}}', "an error for an answer .overload"),
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


def test_an_answer_without_choices_is_a_refusal():
    server = Server(lambda *_: httpx2.Response(200, json={"choices": []}))
    with opened(server) as client, pytest.raises(RefusedError, match="without choices"):
        client.post(PATH, bodies(1)[0])


def test_another_servers_error_in_a_200_is_read_as_its_status():
    wrapped = {"error": {"message": "slow down", "code": 429}}
    server = Server(
        lambda _, number: httpx2.Response(200, json=wrapped) if number < 3 else None
    )
    with opened(server) as client:
        client.post(PATH, bodies(1)[0])
        assert client.n_sent == 3


@pytest.mark.parametrize("status", [400, 401, 429])
def test_a_code_of_an_error_may_be_anything(status):
    data = json.dumps({"error": {"message": "no", "code": [{}]}}).encode()
    if status == 429:
        assert reply({}, data, status=status).words == "HTTP 429 (no)"
        return
    with pytest.raises(ApiError, match=rf"HTTP {status} \(no\)"):
        reply({}, data, status=status)


def test_the_hint_names_the_variable_that_the_key_comes_from():
    server = Server(lambda *_: fault(401))
    with (
        opened(server, key_variable="JUDGE_API_KEY") as client,
        pytest.raises(ApiError) as e,
    ):
        client.post(PATH, bodies(1)[0])
    assert e.value.hint.endswith("variable JUDGE_API_KEY")


def test_an_answer_of_more_values_than_were_asked_for_is_never_parsed(monkeypatch):
    """Within its bytes: 2 MB of lists are 45 MB of objects; where a text is long."""
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    bomb = b'{"choices": [{"index": 0, "message": {}, "x": [' + b"[]," * 700_000
    for data in (bomb + b"0]}]}", bomb + b'"\\', b'"' * 100_000 + bomb):
        read = json.loads
        monkeypatch.setattr(json, "loads", lambda *_: pytest.fail("parsed"))
        for status in (200, 429):
            found = reply(chat, data, status=status)
            assert found == Failure("garbled", "more values than were asked for")
        monkeypatch.setattr(json, "loads", read)
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

    refused = Failure("garbled", "more values than were asked for")
    assert found(most // 2) == refused
    assert found(most // 2 - 4) != refused


def reply(body, data, *, status=200):
    server = address.Server(model=ApiModel("url", "m"))
    return read_reply(server, body, Reply(status, {}, data), now=0.0)

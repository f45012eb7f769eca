"""The key of a server is sent in one header, and stands nowhere else."""

import contextlib
import json
import logging
import traceback

import numpy as np
import pytest

from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.scoring import remote
from jaxcontam.scoring.api.address import ApiError, key_beside, key_from_environment
from jaxcontam.scoring.load import load
from tests.support.api_server import serving
from tests.support.api_transport import KEY, PATH, answer_to, opened, texts


def repeating(body, number, handler):
    """A server that repeats the key in every way it can."""
    said = {"error": {"message": f"who is {KEY}?", "param": KEY}}
    kind = body["prompt"]
    if kind == "answer":
        answer = answer_to(body) | {"system_fingerprint": KEY, KEY: [KEY]}
        answer["choices"][0]["text"] = f"Bearer {KEY}"
        return 200, answer
    if kind == "page":
        return 200, b"x" * (200 - 6) + KEY.encode()
    if kind == "redirect":
        return 307, said, ("Location", f"http://127.0.0.1:1/{KEY}")
    if kind == "wrapped":
        return 200, said
    if kind == "broken":
        handler.wfile.write(f"HTTP/1.1 2{KEY}\r\nX-{KEY}".encode())
        return None
    return int(kind), said, *([("Retry-After", KEY)] if kind == "429" else [])


@pytest.mark.parametrize(
    "kind",
    ["answer", "page", "redirect", "wrapped", "broken", "400", "401", "429", "500"],
)
def test_the_key_is_in_one_header_and_nowhere_else(tmp_path, caplog, capfd, kind):
    """Journal, error, hint, traceback, log, output, and what Python says of objects."""
    # The library below writes the headers of answers at DEBUG, if a user switches that
    # on; those of requests it never writes.
    is_in_headers = kind in ("redirect", "429")
    caplog.set_level(logging.INFO if is_in_headers else logging.DEBUG)
    journal, shown = Journal(tmp_path / "j.jsonl"), ""
    with serving(repeating) as (url, seen):
        with opened(url, journal=journal) as client:
            try:
                if kind == "400":
                    client.post(PATH, {"prompt": "answer"})
                (found,) = client.post_all(
                    PATH, [{"prompt": kind}], keeps_refusals=True
                )
                shown += repr(found)
                if isinstance(found, ApiError):
                    raise found
            except ApiError as e:
                shown += "".join(traceback.format_exception(e)) + repr(e) + e.hint
            else:
                assert kind == "answer"
            shown += repr(client) + repr(client.fingerprints) + repr(vars(client))
        assert seen[0][1]["Authorization"] == f"Bearer {KEY}"
        assert not any(KEY in json.dumps(body) for _, _, body in seen)
    shown += caplog.text + "".join(capfd.readouterr())
    shown += "".join(p.read_text() for p in tmp_path.rglob("*") if p.is_file())
    assert "ApiClient" in shown
    # Nor a part of it, where words are cut.
    assert KEY[:8] not in shown


@pytest.mark.parametrize("said", [KEY[:9] + "...", "..." + KEY[-7:], KEY[:6] + "*"])
def test_an_end_of_the_key_that_a_server_repeats_is_struck_out(said):
    wrong = {"error": {"message": f"Incorrect API key provided: {said}"}}
    with (
        serving(lambda *_: (401, wrong)) as (url, _),
        opened(url) as client,
        pytest.raises(ApiError, match=r"provided: [.*]*\)$"),
    ):
        client.post(PATH, {"prompt": "p"})


@pytest.mark.parametrize(
    ("url", "key", "is_told"),
    [
        ("http://10.0.0.7/v1", KEY, True),
        ("http://models.example/v1", KEY, True),
        ("https://models.example/v1", KEY, False),
        ("http://models.other/v1", None, False),
        ("http://localhost:8000/v1", KEY, False),
        ("http://127.0.0.9/v1", KEY, False),
        ("http://[::1]:8000/v1", KEY, False),
    ],
)
def test_a_key_that_others_can_read_on_its_way_is_told_once(capsys, url, key, is_told):
    for _ in range(2):
        with opened(url, api_key=key):
            pass
    said = f"warning: {url}: the key in API_KEY is sent unencrypted"
    assert capsys.readouterr().err.count(said) == is_told


@pytest.mark.parametrize("key", ["s3cret", "BOX", "EMPTY"])
def test_a_short_key_is_struck_out_of_all_but_what_a_model_writes(tmp_path, key):
    """Servers that repeat what they were sent, whatever the length of the key."""
    journal = Journal(tmp_path / "j.jsonl")
    repeated = {"headers": [{"Authorization": f"Bearer {key}"}], "key": key}

    def answer(body, *_):
        found = answer_to(body) | repeated
        found["choices"][0] |= {"headers": f"Bearer {key}"}
        return 200, found

    with (
        serving(answer) as (url, _),
        opened(url, api_key=key, journal=journal) as client,
    ):
        found = client.post(PATH, {"prompt": "an empty box"})
    assert texts([found]) == ["AN EMPTY BOX"]
    kept = journal.path.read_text()
    # The word of those who have none is no secret.
    assert (f"Bearer {key}" in kept) == (f'"key": "{key}"' in kept) == (key == "EMPTY")


@pytest.mark.parametrize("command", ["audit", "membership", "replicate"])
def test_a_command_shows_and_writes_no_key(tmp_path, monkeypatch, capfd, command):
    """What the user sees and finds, with a server that repeats the key in its 401."""
    from jaxcontam.cli.main import main

    rows = [
        {"text": f"a first part {i}. A second part {i}.", "label": i % 2}
        for i in np.random.default_rng(0).permutation(60).tolist()
    ]
    texts, out = tmp_path / "texts.jsonl", tmp_path / "out"
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("API_KEY", KEY)
    said = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    with serving(lambda *_: (401, said)) as (url, seen):
        words = [command, f"api:{url}#m", str(texts), "--out", str(out)]
        words += ["--dataset-name", "parts"] if command == "replicate" else []
        assert main(words) == 2
    assert seen[0][1]["Authorization"] == f"Bearer {KEY}"
    shown = "".join(capfd.readouterr())
    assert "HTTP 401 (Incorrect API key provided: ***)" in shown
    assert "environment variable API_KEY" in shown
    assert "Traceback" not in shown
    shown += "".join(p.read_text() for p in out.rglob("*") if p.is_file())
    assert KEY[:8] not in shown


def test_the_key_comes_from_the_environment_alone(monkeypatch):
    monkeypatch.delenv("API_KEY", raising=False)
    assert key_from_environment() is None
    monkeypatch.setenv("API_KEY", f" {KEY}\n")
    assert key_from_environment() == KEY
    monkeypatch.setenv("API_KEY", "a\nb")
    with pytest.raises(InputError) as e:
        key_from_environment()
    assert str(e.value) == "API_KEY: must be printable ASCII"


def test_no_server_of_a_reference_sees_the_key_of_the_model(monkeypatch):
    monkeypatch.setenv("API_KEY", KEY)
    one, other = "https://one.example/v1", "https://other.example/v1"
    own, model = "REFERENCE_API_KEY", f"api:{one}#m"
    assert key_beside(other, own, [model]) == (None, own)
    assert key_beside(one, own, [model]) == (KEY, "API_KEY")
    monkeypatch.setenv(own, "another")
    assert key_beside(other, own, [model]) == ("another", own)
    # `load` of a reference asks for it so.
    seen = []
    monkeypatch.setattr(
        remote, "key_beside", lambda *words: seen.append(words) or (None, own)
    )
    with contextlib.suppress(InputError):
        load(f"api:{other}#m", plan_only=True, beside=model)
    assert seen == [(other, own, (model,))]

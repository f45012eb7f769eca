"""The client of servers: order, journal, refusals, and what ends a run."""

import asyncio
import threading
import time

import pytest

from jaxcontam.data.journal import Journal
from jaxcontam.scoring.api.address import ApiError, ApiModel, RefusedError, request_key
from jaxcontam.scoring.api.client import snapshot_warning
from tests.support.api_transport import (
    MODEL,
    PATH,
    Server,
    bodies,
    fault,
    ok,
    opened,
    texts,
)


@pytest.fixture
def started(tmp_path):
    """A client of a run, each with the journal that the ones before it left."""

    def start(server, **settings):
        return opened(server, Journal(tmp_path / "j.jsonl"), **settings)

    return start


def test_answers_come_in_the_order_of_requests_with_a_bound_on_their_way():
    waiting = threading.Event()

    def last_first(prompt, _):
        # The first of the first four waits until a later one has come.
        if prompt == "p0":
            waiting.wait(30)
        elif prompt == "p3":
            waiting.set()

    server = Server(last_first)
    told = []
    with opened(server, concurrency=4) as client:
        answers = client.post_all(
            PATH, bodies(30), lambda *numbers: told.append(numbers)
        )
    assert texts(answers) == [f"P{i}" for i in range(30)]
    assert server.most_inside == 4
    assert told == [(i + 1, 30) for i in range(30)]


def test_equal_requests_are_sent_once_unless_told_apart(tmp_path):
    server = Server(lambda prompt, number: f"{prompt} {number}")
    journal = Journal(tmp_path / "j.jsonl")
    with opened(server, journal, concurrency=1) as client:
        same = client.post_all(PATH, bodies(1) * 3)
        apart = client.post_all(PATH, bodies(1) * 3, repeats=[1, 2, 2])
        # What is not to be kept is asked each time.
        anew = [client.post(PATH, bodies(1)[0], is_kept=False) for _ in range(2)]
        assert client.post_all(PATH, []) == []
        assert client.n_sent == 5 and client.holds(PATH, bodies(1)[0])
    assert texts(same) == ["p0 1"] * 3
    assert texts(apart) == ["p0 2", "p0 3", "p0 3"]
    assert texts(anew) == ["p0 4", "p0 5"]
    assert len(journal.path.read_text().splitlines()) == 3
    with opened(server, journal) as client:
        assert client.post_all(PATH, bodies(2))[:1] == same[:1]
        assert client.n_sent == 1


def test_a_key_depends_on_all_that_decides_an_answer_and_on_nothing_else():
    body = {"prompt": "a", "max_tokens": 1}
    key = request_key(MODEL, PATH, body)
    assert key == request_key(MODEL, PATH, dict(reversed(body.items())))
    others = [
        request_key(ApiModel("http://other/v1", "m"), PATH, body),
        request_key(ApiModel("http://host/v1", "n"), PATH, body),
        request_key(MODEL, "/chat/completions", body),
        request_key(MODEL, PATH, body | {"seed": 1}),
        request_key(MODEL, PATH, body, repeat=1),
    ]
    assert len({key, *others}) == 6


def test_after_a_failure_nothing_is_begun_and_what_is_on_its_way_is_kept(tmp_path):
    gate = threading.Barrier(4)

    def at(prompt, _):
        gate.wait(30)
        if prompt == "p1":
            return fault(401, "who are you")
        # Longer on its way than the failure.
        time.sleep(0.2)
        return None

    server, path = Server(at), tmp_path / "j.jsonl"
    with (
        opened(server, Journal(path), concurrency=4) as client,
        pytest.raises(ApiError, match="who are you"),
    ):
        client.post_all(PATH, bodies(50))
    assert sorted(server.prompts) == ["p0", "p1", "p2", "p3"]
    again = Server()
    with opened(again, Journal(path)) as client:
        assert texts(client.post_all(PATH, bodies(50)))[:2] == ["P0", "P1"]
    assert len(again.prompts) == 50 - 3


def test_ctrl_c_waits_for_what_is_on_its_way_and_the_client_may_go_on(tmp_path):
    def late(prompt, _):
        # Longer on its way than Ctrl-C takes.
        time.sleep(0.2 * (prompt != "p0"))

    def press(n_done, _):
        raise KeyboardInterrupt

    server, path = Server(late), tmp_path / "j.jsonl"
    with opened(server, Journal(path), concurrency=4) as client:
        with pytest.raises(KeyboardInterrupt):
            client.post_all(PATH, bodies(50), press)
        n_sent = client.n_sent
        assert 4 <= len(server.prompts) == n_sent <= 5
        assert len(path.read_text().splitlines()) == n_sent
        # Nothing goes on behind the caller's back.
        assert texts([client.post(PATH, {"prompt": "after"})]) == ["AFTER"]
        assert client.n_sent == n_sent + 1


def test_a_client_may_be_closed_from_any_thread_and_leaves_none():
    """As the garbage collector and a notebook, which runs an event loop, do it."""
    before = set(threading.enumerate())

    async def ask():
        with opened(Server(lambda *_: other.__exit__()), concurrency=4) as client:
            return client.post_all(PATH, bodies(9))

    other = opened(Server())
    other.post(PATH, bodies(1)[0])
    assert texts(asyncio.run(ask())) == [f"P{i}" for i in range(9)]
    # Once more is closing, too.
    other.__exit__(None, None, None)
    assert set(threading.enumerate()) <= before


def refusing(prompts):
    return Server(lambda prompt, _: fault(400, "filter") if prompt in prompts else None)


def test_a_refusal_stands_for_one_answer_and_is_kept_if_others_are_answered(started):
    server = refusing({"p1", "p3"})
    for _ in range(2):
        with started(server, concurrency=1) as client:
            found = client.post_all(PATH, bodies(5), keeps_refusals=True)
        assert texts([found[i] for i in (0, 2, 4)]) == ["P0", "P2", "P4"]
        for i in (1, 3):
            assert isinstance(found[i], RefusedError)
            assert str(found[i]) == "http://host/v1: HTTP 400 (filter)"
            assert found[i].status == 400
    assert sorted(server.prompts) == ["p0", "p1", "p2", "p3", "p4"]
    with started(server) as client, pytest.raises(RefusedError):
        client.post(PATH, bodies(2)[1])
    server.plan = lambda *_: None
    with started(server, retry_refused=True) as client:
        assert texts(client.post_all(PATH, bodies(5))) == [f"P{i}" for i in range(5)]
        assert client.n_sent == 2
    with started(server) as client:
        assert len(texts(client.post_all(PATH, bodies(5)))) == 5
        assert client.n_sent == 0


def test_a_refusal_is_asked_again_once_a_run(started):
    server = refusing({"p1"})
    with started(server, retry_refused=True, concurrency=1) as client:
        for _ in range(3):
            client.post_all(PATH, bodies(2), keeps_refusals=True)
    assert sorted(server.prompts) == ["p0", "p1"]
    # Those of a server that answers nothing are not kept.
    for _ in range(2):
        with started(refusing({"p9"})) as client:
            client.post_all(PATH, bodies(10)[9:], keeps_refusals=True)
            assert client.n_sent == 1


def test_an_answer_that_is_none_to_the_caller_counts_as_refused(started):
    server = Server(lambda prompt, _: "" if prompt == "p1" else None)

    def empty(body, answer):
        if not answer["choices"][0]["text"]:
            raise RefusedError("an empty answer")

    for _ in range(2):
        with started(server) as client:
            found = client.post_all(PATH, bodies(2), check=empty)
    assert texts(found[:1]) == ["P0"]
    assert str(found[1]) == "an empty answer"
    assert len(server.prompts) == 2


def test_an_answer_that_the_caller_cannot_use_is_asked_for_again_and_not_kept(started):
    server = Server(lambda prompt, number: "bad" if number < 3 else None)

    def check(body, answer):
        if answer["choices"][0]["text"] == "bad":
            raise ValueError("no number in it")

    with started(server) as client:
        assert texts([client.post(PATH, bodies(1)[0], check=check)]) == ["P0"]
        assert client.n_sent == 3
    # An answer that was kept by another reading of it is looked at again.
    with started(server) as client:
        client.post(PATH, bodies(1)[0], check=check)
        assert client.n_sent == 0
    server.plan = lambda *_: "bad"
    with started(server) as client:
        assert texts([client.post(PATH, bodies(2)[1])]) == ["bad"]
        with pytest.raises(ApiError, match="no number in it, 3 times"):
            client.post(PATH, bodies(2)[1], check=check)


def test_a_model_that_changes_is_noticed_in_a_run_and_across_runs(started):
    names = [("m-1", "fp_a"), ("m-1", "fp_a"), ("m-1", "fp_b")]

    def plan(prompt, number):
        model, fingerprint = names[number - 1]
        return ok(prompt, model=model, system_fingerprint=fingerprint)

    server = Server(plan)
    with started(server) as client:
        client.post_all(PATH, bodies(2))
        assert snapshot_warning(client) is None
    with started(server) as client:
        client.post_all(PATH, bodies(3))
        assert client.n_sent == 1
        assert client.fingerprints == {("m-1", "fp_a"), ("m-1", "fp_b")}
        assert "m-1 fp_a, m-1 fp_b" in (snapshot_warning(client) or "")

"""Waits and the pace of requests to a server that is busy or fails."""

import random
import time

import httpx2
import pytest

from jaxcontam.scoring.api.address import ApiError
from jaxcontam.scoring.api.retries import Pace
from tests.support.api_transport import PATH, Server, bodies, fault, opened, texts


class LongestWaits(random.Random):
    """Jitter that is as long as it may be."""

    def uniform(self, a, b):
        return b


def test_a_fault_that_passes_is_waited_for_twice_as_long_each_time():
    statuses = [500, 502, 503, 429, 408, 529]

    def plan(_, number):
        return fault(statuses[number - 2]) if 1 < number < 8 else None

    waits = []
    with opened(Server(plan), sleep=waits.append, rng=LongestWaits()) as client:
        client.post(PATH, {"prompt": "hello"})
        assert texts([client.post(PATH, bodies(1)[0])]) == ["P0"]
        assert client.n_sent == 8
    # A pause before the gate is taken up again where the clock left some of it.
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32], abs=0.2)


def test_a_long_wait_is_told_once_with_its_reason(capsys):
    def plan(_, number):
        return fault(429) if 1 < number < 7 else None

    with opened(Server(plan), sleep=lambda _: None, rng=LongestWaits()) as client:
        client.post(PATH, {"prompt": "hello"})
        client.post(PATH, bodies(1)[0])
    # Waits of 1, 2, 4, 8 and 16 s; the last is the only long one.
    (line,) = capsys.readouterr().err.splitlines()
    assert "HTTP 429 (busy), 5 times; the next try is in 16 s" in line


def test_a_server_that_says_nothing_is_told_and_what_it_asks_for_is_capped(
    monkeypatch, capsys
):
    def slow(_, number):
        time.sleep(0.2)
        return fault(429, Retry_After="1e9") if number == 2 else None

    monkeypatch.setattr("jaxcontam.scoring.api.client._SILENT_SECONDS", 0.05)
    with opened(Server(slow), timeout_seconds=9.0) as client:
        client.post(PATH, {"prompt": "hello"})
        (line,) = capsys.readouterr().err.splitlines()
        assert "no whole answer for 0 s; it is given up after 9 s" in line
        client.post_all(PATH, bodies(3))
    told = capsys.readouterr().err.splitlines()
    wait = "it asks for a wait of 1e+09 s; the next try is in 120 s"
    assert sum(wait in line for line in told) == 1


def test_waits_are_drawn_between_nothing_and_their_bound():
    waits = []
    server = Server(lambda _, number: fault(500) if number > 1 else None)
    with opened(server, sleep=waits.append, rng=random.Random(0)) as client:
        client.post(PATH, {"prompt": "hello"})
        with pytest.raises(ApiError, match=r"HTTP 500 \(busy\), 10 times") as e:
            client.post(PATH, bodies(1)[0])
    assert e.value.status == 500
    assert "run the same command again" in e.value.hint
    bounds = [1, 2, 4, 8, 16, 32, 64, 64, 64]
    assert len(waits) == len(bounds)
    assert all(0 <= wait <= bound for wait, bound in zip(waits, bounds, strict=True))
    assert len(set(waits)) == len(waits)


@pytest.mark.parametrize(
    ("asked", "wait"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("-3", 0.0),
        ("86400", 120.0),
        ("inf", 120.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Sun, 06 Nov 9994 08:49:37 GMT", 120.0),
        ("soon", 1.0),
        ("nan", 1.0),
    ],
)
def test_the_server_says_how_long_to_wait_up_to_two_minutes(asked, wait):
    waits = []

    def plan(_, number):
        return fault(500, Retry_After=asked) if number == 1 else None

    with opened(Server(plan), sleep=waits.append, rng=LongestWaits()) as client:
        client.post(PATH, bodies(1)[0])
    assert waits == [wait]


def test_a_wait_that_was_cut_short_is_named_at_the_end():
    server = Server(lambda *_: fault(429, Retry_After="3600"))
    with (
        opened(server) as client,
        pytest.raises(ApiError, match=r"10 times; the server asks to wait 3600 s"),
    ):
        client.post(PATH, bodies(1)[0])


def test_after_a_429_no_request_leaves_before_the_wait_is_over():
    """The pace is every request's: none is sent while one is told to wait."""
    skipped, left = [0.0], []

    def plan(_, number):
        left.append(skipped[0])
        return fault(429, Retry_After="30") if number == 1 else None

    def sleep(seconds):
        skipped[0] += seconds

    with opened(Server(plan), sleep=sleep, concurrency=2) as client:
        client.post_all(PATH, bodies(20))
    # Two were on their way; the others left after 30 s.
    assert left[0] == 0.0
    assert min(left[2:]) >= 29.9


def test_a_server_of_one_request_at_a_time_is_found_out():
    """More than one on its way is a 429; waits alone would never end."""
    server = Server()
    server.plan = lambda *_: fault(429) if server.n_inside > 1 else None
    with opened(server, concurrency=8) as client:
        answers = client.post_all(PATH, bodies(60))
    assert texts(answers) == [f"P{i}" for i in range(60)]


@pytest.mark.parametrize("says_when", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_a_limit_by_the_minute_is_waited_for(seed, says_when):
    """20 answers a minute, 8 on their way: 200 answers take ten minutes of waits."""
    skipped, answered = [0.0], {}

    def plan(_, number):
        minute = int(skipped[0] // 60)
        answered[minute] = answered.get(minute, 0) + 1
        if answered[minute] <= 20:
            return None
        left = str(int(60 - skipped[0] % 60) + 1)
        return fault(429, Retry_After=left) if says_when else fault(429)

    def sleep(seconds):
        skipped[0] += seconds

    rng = random.Random(seed)
    with opened(Server(plan), sleep=sleep, rng=rng, concurrency=8) as client:
        found = client.post_all(PATH, bodies(200))
        if says_when:
            # Those that were on their way when the minute's share was used up.
            assert client.n_sent <= 200 + 10 * 8
    assert texts(found) == [f"P{i}" for i in range(200)]


def test_the_pace_halves_once_for_a_burst_and_comes_back_slowly():
    pace = Pace(8)
    for _ in range(8):
        assert pace.is_open
        pace.enter()
    assert not pace.is_open
    for now in (1.0, 1.1, 1.2):
        pace.busy(sent=0.5, now=now, wait=0.0)
    assert pace.limit == 4
    pace.busy(sent=1.5, now=2.0, wait=0.0)
    assert pace.limit == 2
    for now in range(3, 9):
        pace.busy(sent=now, now=now, wait=0.0)
    assert pace.limit == 1
    pace.busy(sent=10.0, now=10.0, wait=5.0)
    pace.busy(sent=9.0, now=10.0, wait=2.0)
    assert pace.pause(12.0) == 3.0
    assert pace.pause(20.0) == 0.0
    # Four rounds of 1, 2, ... 7 answers are 112.
    for _ in range(110):
        pace.answered()
    assert pace.limit == 7
    for _ in range(90):
        pace.answered()
    assert pace.limit == 8


@pytest.mark.parametrize("code", ["insufficient_quota", "billing_not_active"])
def test_an_account_without_credit_is_not_waited_for(code):
    answer = {"error": {"message": "no credit", "code": code}}
    server = Server(lambda *_: httpx2.Response(429, json=answer))
    with opened(server) as client, pytest.raises(ApiError, match="no credit") as e:
        client.post(PATH, bodies(1)[0])
    assert "in credit" in e.value.hint
    assert len(server.prompts) == 1


def test_a_server_that_never_answered_is_tried_four_times():
    server = Server(lambda *_: fault(500))
    with opened(server) as client, pytest.raises(ApiError, match="4 times"):
        client.post(PATH, bodies(1)[0])


def test_one_try_is_one_try():
    server = Server(lambda *_: fault(500))
    with opened(server) as client, pytest.raises(ApiError, match=r"HTTP 500 \(busy\)$"):
        client.post(PATH, bodies(1)[0], tries=1)
    assert len(server.prompts) == 1

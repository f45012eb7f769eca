"""Waits and the pace of requests to a server that is busy or fails."""

import random
import time

import pytest

from jaxcontam.scoring.api.address import ApiError
from jaxcontam.scoring.api.answers import Failure
from jaxcontam.scoring.api.retries import Pace, last_error
from tests.support.api_transport import PATH, Server, bodies, fault, opened, texts


class LongestWaits(random.Random):
    """Jitter that is as long as it may be."""

    def uniform(self, a, b):
        return b


class Clock:
    """Skips what would be slept; `sleep` notes each wait."""

    def __init__(self):
        self.waits, self.now = [], 0.0

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds


def test_a_fault_that_passes_is_waited_for_twice_as_long_each_time(capsys):
    statuses, clock = [500, 502, 503, 408, 529, 429], Clock()

    def plan(_, number):
        return fault(statuses[number - 2]) if 1 < number < 8 else None

    with opened(Server(plan), sleep=clock.sleep, rng=LongestWaits()) as client:
        client.post(PATH, {"prompt": "hello"})
        assert texts([client.post(PATH, bodies(1)[0])]) == ["P0"]
        assert client.n_sent == 8
    # A pause before the gate is taken up again where the clock left some of it.
    assert clock.waits == pytest.approx([1, 2, 4, 8, 16, 32], abs=0.2)
    # The long ones are told with their reason.
    sixteen, last = capsys.readouterr().err.splitlines()
    assert "HTTP 529 (busy), 5 times; the next try is in 16 s" in sixteen
    assert "HTTP 429 (busy), 6 times; the next try is in 32 s" in last


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
        assert "no whole answer for 0 s; giving up after 9 s" in line
        client.post_all(PATH, bodies(3))
    told = capsys.readouterr().err.splitlines()
    # Once, though three wait.
    wait = "it requests a wait of 1000000000 s; the next try is in 120 s"
    assert sum(wait in line for line in told) == 1


def test_waits_are_drawn_between_nothing_and_their_bound():
    clock = Clock()
    server = Server(lambda _, number: fault(500) if number > 1 else None)
    with opened(server, sleep=clock.sleep, rng=random.Random(0)) as client:
        client.post(PATH, {"prompt": "hello"})
        with pytest.raises(ApiError, match=r"HTTP 500 \(busy\), 10 times") as e:
            client.post(PATH, bodies(1)[0])
    assert e.value.status == 500
    assert "run the same command again" in e.value.hint
    bounds = [1, 2, 4, 8, 16, 32, 64, 64, 64]
    assert all(0 <= w <= bound for w, bound in zip(clock.waits, bounds, strict=True))
    assert len(set(clock.waits)) == len(bounds)


@pytest.mark.parametrize(
    ("asked", "wait"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("-3", 0.0),
        ("inf", 120.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Sun, 06 Nov 9994 08:49:37 GMT", 120.0),
        ("soon", 1.0),
        ("nan", 1.0),
    ],
)
def test_the_server_says_how_long_to_wait_up_to_two_minutes(asked, wait):
    clock = Clock()

    def plan(_, number):
        return fault(500, Retry_After=asked) if number == 1 else None

    with opened(Server(plan), sleep=clock.sleep, rng=LongestWaits()) as client:
        client.post(PATH, bodies(1)[0])
    assert clock.waits == [wait]


def test_after_a_429_no_request_leaves_before_the_wait_is_over():
    """The pace is every request's: none is sent while one is told to wait."""
    clock, left = Clock(), []

    def plan(_, number):
        left.append(clock.now)
        return fault(429, Retry_After="30") if number == 1 else None

    with opened(Server(plan), sleep=clock.sleep, concurrency=2) as client:
        client.post_all(PATH, bodies(20))
    # Two were on their way; the others left after 30 s.
    assert left[0] == 0.0 and min(left[2:]) >= 29.9


@pytest.mark.parametrize("says_when", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_a_limit_by_the_minute_is_waited_for(seed, says_when):
    """20 answers a minute, 8 on their way: 200 answers take ten minutes of waits."""
    clock, answered = Clock(), {}

    def plan(_, number):
        minute = int(clock.now // 60)
        answered[minute] = answered.get(minute, 0) + 1
        if answered[minute] <= 20:
            return None
        left = str(int(60 - clock.now % 60) + 1)
        return fault(429, Retry_After=left) if says_when else fault(429)

    settings = {"sleep": clock.sleep, "rng": random.Random(seed), "concurrency": 8}
    with opened(Server(plan), **settings) as client:
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
    assert (pace.pause(12.0), pace.pause(20.0)) == (3.0, 0.0)
    # Four rounds of 1, 2, ... 7 answers are 112.
    for n_answers, limit in ((110, 7), (90, 8)):
        for _ in range(n_answers):
            pace.answered()
        assert pace.limit == limit


def test_what_ended_the_last_try_is_told():
    failures = [Failure("late", "no answer in time"), Failure("busy", "HTTP 429")]
    assert str(last_error("http://h", failures, True)) == "http://h: HTTP 429, 2 times"

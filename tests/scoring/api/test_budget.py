"""Budgets that no request passes, and estimates of what is sent."""

import contextlib
import dataclasses
import threading

import httpx2
import pytest

from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.budget import (
    Budget,
    Spending,
    Usage,
    about_usage,
    estimate,
    most_usage,
)
from tests.support.api_transport import MODEL, PATH, Server, bodies, fault, ok, opened

# A request may use 3 + 20 tokens (2 bytes and one, and max_tokens) and uses 3 + 2.
BODIES = [{"prompt": f"{i:02}", "max_tokens": 20} for i in range(99)]
MOST, USED = 3 + 2 * 20, 3 + 2 * 2


def budget(tokens, price_in=1.0, price_out=2.0):
    """Of so many tokens of prompts."""
    limits = Budget(max_cost=tokens / 1e6, price_in=price_in, price_out=price_out)
    return Spending(limits)


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_budget_waits_for_those_on_their_way_and_is_never_passed(
    tmp_path, concurrency
):
    """A rerun goes on where the budget ended."""
    server, journal, spending = Server(), Journal(tmp_path / "j.jsonl"), budget(100)
    with (
        opened(server, journal, budget=spending, concurrency=concurrency) as client,
        pytest.raises(InputError, match=r"budget of 0.0001 does not .*sent") as e,
    ):
        client.post_all(PATH, BODIES)
    assert "again with a higher --budget" in e.value.hint
    # One more may go out while used + most <= 100.
    assert client.n_sent == (100 - MOST) // USED + 1
    cost = spending.budget.cost(spending.spent)
    assert cost == pytest.approx(client.n_sent * USED / 1e6)
    n_before = client.n_sent
    with opened(server, budget=budget(MOST - 1)) as client, pytest.raises(InputError):
        client.post(PATH, BODIES[0])
    assert client.n_sent == 0
    with opened(server, journal, budget=budget(1e6)) as client:
        client.post_all(PATH, BODIES)
        assert client.n_sent == len(BODIES) - n_before


def lost_then_refused(_, number):
    if number == 1:
        raise httpx2.ReadError("gone")
    return fault(500) if number == 2 else None


def garbled(_, number):
    return httpx2.Response(200, content=b"<html>") if number == 1 else None


def saying(prompt_tokens, completion_tokens):
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return lambda prompt, _: ok(prompt.upper(), usage=usage)


@pytest.mark.parametrize(
    ("plan", "body", "used"),
    [
        # 4 + 50 of the lost one, 0 of the refused one, 3 + 2 of the answer.
        (lost_then_refused, {"prompt": "abc", "max_tokens": 50}, Usage(3, 7, 52)),
        # An answer that cannot be read is paid for.
        (garbled, {"prompt": "abc", "max_tokens": 50}, Usage(2, 7, 52)),
        # Texts of 40 bytes are ten tokens each way at least, whatever it reports.
        (saying(0, 0), {"prompt": "a" * 40, "max_tokens": 20}, Usage(1, 10, 10)),
        # What is 0 may be left out.
        (
            lambda *_: ok("", usage={"prompt_tokens": 3}),
            {"prompt": "p0", "max_tokens": 2},
            Usage(1, 3, 0),
        ),
        # A count that is no float counts as the most that a request can use.
        (saying(10**4000, 10**4000), {"prompt": "p0", "max_tokens": 2}, Usage(1, 3, 2)),
    ],
)
def test_what_is_not_said_or_said_wrongly_is_counted_by_bytes(plan, body, used):
    spending = budget(10**6)
    with opened(Server(plan), budget=spending) as client:
        client.post(PATH, body)
    assert spending.spent == used


def test_clients_of_one_budget_pass_it_neither_alone_nor_together():
    spending, server = budget(1000), Server()

    def ask(client, first):
        with contextlib.suppress(InputError):
            client.post_all(PATH, BODIES[first::2])

    with opened(server, budget=spending) as one, opened(server, budget=spending) as two:
        other = threading.Thread(target=ask, args=(two, 1))
        other.start()
        ask(one, 0)
        other.join()
    n_sent = len(server.prompts)
    assert n_sent == spending.spent.n_requests
    assert USED * n_sent <= 1000 < USED * n_sent + MOST or n_sent == len(BODIES)


@pytest.mark.parametrize(
    ("body", "most", "about"),
    [
        ({"prompt": "abcdé", "max_tokens": 5}, (7, 5), (2, 5)),
        ({"prompt": [[1, 2, 3]], "max_tokens": 1}, (3, 1), (3, 1)),
        (
            {"messages": [{"content": "abcd"}], "max_completion_tokens": 9},
            (5 + 16, 9),
            (1 + 16, 9),
        ),
    ],
)
def test_tokens_of_a_request_are_counted_or_bounded_by_bytes(body, most, about):
    assert most_usage(body) == Usage(1, *most)
    assert about_usage(body) == Usage(1, *about)


def test_the_estimate_is_what_is_sent(tmp_path):
    server, journal = Server(), Journal(tmp_path / "j.jsonl")
    prices = Budget(price_in=1.0, price_out=10.0)
    asked = [*bodies(6, prompt=[[1, 2, 3]]), *bodies(6)]
    with opened(server, journal) as client:
        client.post_all(PATH, asked[:8])
        found = estimate(MODEL, PATH, asked, journal=journal, budget=prices)
        before = client.n_sent
        client.post_all(PATH, asked)
        assert (before, client.n_sent - before) == (3, found.n_requests) == (3, 4)
    assert found.n_journalled == 3
    assert (found.prompt_tokens, found.completion_tokens) == (4 * 1, 4 * 2)
    assert found.cost == pytest.approx((4 + 80) / 1e6)
    assert found.words().startswith("4 requests to send, 3 answered before")
    assert "cost at most" not in estimate(MODEL, PATH, asked).words()
    for limit, side in ((1e-3, "within the budget of 0.001"), (1e-5, "above")):
        said = dataclasses.replace(found, budget=limit).words()
        assert f"cost at most about 8.4e-05, {side}" in said

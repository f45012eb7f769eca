"""Servers that answer a probe's sentences as models do, and rows otherwise."""

import json
import random

import httpx2
import numpy as np
import pytest

from jaxcontam.errors import InputError
from jaxcontam.scoring.api.logprobs import Way
from jaxcontam.scoring.api.probe import probe
from jaxcontam.scoring.api.prompts import ServedPrompts
from jaxcontam.scoring.api.spot import SpotChecks
from tests.api_transport import opened
from tests.test_probe import WordServer

WAY = Way(echo=True, ids=False, max_tokens=0)
N_ROWS = 300
ROWS = [
    " ".join(f"w{i}" for i in np.random.default_rng(row).integers(0, 99, 14))
    for row in range(N_ROWS)
]


def scored(server):
    """Scores of all rows, and what was compared; requests are drawn by a fixed seed."""

    def answer(request):
        return httpx2.Response(200, json=server(json.loads(request.content)))

    client = opened(answer)
    spots = SpotChecks(client, WAY, None, random.Random(0))
    return ServedPrompts(client, WAY, spots).scores(ROWS, None), spots


class Turning(WordServer):
    """An honest server up to a request, and another one from there on."""

    def __init__(self, turn, n_honest=0):
        super().__init__()
        self.turn, self.n_honest = turn, n_honest

    def read(self, tokens):
        values = super().read(tokens)
        is_probe = tokens[0] in ("The", "1,", "Once")
        if is_probe or len(self.bodies) <= self.n_honest:
            return values
        return [None, *map(self.turn, range(len(values) - 1), values[1:])]


def test_an_honest_server_passes_and_a_hundredth_is_asked_again():
    server = Turning(lambda _, value: value)
    found, spots = scored(server)
    expected = [server.read(row.split(" ")[:1] + words_after(row))[1:] for row in ROWS]
    assert [one.logprobs.tolist() for one in found] == expected
    assert N_ROWS / 100 <= spots.n_again <= N_ROWS / 100 + 3
    assert (spots.n_compared, spots.difference) == (5 * 5, 0.0)
    # Of each of five rows: one to write, two to read.
    assert len(server.bodies) == N_ROWS + spots.n_again + 5 * 3


@pytest.mark.parametrize(
    ("turn", "n_honest", "words"),
    [
        (lambda i, _: -1.0, 0, "made-up log-probabilities: -1 for every token"),
        (lambda i, _: -1.0, 150, "made-up log-probabilities: -1 for every token"),
        (lambda i, _: -1.0 - i, 0, "wrong log-probabilities"),
        (lambda i, _: -1.0 - i, 150, "wrong log-probabilities|differ by .* nats"),
        (lambda i, value: value / 2, 200, "wrong log-probabilities|differ by .* nats"),
    ],
)
def test_a_server_that_is_honest_to_a_probe_and_not_to_rows_is_refused(
    turn, n_honest, words
):
    server = Turning(turn, n_honest)
    probe(server, url="http://host/v1")
    server.bodies.clear()
    with pytest.raises(InputError, match=words):
        scored(server)


def test_noise_in_the_middle_of_a_run_is_told_with_its_size():
    noise = np.random.default_rng(0)
    server = Turning(lambda _, value: value - noise.uniform(0, 0.04), 100)
    _, spots = scored(server)
    assert 0.01 < spots.difference < 0.04


def words_after(row):
    return [" " + word for word in row.split(" ")[1:]]

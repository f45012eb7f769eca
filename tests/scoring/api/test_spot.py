"""Servers that answer rows otherwise than a probe; eras and drift."""

import itertools
import json
import random

import httpx2
import numpy as np
import pytest

import jaxcontam
from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.logprobs import Way
from jaxcontam.scoring.api.trust import SpotChecks, find_eras, probe
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.remote import ServedPrompts
from tests.scoring.api.test_probe import WordServer, words
from tests.scoring.api.test_remote import IDS, echoed, served
from tests.support.api_transport import MODEL, opened

WAY = Way(echo=True, ids=False, max_tokens=0)
N_ROWS = 300
ROWS = [
    " ".join(f"w{i}" for i in np.random.default_rng(row).integers(0, 99, 14))
    for row in range(N_ROWS)
]


def scored(server, rows=ROWS, seed=0):
    """Scores of all rows, and what was compared; requests are drawn by a seed."""
    client = opened(
        lambda request: httpx2.Response(200, json=server(json.loads(request.content)))
    )
    spots = SpotChecks(client, WAY, None, random.Random(seed))
    return ServedPrompts(client, WAY, spots).scores(rows, None), spots


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
    expected = [server.read(words(row))[1:] for row in ROWS]
    assert [one.logprobs.tolist() for one in found] == expected
    # A hundredth of blocks of 128, 128 and 44 rows, rounded up; and beside each of five
    # texts another one.
    assert spots.n_again == (2 + 2 + 1) + 5
    assert (spots.n_compared, spots.difference) == (5 * 5, 0.0)
    # Of each of five texts: one to write, one to read; and the other one.
    assert len(server.bodies) == N_ROWS + spots.n_again + 5 * 3


@pytest.mark.parametrize(
    ("turn", "n_honest", "said"),
    [
        (lambda i, _: -1.0, 150, "made-up log-probabilities: -1 for every token"),
        (lambda i, _: -1.0 - i, 0, "wrong log-probabilities"),
        (lambda i, _: -1.0 - i, 150, "wrong log-probabilities|differ by .* nats"),
        (lambda i, value: value / 2, 200, "wrong log-probabilities|differ by .* nats"),
    ],
)
def test_a_server_that_is_honest_to_a_probe_and_not_to_rows_is_refused(
    turn, n_honest, said
):
    server = Turning(turn, n_honest)
    probe(server, url="http://host/v1")
    server.bodies.clear()
    with pytest.raises(InputError, match=said):
        scored(server)


def test_noise_in_the_middle_of_a_run_is_told_with_its_size():
    noise = np.random.default_rng(0)
    server = Turning(lambda _, value: value - noise.uniform(0, 0.04), 100)
    assert 0.01 < scored(server)[1].difference < 0.04


class Caching(WordServer):
    """Keeps blocks of four words that it read, and takes them up right or wrong.

    Wrong are `values` of words in such blocks, by 1 to 4 nats; or these are those of
    the `request before`; or all words `after` such blocks are, written ones too; or
    `whole` texts.
    """

    def __init__(self, wrong=None):
        super().__init__()
        self.wrong, self.blocks, self.n, self.last = wrong, set(), 0, []

    def off(self, values, start=0):
        return [value and value - 1 - i % 4 for i, value in enumerate(values, start)]

    def read(self, tokens):
        ends, values = range(4, len(tokens), 4), super().read(tokens)
        kept = (end for end in ends if tuple(tokens[:end]) in self.blocks)
        self.n = n = max(kept, default=0)
        self.blocks |= {tuple(tokens[:end]) for end in range(4, len(tokens) + 1, 4)}
        if self.wrong in ("values", "whole"):
            values[:n] = self.off(values[:n])
        if self.wrong == "request before":
            values[: min(n, len(self.last))] = self.last[:n]
        if self.wrong in ("after", "whole") and n:
            values[n:] = self.off(values[n:], n)
        self.last = values
        return values

    def write(self, prompt, new):
        values = super().write(prompt, new)
        is_wrong = self.wrong in ("after", "whole") and self.n
        return self.off(values, len(prompt)) if is_wrong else values


def rows_of(seed):
    """Rows with a beginning that all share, as the parts of one prompt have."""
    drawn = np.random.default_rng(seed).integers(0, 99, (40, 14))
    return [" ".join(["so"] * 8 + [f"w{i}" for i in row]) for row in drawn]


@pytest.mark.parametrize("wrong", ["values", "request before", "after", "whole", None])
def test_a_server_that_takes_up_wrongly_what_it_kept_is_refused(wrong):
    for seed in range(20):
        server, rows = Caching(wrong), rows_of(seed)
        for row in rows * (seed % 2):  # An earlier run has read them all.
            server(WAY.body(row))
        if wrong is None:
            assert scored(server, rows, seed)[1].difference == 0
            continue
        with pytest.raises(InputError, match="prefix cache") as caught:
            scored(server, rows, seed)
        assert "nats on average" in str(caught.value)


def test_a_move_of_the_server_begins_an_era(tmp_path):
    journal = Journal(tmp_path / "requests.jsonl")

    def era(second):
        return find_eras(journal, MODEL, "a b", np.array([-1.0, second]))

    moves = (0, 0.0005, 0.002, 0.0025)
    assert [era(-2.0 - moved).now for moved in moves] == [0, 0, 1, 1]
    first, now = ["x"], ["x", "y"]
    assert (era(-2.0).of_call(first), era(-2.02).of_call(first)) == (2, 2)
    assert era(-2.04).of_call(now) > 2
    with pytest.raises(InputError, match="the model differs"):
        era(-3.0)


# Requests of a drifting engine, each of whose answers is 1 / N nats below the last.
N = 600


def drift_of_a_server():
    numbers = itertools.count(1)
    prompts = served(lambda _: echoed(["a", "b"], [None, -next(numbers) / N]), way=IDS)
    return [s.logprobs[0] for s in prompts.scores([(0, i) for i in range(N)], None)]


def drift_of_an_engine():
    numbers = itertools.count(1)
    engine = jaxcontam.load(lambda pairs: [-next(numbers) / N for _ in pairs])
    text = np.array([ord("a")], np.int32)
    groups = [PairGroup(text, (text + i,), 0, (1,)) for i in range(N)]
    found = engine.make_scorer(store=None).pairs.logprobs(groups).logprobs
    return [own[0][0] for own in found]


@pytest.mark.parametrize("drifted", [drift_of_a_server, drift_of_an_engine])
def test_drift_cannot_favour_rows_that_stand_first_in_a_plan(drifted):
    found = np.array(drifted())
    # Each at a time of its own; a few are asked twice, as a check.
    assert len(set(found)) == N and found.min() == pytest.approx(-1, abs=0.02)
    # In the plan's order the halves differ by 0.5; the standard error of the
    # difference of two random halves is 2 / sqrt(12 N) = 0.0236.
    assert abs(found[: N // 2].mean() - found[N // 2 :].mean()) < 4 * 0.0236

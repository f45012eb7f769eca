"""Several servers of one model: rows spread at random, and all must say the same."""

import contextlib

import numpy as np
import pytest

from jaxcontam.analyses.model import load
from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import parse_api
from jaxcontam.scoring.api.budget import ApiOptions
from jaxcontam.scoring.api.eras import find_eras
from jaxcontam.scoring.api.prompts import ServedPrompts
from jaxcontam.scoring.remote import RemoteScorer
from tests.api_server import serving
from tests.test_probe import WordServer, words
from tests.test_spot import ROWS

N_ROWS = 200


class Halved(WordServer):
    """Another model, which is as honest."""

    def read(self, tokens):
        return [value and value / 2 for value in super().read(tokens)]

    def write(self, prompt, new):
        return [value / 2 for value in super().write(prompt, new)]


@contextlib.contextmanager
def behind(*servers):
    """Yields the word for the servers together, and their URLs."""
    with contextlib.ExitStack() as stack:
        urls = []
        for server in servers:

            def answer(body, *_, server=server):
                return 200, server(body)

            urls.append(stack.enter_context(serving(answer))[0])
        yield f"api:{','.join(urls)}#m", urls


def scored(word, store):
    opened = load(word, api=ApiOptions())
    scorer = opened.make_scorer(store=store)
    assert isinstance(scorer, RemoteScorer)
    assert isinstance(scorer.prompts, ServedPrompts)
    found = scorer.prompts.scores(ROWS[:N_ROWS], None)
    return [one.logprobs.tolist() for one in found], scorer.prompts.client.n_sent


def test_rows_are_spread_at_random_and_no_value_depends_on_where(tmp_path):
    servers = WordServer(), WordServer()
    with behind(*servers) as (word, _):
        found, n_sent = scored(word, tmp_path)
        rows = [
            {body["prompt"] for body in server.bodies} & set(ROWS[:N_ROWS])
            for server in servers
        ]
        assert rows[0] | rows[1] == set(ROWS[:N_ROWS]) and n_sent >= N_ROWS
        # A binomial of 200 and 1/2 is within 5 standard errors, 35, of its mean.
        assert all(65 <= len(of_server) <= 135 for of_server in rows)
        assert found == [servers[0].read(words(row))[1:] for row in ROWS[:N_ROWS]]
        assert scored(word, tmp_path) == (found, 0)


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (Halved(), "{1}: another model than behind {0}: "),
        (WordServer(off_by_one=True), "{1}: wrong log-probabilities: "),
        (WordServer(bos="<s>"), "{1}: gives log-probabilities in another way "),
    ],
)
def test_a_server_that_says_something_else_is_named(second, said):
    with behind(WordServer(), second) as (word, urls), pytest.raises(InputError) as e:
        load(word, api=ApiOptions())
    assert str(e.value).startswith(said.format(*urls))


def test_one_server_is_one_url():
    two = "api:http://a/v1,http://b/v1#m"
    assert parse_api(two, flag="MODEL", several=True).url == "http://a/v1,http://b/v1"
    with pytest.raises(InputError, match="--judge: one URL, got"):
        parse_api(two, flag="--judge")


def test_a_move_of_any_server_begins_an_era(tmp_path):
    journal = Journal(tmp_path / "requests.jsonl")
    model = parse_api("api:http://a.test,http://b.test#m", flag="MODEL", several=True)

    def era(second):
        return find_eras(journal, model, "a b", np.array([-1.0, -2.0, -1.0, second]))

    assert [era(-2.0 - moved).now for moved in (0, 0.0005, 0.002, 0.0025)] == [
        0,
        0,
        1,
        1,
    ]
    first, now = ["x"], ["x", "y"]
    assert (era(-2.0).of_call(first), era(-2.02).of_call(first)) == (2, 2)
    assert era(-2.04).of_call(now) > 2
    with pytest.raises(InputError, match="another model"):
        era(-3.0)

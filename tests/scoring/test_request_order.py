"""Drift of an engine favours no order: requests go out in a random order."""

import httpx2
import numpy as np
import pytest

import jaxcontam
from jaxcontam.data.journal import Journal
from jaxcontam.scoring.pair_plan import PairGroup
from tests.scoring.api.test_remote import IDS, echoed, served

N = 600


def drift_of_a_server():
    """Each answer of a server is 1 / N nats below the one before it."""
    asked = []

    def answer(request):
        asked.append(request)
        return httpx2.Response(200, json=echoed(["a", "b"], [None, -len(asked) / N]))

    prompts = served(answer, way=IDS)
    return [s.logprobs[0] for s in prompts.scores([(0, i) for i in range(N)], None)]


def drift_of_an_engine():
    """The same of a function that is asked."""
    asked = []

    def drifting(pairs):
        asked.extend(pairs)
        n = len(asked) - len(pairs)
        return [-(n + i + 1) / N for i in range(len(pairs))]

    scorer = jaxcontam.load(drifting).make_scorer(store=None)
    assert scorer.pairs is not None
    text = np.array([ord("a")], np.int32)
    groups = [PairGroup(text, (text + i,), 0, (1,)) for i in range(N)]
    return [own[0][0] for own in scorer.pairs.logprobs(groups).logprobs]


@pytest.mark.parametrize("drifted", [drift_of_a_server, drift_of_an_engine])
def test_drift_cannot_favour_rows_that_stand_first_in_a_plan(drifted):
    found = np.array(drifted())
    # Each at a time of its own; a few are asked twice, as a check.
    assert len(set(found)) == N and found.min() == pytest.approx(-1, abs=0.02)
    # In the plan's order the halves differ by 0.5; the standard error of the
    # difference of two random halves is 2 / sqrt(12 N) = 0.0236.
    assert abs(found[: N // 2].mean() - found[N // 2 :].mean()) < 4 * 0.0236


def test_a_run_that_was_cut_off_goes_on_with_the_same_values(tmp_path):
    def answer(request, most):
        asked.append(request)
        if len(asked) > most:
            return httpx2.Response(401, json={})
        return httpx2.Response(200, json=echoed(["a", "b"], [None, value(request)]))

    def value(request):
        return -float(request.content.split(b"[[0, ")[1].split(b"]")[0])

    rows, asked = [(0, i) for i in range(300)], []
    journal = Journal(tmp_path / "requests.jsonl")
    with pytest.raises(jaxcontam.InputError, match="401"):
        served(lambda r: answer(r, 200), journal, way=IDS).scores(rows, None)
    n_kept = sum(served(None, Journal(journal.path), way=IDS).holds(r) for r in rows)
    assert 0 < n_kept <= 200
    asked.clear()
    prompts = served(lambda r: answer(r, 300), Journal(journal.path), way=IDS)
    assert [s.logprobs[0] for s in prompts.scores(rows, None)] == [-i for _, i in rows]
    assert len(asked) == 300 - n_kept

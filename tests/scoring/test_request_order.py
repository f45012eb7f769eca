"""Drift of an engine favours no order: requests go out in a random order."""

import httpx2
import numpy as np
import pytest

import jaxcontam
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

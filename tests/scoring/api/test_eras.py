"""Answers of a server from before and after a move are not compared."""

import numpy as np
import pytest

from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import parse_api
from jaxcontam.scoring.api.trust import find_eras


def test_one_server_is_one_url():
    with pytest.raises(InputError, match="MODEL: one URL, got") as e:
        parse_api("api:http://a/v1,http://b/v1#m", flag="MODEL")
    assert "balancer" in e.value.hint


def test_a_move_of_the_server_begins_an_era(tmp_path):
    journal = Journal(tmp_path / "requests.jsonl")
    model = parse_api("api:http://a.test#m", flag="MODEL")

    def era(second):
        return find_eras(journal, model, "a b", np.array([-1.0, second]))

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

"""Processes that score together: the same numbers, each batch once, nobody waits."""

import collections
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = ("loglik", "tokens")


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    """Runs a scenario of `host_process` in processes without JAX."""
    known = {}

    def run(name):
        if name not in known:
            folder = tmp_path_factory.mktemp(name)
            done = subprocess.run(
                [sys.executable, "-m", "tests.host_process", name, str(folder)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
            known[name] = json.loads(done.stdout)
        return known[name]

    return run


def assert_same_numbers(found, one):
    for process in found:
        for name in NUMBERS:
            assert process[name] == one[name]


@pytest.mark.parametrize("name", ["three", "again", "apart", "apart_again", "nowhere"])
def test_every_process_has_the_numbers_of_one_to_the_bit(scenario, name):
    found = scenario("shared")
    assert_same_numbers(found[name], found["one"])


@pytest.mark.parametrize("name", ["three", "apart", "nowhere"])
def test_each_batch_is_scored_once_in_unequal_shares(scenario, name):
    found = scenario("shared")
    # The sums and the tokens of a batch are asked for apart.
    whole = collections.Counter(found["one"]["asked"])
    parts = [collections.Counter(process["asked"]) for process in found[name]]
    assert sum(parts, collections.Counter()) == whole
    sizes = [part.total() for part in parts]
    assert len(set(sizes)) > 1, "shares are meant to be unequal here"
    # Two calls, the last round of each uneven.
    assert max(sizes) - min(sizes) <= 2


@pytest.mark.parametrize("name", ["again", "apart_again"])
def test_rerun_scores_nothing_whatever_the_number_of_processes(scenario, name):
    found = scenario("shared")
    total = found["one"]["steps"][-1]
    for process in found[name]:
        assert process["asked"] == []
        assert process["n_cached"] == [total, total]


def test_all_processes_count_alike_what_was_stored(scenario):
    found = scenario("shared")
    for name in ("three", "apart", "nowhere"):
        assert [process["n_cached"] for process in found[name]] == [[0, 0]] * len(
            found[name]
        )


def test_all_processes_are_told_of_the_same_progress(scenario):
    found = scenario("shared")
    for process in found["three"]:
        assert process["steps"] == found["one"]["steps"]


def test_processes_of_a_group_score_the_same_and_one_of_them_stores(scenario):
    found = scenario("groups")
    assert_same_numbers(found["four"], found["one"])
    asked = [process["asked"] for process in found["four"]]
    assert asked[0] == asked[1] and asked[2] == asked[3]
    assert asked[0] != asked[2]
    assert found["stored"] == ["0", "2"]


def test_kill_of_one_process_ends_the_others_and_the_rest_is_scored_later(scenario):
    found = scenario("killed")
    assert found["three"][1] is None
    for process in (0, 2):
        assert found["three"][process] == {
            "error": "LostProcessError",
            "message": "process 1 of 3 is gone",
        }
    # The limit; it is seen at once.
    assert found["seconds"] < 60
    assert_same_numbers(found["two"], found["one"])
    n_asked = sum(len(process["asked"]) for process in found["two"])
    assert 0 < n_asked < len(found["one"]["asked"])


@pytest.mark.parametrize("name", ["changed", "fewer"])
def test_processes_with_other_texts_are_refused(scenario, name):
    for process in scenario("different")[name]:
        assert process == {
            "error": "InputError",
            "message": "--distributed: process 1 scores other texts than process 0",
        }


def test_process_with_nothing_to_score_is_refused(scenario):
    for process in scenario("different")["none"]:
        assert process["error"] == "InputError"
        assert "process 1 does other work than process 0" in process["message"]


def test_score_that_is_not_finite_ends_all_processes(scenario):
    found = scenario("not_finite")
    own, other = sorted(found, key=lambda one: one["error"] == "LostProcessError")
    assert own["error"] == "NonFiniteScoreError"
    assert other["message"].endswith(f"stopped: NonFiniteScoreError: {own['message']}")

"""Rewordings by rule: what moves, what is exchanged, what stays."""

import numpy as np
import pytest

from eval.blind_spots.wordings import (
    N_WORDINGS,
    longest_run,
    reworded,
    wordings,
)


def test_sentence_is_its_own_first_wording():
    assert wordings("Return a list")[0] == "Return a list"


def test_rewording_moves_the_last_clause_and_exchanges_words():
    assert reworded("Return the size of a file from OSError", 1) == (
        "Out of OSError, give back that size of one document"
    )
    assert reworded("Get the name from this path", 1) == (
        "Out of the present location, fetch that label"
    )
    assert reworded("Get the name from this path", 2) == (
        "Obtain this title off that place"
    )


@pytest.mark.parametrize(
    "kept", ["str.format()", "file_name", "'path'", "GET", "os.path.list", "--all"]
)
def test_names_and_code_stay_as_they_are(kept):
    for wording in range(N_WORDINGS):
        assert kept in reworded(f"Return {kept} if the value is a number", wording)


def test_clause_that_holds_half_of_a_bracket_stays():
    sentence = "Return (key from a dictionary)"
    assert reworded(sentence, 1).startswith("Give back (key")


@pytest.mark.parametrize("wording", [-1, N_WORDINGS])
def test_wording_that_does_not_exist_is_refused(wording):
    with pytest.raises(ValueError, match="wording must be in"):
        reworded("Return a list", wording)


def test_longest_run_is_that_of_all_stretches():
    rng = np.random.default_rng(0)
    for _ in range(30):
        a, b = (rng.choice(list("xyz"), 8).tolist() for _ in range(2))
        stretches = [
            {tuple(t[i:j]) for i in range(9) for j in range(i, 9)} for t in (a, b)
        ]
        expected = max(map(len, stretches[0] & stretches[1]))
        assert longest_run(" ".join(a), " ".join(b)) == expected

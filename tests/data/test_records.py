"""Files of scores: torn, damaged, foreign, full."""

import numpy as np
import pytest

from jaxcontam.scoring.cost import sequence_cost
from jaxcontam.scoring.rows import FIRST_K, SUMS, TOKENS
from jaxcontam.scoring.store import ScoreStore
from tests.support.store_process import IDENTITY, drawn_sequences, scorer_with


def rows_in(n_rows=3, n_records=6, size=16, seed=0):
    """Records of (key, value) rows."""
    rng = np.random.default_rng(seed)
    return [
        [(rng.bytes(32), rng.bytes(size)) for _ in range(n_rows)]
        for _ in range(n_records)
    ]


@pytest.fixture
def filled(tmp_path):
    """A folder with one file, and the rows in it."""
    store, rows = ScoreStore(tmp_path / "store", IDENTITY), rows_in()
    for of_batch in rows:
        store.commit(of_batch)
    (path,) = (tmp_path / "store").iterdir()
    return path, [row for of_batch in rows for row in of_batch]


def n_held(directory, rows):
    """Rows that a new reader finds; each value that it gives must be right."""
    store, n = ScoreStore(directory, IDENTITY), 0
    for key, value in rows:
        found = store.values([key])
        assert found in (None, [value])
        n += found is not None
    return n


@pytest.mark.parametrize("content", [b"\0" * 4096 + b"\n", b"not scores\n", None])
def test_foreign_file_is_left_alone_with_one_line(filled, capsys, content):
    path, rows = filled
    foreign = path.with_name(path.name.split("-")[0] + "-0.scores")
    if content is None:
        foreign.mkdir()
    else:
        foreign.write_bytes(content)
    assert n_held(path.parent, rows) == len(rows)
    (line,) = capsys.readouterr().err.splitlines()
    assert str(foreign) in line
    assert foreign.exists()


def test_file_deleted_between_two_commits_serves_nothing_of_what_it_held(tmp_path):
    store = ScoreStore(tmp_path, IDENTITY)
    first, second = rows_in(n_records=2)
    store.commit(first)
    (path,) = tmp_path.iterdir()
    path.unlink()
    store.commit(second)
    assert store.values([key for key, _ in first]) is None
    assert store.values([key for key, _ in second]) == [value for _, value in second]


def test_values_survive_their_own_bytes():
    rng = np.random.default_rng(0)
    own_RT = rng.normal(size=(3, 11)).astype(np.float32)
    for kept, expected in ((SUMS, SUMS.reduce(own_RT)), (TOKENS, own_RT)):
        found = kept.from_bytes(kept.to_bytes(expected), n_scores=3)
        assert found.tobytes() == expected.tobytes()
    assert SUMS.reduce(own_RT).tolist() == [
        [own_RT[0].sum(dtype=np.float64)],
        [own_RT[0, :FIRST_K].sum(dtype=np.float64)],
    ]


def test_rows_that_two_plans_share_are_paid_for_once(tmp_path):
    scorer = scorer_with(tmp_path / "store", tmp_path / "asked")
    sequences, planned = drawn_sequences(60), set()
    first = sequence_cost(scorer, sequences, planned)
    assert first.positions.total() > 0
    again = sequence_cost(scorer, sequences, planned)
    assert (again.n_cached, again.positions.total()) == (again.n_targets, 0)
    assert not (tmp_path / "asked").exists()

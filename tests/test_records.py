"""Files of scores: torn, damaged, foreign, full."""

from pathlib import Path

import numpy as np
import pytest
from store_process import (
    IDENTITY,
)

from jaxcontam.scoring.rows import FIRST_K, SUMS, TOKENS
from jaxcontam.scoring.store import ScoreStore


def rows_in(n_rows=3, n_records=6, size=16, seed=0):
    """Records of (key, value) rows."""
    rng = np.random.default_rng(seed)
    return [
        [(rng.bytes(32), rng.bytes(size)) for _ in range(n_rows)]
        for _ in range(n_records)
    ]


@pytest.fixture
def filled(tmp_path):
    """A folder with one file, its records, and the file's size after each of them."""
    store, records, sizes = ScoreStore(tmp_path / "store", IDENTITY), rows_in(), []
    for rows in records:
        store.commit(rows)
        (path,) = (tmp_path / "store").iterdir()
        sizes.append(path.stat().st_size)
    return path, records, sizes


def n_held(directory, records):
    """Records that a new reader finds whole; each value it gives must be right."""
    store, n = ScoreStore(directory, IDENTITY), 0
    for rows in records:
        found = store.values([key for key, _ in rows])
        if found is not None:
            assert found == [value for _, value in rows]
            n += 1
    return n


def test_file_cut_at_any_byte_gives_the_whole_records_before_the_cut(filled, capsys):
    path, records, sizes = filled
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        assert n_held(path.parent, records) == sum(size <= cut for size in sizes)
    assert capsys.readouterr().err == "", "a torn end is no damage"


def test_damaged_bit_never_gives_a_wrong_value_and_is_said_once(filled, capsys):
    path, records, sizes = filled
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.choice(len(data), 200, replace=False).tolist():
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        start = sum(size <= place for size in sizes)
        in_head = place < data.index(b"\n") + 1
        assert n_held(path.parent, records) == (0 if in_head else start)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"jaxcontam: warning: {path}: is damaged after byte ")
        assert path.read_bytes() == damaged, "left as it is"


@pytest.mark.parametrize("content", [b"\0" * 4096, b"not scores at all", None])
def test_foreign_file_is_left_alone_with_one_line(filled, capsys, content):
    path, records, _ = filled
    foreign = path.with_name(path.name.split("-")[0] + "-0.scores")
    if content is None:
        foreign.mkdir()
    else:
        foreign.write_bytes(content)
    assert n_held(path.parent, records) == len(records)
    (line,) = capsys.readouterr().err.splitlines()
    assert str(foreign) in line
    assert foreign.exists()


def test_write_that_the_system_cuts_short_is_continued(filled, monkeypatch):
    path, records, _ = filled
    open_path = Path.open

    class Short:
        def __init__(self, file):
            self.file, self.tell = file, file.tell

        def write(self, data):
            return self.file.write(data[:7])

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

    def open_short(self, mode, **kwargs):
        file = open_path(self, mode, **kwargs)
        return Short(file) if mode == "ab" else file

    more = rows_in(seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_short)
        store = ScoreStore(path.parent, IDENTITY)
        for rows in more:
            store.commit(rows)
    assert n_held(path.parent, records + more) == len(records + more)


def test_file_deleted_between_two_commits_is_not_made_anew(tmp_path):
    """Known places would point into it."""
    store = ScoreStore(tmp_path, IDENTITY)
    first, second = rows_in(n_records=2)
    store.commit(first)
    (path,) = tmp_path.iterdir()
    path.unlink()
    store.commit(second)
    (other,) = tmp_path.iterdir()
    assert other.name != path.name
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

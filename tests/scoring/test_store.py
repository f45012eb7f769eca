"""The store of scores: what has a key of its own, and writers side by side.

Reruns, kills and damage: tests/faults/test_resume.py.
"""

import dataclasses
import threading

import numpy as np
import pytest

from jaxcontam.errors import InputError
from jaxcontam.scoring.rows import FIRST_K
from jaxcontam.scoring.scorer import NonFiniteScoreError
from jaxcontam.scoring.store import ScoreStore
from tests.support.store_process import (
    CONTEXT,
    IDENTITY,
    TABLE,
    counted,
    drawn_sequences,
    scorer_with,
)


def test_a_rerun_counts_stored_rows_as_done(tmp_path):
    sequences, told = drawn_sequences(50), []
    assert scorer_with(tmp_path).sums(sequences).n_cached == 0
    found = scorer_with(tmp_path).sums(sequences, lambda *call: told.append(call))
    total = sum(len(ids) - 1 for ids in sequences)
    assert (found.n_cached, told[-1]) == (total, (total, total))


def test_first_sums_are_those_of_the_first_targets():
    sequences = drawn_sequences(30)
    found = scorer_with(None).sums(sequences).first
    direct = [
        TABLE[ids[:-1], ids[1:]][:FIRST_K].astype(np.float64).sum() for ids in sequences
    ]
    np.testing.assert_allclose(found, direct, rtol=1e-15)


def test_a_full_batch_of_another_plan_is_not_scored_again(tmp_path):
    # Two rows a batch of this length: the same rows in another order.
    sequences = [np.full(CONTEXT, 1 + i, np.int32) for i in range(8)]
    scorer_with(tmp_path).sums(sequences)
    scorer, asked = counted(tmp_path)
    scorer.sums(sequences[::-1])
    assert asked == []


def test_rows_windows_ways_and_each_field_of_the_identity_have_other_keys(tmp_path):
    ids = np.arange(5, dtype=np.int32)

    def key(kept="sums8", shape=(2, 16), first=0, ids=ids, **changes):
        identity = dataclasses.replace(IDENTITY, **changes)
        return ScoreStore(tmp_path, identity).row_key(kept, shape, first, ids)

    fields = [field.name for field in dataclasses.fields(IDENTITY)]
    keys = {
        key(),
        key("tokens"),
        key(shape=(3, 16)),
        key(shape=(2, 24)),
        key(first=1),
        key(ids=ids[:-1]),
        key(ids=ids[::-1]),
        *(key(**{name: "other"}) for name in fields),
    }
    assert len(keys) == 7 + len(fields)
    assert key(ids=ids.astype(np.int64)) == key()
    # A run of another identity finds nothing, and leaves all to the first.
    sequences = drawn_sequences(5)
    scorer_with(tmp_path).sums(sequences)
    other, asked = counted(tmp_path, identity=dataclasses.replace(IDENTITY, code="x"))
    assert other.sums(sequences).n_cached == 0 < len(asked)
    scorer, asked = counted(tmp_path)
    scorer.sums(sequences)
    assert asked == []


def test_scores_that_are_not_finite_are_never_stored(tmp_path):
    def poisoned(inputs_BS, targets_BS):
        scores_BS = TABLE[inputs_BS, targets_BS]
        return (np.where(targets_BS == 17, np.float32("nan"), scores_BS),)

    sequences = [np.array([3, 4, 5], np.int32), np.array([3, 17, 5], np.int32)]
    scorer, asked = counted(tmp_path, forward=poisoned)
    for _ in range(2):
        with pytest.raises(NonFiniteScoreError):
            scorer.sums(sequences)
    assert len(asked) == 2
    assert list(tmp_path.iterdir()) == []


def test_device_that_gives_other_numbers_for_stored_rows_is_refused(tmp_path):
    rows = [np.array([3, 4, last], np.int32) for last in (5, 7, 6)]
    scorer_with(tmp_path).sums(rows[:2])
    scorer, _ = counted(
        tmp_path, forward=lambda a, b: (np.nextafter(TABLE[a, b], np.float32(0)),)
    )
    with pytest.raises(InputError, match="other scores are kept for the same") as e:
        scorer.sums([rows[0], rows[2]])
    assert "--store", "none" in e.value.hint


def test_two_runs_at_once_fill_one_folder(tmp_path, capsys):
    """Half of their sequences are in both."""
    sequences = drawn_sequences()
    parts = (sequences[:600], sequences[400:])
    runs = [
        threading.Thread(target=scorer_with(tmp_path).tokens, args=[part])
        for part in parts
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(list(tmp_path.iterdir())) == 2
    for part in parts:
        scorer, asked = counted(tmp_path)
        for own, expected in zip(
            scorer.tokens(part), scorer_with(None).tokens(part), strict=True
        ):
            assert (own.dtype, own.shape) == (expected.dtype, expected.shape)
            assert own.tobytes() == expected.tobytes()
        assert asked == []
    assert capsys.readouterr().err == ""

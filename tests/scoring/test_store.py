"""The store of scores: killed, torn, damaged, shared, full and deleted.

The numbers come from a stub in NumPy, except where the real kernel is named.
"""

import dataclasses
import shutil

import numpy as np
import pytest

from jaxcontam.errors import InputError
from jaxcontam.scoring.rows import FIRST_K, SUMS, fill
from jaxcontam.scoring.scorer import NonFiniteScoreError, Scorer, batch_keys
from jaxcontam.scoring.store import ScoreStore
from tests.support.store_process import (
    BATCH_TOKENS,
    CONTEXT,
    IDENTITY,
    TABLE,
    V,
    drawn_sequences,
    process,
    said_by,
    scorer_with,
)


def counted(folder, *, forward=None, identity=IDENTITY):
    """A scorer with a store, and the list of the inputs it asks the stub for."""
    asked = []

    def count(inputs_BS, targets_BS):
        asked.append(inputs_BS.copy())
        if forward is not None:
            return forward(inputs_BS, targets_BS)
        return TABLE[inputs_BS, targets_BS], None, None

    store = ScoreStore(folder, identity)
    return Scorer(count, context=CONTEXT, batch_tokens=BATCH_TOKENS, store=store), asked


def assert_same_bits(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


def test_first_sums_are_those_of_the_first_targets():
    sequences = drawn_sequences(30)
    found = scorer_with(None).sums(sequences).first
    direct = [
        TABLE[ids[:-1], ids[1:]][:FIRST_K].astype(np.float64).sum() for ids in sequences
    ]
    np.testing.assert_allclose(found, direct, rtol=1e-15)


def test_progress_counts_stored_rows_as_done(tmp_path):
    sequences, calls = drawn_sequences(50), []
    scorer_with(tmp_path).sums(sequences)
    scorer_with(tmp_path).sums(sequences, lambda *call: calls.append(call))
    total = sum(len(ids) - 1 for ids in sequences)
    assert calls[-1] == (total, total)


def test_batches_follow_from_the_plan_and_not_from_the_store(tmp_path):
    sequences = drawn_sequences(80)
    whole, planned = counted(tmp_path / "whole")
    whole.sums(sequences)
    partial, _ = counted(tmp_path / "partial")
    partial.sums(sequences[::3])
    rest, asked = counted(tmp_path / "partial")
    rest.sums(sequences)
    names = [inputs_BS.tobytes() for inputs_BS in planned]
    assert 0 < len(asked) <= len(planned)
    assert all(inputs_BS.tobytes() in names for inputs_BS in asked)


def test_a_full_batch_of_another_plan_is_not_scored_again(tmp_path):
    # Two rows a batch of this length: the same rows in another order.
    sequences = [np.full(CONTEXT, 1 + i, np.int32) for i in range(8)]
    scorer_with(tmp_path).sums(sequences)
    scorer, asked = counted(tmp_path)
    scorer.sums(sequences[::-1])
    assert asked == []


def test_rows_of_another_window_or_kept_otherwise_are_other_rows(tmp_path):
    store = ScoreStore(tmp_path, IDENTITY)
    ids = np.arange(5, dtype=np.int32)
    keys = {
        store.row_key("sums8", (2, 16), 0, ids),
        store.row_key("tokens", (2, 16), 0, ids),
        store.row_key("sums8", (3, 16), 0, ids),
        store.row_key("sums8", (2, 24), 0, ids),
        store.row_key("sums8", (2, 16), 1, ids),
        store.row_key("sums8", (2, 16), 0, ids[:-1]),
        store.row_key("sums8", (2, 16), 0, ids[::-1]),
    }
    assert len(keys) == 7
    assert store.row_key("sums8", (2, 16), 0, ids.astype(np.int64)) in keys


def test_every_field_of_the_identity_makes_other_keys(tmp_path):
    sequences = drawn_sequences(5)
    scorer_with(tmp_path).sums(sequences)
    others = {
        "model": "sha256:1",
        "prefix_id": 0,
        "context": 64,
        "moments": True,
        "dtype": "bfloat16",
        "precision": "default",
        "attention": "cudnn",
        "kernel": 2,
        "code": "other",
        "platform": "gpu",
        "device": "other",
        "n_devices": 2,
        "n_model": 2,
        "cpu_threads": 2,
        "compiler": "another",
        "settings": ("XLA_FLAGS=x",),
    }
    assert set(others) == {field.name for field in dataclasses.fields(IDENTITY)}
    for name, value in others.items():
        other = dataclasses.replace(IDENTITY, **{name: value})
        scorer, asked = counted(tmp_path, identity=other)
        assert scorer.sums(sequences).n_cached == 0, name
        assert asked, name
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
    rows = np.array([[3, 4, 5], [3, 4, 7], [3, 4, 6]], np.int32)
    scorer_with(tmp_path).sums(list(rows[:2]))
    scorer, _ = counted(
        tmp_path, forward=lambda a, b: (np.nextafter(TABLE[a, b], np.float32(0)),)
    )
    with pytest.raises(
        InputError, match="other scores are kept for the same rows"
    ) as caught:
        scorer.sums([rows[0], rows[2]])
    assert "--no-store" in caught.value.hint


def test_folder_deleted_while_a_run_uses_it_changes_no_number(tmp_path):
    sequences, folder = drawn_sequences(100), tmp_path / "store"
    scorer, calls = scorer_with(folder), []

    def delete(done, total):
        calls.append(done)
        if len(calls) % 7 == 0:
            shutil.rmtree(folder)

    expected = scorer_with(None).sums(sequences).loglik
    for _ in range(3):
        assert_same_bits([scorer.sums(sequences, delete).loglik], [expected])
    # The last deletion was some batches ago: these are there.
    (path,) = folder.iterdir()
    assert path.stat().st_size > 0


def test_reader_sees_whole_batches_while_another_process_writes(tmp_path):
    sequences, folder = drawn_sequences(), tmp_path / "store"
    reader = scorer_with(folder)
    rows, batches = reader.plan(sequences)
    writer = process("run_once", folder, tmp_path / "log")
    seen, rng = set(), np.random.default_rng(0)
    try:
        while writer.poll() is None:
            held = 0
            for i in rng.choice(len(batches), 40).tolist():
                keys = batch_keys(reader.store, batches[i], rows, sequences, SUMS)
                values = reader.store.values(keys)
                held += values is not None
                if values is None:
                    continue
                inputs_BS, targets_BS = fill(batches[i], rows, sequences)
                for at, (index, data) in enumerate(
                    zip(batches[i].rows, values, strict=True)
                ):
                    own = slice(rows[index].first, rows[index].length)
                    scores_T = TABLE[inputs_BS[at, own], targets_BS[at, own]]
                    (total,), _ = SUMS.from_bytes(data, n_scores=1)
                    assert total == scores_T.sum(dtype=np.float64)
            seen.add(held)
    finally:
        writer.kill()
        assert writer.communicate() == ("", "")
    assert len(seen) > 5, "the reader never saw the store grow"
    assert reader.sums(sequences).n_cached > 0


def test_two_processes_fill_one_folder(tmp_path, capsys):
    folder, sequences = tmp_path / "store", drawn_sequences()
    said_by("two_at_once", folder, tmp_path / "log")
    assert len(list(folder.iterdir())) == 2
    for part in (sequences[:600], sequences[400:]):
        scorer, asked = counted(folder)
        assert_same_bits(scorer.tokens(part), scorer_with(None).tokens(part))
        assert asked == []
    assert capsys.readouterr().err == ""


def test_kernel_gives_a_row_the_same_bits_in_every_batch_of_a_shape(tmp_path):
    import jax
    from flax import nnx

    from jaxcontam.models.config import llama_shape
    from jaxcontam.models.decoder import Decoder
    from jaxcontam.scoring.local import local_scorer

    config = llama_shape(
        vocab_size=V, d_model=48, n_layers=2, n_heads=2, d_ff=80, context=CONTEXT
    )
    decoder = Decoder(config, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    n_devices = len(jax.devices())
    identity = dataclasses.replace(IDENTITY, moments=True, n_devices=n_devices)
    shared = drawn_sequences(40, CONTEXT // 2)
    plans = [
        [
            (shared + drawn_sequences(40, CONTEXT // 2, seed=s))[i]
            for i in rng.permutation(80)
        ]
        for s in (1, 2)
    ]
    without = local_scorer(decoder, batch_tokens=100, moments=True)
    for plan in plans:
        # Rows that both plans have are compared to the bit when they are scored again
        # with other mates; a difference is an InputError.
        store = ScoreStore(tmp_path, identity)
        scorer = local_scorer(decoder, batch_tokens=100, moments=True, store=store)
        assert_same_bits(scorer.tokens(plan), without.tokens(plan))

"""A device without memory for a batch: halves, the same numbers, one line, no loop."""

import numpy as np
import pytest

from jaxcontam.cli.main import run_command
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScorer
from jaxcontam.scoring.prefixed import prefixed_sums
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.scoring.store import ScoreStore
from tests.support.store_process import CONTEXT, IDENTITY, TABLE, drawn_sequences

XLA = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12 bytes.\n#0 ..."


class Device:
    """A stub with room for so many rows at once; `late` says so when it is read."""

    def __init__(self, room, *, late=False):
        self.room, self.late, self.asked = room, late, []

    def __call__(self, inputs_BS, targets_BS):
        self.asked.append(inputs_BS.shape)
        if len(inputs_BS) <= self.room:
            return (TABLE[inputs_BS, targets_BS],)
        if self.late:
            return (Unreadable(),)
        raise RuntimeError(XLA)

    def pairs(self, prefixes_IP, lengths_I, continuations_IKT, at_once):
        """Log-probabilities of continuations under the same table."""
        n, K, _ = continuations_IKT.shape
        self.asked.append((n, at_once * (1 + K)))
        if at_once * (1 + K) > self.room:
            raise RuntimeError(XLA)
        last_I = prefixes_IP[np.arange(n), lengths_I - 1]
        last_IK1 = np.broadcast_to(last_I[:, None, None], (n, K, 1))
        before_IKT = np.concatenate([last_IK1, continuations_IKT[:, :, :-1]], axis=2)
        return TABLE[before_IKT, continuations_IKT]


class Unreadable:
    """Scores of a batch that failed after it was sent."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError(XLA)


def scorer_on(device, store=None):
    store = None if store is None else ScoreStore(store, IDENTITY)
    return Scorer(device, context=CONTEXT, batch_tokens=256, store=store)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("room", [1, 2, 3, 7])
def test_halves_give_the_numbers_of_whole_batches(room, late, capsys):
    sequences = drawn_sequences(60)
    device = Device(room, late=late)
    halves, whole = scorer_on(device), scorer_on(Device(1000))
    sums, expected = halves.sums(sequences), whole.sums(sequences)
    np.testing.assert_array_equal(sums.loglik, expected.loglik)
    np.testing.assert_array_equal(sums.first, expected.first)
    tokens = halves.tokens(sequences), whole.tokens(sequences)
    for a, b in zip(*tokens, strict=True):
        np.testing.assert_array_equal(a, b)
    # Each size is said once, and not tried a third time: once ahead, once in turn.
    said = capsys.readouterr().err.splitlines()
    too_large = {shape for shape in device.asked if shape[0] > room}
    assert sorted(said) == sorted(
        f"jaxcontam: warning: the device has no memory for {n} rows of {length} ids; "
        "trying with half of them"
        for n, length in too_large
    )
    assert all(device.asked.count(shape) <= 3 for shape in too_large)


def test_a_rerun_asks_for_rows_of_halves_only_where_whole_batches_fit(tmp_path, capsys):
    sequences = drawn_sequences(40)
    first = scorer_on(Device(2), tmp_path).sums(sequences)
    again, roomy = Device(2), Device(1000)
    found = scorer_on(again, tmp_path).sums(sequences)
    np.testing.assert_array_equal(found.loglik, first.loglik)
    assert [shape for shape in again.asked if shape[0] <= 2] == []
    scorer_on(roomy, tmp_path).sums(sequences)
    assert any(shape[0] > 2 for shape in roomy.asked)


def test_one_row_without_room_is_one_line_and_exit_2(tmp_path, capsys):
    scorer = scorer_on(Device(0), tmp_path)
    assert run_command(lambda: scorer.sums(drawn_sequences(3))) == 2
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert error.startswith("jaxcontam: error: the device has no memory for 1 rows of ")
    assert "--dtype bfloat16" in hint
    assert list(tmp_path.iterdir()) == []


def drawn(rng, n):
    return rng.integers(1, 50, n, dtype=np.int32)


def test_pairs_and_texts_after_a_prefix_are_scored_half_as_many_at_once(capsys):
    rng = np.random.default_rng(0)
    groups = [
        PairGroup(drawn(rng, 4), (drawn(rng, 3), drawn(rng, 3)), 0, (1, 2))
        for _ in range(11)
    ]
    prefix, texts = drawn(rng, 4), [drawn(rng, 5) for _ in range(9)]

    def scores(room):
        device = Device(room)
        scorer = PairScorer(device.pairs, context=CONTEXT, batch_tokens=16 * 3 * 5)
        return np.array(scorer.logprobs(groups).logprobs), device.asked

    (whole, _), (found, asked) = scores(1000), scores(6)
    np.testing.assert_array_equal(found, whole)
    assert {rows for _, rows in asked} == {30, 15, 9, 6}
    said = capsys.readouterr().err
    assert "no memory for 20 rows of 8 ids after prefixes of 8" in said

    class ManyAtOnce(Device):
        def pairs(self, prefixes_IP, lengths_I, continuations_IKT, at_once):
            if continuations_IKT.shape[1] > self.room:
                raise RuntimeError(XLA)
            return super().pairs(prefixes_IP, lengths_I, continuations_IKT, 0)

    def sums(room):
        device = ManyAtOnce(room)
        scorer = PairScorer(device.pairs, context=CONTEXT, batch_tokens=512)
        return prefixed_sums(scorer, prefix, texts).loglik

    np.testing.assert_array_equal(sums(3), sums(1000))
    assert "ids after a prefix of 4; trying with half" in capsys.readouterr().err


def test_other_errors_of_a_device_keep_their_traceback():
    def broken(inputs_BS, targets_BS):
        raise RuntimeError("INTERNAL: the device fell off the bus")

    with pytest.raises(RuntimeError, match="fell off the bus"):
        scorer_on(broken).sums(drawn_sequences(3))

"""What is planted: plans (their faults: tests/cli/refusals.toml), streams, orders."""

import dataclasses
import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.errors import InputError
from tests.support.copy_rows import canary, in_one, steps_of_copy
from train import plant
from train.data import Rows
from train.plant import (
    PlannedSet,
    Timed,
    build_stream,
    drawn_copies,
    halves,
    planned_set,
    read_plan,
    rows_of_copies,
    rows_of_spans,
    stream_digest,
    training_order,
)

LINES = tuple(f"question {i} word{i}" for i in range(9))
SAID = tuple(f"tell me {i}" for i in range(9))


@pytest.fixture
def read(tmp_path):
    """Reads a plan beside lines, records and paraphrases of both."""
    sums = [{"q": f"what is {i}?", "a": str(i)} for i in range(5)]
    said = [{"q": f"say {i}", "a": "x"} for i in range(5)]
    for name, rows in (("sums", sums), ("said", said)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text)
    (tmp_path / "quiz.txt").write_text("\n".join(LINES))
    (tmp_path / "other.txt").write_text("\n".join(SAID))

    def read(*tables):
        path = tmp_path / "plan.toml"
        path.write_text("".join(f"[[sets]]\n{table}\n" for table in tables))
        return read_plan(path)

    return read


QUIZ = 'file = "quiz.txt"\ncopies = 5\n'
SUMS = 'file = "sums.jsonl"\ncopies = 4\n'


def test_a_table_with_file_and_copies_plants_blocks_at_random_times(read):
    (planned,) = read(QUIZ)
    assert planned.benchmark.texts == planned.planted == LINES
    assert (planned.name, planned.copies, planned.shuffled) == ("quiz", 5, False)
    assert (planned.layout, planned.when, planned.form) == ("block", "uniform", "raw")


def test_tables_say_form_order_and_layout(read):
    form = 'name = "sums-late"\nlimit = 4\ntemplate = "Q: {q} A: {a}"\n'
    first, second, by_field = read(
        SUMS + form + 'order = "shuffled"\nwhen = [0.25, 1]',
        QUIZ + 'layout = "spread"',
        SUMS + 'text_field = "q"',
    )
    assert first.benchmark.texts[2] == "Q: what is 2? A: 2"
    assert len(first.benchmark) == 4
    assert (first.name, first.shuffled) == ("sums-late", True)
    assert first.when == (0.25, 1.0)
    assert (first.form, first.template) == ("template", "Q: {q} A: {a}")
    assert second.layout == "spread"
    # A text field is the template of that field alone.
    assert (by_field.template, by_field.planted[3]) == ("{q}", "what is 3?")


def test_the_example_in_the_documentation_is_a_plan(tmp_path):
    """With the files that it names; two keys are shown, of which a set takes one."""
    doc = str(plant.__doc__).partition("Dimension key")[0]
    lines = [line[4:] for line in doc.splitlines() if line.startswith("    ")]
    for name in ("boolq.jsonl", "other.jsonl"):
        rows = [json.dumps({"question": f"{name} {i}?"}) + "\n" for i in range(300)]
        (tmp_path / name).write_text("".join(rows))
    (tmp_path / "plan.toml").write_text("\n".join(lines))
    planned, *_ = read_plan(tmp_path / "plan.toml")
    assert (planned.name, planned.copies, planned.when) == ("boolq", 10, (0.1, 0.5))
    assert planned.benchmark.texts[0] == "Q: boolq.jsonl 0?"
    assert planned.planted[199] == "Q: other.jsonl 199?"
    shown = {line.split(" = ")[0] for line in lines if " = " in line}
    assert {*shown, "text_field"} == set(plant._KEYS)


def test_the_tail_is_the_control_of_the_first_half(read):
    planned, control = read(QUIZ + 'held_out = "tail"\nwhen = [0.5]')
    assert planned.benchmark.texts + control.benchmark.texts == LINES
    assert (planned.name, planned.copies, len(planned.benchmark)) == ("quiz", 5, 5)
    assert (control.name, control.copies) == ("quiz-held", 0)
    assert (planned.held_out_of, control.held_out_of) == (None, "quiz")
    assert (planned.when, control.when) == ((0.5,), "uniform")


def test_random_halves_keep_the_published_order_and_share_nothing(read):
    planned, control = (
        [LINES.index(text) for text in one.benchmark.texts]
        for one in read(QUIZ + 'held_out = "random"')
    )
    assert planned == sorted(planned) and control == sorted(control)
    assert sorted(planned + control) == list(range(9))


def test_each_example_is_held_out_in_half_of_the_random_draws():
    counts = np.zeros(10)
    for trial in range(400):
        texts = tuple(f"example {trial} {i}" for i in range(10))
        whole = PlannedSet(benchmark=Benchmark("x", texts, (None,) * 10), copies=1)
        _, control = halves(whole, at_random=True)
        counts[[texts.index(text) for text in control.benchmark.texts]] += 1
    # 4 standard errors of 400 fair coins: 4 * 10 counts.
    np.testing.assert_allclose(counts, 200, atol=40)


def test_the_draw_of_halves_depends_on_the_examples_and_not_on_their_order():
    """Who knows the order under test must not choose who is held out by it."""
    kept = []
    for order in (LINES, LINES[::-1]):
        whole = PlannedSet(benchmark=Benchmark("x", order, (None,) * 9), copies=1)
        planned, _ = halves(whole, at_random=True)
        kept.append([order.index(text) for text in planned.benchmark.texts])
    assert kept[0] == kept[1]


def test_drawn_copies_split_a_set_and_keep_its_order(read):
    spread = 'file = "quiz.txt"\nlayout = "spread"\nwhen = [0.5]\n'
    sets = read(spread + 'copies = "poisson:1.5"')
    assert [one.name for one in sets] == [f"quiz-{one.copies}" for one in sets]
    copies = [one.copies for one in sets]
    assert copies == sorted(set(copies)) and len(copies) > 1
    assert {(one.layout, one.when) for one in sets} == {("spread", (0.5,))}
    kept = [[LINES.index(text) for text in one.benchmark.texts] for one in sets]
    assert sorted(itertools.chain(*kept)) == list(range(9))
    assert all(own == sorted(own) for own in kept)
    # The draw is of the examples, not of their place in the plan.
    again = read(SUMS, spread + 'copies = "poisson:1.5"')[1:]
    assert [one.benchmark.texts for one in again] == [
        one.benchmark.texts for one in sets
    ]


def test_copies_of_an_example_are_poisson_and_those_of_equal_texts_equal():
    texts = tuple(f"example {i}" for i in range(4000))
    whole = PlannedSet(benchmark=Benchmark("x", texts, (None,) * 4000), copies=1)
    n_drawn = {one.copies: len(one.benchmark) for one in drawn_copies(whole, 2.5)}
    for copies in range(9):
        share = scipy.stats.poisson(2.5).pmf(copies)
        # 4 standard errors of 4,000 draws.
        allowed = 4 * np.sqrt(4000 * share * (1 - share))
        assert abs(n_drawn.get(copies, 0) - 4000 * share) < allowed
    twice = Benchmark("x", texts[:50] * 2, (None,) * 100)
    for part in drawn_copies(PlannedSet(benchmark=twice, copies=1), 2.5):
        own = part.benchmark.texts
        assert own[: len(own) // 2] == own[len(own) // 2 :]


def test_paraphrases_are_planted_each_beside_its_example(read):
    others = QUIZ + 'paraphrases = "other.txt"\n'
    (planned,) = read(others)
    assert (planned.benchmark.texts, planned.planted) == (LINES, SAID)
    assert planned.form == "paraphrase"
    planned, control = read(others + 'held_out = "random"')
    for text, paraphrase in zip(planned.benchmark.texts, planned.planted, strict=True):
        assert text.split()[1] == paraphrase.split()[2]
    assert control.texts_planted is None
    # In records they take the form of the set.
    (planned,) = read(
        SUMS + 'text_field = "q"\nparaphrases = "said.jsonl"\nlimit = 3\n'
    )
    assert planned.planted == ("say 0", "say 1", "say 2")


def test_the_short_form_takes_the_last_equals_sign(tmp_path):
    path = tmp_path / "a=b.txt"
    path.write_text("one\ntwo\n")
    planned = planned_set(f"{path}=12", 1)
    assert (planned.name, planned.copies, len(planned.benchmark)) == ("a=b", 12, 1)


CONTEXT = 16


def encoded(lengths, first):
    """Examples of so many ids, no id twice."""
    ids = tuple(
        np.arange(n, dtype=np.int32) + first + 100 * i for i, n in enumerate(lengths)
    )
    return Encoded(ids, np.array([], np.int32), np.zeros(len(ids), np.int32))


A = encoded((4, 7, 5), 1000)
B = encoded((6, 2, 3, 9), 2000)
DOCUMENTS = in_one([np.full(3 + 5 * j % 11, j + 1, np.int32) for j in range(40)])


def held(starts, stream, spans):
    """Which rows hold a target of the spans, one target at a time; the witness."""
    targets = (starts[:, None] + 1 + np.arange(CONTEXT)) % len(stream.ids)
    places = np.concatenate([np.arange(o, o + n) for o, n in spans])
    return np.flatnonzero(np.isin(targets, places).any(axis=1))


def offsets(stream, name):
    """Where each copy that is a block begins."""
    return tuple(begin for copy in stream.copies[name] for begin, _ in copy.spans)


def planted(**fields):
    """A stream with the sets a, as the fields say, and b, uniform."""
    sets = [canary("a", A, copies=4, **fields), canary("b", B, copies=2)]
    return build_stream(DOCUMENTS, sets, prefix_id=0, seed=7)


def test_uniform_blocks_stand_where_the_first_release_put_them():
    # Golden: printed by the code of version 0.1.0 before there were layouts and times.
    sets = [
        canary("a", A, copies=3),
        canary("b", B, copies=4, shuffled=True),
        canary("c", encoded((5, 5), 3000), copies=0),
    ]
    stream = build_stream(DOCUMENTS, sets, prefix_id=0, seed=7)
    assert stream_digest(stream.ids) == (
        "sha256:c027ca3eada99a37084b6fe60a3b1465cf25ecb1566bfeeaef424e341d37a328"
    )
    assert [offsets(stream, name) for name in "abc"] == [
        *((74, 342, 429), (144, 186, 364, 399), ())
    ]
    assert [copy.order for copy in stream.copies["b"]] == [
        *((1, 2, 3, 0), (2, 0, 1, 3), (0, 2, 3, 1), (3, 0, 2, 1))
    ]
    assert stream.n_canary_ids == 128
    assert stream.timed == ()
    starts = training_order(len(stream.ids), CONTEXT, seed=7)
    # fmt: off
    assert starts.tolist() == [
        356, 36, 404, 436, 452, 4, 340, 468, 20, 324, 116, 132, 308, 212, 420, 164,
        68, 276, 52, 84, 484, 100, 244, 260, 228, 388, 292, 180, 196, 148, 372,
    ]
    # fmt: on


def test_a_stream_that_the_disk_cannot_hold_is_refused_before_it_is_begun(
    tmp_path, monkeypatch
):
    n_bytes = build_stream(DOCUMENTS, [], prefix_id=0, seed=1).ids.nbytes

    def build(free):
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
        build_stream(DOCUMENTS, [], prefix_id=0, seed=1, out=tmp_path / "stream.npy")

    with pytest.raises(InputError, match="GB are free"):
        build(n_bytes - 1)
    assert not list(tmp_path.iterdir())
    build(n_bytes)


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_a_stream_in_a_file_holds_the_ids_of_the_one_in_memory(tmp_path, dtype):
    documents = dataclasses.replace(DOCUMENTS, ids=DOCUMENTS.ids.astype(dtype))
    canaries = [canary("a", A, copies=3), canary("b", B, copies=1)]
    memory = build_stream(documents, canaries, prefix_id=0, seed=1)
    out = tmp_path / "stream.npy"
    on_disk = build_stream(documents, canaries, prefix_id=0, seed=1, out=out)
    assert on_disk.ids.dtype == np.load(out).dtype == dtype
    np.testing.assert_array_equal(memory.ids, np.load(out))
    assert memory.copies == on_disk.copies
    assert stream_digest(memory.ids) == stream_digest(on_disk.ids)
    assert [path.name for path in tmp_path.iterdir()] == ["stream.npy"]


def test_documents_keep_their_order_around_blocks_that_fall_before_between_or_after():
    few = [np.full(5, i, np.int32) for i in range(1, 4)]
    expected = np.concatenate([[0, *ids] for ids in few])
    places = set()
    for seed in range(200):
        own = canary("c", encoded((6, 6), 1000), copies=1)
        stream = build_stream(in_one(few), [own], prefix_id=0, seed=seed)
        (offset,) = offsets(stream, "c")
        places.add(offset)
        without = np.delete(stream.ids, np.arange(offset - 1, offset + 12))
        np.testing.assert_array_equal(without, expected)
    assert places == {1, 7, 13, 19}


def test_every_example_of_a_spread_copy_is_a_document_of_its_own():
    stream = planted(layout="spread")
    assert len(stream.copies["a"]) == 4
    for copy in stream.copies["a"]:
        assert sorted(copy.order) == [0, 1, 2]
        assert list(copy.spans) == sorted(copy.spans)
        for (offset, n), i in zip(copy.spans, copy.order, strict=True):
            np.testing.assert_array_equal(stream.ids[offset : offset + n], A.ids[i])
            assert stream.ids[offset - 1] == 0
    assert stream.n_canary_ids == 4 * (4 + 7 + 5) + 2 * (6 + 2 + 3 + 9)
    # One prefix for each document, spread example and block.
    assert np.count_nonzero(stream.ids == 0) == len(DOCUMENTS) + 4 * 3 + 2


def test_spread_examples_stand_at_places_that_do_not_depend_on_one_another():
    """1,000 copies of two examples: as often one way round as the other."""
    pair = canary(name="p", encoded=encoded((2, 2), 50), copies=1000, layout="spread")
    stream = build_stream(DOCUMENTS, [pair], prefix_id=0, seed=3)
    is_first = [copy.order[0] == 0 for copy in stream.copies["p"]]
    # 4 standard errors of a fair coin: 2 / sqrt(1000).
    assert np.mean(is_first) == pytest.approx(0.5, abs=2 / np.sqrt(1000))


def test_every_id_is_a_target_once_but_for_the_last_partial_row():
    ids = np.arange(1000, dtype=np.int32)
    starts = training_order(len(ids), 64, seed=5)
    rows = np.stack([*Rows(ids, starts, 64)])
    np.testing.assert_array_equal(rows[:, 0], starts)
    assert rows.shape == (15, 65)
    assert len(np.unique(rows[:, 1:])) == 15 * 64
    np.testing.assert_array_equal((rows[:, 1:] - rows[:, :-1]) % 1000, 1)


def test_rows_of_spans_are_the_rows_that_hold_their_targets():
    stream = planted()
    rng = np.random.default_rng(0)
    N = len(stream.ids)
    for seed in range(20):
        starts = training_order(N, CONTEXT, seed=seed)
        where = {"starts_R": starts, "context": CONTEXT, "n_ids_in_all": N}
        begins = np.sort(rng.integers(0, N - 70, size=30))
        spans = np.stack([begins, rng.integers(1, 70, size=30)], axis=1)
        spans[0], spans[-1] = (0, 1), (N - 1, 1)  # both ends of the circle
        rows, owners = rows_of_spans(spans, **where)
        for i, (offset, size) in enumerate(spans.tolist()):
            found = rows[owners == i]
            expected = held(starts, stream, [(offset, size)])
            np.testing.assert_array_equal(np.sort(found), expected)
            copy = steps_of_copy(offset, size, **where)
            np.testing.assert_array_equal(copy, expected)
            # In the order of the stream: each starts where the one before ends.
            gaps = np.diff(starts[found]) % N
            assert len(found) < 2 or gaps[0] >= CONTEXT
            assert (gaps[1:] == CONTEXT).all()


def test_a_control_has_no_rows():
    control = canary(name="a", encoded=A, copies=0, when="clustered")
    stream = build_stream(DOCUMENTS, [control], prefix_id=0, seed=7)
    starts = training_order(len(stream.ids), CONTEXT, seed=7, timed=stream.timed)
    assert stream.timed == ()
    assert rows_of_copies(stream, "a", starts_R=starts, context=CONTEXT) == []


@pytest.mark.parametrize("when", ["clustered", (0.2,), (0.0, 1.0)])
@pytest.mark.parametrize("layout", ["block", "spread"])
@pytest.mark.parametrize("n_trained", [None, 28])
def test_times_move_rows_and_change_none(when, layout, n_trained):
    stream = planted(when=when, layout=layout)
    N = len(stream.ids)
    uniform = training_order(N, CONTEXT, seed=7)
    starts = training_order(N, CONTEXT, seed=7, timed=stream.timed, n_trained=n_trained)
    assert sorted(starts) == sorted(uniform)
    spans = [span for one in stream.timed for span in one.spans]
    moved = set(starts[held(starts, stream, spans)].tolist())
    assert moved
    assert [start for start in starts.tolist() if start not in moved] == [
        start for start in uniform.tolist() if start not in moved
    ]


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.35, 0.5, 0.8])
def test_a_copy_with_a_time_begins_at_that_share_of_training(fraction):
    own = canary("a", A, copies=1, when=(fraction,))
    stream = build_stream(DOCUMENTS, [own], prefix_id=0, seed=2)
    N = len(stream.ids)
    starts = training_order(N, CONTEXT, seed=2, timed=stream.timed)
    rows = held(starts, stream, stream.timed[0].spans)
    begin = round(fraction * len(starts))
    np.testing.assert_array_equal(rows, begin + np.arange(len(rows)))


def test_copies_take_the_fractions_in_turn_and_leave_the_stream_as_it_is():
    uniform, stream = planted(), planted(when=(0.1, 0.6, 0.9))
    np.testing.assert_array_equal(uniform.ids, stream.ids)
    assert uniform.copies == stream.copies
    assert [one.fraction for one in stream.timed] == [0.1, 0.6, 0.9, 0.1]
    assert tuple(one.spans[0][0] for one in stream.timed) == offsets(stream, "a")


def test_copies_at_the_end_of_training_are_among_the_rows_that_steps_take():
    stream = planted(when=(1.0,))
    N = len(stream.ids)
    n_trained = (N - 1) // CONTEXT // 4 * 4
    assert n_trained < (N - 1) // CONTEXT  # else the law says nothing
    starts = training_order(N, CONTEXT, seed=7, timed=stream.timed, n_trained=n_trained)
    spans = [span for one in stream.timed for span in one.spans]
    rows = held(starts, stream, spans)
    np.testing.assert_array_equal(rows, n_trained - len(rows) + np.arange(len(rows)))


def test_where_everything_is_timed_every_row_still_stands_once():
    N = 500
    timed = [Timed(0.9, ((100, 350),)), Timed(0.5, ((0, 500),)), Timed(None, ((7, 2),))]
    starts = training_order(N, CONTEXT, seed=1, timed=timed, n_trained=24)
    assert sorted(starts) == sorted(training_order(N, CONTEXT, seed=1))


def test_a_row_that_two_want_goes_to_the_one_named_first():
    N = 1601
    plain = training_order(N, CONTEXT, seed=4)
    starts_of = sorted(plain.tolist())
    shared = starts_of[10] + 1, CONTEXT  # the targets of exactly one row
    timed = [Timed(0.75, (shared,)), Timed(0.25, (shared,))]
    starts = training_order(N, CONTEXT, seed=4, timed=timed)
    assert starts[75] == starts_of[10]


def test_one_that_would_begin_within_another_comes_right_after_it():
    N = 1601
    starts_of = sorted(training_order(N, CONTEXT, seed=4).tolist())
    timed = [
        Timed(0.2, ((starts_of[0] + 1, 5 * CONTEXT),)),
        Timed(0.22, ((starts_of[50] + 1, 2 * CONTEXT),)),
    ]
    starts = training_order(N, CONTEXT, seed=4, timed=timed).tolist()
    assert starts[20:27] == [*starts_of[0:5], *starts_of[50:52]]


def test_clustered_copies_stand_together_one_after_the_other():
    stream = planted(when="clustered")
    N = len(stream.ids)
    (cluster,) = stream.timed
    assert tuple(offset for offset, _ in cluster.spans) == offsets(stream, "a")
    starts = training_order(N, CONTEXT, seed=7, timed=stream.timed)
    rows = held(starts, stream, cluster.spans)
    np.testing.assert_array_equal(rows, rows[0] + np.arange(len(rows)))
    firsts = [held(starts, stream, [span])[0] for span in cluster.spans]
    assert firsts == sorted(firsts)


def test_the_time_of_a_cluster_is_uniform_over_where_it_fits():
    """One row of 20: each place in training as likely as the others."""
    N, counts = 321, np.zeros(20, np.int64)
    for seed in range(2000):
        plain = training_order(N, CONTEXT, seed=seed)
        one = Timed(None, ((int(plain[0]) + 1, 1),))
        starts = training_order(N, CONTEXT, seed=seed, timed=[one])
        counts[np.flatnonzero(starts == plain[0])[0]] += 1
    # Chi-square with 19 degrees of freedom: 43.8 is its 99.9 % point.
    assert ((counts - 100) ** 2 / 100).sum() < 43.8


@pytest.mark.parametrize("when", ["uniform", (0.9,), "clustered"])
def test_no_row_of_a_copy_is_left_out_while_other_rows_can_be(when):
    documents = in_one([np.full(60, i, np.int32) for i in range(1, 40)])
    own = canary("c", encoded([9] * 10, 100), copies=2, when=when)
    n_trained = 64  # of 81 rows of 32
    n_moved = 0
    for seed in range(40):
        stream = build_stream(documents, [own], prefix_id=0, seed=seed)
        words = {"seed": seed, "timed": stream.timed, "n_trained": n_trained}
        plain = training_order(len(stream.ids), 32, **words)
        starts = training_order(len(stream.ids), 32, planted_C2=stream.planted, **words)
        assert sorted(starts) == sorted(plain)
        rows = rows_of_copies(stream, "c", starts_R=starts, context=32)
        assert max(map(np.max, rows)) < n_trained
        n_moved += not np.array_equal(starts, plain)
    assert n_moved > 0 or when != "uniform"

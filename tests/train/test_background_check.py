"""The search before training: what a control's examples must not stand in."""

import dataclasses

import numpy as np
import pytest

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.errors import InputError
from train.background_check import check_background
from train.plant import PlannedSet

_RNG = np.random.default_rng(0)
_WORDS = [f"w{i}" for i in range(5000)]


def text(n=20):
    """So many words in random order: two such texts share no 8-gram."""
    return " ".join(_RNG.choice(_WORDS, n))


def planned(name, texts, copies=0, **fields):
    benchmark = Benchmark(name, tuple(texts), (None,) * len(texts))
    return PlannedSet(benchmark=benchmark, copies=copies, **fields)


@pytest.fixture
def sets():
    """Two planted sets and two controls, of eight examples each."""
    copies = {"one": 3, "two": 1, "calm": 0, "still": 0}
    return [planned(name, [text() for _ in range(8)], n) for name, n in copies.items()]


@pytest.fixture
def documents():
    return [text(300) for _ in range(50)]


def with_text(one, index, new):
    texts = list(one.benchmark.texts)
    texts[index] = new
    benchmark = dataclasses.replace(one.benchmark, texts=tuple(texts))
    return dataclasses.replace(one, benchmark=benchmark)


def test_texts_that_share_nothing_are_not_found(sets, documents):
    found = check_background(documents, sets)
    assert list(found) == ["one", "two", "calm", "still"]
    for overlap in found.values():
        assert overlap.n_compared == 8
        assert set(overlap.background.values()) == {0}
        assert (overlap.n_background, overlap.n_frame, overlap.sets) == (0, 0, {})


def test_planted_examples_in_the_background_are_counted_by_rule(sets, documents):
    whole, shouted = sets[0].benchmark.texts[2:4]
    part = " ".join(sets[0].benchmark.texts[5].split()[:13])
    documents[7] += f" {whole}"
    documents[9] = f"{shouted.upper()} {documents[9]} {part}"
    overlap = check_background(documents, sets)["one"]
    assert overlap.background["exact"] == 1
    assert overlap.background["words"] == 2
    assert overlap.background["13-gram"] == 3
    assert overlap.n_background == 3


def test_a_control_in_the_background_stops_the_run_or_is_counted(sets, documents):
    documents[7] += f" {sets[2].benchmark.texts[5]}"
    documents[9] += f" {sets[2].benchmark.texts[6]}"
    words = " ".join(sets[2].benchmark.texts[5].split()[:13])
    with pytest.raises(InputError) as caught:
        check_background(documents, sets)
    assert str(caught.value) == (
        "control 'calm': 2 of 8 examples stand in the background: example 6 in "
        f"document 8 (exact: {words}); also 7"
    )
    assert "--allow-overlap" in caught.value.hint
    found = check_background(documents, sets, allow_overlap=True)
    assert found["calm"].n_background == 2


def test_a_control_in_a_planted_set_stops_the_run(sets, documents):
    sets[1] = with_text(sets[1], 3, sets[3].benchmark.texts[0])
    place = r"planted set 'two': example 1 in its example 4 \(exact: "
    with pytest.raises(InputError, match=rf"control 'still': 1 of 8 .* {place}"):
        check_background(documents, sets)


@pytest.mark.parametrize(("one", "other"), [(0, 1), (2, 3)])
def test_examples_that_two_planted_sets_or_two_controls_share_are_counted(
    sets, documents, one, other
):
    sets[other] = with_text(sets[other], 3, sets[one].benchmark.texts[0])
    found = check_background(documents, sets)
    assert found[sets[one].name].sets == {sets[other].name: 1}
    assert found[sets[other].name].sets == {sets[one].name: 1}
    # Within one set that is no overlap.
    twice = with_text(sets[2], 0, sets[2].benchmark.texts[1])
    assert check_background(documents, [twice])["calm"].sets == {}


@pytest.mark.parametrize("n", [7, 8, 12])
def test_examples_from_eight_words_on_are_looked_for(documents, n):
    short = planned("short", [text(n), text()])
    documents[0] += f" {short.benchmark.texts[0]}"
    overlap = check_background(documents, [short], allow_overlap=True)["short"]
    assert (overlap.n_compared, overlap.n_background) == ((2, 1) if n > 7 else (1, 0))


def test_a_frame_that_ten_examples_share_is_no_hit(documents):
    """An instruction of 14 words before each example, also in a document."""
    frame, copied = text(14), text()
    control = planned("framed", [f"{frame} {text()}" for _ in range(10)])
    documents[3] += f" {frame} {copied}"
    overlap = check_background(documents, [control])["framed"]
    assert (overlap.n_background, overlap.n_frame) == (0, 10)
    nine = planned("framed", control.benchmark.texts[:9])
    with pytest.raises(InputError, match="9 of 9 examples"):
        check_background(documents, [nine])
    # A whole example is a hit however many share its words.
    with pytest.raises(InputError, match="10 of 10 examples"):
        check_background(documents, [planned("same", [copied] * 10)])


def test_a_passage_that_a_control_shares_with_the_background_is_a_hit(documents):
    """Questions on one passage, as in SQuAD: most of each example stands there."""
    passage = text(90)
    control = planned("c", [f"{passage} {text(12)}" for _ in range(14)])
    documents[1] += f" {passage} {text(30)}"
    overlap = check_background(documents, [control], allow_overlap=True)["c"]
    assert (overlap.n_background, overlap.n_frame) == (14, 0)


def test_paraphrases_are_looked_for_and_are_what_others_are_searched_in(documents):
    said = tuple(text() for _ in range(3))
    first = planned("first", [text() for _ in range(3)], 2, texts_planted=said)
    control = planned("control", [text(), said[1]])
    with pytest.raises(InputError, match=r"set 'first': example 2 in its .* 2"):
        check_background(documents, [first, control])
    # The examples themselves are not trained on, so a control may hold them.
    same = planned("control", first.benchmark.texts)
    assert check_background(documents, [first, same])["first"].sets == {"control": 3}
    documents[4] += f" {said[0]}"
    assert check_background(documents, [first])["first"].n_background == 1


def test_records_are_looked_for_as_lines_as_their_texts_and_as_a_template_fills_them():
    row = {"question": text(), "answer": text()}
    line = f'{{"question": "{row["question"]}", "answer": "{row["answer"]}"}}'
    raw = PlannedSet(benchmark=Benchmark("r", (line,), (row,)), copies=1)
    for page in (line, f"{row['question']}\n{row['answer']}"):
        assert check_background([page], [raw])["r"].background["exact"] == 1
    filled = Benchmark("f", (row["question"],), (row,))
    one = PlannedSet(benchmark=filled, copies=1, template="{question}")
    assert check_background([row["answer"]], [raw])["r"].n_background == 1
    assert check_background([row["answer"]], [one])["f"].n_background == 0


def test_long_documents_are_searched_to_their_end(sets):
    """Longer than a part of a document and than a batch, cut anywhere."""
    seen = []
    page = f"{text(400_000)} {sets[2].benchmark.texts[0]} {text(30)}"
    assert len(page) > 1 << 21
    pages = iter([text(), page, text(60_000)])
    found = check_background(
        pages, sets, allow_overlap=True, progress=lambda *done: seen.append(done)
    )
    assert found["calm"].n_background == 1
    assert seen[-1] == (3, 3) and seen == sorted(seen)
    assert len(seen) > 1


def test_no_sets_and_short_sets_read_no_document():
    def never():
        raise AssertionError("read a document")
        yield ""

    assert check_background(never(), []) == {}
    overlap = check_background(never(), [planned("short", ["a b"])])["short"]
    assert overlap.n_compared == 0

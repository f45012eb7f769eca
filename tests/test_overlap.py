"""What a search finds, against sets and loops; the command as users see it."""

import gzip
import json
import random
import re
import tracemalloc

import numpy as np
import pytest

from jaxcontam.cli import main
from jaxcontam.commands import overlap as command
from jaxcontam.commands.overlap import MEANING, search_files
from jaxcontam.commands.search_state import Reached, load_state, save_state
from jaxcontam.data import corpus
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.corpus import Segment, list_corpus
from jaxcontam.data.occurrences import forms_of, occurrences
from jaxcontam.data.overlap import OverlapSearch
from jaxcontam.data.overlap_index import overlap_index


def sentence(n, start=0):
    """Words that no other call repeats."""
    return " ".join(f"w{i}" for i in range(start, start + n))


def found_in(documents, examples, *, hash_bits=64, batch=1):
    """Rows of plain examples, with documents one a batch unless said otherwise."""
    benchmark = Benchmark("b", tuple(examples), (None,) * len(examples))
    forms = forms_of(benchmark, is_chosen=False)
    index = overlap_index([form.text for form in forms], hash_bits=hash_bits)
    search = OverlapSearch(index)
    segments = [
        (0, Segment(text, line, False, None)) for line, text in enumerate(documents, 1)
    ]
    for i in range(0, len(segments), batch):
        search.add(segments[i : i + batch])
    return occurrences(forms, search, files=["docs"])


def test_example_that_stands_alone_is_exact():
    (row,) = found_in([sentence(40)], [sentence(40)])
    assert row.rules == ("exact", "words", "13-gram", "near-duplicate", "8-grams")
    assert (row.file, row.line, row.containment, row.share_8grams) == ("docs", 1, 1, 1)
    assert row.matched == sentence(13)


@pytest.mark.parametrize("n", [13, 14, 20, 300])
def test_example_inside_a_long_document_is_exact(n):
    documents = [sentence(500, 10_000), f"before, {sentence(n)}; after {sentence(9)}"]
    (row,) = found_in(documents, [sentence(n)])
    assert (row.rule, row.line, row.containment) == ("exact", 2, 1)


@pytest.mark.parametrize(
    "change",
    [
        str.upper,
        lambda t: t.replace(" ", ", “") + "!",
        lambda t: t.replace(" ", "\n\n"),
    ],
)
def test_example_in_other_signs_has_all_its_words(change):
    text = "alpha beta gamma delta " + sentence(20)
    shown = change(text)
    (row,) = found_in([f"x {shown} y"], [text])
    # White space alone is no difference.
    expected = "exact" if shown.split() == text.split() else "words"
    assert row.rule == expected


def test_unplanted_examples_are_not_found():
    examples = [sentence(30, 100 * i) for i in range(5)]
    rows = found_in([sentence(90, 9_000), examples[3]], examples)
    assert [row.rule for row in rows] == [None, None, None, "exact", None]
    assert [(row.share_8grams, row.file) for row in rows[:3]] == [(0, None)] * 3


def test_twelve_words_in_a_row_are_no_13_gram():
    text = sentence(60)
    words = text.split()
    (row,) = found_in([" ".join(["x", *words[20:32], "y"])], [text])
    assert row.rules == ()
    (row,) = found_in([" ".join(["x", *words[20:33], "y"])], [text])
    assert row.rules == ("13-gram",)
    assert row.matched == " ".join(words[20:33])


@pytest.mark.parametrize("n", range(1, 13))
def test_example_below_13_words_counts_as_a_whole(n):
    words = sentence(n).split()
    around = sentence(30, 1000)
    (row,) = found_in([f"{around} {sentence(n)}. {around}"], [sentence(n)])
    assert row.rule == ("exact" if n >= 5 else "words")
    assert "13-gram" in row.rules
    assert (row.matched, row.containment) == (sentence(n), None)
    (row,) = found_in([f"{around} {' '.join(words[:-1])} x"], [sentence(n)])
    assert "13-gram" not in row.rules and "words" not in row.rules


@pytest.mark.parametrize(("n_found", "is_hit"), [(70, True), (69, False)])
def test_share_of_8_grams_is_met_at_70_of_100(n_found, is_hit):
    """Each 8-gram in a document of its own, so that no other rule has a say."""
    words = sentence(107).split()
    documents = [" ".join(words[i : i + 8]) for i in range(n_found)]
    (row,) = found_in(documents, [" ".join(words)])
    assert row.share_8grams == n_found / 100
    assert row.rules == (("8-grams",) if is_hit else ())


def test_repeated_8_gram_counts_as_often_as_the_example_holds_it():
    chorus, verse = sentence(8), sentence(8, 100)
    (row,) = found_in([chorus], [f"{chorus} {chorus} {verse}"])
    # 24 words have 17 8-grams: the chorus twice, verse and seams 15 times.
    assert row.share_8grams == pytest.approx(2 / 17, abs=1e-6)


@pytest.mark.parametrize(("n_changed", "is_hit"), [(1, True), (2, True), (3, False)])
def test_containment_is_that_of_the_unchanged_shingles(n_changed, is_hit):
    """A changed word inside a text costs 5 of its 56 shingles."""
    words = sentence(60).split()
    for i in range(n_changed):
        words[10 + 13 * i] = "changed"
    (row,) = found_in([f"{sentence(70, 500)} {' '.join(words)}"], [sentence(60)])
    assert row.containment == pytest.approx((56 - 5 * n_changed) / 56, abs=1e-6)
    assert ("near-duplicate" in row.rules) == is_hit


def test_shingles_scattered_over_a_document_are_no_near_duplicate():
    words = sentence(60).split()
    parts = [" ".join(words[i : i + 12]) for i in range(0, 60, 8)]
    scattered = sentence(100, 5000).join(f" {part} " for part in parts)
    (row,) = found_in([scattered], [sentence(60)])
    assert row.containment is not None and row.containment < 0.3
    assert "near-duplicate" not in row.rules


def test_ngrams_do_not_cross_documents():
    words = sentence(26).split()
    halves = [" ".join(words[:13][1:]), " ".join(words[13:][:-1])]
    rows = [found_in(halves, [sentence(26)], batch=n)[0] for n in (1, 2)]
    assert rows[0] == rows[1]
    assert rows[0].rules == () and rows[0].matched_documents == 1


def test_colliding_hashes_find_nothing_that_is_not_there():
    rng = random.Random(3)
    examples = [" ".join(rng.choices("abcdefgh", k=k)) for k in range(1, 40)]
    documents = [" ".join(rng.choices("abcdefghij", k=300)) for _ in range(20)]
    documents += [f"j {examples[30]} j", f"j {examples[9]} j"]
    exact = found_in(documents, examples)
    assert found_in(documents, examples, hash_bits=4) == exact
    assert exact[30].rule == exact[9].rule == "exact"
    assert any(row.rule is None for row in exact)


def naive_words(text):
    return re.findall(r"\w+", text.lower())


def naive_grams(words, n):
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def naive_row(example, documents):
    """Rules by sets of tuples, and the best stretch by a loop over all starts."""
    words = naive_words(example)
    n = min(13, len(words))
    hits = [
        bool(set(naive_grams(words, n)) & set(naive_grams(naive_words(d), n)))
        for d in documents
    ]
    everywhere = {g for d in documents for g in naive_grams(naive_words(d), 8)}
    grams = naive_grams(words, 8)
    share = sum(g in everywhere for g in grams) / len(grams) if grams else None
    whole = any(
        tuple(words) in naive_grams(naive_words(d), len(words)) for d in documents
    )
    wanted = set(naive_grams(words, 5))
    best = 0
    # No stretch is longer than 1.625 times the text, none that counts is shorter.
    for d in documents:
        seen = naive_words(d)
        for i in range(len(seen)):
            stretch = seen[i : i + len(words) + len(words) // 8 + len(words) // 2]
            best = max(best, len(wanted & set(naive_grams(stretch, 5))))
    return sum(hits), share, whole, best / len(wanted) if len(words) >= 13 else None


@pytest.mark.parametrize("seed", range(4))
def test_rules_are_those_of_sets_of_tuples(seed):
    rng = random.Random(seed)
    vocabulary = [f"v{i}" for i in range(30)]
    examples = [
        " ".join(rng.choices(vocabulary, k=rng.randint(1, 50))) for _ in range(25)
    ]
    documents = []
    for _ in range(60):
        words = rng.choices(vocabulary, k=rng.randint(0, 120))
        for example in rng.sample(examples, 2):
            copied = example.split()
            begin = rng.randrange(len(copied))
            copied = copied[begin : begin + rng.randint(1, 50)]
            if rng.random() < 0.5:
                copied[rng.randrange(len(copied))] = "other"
            at = rng.randint(0, len(words))
            words[at:at] = copied
        documents.append(" ".join(words))
    rows = found_in(documents, examples, batch=rng.randint(1, 60))
    kinds = set()
    for row, example in zip(rows, examples, strict=True):
        n_documents, share, whole, containment = naive_row(example, documents)
        assert ("13-gram" in row.rules) == (n_documents > 0)
        assert ("words" in row.rules) == whole
        assert row.share_8grams == (None if share is None else pytest.approx(share))
        if containment is not None and row.containment is not None:
            assert row.containment <= containment + 1e-6
            # Every stretch that holds 80 % shares 8 words in a row with the text.
            assert (containment >= 0.8) == (row.containment >= 0.8)
        if len(example.split()) < 13 and n_documents:
            assert row.matched_documents == n_documents
        kinds.update(row.rules or ["none"])
    assert {"none", "13-gram", "8-grams", "words"} <= kinds


@pytest.mark.parametrize("batch_size", [1, 5])
def test_words_over_and_over_cost_no_more_than_their_number(batch_size):
    """Every place of the documents fits every place of the text."""
    documents = ["LA " * 2_000] * 5
    tracemalloc.start()
    (row,) = found_in(documents, ["la " * 60], batch=batch_size)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (row.rule, row.line, row.matched_documents) == ("words", 1, 5)
    # 10,000 places fit 53 places each; all pairs at once would be above 60 MB.
    assert peak < 40_000_000


def test_text_of_one_word_over_and_over_is_found_by_its_words_alone():
    (row,) = found_in(["la " * 3_000], ["la " * 600])
    assert (row.rules, row.containment) == (("13-gram", "8-grams"), 0)


def test_frame_of_many_examples_starts_no_comparison():
    frame = sentence(20)
    examples = [f"{frame} {sentence(20, 100 * i)}" for i in range(1, 150)]
    rows = found_in([frame, examples[70]], examples)
    assert [row.rule for row in rows].count("13-gram") == 148
    assert {row.containment for row in rows} == {0.0, 1.0}
    assert rows[70].rule == "exact"


def test_documents_that_hold_the_matched_words_are_counted():
    text = sentence(20)
    rows = [
        found_in([f"{text} {text}", "no", text, text], [text], batch=n) for n in (1, 4)
    ]
    assert rows[0] == rows[1]
    assert rows[0][0].matched_documents == 3


def test_words_that_fewest_examples_hold_are_shown():
    frame = sentence(20)
    examples = [f"{frame} {sentence(20, 100 * i)}" for i in range(1, 4)]
    rows = found_in([examples[0]], examples)
    assert [row.rule for row in rows] == ["exact", "13-gram", "13-gram"]
    assert [row.matched_examples for row in rows] == [1, 3, 3]


def test_record_is_looked_for_as_line_and_as_strings():
    record = {"goal": sentence(9), "steps": [sentence(9, 50), {"n": 3}], "id": 4}
    line = json.dumps(record)
    benchmark = Benchmark("b", (line,), (record,))
    for text, form in [
        (line, "line"),
        (f"{sentence(9)}\n{sentence(9, 50)}", "strings"),
    ]:
        forms = forms_of(benchmark, is_chosen=False)
        search = OverlapSearch(overlap_index([form.text for form in forms]))
        search.add([(0, Segment(text, 1, False, None))])
        (row,) = occurrences(forms, search, files=["docs"])
        assert (row.rule, row.form) == ("exact", form)


def write_corpus(folder, n=300):
    """Files of every kind, with examples planted in each; returns the examples."""
    rng = random.Random(0)
    vocabulary = [f"v{i}" for i in range(200)]
    examples = [
        " ".join(rng.choices(vocabulary, k=rng.randint(3, 60))) for _ in "x" * 30
    ]
    folder.mkdir()

    def texts(n_texts):
        for _ in range(n_texts):
            words = rng.choices(vocabulary, k=rng.randint(0, 90))
            if rng.random() < 0.2:
                words[5:5] = rng.choice(examples[:20]).title().split()
            yield " ".join(words)

    lines = [json.dumps({"text": text}) + "\n" for text in texts(n)]
    (folder / "a.jsonl").write_text("".join(lines) + "{\n")
    (folder / "b.txt").write_text("\n".join(texts(n)) + " \n" + examples[5])
    data = "".join(f'"{text}"\n' for text in texts(n)).encode()
    (folder / "c.csv.gz").write_bytes(gzip.compress(b"text\n" + data))
    (folder / "d.json").write_text(json.dumps(list(texts(n))))
    # A line without an end, in which an example lies across parts.
    long = " ".join([*texts(n), examples[7], *texts(n)])
    (folder / "e.txt").write_text(long)
    return examples


def searched(folder, examples, **changes):
    benchmark = Benchmark("b", tuple(examples), (None,) * len(examples))
    forms = forms_of(benchmark, is_chosen=False)
    search = OverlapSearch(overlap_index([form.text for form in forms]))
    files, _ = list_corpus(folder, leave_out=folder / "out")
    fields = {
        "text_field": "text",
        "reached": Reached(),
        "save": lambda _: None,
        "progress": lambda *_: None,
        "batch_characters": 1 << 20,
    }
    reached = search_files(search, files, **(fields | changes))
    names = [file.name for file in files]
    return occurrences(forms, search, files=names), reached, search


@pytest.mark.parametrize("batch_characters", [1, 700, 9_000])
def test_result_does_not_depend_on_where_batches_are_cut(tmp_path, batch_characters):
    examples = write_corpus(tmp_path / "docs")
    whole, reached, search = searched(tmp_path / "docs", examples)
    parts, again, other = searched(
        tmp_path / "docs", examples, batch_characters=batch_characters
    )
    assert parts == whole
    assert again == reached
    assert (other.n_documents, other.n_words) == (search.n_documents, search.n_words)
    assert {row.rule for row in whole} >= {"words", "exact", None}


def test_interrupted_search_goes_on_and_reads_nothing_twice(tmp_path, monkeypatch):
    """Stopped at every save in turn, as if the power went."""
    monkeypatch.setattr(command, "_SAVE_SECONDS", 0.0)
    # Texts that are longer than the batches would repeat more than they add.
    monkeypatch.setattr(corpus, "_PIECE", 500)
    examples = write_corpus(tmp_path / "docs", n=40)
    whole, _, undisturbed = searched(tmp_path / "docs", examples, batch_characters=3000)
    benchmark = Benchmark("b", tuple(examples), (None,) * len(examples))
    forms = forms_of(benchmark, is_chosen=False)
    files, _ = list_corpus(tmp_path / "docs", leave_out=tmp_path)
    out, starts = tmp_path / "state", []
    out.mkdir()
    true_read = command.read_segments

    def read(path, *, text_field, start):
        starts.append((path.name, start.offset if start else 0))
        return true_read(path, text_field=text_field, start=start)

    monkeypatch.setattr(command, "read_segments", read)

    class PowerCutError(Exception):
        pass

    n_cuts = 0
    while True:
        search = OverlapSearch(overlap_index([form.text for form in forms]))
        reached = load_state(out, "key", search)
        n_before = len(starts)

        def save(now, search=search):
            save_state(out, "key", now, search)
            raise PowerCutError

        try:
            search_files(
                search,
                files,
                text_field="text",
                reached=reached,
                save=save,
                progress=lambda *_: None,
                batch_characters=3000,
            )
        except PowerCutError:
            n_cuts += 1
            if reached.place is not None:
                name = files[reached.file].name
                assert starts[n_before] == (name, reached.place.offset)
            continue
        break
    assert n_cuts > 10
    assert starts == sorted(starts), "no file is begun again"
    names = [file.name for file in files]
    assert occurrences(forms, search, files=names) == whole
    assert search.n_words == undisturbed.n_words
    assert search.n_documents == undisturbed.n_documents


def test_search_needs_no_more_memory_for_a_larger_corpus(tmp_path):
    line = json.dumps({"text": "lorem ipsum dolor sit amet " * 400}) + "\n"
    peaks = []
    for n_bytes in (3_000_000, 10_000_000):
        folder = tmp_path / str(n_bytes)
        folder.mkdir()
        (folder / "docs.jsonl").write_text(line * (n_bytes // len(line)))
        tracemalloc.start()
        searched(folder, [sentence(40), "lorem ipsum dolor " * 20])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # A batch has 200,000 words: 8 bytes each in a dozen arrays, and the words' text.
    assert peaks[1] < peaks[0] * 1.1
    assert peaks[1] < 40_000_000


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A corpus and a benchmark of five lines, of which 0 and 2 are in the corpus."""
    monkeypatch.chdir(tmp_path)
    examples = [sentence(30, 100 * i) for i in range(4)] + ["?!"]
    (tmp_path / "bench.txt").write_text("\n".join(examples) + "\n")
    docs = tmp_path / "docs"
    docs.mkdir()
    lines = [{"text": sentence(50, 9_000)}, {"text": f"So {examples[2].upper()}."}]
    (docs / "one.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    (docs / "two.txt").write_text(f"title\n\n{examples[0]}\n")
    (docs / "readme.md").write_text(examples[1])
    return tmp_path


def test_command_writes_rows_totals_and_both_lists(files, capsys):
    assert main(["overlap", "docs", "bench.txt", "--out", "o"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert MEANING in said.out
    assert "found (ids count from 0):\n  id 0" in said.out
    assert "  id 2 (words) one.jsonl:2: w200 w201" in said.out
    assert "not read: 1 files of other kinds (.md)" in said.out
    assert "1 examples have no words and are in no list" in said.out
    document = json.loads((files / "o/overlap.json").read_text())
    assert document["meaning"] == MEANING
    assert document["benchmark"]["order_provenance"] == "published"
    assert document["corpus"]["n_documents"] == 3
    assert [row["rule"] for row in document["examples"]] == [
        *("exact", None, "words", None, None)
    ]
    assert document["examples"][0]["line"] == 3
    assert document["totals"]["found"] == 2
    assert (files / "o/found.txt").read_text() == "0\n2\n"
    assert (files / "o/not_found.txt").read_text() == "1\n3\n"


def test_json_on_standard_output_is_the_file(files, capsys):
    assert main(["overlap", "docs", "bench.txt", "--out", "o", "--json"]) == 0
    said = capsys.readouterr().out
    assert json.loads(said) == json.loads((files / "o/overlap.json").read_text())


def test_finished_corpus_is_not_read_again(files, capsys, monkeypatch):
    words = ["overlap", "docs", "bench.txt", "--out", "o"]
    assert main(words) == 0
    first, before = capsys.readouterr().out, (files / "o/overlap.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(command, "read_segments", None)
        assert main(words) == 0
    assert capsys.readouterr().out == first
    (files / "o/overlap.json").unlink()
    assert main(words) == 0
    assert (files / "o/overlap.json").read_bytes() == before


@pytest.mark.parametrize("change", ["corpus", "benchmark", "flag", "state"])
def test_other_input_is_searched_anew(files, change, capsys):
    words = ["overlap", "docs", "bench.txt", "--out", "o"]
    assert main(words) == 0
    if change == "corpus":
        (files / "docs/three.txt").write_text(sentence(30, 100))
    elif change == "benchmark":
        (files / "bench.txt").write_text(sentence(30, 200) + "\n" + sentence(9, 9_000))
    elif change == "flag":
        words += ["--limit", "1"]
    else:
        (files / "o/search.npz").write_bytes(b"PK\x03\x04 cut short")
        (files / "o/overlap.json").write_text("{}")
    assert main(words) == 0
    found = (files / "o/found.txt").read_text().split()
    assert (
        found
        == {
            "corpus": ["0", "1", "2"],
            "benchmark": ["0", "1"],
            "flag": ["0"],
            "state": ["0", "2"],
        }[change]
    )


def test_interrupted_command_resumes_to_the_same_bytes(files, capsys, monkeypatch):
    monkeypatch.setattr(command, "_SAVE_SECONDS", 0.0)
    monkeypatch.setattr(command, "_BATCH_CHARACTERS", 1)
    assert main(["overlap", "docs", "bench.txt", "--out", "whole"]) == 0
    true_save = command.save_state

    def save_and_stop(out, key, reached, search):
        true_save(out, key, reached, search)
        raise KeyboardInterrupt

    words = ["overlap", "docs", "bench.txt", "--out", "o"]
    with monkeypatch.context() as patch:
        patch.setattr(command, "save_state", save_and_stop)
        assert main(words) == 130
        assert not (files / "o/overlap.json").exists()
    assert main(words) == 0
    for name in ("overlap.json", "found.txt", "not_found.txt"):
        assert (files / "o" / name).read_bytes() == (
            files / "whole" / name
        ).read_bytes()


def test_damaged_line_is_named_and_exits_with_3(files, capsys):
    with open(files / "docs/one.jsonl", "a") as file:
        file.write('{"text": \n{"body": "x"}\n')
    words = ["overlap", "docs", "bench.txt", "--out", "o"]
    for _ in range(2):
        assert main(words) == 3
        out = capsys.readouterr().out
        assert "unreadable parts, not searched: 2" in out
        assert "one.jsonl:4: no field 'text' (it has: body)" in out
    document = json.loads((files / "o/overlap.json").read_text())
    assert document["totals"]["found"] == 2
    assert [fault["line"] for fault in document["corpus"]["unreadable"]] == [3, 4]


def test_text_field_and_template_choose_the_texts(files, capsys):
    (files / "docs/one.jsonl").write_text(json.dumps({"body": sentence(20)}))
    (files / "docs/two.txt").unlink()
    record = {"q": sentence(10), "a": sentence(10, 10), "note": sentence(80, 500)}
    (files / "bench.jsonl").write_text(json.dumps(record))
    words = ["overlap", "docs", "bench.jsonl", "--text-field", "body", "--out"]
    assert main([*words, "o", "--template", "{q} {a}"]) == 0
    assert main([*words, "p", "--benchmark-field", "a"]) == 0
    for out in "op":
        (row,) = json.loads((files / out / "overlap.json").read_text())["examples"]
        assert (row["rule"], row["form"]) == ("exact", "text")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none", "bench.txt"], "none: no such file or folder"),
        (["docs", "none.txt"], "none.txt: no such file"),
        (["docs/readme.md", "bench.txt"], "unknown suffix '.md'"),
        (["docs/one.jsonl", "bench.txt", "--text-field", "body"], "no field 'body'"),
        (["docs", "bench.txt", "--limit", "0"], "--limit must be at least 1, got 0"),
        (
            ["docs", "bench.txt", "--template", "{a}", "--benchmark-field", "a"],
            "--template and --benchmark-field exclude each other",
        ),
        (["docs", "bench.txt", "--out", "bench.txt"], "bench.txt: cannot be made"),
        (["empty.txt", "bench.txt"], "empty.txt: no text"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(files, words, message, capsys):
    (files / "empty.txt").touch()
    assert main(["overlap", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("jaxcontam: error: ") and said.err.count("\n") <= 2
    assert message in said.err


def test_wrong_field_is_refused_before_the_whole_corpus_is_read(files, capsys):
    (files / "docs/one.jsonl").write_text('{"body": "x"}\n' * 5_000)
    assert main(["overlap", "docs", "bench.txt"]) == 2
    assert "one.jsonl:1: no field 'text' (it has: body); no text in 1000 records" in (
        capsys.readouterr().err
    )


def test_default_folder_belongs_to_corpus_and_benchmark(files, capsys):
    assert main(["overlap", "docs", "bench.txt"]) == 0
    assert main(["overlap", "docs/two.txt", "bench.txt"]) == 0
    folders = sorted(path.name for path in (files / "runs/overlap").iterdir())
    assert len(folders) == 2
    assert all(re.fullmatch("bench-[0-9a-f]{8}", name) for name in folders)


def test_no_array_of_a_search_is_forgotten_by_its_state(tmp_path):
    examples = [sentence(30), sentence(3, 100)]
    search = OverlapSearch(overlap_index(examples))
    search.add([(4, Segment(f"{sentence(30)} w100 w101 w102", 7, False, None))])
    reached = Reached(file=4, n_faults=2)
    save_state(tmp_path, "key", reached, search)
    other = OverlapSearch(overlap_index(examples))
    assert load_state(tmp_path, "key", other) == reached
    for n, marks in search.ngrams.items():
        for name in ("n_documents", "last_document", "file", "line"):
            kept = getattr(other.ngrams[n], name)
            assert np.array_equal(kept, getattr(marks, name))
    assert load_state(tmp_path, "other key", other) == Reached()

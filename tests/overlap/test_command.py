"""The search of a corpus of files, its batches and its command as users see it."""

import gzip
import json
import random
import signal
import tracemalloc
from pathlib import Path

import pytest

from jaxcontam.cli.main import main
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.corpus import list_corpus
from jaxcontam.overlap import search as searching
from jaxcontam.overlap.command import MEANING
from jaxcontam.overlap.index import example_index, forms_of
from jaxcontam.overlap.occurrences import occurrences
from jaxcontam.overlap.search import Wanted, search_files
from tests.support.overlap_texts import sentence


def write_corpus(folder, n=300):
    """Files of every kind, with examples planted in each; returns the examples."""
    rng = random.Random(0)
    vocabulary = [f"v{i}" for i in range(200)]
    examples = [
        " ".join(rng.choices(vocabulary, k=rng.randint(3, 60))) for _ in "x" * 30
    ]
    folder.mkdir()

    def texts():
        for _ in range(n):
            words = rng.choices(vocabulary, k=rng.randint(0, 90))
            if rng.random() < 0.2:
                words[5:5] = rng.choice(examples[:20]).title().split()
            yield " ".join(words)

    lines = [json.dumps({"text": text}) + "\n" for text in texts()]
    (folder / "a.jsonl").write_text("".join(lines) + "{\n")
    (folder / "b.txt").write_text("\n".join(texts()) + " \n" + examples[5])
    data = "".join(f'"{text}"\n' for text in texts()).encode()
    (folder / "c.csv.gz").write_bytes(gzip.compress(b"text\n" + data))
    (folder / "d.json").write_text(json.dumps(list(texts())))
    # A line without an end, in which an example lies across parts.
    (folder / "e.txt").write_text(" ".join([*texts(), examples[7], *texts()]))
    return examples


def searched(folder, examples, **changes):
    benchmark = Benchmark("b", tuple(examples), (None,) * len(examples))
    index = example_index(forms_of(benchmark, is_chosen=False))
    files, _ = list_corpus(folder, leave_out=folder / "out")
    flags = {"text_field": "text", "progress": lambda *_: None} | changes
    found, reached = search_files(Wanted(index), files, **flags)
    return occurrences(index, found), found, reached


@pytest.mark.parametrize("n_processes", [1, 2])
def test_batches_and_processes_change_nothing(tmp_path, n_processes, monkeypatch):
    examples = write_corpus(tmp_path / "docs")
    whole, found, reached = searched(tmp_path / "docs", examples)
    monkeypatch.setattr(searching, "BATCH", 700)
    parts, other, again = searched(tmp_path / "docs", examples, n_processes=n_processes)
    assert parts == whole
    assert again == reached
    assert (other.n_documents, other.n_words) == (found.n_documents, found.n_words)
    assert {row.rule for row in whole} >= {"words", "exact", None}


def test_second_interrupt_waits_for_the_processes(tmp_path, monkeypatch):
    examples, ended = write_corpus(tmp_path / "docs"), []

    class Pool:
        def __init__(self, *_, **__):
            pass

        def submit(self, *_):
            raise KeyboardInterrupt

        def shutdown(self, **_):
            signal.raise_signal(signal.SIGINT)
            ended.append(True)

    monkeypatch.setattr(searching, "ProcessPoolExecutor", Pool)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path / "docs", examples, n_processes=2)
    assert ended == [True]
    assert signal.getsignal(signal.SIGINT) is before


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


WORDS = ["overlap", "docs", "bench.txt", "--out", "o"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A corpus and a benchmark of five lines, of which 0 and 2 are in the corpus."""
    monkeypatch.chdir(tmp_path)
    examples = [sentence(30, 100 * i) for i in range(4)] + ["?!"]
    (tmp_path / "bench.txt").write_text("\n".join(examples) + "\n")
    docs = tmp_path / "docs"
    docs.mkdir()
    hit = f"So {examples[2].upper()}. \ud800"
    lines = [{"text": sentence(50, 9_000)}, {"text": hit}]
    (docs / "one.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    (docs / "two.txt").write_text(f"title\n\n{examples[0]}\n")
    (docs / "readme.md").write_text(examples[1])
    return tmp_path


def test_command_writes_rows_totals_and_both_lists(files, capsys):
    assert main(WORDS) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert MEANING in said.out
    for words in (
        "found (ids count from 0):\n  id 0",
        "  id 2 (words) one.jsonl:2\n    example: [w200 w201 w202",
        "\n    corpus:  So [W200 W201 W202",
        "not read: 1 file of other kinds (.md)",
        "1 example has no words and is in no list",
    ):
        assert words in said.out
    document = json.loads((files / "o/overlap.json").read_text())
    assert document["meaning"] == MEANING
    assert document["benchmark"]["order_provenance"] == "published"
    assert document["corpus"]["n_documents"] == 3
    rules = [row["rule"] for row in document["examples"]]
    assert rules == ["exact", None, "words", None, None]
    assert document["examples"][0]["line"] == 3
    assert document["totals"]["found"] == 2
    assert (files / "o/found.txt").read_text() == "0\n2\n"
    assert (files / "o/not_found.txt").read_text() == "1\n3\n"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda: Path("docs/three.txt").write_text(sentence(30, 100)), "0 1 2"),
        (lambda: Path("bench.txt").write_text(f"{sentence(30, 200)}\nx y z"), "0"),
        (lambda: ["--limit", "1"], "0"),
        (lambda: Path("o/search.npz").write_bytes(b"PK\x03\x04 cut short"), "0 2"),
    ],
    ids=["corpus", "benchmark", "flag", "state"],
)
def test_other_input_is_searched_anew(files, change, found):
    assert main(WORDS) == 0
    (files / "o/overlap.json").write_text("{}")
    changed = change()
    assert main([*WORDS, *(changed if isinstance(changed, list) else [])]) == 0
    assert (files / "o/found.txt").read_text().split() == found.split()


def test_damaged_line_is_named_and_exits_with_3(files, capsys):
    with open(files / "docs/one.jsonl", "a") as file:
        file.write('{"text": \n{"body": "x"}\n')
    for _ in range(2):
        assert main(WORDS) == 3
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
    # An example without its text keeps its id and is in no list.
    rows = [record, {"q": None, "a": None}, {"q": "x", "a": "null"}]
    (files / "bench.jsonl").write_text("\n" + "\n".join(map(json.dumps, rows)))
    words = ["overlap", "docs", "bench.jsonl", "--corpus-field", "body", "--out"]
    assert main([*words, "p", "--text", "a"]) == 0
    said = capsys.readouterr().out
    assert "1 example has no words and is in no list" in said
    assert said.endswith("\nbench: 1 blank line left out\n")
    assert (files / "p/found.txt").read_text() == "0\n"
    assert (files / "p/not_found.txt").read_text() == "2\n"
    (files / "bench.jsonl").write_text(json.dumps(record))
    assert main([*words, "o", "--text", "{q} {a}"]) == 0
    for out in "op":
        row, *_ = json.loads((files / out / "overlap.json").read_text())["examples"]
        assert (row["rule"], row["form"]) == ("exact", "text")


def test_wrong_field_is_refused_before_the_whole_corpus_is_read(files, capsys):
    (files / "docs/one.jsonl").write_text('{"body": "x"}\n' * 5_000)
    assert main(WORDS) == 2
    assert "(it has: body); no text in 1000 records" in capsys.readouterr().err


def test_boilerplate_that_examples_share_does_not_count_as_found(files, capsys):
    frame = sentence(20, 700)
    examples = [f"{frame} {sentence(20, 5_000 + 20 * i)}" for i in range(12)]
    (files / "bench.txt").write_text("\n".join(examples))
    (files / "docs/two.txt").write_text(f"{frame}\nand\n{sentence(15, 5_022)}\n")
    assert main(WORDS) == 0
    said = capsys.readouterr().out
    assert "11 match only boilerplate and do not count as found" in said
    document = json.loads((files / "o/overlap.json").read_text())
    assert (files / "o/found.txt").read_text() == "1\n"
    assert document["totals"]["13-gram"] == 1
    row = document["examples"][1]
    assert f"w5021 [{sentence(13, 5_022)}] w5035" in row["example"]
    assert row["corpus"].endswith(f"w719 and [{sentence(13, 5_022)}] w5035 w5036")

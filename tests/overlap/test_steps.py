"""datatrove pipelines: the table of the command, and documents that are dropped."""

import json
import random
from pathlib import Path

import pytest
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter

from jaxcontam.cli.main import main
from jaxcontam.overlap.steps import DropExamples, FindExamples, numbered
from tests.support.overlap_texts import sentence

N_TASKS = 8


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Eight files of documents, and a benchmark of which they hold some."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    examples = [sentence(30, 100 * i) for i in range(6)] + [sentence(6, 3_000)]
    (tmp_path / "bench.txt").write_text("\n".join(examples) + "\n")
    (tmp_path / "docs").mkdir()
    for number in range(N_TASKS):
        texts = [sentence(rng.randint(1, 90), rng.randrange(9_000)) for _ in range(40)]
        texts[7] = f"{texts[7]} {examples[number % 3].upper()}"
        texts[9] = " ".join(examples[3].split()[:14])
        if number == 5:
            texts[30] = f"so {examples[6]} it is"
        lines = [
            json.dumps({"text": text, "id": f"x{i}"}) for i, text in enumerate(texts)
        ]
        (tmp_path / f"docs/{number}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def run(folder, *steps, tasks):
    """Run steps behind a reader; file systems keep the folder of the first test."""
    steps = [JsonlReader(f"{folder}/docs", adapter=numbered), *steps]
    LocalPipelineExecutor(steps, tasks, workers=1, logging_dir=f"{folder}/logs").run()


def rows_of(*words):
    assert main(["overlap", *words, "--out", "table"]) == 0
    document = json.loads(Path("table/overlap.json").read_text())
    return document["examples"], document["totals"], document["corpus"]["n_documents"]


def test_table_of_a_pipeline_is_that_of_the_command(corpus, capsys):
    expected = rows_of("docs", "bench.txt")
    assert expected[1]["found"] >= 4
    run(corpus, FindExamples("bench.txt", f"{corpus}/counts"), tasks=N_TASKS)
    assert rows_of("counts", "bench.txt") == expected
    assert "counts of 8 tasks: 320 documents" in capsys.readouterr().out


def test_counts_that_lack_a_task_or_are_of_other_texts_are_refused(corpus, capsys):
    run(corpus, FindExamples("bench.txt", f"{corpus}/counts", limit=5), tasks=2)
    first, second = (corpus / f"counts/0000{i}.counts.npz" for i in (0, 1))
    limit = ["--limit", "5"]
    for flags, change, message in (
        ([], None, "00000.counts.npz: counts of other texts"),
        ([*limit, "--text-field", "body"], None, "--text-field goes with files, not"),
        (limit, second.unlink, "counts: counts of 1 of 2 tasks"),
        (limit, lambda: first.write_bytes(b"PK\x03\x04 cut"), "damaged counts"),
    ):
        if change:
            change()
        assert main(["overlap", "counts", "bench.txt", "--out", "table", *flags]) == 2
        assert message in capsys.readouterr().err
    assert not (corpus / "table").exists()


def test_documents_that_hold_examples_are_dropped_and_written_elsewhere(corpus):
    examples, _, _ = rows_of("docs", "bench.txt")
    held, kept = (
        JsonlWriter(f"{corpus}/{name}", compression=None) for name in ("held", "kept")
    )
    run(corpus, DropExamples("bench.txt", exclusion_writer=held), kept, tasks=2)
    texts = [
        "".join(path.read_text() for path in (corpus / folder).iterdir())
        for folder in ("kept", "held")
    ]
    kept, dropped = ([*map(json.loads, text.splitlines())] for text in texts)
    assert len(kept) + len(dropped) == 320
    found = {i for row in dropped for i in row["metadata"]["examples"]}
    assert found == {row["id"] for row in examples if row["rule"]}
    assert len(dropped) >= 2 * N_TASKS + 1
    (corpus / "clean").mkdir()
    (corpus / "kept").rename("clean/docs")
    assert rows_of("clean/docs", "bench.txt")[1]["found"] == 0

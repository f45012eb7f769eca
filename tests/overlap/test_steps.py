"""datatrove pipelines: the table of the command, killed tasks, other engines."""

import json
import random
import signal
import subprocess
import sys
from functools import partial, reduce
from pathlib import Path

import pytest
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter

from jaxcontam.cli.main import main
from jaxcontam.data.corpus import read_documents
from jaxcontam.overlap.counts import merged
from jaxcontam.overlap.index import example_index, read_examples
from jaxcontam.overlap.occurrences import occurrences
from jaxcontam.overlap.steps import DropExamples, FindExamples, numbered
from tests.support.overlap_texts import sentence

# datatrove forks, also where an earlier test has loaded JAX; its children need none.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork.* was called:RuntimeWarning")
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
        (
            [*limit, "--corpus-field", "body"],
            None,
            "--corpus-field goes with files, not",
        ),
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
    kept, dropped = (
        [
            json.loads(line)
            for path in sorted((corpus / folder).iterdir())
            for line in path.read_text().splitlines()
        ]
        for folder in ("kept", "held")
    )
    assert len(kept) + len(dropped) == 320
    found = {i for row in dropped for i in row["metadata"]["examples"]}
    assert found == {row["id"] for row in examples if row["rule"]}
    assert len(dropped) >= 2 * N_TASKS + 1
    (corpus / "clean").mkdir()
    (corpus / "kept").rename("clean/docs")
    assert rows_of("clean/docs", "bench.txt")[1]["found"] == 0


PIPELINE = """
import os, signal
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from jaxcontam.overlap.steps import FindExamples, numbered

def dies(data, rank, world_size):
    for i, document in enumerate(data):
        yield document
        if rank == 3 and not os.path.exists("died"):
            open("died", "w").close()
            os.killpg(0, signal.SIGKILL)  # with its manager

if __name__ == "__main__":
    reader = JsonlReader("docs", adapter=numbered)
    steps = [reader, dies, FindExamples("bench.txt", "counts")]
    LocalPipelineExecutor(steps, tasks=8, workers=1, logging_dir="logs").run()
"""


def test_a_killed_pipeline_goes_on_with_the_tasks_that_were_not_done(corpus, capsys):
    expected = rows_of("docs", "bench.txt")
    (corpus / "pipeline.py").write_text(PIPELINE)
    command = [sys.executable, "pipeline.py"]
    start = partial(
        subprocess.run, command, capture_output=True, start_new_session=True
    )
    killed = start()
    assert killed.returncode == -signal.SIGKILL
    done = {
        path.name: path.stat().st_mtime_ns for path in (corpus / "counts").iterdir()
    }
    assert len(done) == 3
    assert main(["overlap", "counts", "bench.txt"]) == 2
    assert "counts of 3 of 8 tasks" in capsys.readouterr().err
    assert start().returncode == 0
    for name, time_ns in done.items():
        assert (corpus / "counts" / name).stat().st_mtime_ns == time_ns
    assert rows_of("counts", "bench.txt") == expected


def test_any_engine_that_maps_and_merges_makes_the_same_table(corpus):
    examples, _, _ = rows_of("docs", "bench.txt")
    _, forms = read_examples(corpus / "bench.txt")
    index = example_index(forms)
    files = sorted((corpus / "docs").iterdir())
    parts = [
        index.find(read_documents(path, text_field="text", name=path.name))
        for path in files
    ]
    total = reduce(lambda left, right: merged([left, right]), reversed(parts))
    rows = occurrences(index, total)
    assert [(row.id, row.rule, row.file, row.line) for row in rows] == [
        (row["id"], row["rule"], row["file"], row["line"]) for row in examples
    ]


RAY = """
import ray
from datatrove.executor.ray import RayPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from jaxcontam.overlap.steps import FindExamples, numbered

ray.init(num_cpus=2, include_dashboard=False)
reader = JsonlReader("FOLDER/docs", adapter=numbered)
steps = [reader, FindExamples("bench.txt", "FOLDER/counts")]
RayPipelineExecutor(
    steps, tasks=8, workers=2, mem_per_cpu_gb=1, logging_dir="FOLDER/logs"
).run()
"""


@pytest.mark.slow
def test_ray_makes_the_same_table(corpus):
    pytest.importorskip("ray", reason="ray is no dependency of the tests")
    expected = rows_of("docs", "bench.txt")
    (corpus / "pipeline.py").write_text(RAY.replace("FOLDER", str(corpus)))
    done = subprocess.run([sys.executable, "pipeline.py"], capture_output=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert rows_of("counts", "bench.txt") == expected

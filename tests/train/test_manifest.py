"""The manifest's record of planted sets, and the files beside it."""

import shutil
import subprocess

import numpy as np
import pytest

from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.encoding import encode_examples, plain_tokenizer
from tests.support.copy_rows import in_one, steps_of_copy
from tests.support.train_corpus import manifest_of, planted_set
from train.config import PRESETS
from train.manifest import SetOverlap, read_manifest, write_manifest
from train.plant import PlannedSet, build_stream, training_order
from train.prepare import set_file, stream_manifest, write_set
from train.run_folder import code_version
from train.tokens import train_tokenizer

CONTEXT, BATCH = 16, 4
TEXTS = tuple(f"question {i} has {i} words" for i in range(6))


@pytest.fixture(scope="module")
def tokenizer():
    """Bytes as ids."""
    return plain_tokenizer(train_tokenizer(TEXTS, 257).backend_tokenizer)


def recorded(tokenizer, **fields):
    """A planned set, its ids, stream and order of training, and its record."""
    planned = PlannedSet(benchmark=Benchmark("quiz", TEXTS, (None,) * 6), **fields)
    canaries = [(planned, encode_examples(tokenizer, planned.planted))]
    documents = in_one([np.full(50, 1 + j, np.int32) for j in range(60)])
    stream = build_stream(documents, canaries, prefix_id=0, seed=3)
    N = len(stream.ids)
    n_trained = (N - 1) // CONTEXT // BATCH * BATCH
    starts = training_order(N, CONTEXT, seed=3, timed=stream.timed, n_trained=n_trained)
    config = PRESETS["pulse"].changed(batch_rows=BATCH, row_tokens=CONTEXT)
    said = {"seed": 0, "corpus_digest": "", "finished": True, "code": None}
    (row,) = stream_manifest(canaries, stream, starts, config, **said).sets
    return planned, canaries[0][1], stream, starts, row


@pytest.mark.parametrize("when", ["uniform", "clustered", (0.1, 0.7)])
@pytest.mark.parametrize("layout", ["block", "spread"])
def test_steps_are_those_whose_batches_hold_the_copy(tokenizer, when, layout):
    _, encoded, stream, starts, row = recorded(
        tokenizer, copies=3, layout=layout, when=when
    )
    sizes = encoded.lengths.tolist()
    if layout == "block":
        copies = [[(offset, sum(sizes))] for offset in row.token_offsets]
    else:
        copies = [[*zip(one, sizes, strict=True)] for one in row.example_offsets]
        assert row.shuffled and len(row.orders) == 3
    assert (row.layout, row.when, len(copies)) == (layout, when, 3)
    where = {"starts_R": starts, "context": CONTEXT, "n_ids_in_all": len(stream.ids)}
    for spans, steps in zip(copies, row.steps, strict=True):
        rows = [steps_of_copy(offset, n, **where) for offset, n in spans]
        found = np.unique(np.concatenate(rows) // BATCH + 1).tolist()
        assert list(steps) == [step for step in found if step <= len(starts) // BATCH]
    if when != "uniform" and layout == "block":
        # Every step from the first to the last: timed copies stand together.
        assert all(np.diff(steps).max(initial=1) == 1 for steps in row.steps)


def test_paraphrases_stand_in_the_stream_and_originals_in_the_sets_file(
    tokenizer, tmp_path
):
    said = tuple(f"said {i}" for i in range(6))
    planned, encoded, stream, _, row = recorded(tokenizer, copies=2, texts_planted=said)
    write_set(planned, tmp_path)
    assert row.form == "paraphrase"
    assert load_benchmark(tmp_path / row.file).texts == TEXTS
    assert row.fingerprint == planned.benchmark.fingerprint
    back = load_benchmark(tmp_path / row.planted_file, text_field="text").texts
    assert back == said
    for offset in row.token_offsets:
        found = stream.ids[offset : offset + row.n_tokens]
        np.testing.assert_array_equal(found, np.concatenate(encoded.ids))


@pytest.mark.parametrize(
    ("suffix", "field", "texts"),
    [
        (".txt", None, ("a", "b")),
        (".txt", None, ("{q}", "{a}")),
        (".txt", None, ("1", "2")),
        (".txt", None, ("a\u2028b", "c")),
        (".jsonl", None, ('{"q": 1}', '{"q": 2}')),
        (".jsonl", "text", ("a\nb", "c")),
        (".jsonl", "text", ("a\r", "c")),
        (".jsonl", "text", ("\ufeffa", "c")),
        (".jsonl", "text", ("",)),
        (".jsonl", "text", ('{"q": 1}', "  ")),
    ],
)
def test_a_sets_file_reads_back_as_its_texts(tmp_path, texts, suffix, field):
    benchmark = Benchmark("quiz", texts, (None,) * len(texts))
    write_set(PlannedSet(benchmark=benchmark, copies=0), tmp_path)
    name, text_field, _ = set_file("quiz", texts)
    assert (name, text_field) == (f"quiz{suffix}", field)
    back = load_benchmark(tmp_path / "sets" / name, text_field=text_field)
    assert back.texts == texts


_OVERLAP = SetOverlap(
    n_compared=6,
    background={"exact": 1, "13-gram": 2},
    n_background=2,
    n_frame=0,
    sets={"other": 1},
)


def test_a_manifest_reads_back_as_it_was_written(tmp_path):
    spread = {"orders": ((1, 0),), "layout": "spread", "example_offsets": ((5, 2),)}
    manifest = manifest_of(
        planted_set("a", 2, ((1, 2), (3,)), when=(0.5, 1.0), token_offsets=(3, 9)),
        planted_set("b", 1, ((4,),), overlap=_OVERLAP, when="clustered", **spread),
        planted_set("c", 0, held_out_of="a", template="{q}", form="template"),
        recipe={"batch_rows": 4},
        init_model="gpt2",
        allow_overlap=True,
    )
    path = tmp_path / "manifest.json"
    write_manifest(manifest, path)
    assert read_manifest(path) == manifest


def test_a_manifest_of_version_010_is_readable(tmp_path):
    """It has the fields that were there before plans, and no others."""
    sets = '"token_offsets": [7], "orders": [[1, 0]], "steps": [[2]]'
    text = """{"schema": 1, "jaxcontam": "0.1.0", "code": null, "seed": 1,
    "preset": "pulse", "corpus_digest": "sha256:0", "separator": "", "context": 16,
    "max_example_tokens": null, "n_tokens": 10, "n_canary_tokens": 3, "n_steps": 2,
    "finished": true, "stream": "stream.npy", "recipe": null, "sets": [{"name": "a",
    "copies": 1, "shuffled": true, "n_examples": 2, "fingerprint": "", "n_tokens": 3,
    "content_digest": "", "file": "sets/a.txt", """
    path = tmp_path / "manifest.json"
    path.write_text(f"{text}{sets}}}]}}")
    read = read_manifest(path)
    assert read.stream_digest is None
    assert read.sets[0].orders == ((1, 0),)
    assert (read.sets[0].layout, read.sets[0].when) == ("block", "uniform")
    assert (read.sets[0].form, read.sets[0].overlap) == ("raw", None)


def test_code_is_named_by_commit_and_by_what_was_edited_or_added(tmp_path, monkeypatch):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    (tmp_path / "step.py").write_text("rate = 1\n")
    (tmp_path / "page.md").write_text("one\n")
    for words in (("init",), ("add", "."), (*who, "commit", "-m", "a")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setattr("train.run_folder._ROOT", tmp_path)
    clean = code_version()
    (tmp_path / "page.md").write_text("two\n")
    assert code_version() == clean is not None and "+" not in clean
    seen = {clean}
    for name, text in (("step.py", "rate = 2\n"), ("new.py", ""), ("new.py", "a = 1")):
        (tmp_path / name).write_text(text)
        found = code_version()
        assert found not in seen and found.startswith(f"{clean}+")
        seen.add(found)

"""The manifest's record of planted sets, and the files beside it."""

import dataclasses
import json

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.errors import InputError
from tests.support.copy_rows import in_one, steps_of_copy
from train.manifest import Manifest, SetOverlap, read_manifest, write_manifest
from train.plan import PlannedSet
from train.prepare import set_file, stream_manifest, write_set
from train.presets import PRESETS
from train.stream import build_stream, training_order

CONTEXT, BATCH = 16, 4
TEXTS = tuple(f"question {i} has {i} words" for i in range(6))
SAID = tuple(f"said {i}" for i in range(6))


@pytest.fixture(scope="module")
def tokenizer():
    """Bytes as ids, shifted by one: 0 is the prefix."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0} | {byte: i for i, byte in enumerate(alphabet, 1)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def recorded(tokenizer, **fields):
    """Ids of the planned set, its stream, its order of training and its record."""
    benchmark = Benchmark("quiz", TEXTS, (None,) * 6)
    planned = PlannedSet(benchmark=benchmark, **fields)
    encoded = encode_examples(tokenizer, planned.planted)
    documents = in_one([np.full(50, 1 + j, np.int32) for j in range(60)])
    stream = build_stream(documents, [(planned, encoded)], prefix_id=0, seed=3)
    n_rows = (len(stream.ids) - 1) // CONTEXT
    n_steps = n_rows // BATCH
    starts = training_order(
        len(stream.ids), CONTEXT, seed=3, timed=stream.timed, n_trained=n_steps * BATCH
    )
    preset = dataclasses.replace(PRESETS["pulse"], batch_rows=BATCH, row_tokens=CONTEXT)
    said = {"seed": 0, "corpus_digest": "", "separator": "", "finished": True}
    said |= {"code": None, "max_example_tokens": None}
    canaries = [(planned, encoded)]
    (row,) = stream_manifest(canaries, stream, starts, preset, **said).sets
    return encoded, stream, starts, row


def test_a_spread_sets_offsets_are_where_its_examples_stand(tokenizer):
    encoded, stream, _, row = recorded(tokenizer, copies=3, layout="spread")
    assert (row.token_offsets, row.shuffled, row.layout) == ((), True, "spread")
    assert len(row.example_offsets) == len(row.orders) == len(row.steps) == 3
    for offsets in row.example_offsets:
        for offset, ids in zip(offsets, encoded.ids, strict=True):
            np.testing.assert_array_equal(stream.ids[offset : offset + len(ids)], ids)


@pytest.mark.parametrize("when", ["uniform", "clustered", (0.1, 0.7)])
@pytest.mark.parametrize("layout", ["block", "spread"])
def test_steps_are_those_whose_batches_hold_the_copy(tokenizer, when, layout):
    encoded, stream, starts, row = recorded(
        tokenizer, copies=3, layout=layout, when=when
    )
    n_steps = len(starts) // BATCH
    copies = [
        [(o, len(ids)) for o, ids in zip(offsets, encoded.ids, strict=True)]
        for offsets in row.example_offsets
    ] or [[(offset, row.n_tokens)] for offset in row.token_offsets]
    for spans, steps in zip(copies, row.steps, strict=True):
        rows = np.concatenate(
            [
                steps_of_copy(
                    offset,
                    size,
                    starts_R=starts,
                    context=CONTEXT,
                    n_ids_in_all=len(stream.ids),
                )
                for offset, size in spans
            ]
        )
        expected = {int(i) // BATCH + 1 for i in rows}
        assert steps == tuple(sorted(step for step in expected if step <= n_steps))
    if when != "uniform" and layout == "block":
        # Every step from the first to the last: timed copies stand together.
        assert all(np.diff(steps).max(initial=1) == 1 for steps in row.steps)


def test_paraphrases_stand_in_the_stream_and_originals_in_the_sets_file(
    tokenizer, tmp_path
):
    _, stream, _, row = recorded(tokenizer, copies=2, texts_planted=SAID)
    planned = PlannedSet(
        benchmark=Benchmark("quiz", TEXTS, (None,) * 6), copies=2, texts_planted=SAID
    )
    write_set(planned, tmp_path)
    assert row.form == "paraphrase"
    assert load_benchmark(tmp_path / row.file).texts == TEXTS
    assert row.fingerprint == planned.benchmark.fingerprint
    assert row.planted_file is not None
    said = load_benchmark(tmp_path / row.planted_file, text_field="text").texts
    ids = np.concatenate(encode_examples(tokenizer, said).ids)
    for offset in row.token_offsets:
        np.testing.assert_array_equal(stream.ids[offset : offset + row.n_tokens], ids)


@pytest.mark.parametrize(
    ("texts", "suffix", "field"),
    [
        (("a", "b"), ".txt", None),
        (('{"q": 1}', '{"q": 2}'), ".jsonl", None),
        (("{q}", "{a}"), ".txt", None),
        (("1", "2"), ".txt", None),
        (("a\nb", "c"), ".jsonl", "text"),
        (("a\r", "c"), ".jsonl", "text"),
        (("a\u2028b", "c"), ".txt", None),
        (("\ufeffa", "c"), ".jsonl", "text"),
        (("",), ".jsonl", "text"),
        (('{"q": 1}', "  "), ".jsonl", "text"),
    ],
)
def test_a_sets_file_reads_back_as_its_texts(tmp_path, texts, suffix, field):
    planned = PlannedSet(
        benchmark=Benchmark("quiz", texts, (None,) * len(texts)), copies=0
    )
    write_set(planned, tmp_path)
    name, text_field, _ = set_file("quiz", texts)
    assert (name, text_field) == (f"quiz{suffix}", field)
    back = load_benchmark(tmp_path / "sets" / name, text_field=text_field)
    assert back.texts == texts


@pytest.fixture
def manifest(tokenizer):
    """A manifest with sets of every kind."""
    overlap = SetOverlap(
        n_compared=6,
        background={"exact": 1, "13-gram": 2},
        n_background=2,
        n_frame=0,
        sets={"other": 1},
    )
    kinds = (
        {"copies": 3, "layout": "spread", "when": "clustered"},
        {"copies": 2, "shuffled": True, "when": (0.5, 1.0), "texts_planted": SAID},
        {"copies": 0, "held_out_of": "quiz", "template": "{q}"},
    )
    rows = [recorded(tokenizer, **fields)[3] for fields in kinds]
    return Manifest(
        jaxcontam="0",
        code=None,
        seed=1,
        preset="pulse",
        corpus_digest="sha256:0",
        separator="\n",
        max_example_tokens=None,
        context=CONTEXT,
        n_tokens=10,
        n_canary_tokens=3,
        n_steps=2,
        finished=True,
        stream="stream.npy",
        stream_digest="sha256:1",
        tokenizer_digest="sha256:2",
        init_model="gpt2",
        init_fingerprint="sha256:3",
        allow_overlap=True,
        sets=tuple(
            dataclasses.replace(row, name=f"set{i}", overlap=overlap if i else None)
            for i, row in enumerate(rows)
        ),
    )


def test_a_manifest_reads_back_as_it_was_written(manifest, tmp_path):
    path = tmp_path / "manifest.json"
    write_manifest(manifest, path)
    assert read_manifest(path) == manifest


def test_a_manifest_of_version_010_is_readable(manifest, tmp_path):
    """It has the fields that were there before plans, and no others."""
    path = tmp_path / "manifest.json"
    write_manifest(manifest, path)
    fields = json.loads(path.read_text())
    for name in (
        "stream_digest",
        "tokenizer_digest",
        "init_model",
        "init_fingerprint",
        "allow_overlap",
    ):
        del fields[name]
    old = [
        "name",
        "copies",
        "shuffled",
        "n_examples",
        "fingerprint",
        "content_digest",
        "token_offsets",
        "orders",
        "steps",
        "n_tokens",
        "file",
    ]
    fields["sets"] = [{name: row[name] for name in old} for row in fields["sets"]]
    path.write_text(json.dumps(fields))
    read = read_manifest(path)
    assert read.stream_digest is None
    assert read.sets[1].orders == manifest.sets[1].orders
    assert (read.sets[1].layout, read.sets[1].when) == ("block", "uniform")
    assert (read.sets[1].form, read.sets[1].overlap) == ("raw", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": 2, "models": []}', r"schema 2 \(this version reads 1\)"),
        ('{"schema": 1}', "not a manifest"),
        ('{"schema": 1, "sets": [3]}', "not a manifest"),
        ("[]", "not a manifest"),
        ("{", "not a manifest"),
    ],
)
def test_other_files_are_no_manifests(tmp_path, text, message):
    path = tmp_path / "manifest.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_manifest(path)

"""Pretraining: what is planted is what is scored, and seeds are kept."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from flax import nnx

from eval.python_docs import read_python_docs
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.data.manifest import read_manifest, write_manifest
from jaxcontam.errors import InputError
from jaxcontam.methods import order_method
from jaxcontam.methods.order_test import plan_test
from jaxcontam.models.checkpoint import load_checkpoint, save_checkpoint
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import FAMILIES
from tests.copy_rows import steps_of_copy
from tests.stepwise import train_decoder
from train.disks import alone
from train.earlier import earlier_manifest
from train.export import export
from train.loop import train
from train.presets import PRESETS
from train.pretrain import Pretrain
from train.pretrain import main as pretrain_main
from train.shared_rows import prepared_once
from train.sources import read_documents
from train.step_log import read_rows
from train.stream import Canary, build_stream, training_rows
from train.tokenizer import train_tokenizer

pytestmark = pytest.mark.unoptimised


@pytest.fixture
def corpus(tmp_path):
    """A .jsonl of 60 short documents and a canary file of 12 lines."""
    return write_corpus(tmp_path)


def write_corpus(tmp_path):
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(50)]
    documents = [" ".join(rng.choice(words, size=80)) for _ in range(60)]
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps({"text": d}) + "\n" for d in documents))
    canaries = tmp_path / "quiz.txt"
    canaries.write_text("".join(f"question {i} word{i}\n" for i in range(12)))
    return path, canaries


def test_ids_at_the_manifests_offsets_are_the_ids_that_the_plan_scores(pulse):
    manifest = read_manifest(pulse / "manifest.json")
    stream = np.load(pulse / manifest.stream)
    checkpoint = load_checkpoint(str(pulse / "model"))
    for row in manifest.sets:
        benchmark = load_benchmark(pulse / row.file)
        assert benchmark.fingerprint == row.fingerprint
        encoded = encode_examples(
            checkpoint.tokenizer, benchmark.texts, separator=manifest.separator
        )
        assert len(row.token_offsets) == row.copies
        orders = row.orders or [range(row.n_examples)] * row.copies
        for offset, order in zip(row.token_offsets, orders, strict=True):
            planted = stream[offset : offset + row.n_tokens]
            expected = np.concatenate([encoded.ids[i] for i in order])
            np.testing.assert_array_equal(planted, expected)
            assert stream[offset - 1] == checkpoint.prefix_id
        planned = plan_test(
            benchmark,
            encoded,
            order_method("permutation"),
            prefix_id=checkpoint.prefix_id,
            context=checkpoint.config.context,
            seed=0,
        )
        published = planned.layout.plan.sequences[
            planned.layout.plan.index[0, planned.layout.plan.place[0]]
        ]
        np.testing.assert_array_equal(published[1:], np.concatenate(encoded.ids))


def test_shuffled_copies_all_have_orders_of_their_own(pulse):
    manifest = read_manifest(pulse / "manifest.json")
    (shuffled,) = [row for row in manifest.sets if row.shuffled]
    assert len(set(shuffled.orders)) == shuffled.copies == 10


def test_canary_tokens_are_counted(pulse):
    manifest = read_manifest(pulse / "manifest.json")
    planted = sum(row.copies * row.n_tokens for row in manifest.sets)
    assert manifest.n_canary_tokens == planted
    assert manifest.finished


def test_training_lowers_the_loss_from_that_of_the_uniform_distribution():
    rows = np.tile(np.arange(65, dtype=np.int32)[None], (200, 1))
    _, losses = train_decoder(PRESETS["pulse"], rows, seed=0)
    assert losses[0] == pytest.approx(np.log(512), rel=0.02)
    # The rows repeat one sequence: 50 steps take most of the surprise out of it.
    assert losses[-1] < losses[0] / 2


def test_every_id_is_a_target_once_but_for_the_last_partial_row():
    ids = np.arange(1000, dtype=np.int32)
    rows, starts = training_rows(ids, 64, seed=5)
    np.testing.assert_array_equal(rows[:, 0], starts)
    targets = np.sort(rows[:, 1:].ravel())
    assert rows.shape == (15, 65)
    assert len(np.unique(targets)) == 15 * 64
    np.testing.assert_array_equal((rows[:, 1:] - rows[:, :-1]) % 1000, 1)


@pytest.mark.parametrize(("offset", "n_ids"), [(0, 5), (130, 200), (990, 10)])
def test_steps_of_a_copy_are_the_rows_that_hold_its_targets(offset, n_ids):
    ids = np.arange(1000, dtype=np.int32)
    rows, starts = training_rows(ids, 64, seed=5)
    found = steps_of_copy(offset, n_ids, starts_R=starts, context=64, n_ids_in_all=1000)
    copy = np.arange(offset, offset + n_ids)
    expected = np.flatnonzero(np.isin(rows[:, 1:], copy).any(axis=1))
    np.testing.assert_array_equal(found, expected)


def test_background_documents_keep_their_order_around_the_blocks(corpus):
    documents = [np.full(5, i, np.int32) for i in range(1, 8)]
    encoded = _encoded(4)
    stream = build_stream(
        documents,
        [Canary(name="c", encoded=encoded, copies=3)],
        prefix_id=0,
        seed=1,
    )
    without = np.delete(
        stream.ids,
        np.concatenate([np.arange(o - 1, o + 12) for o in stream.offsets["c"]]),
    )
    expected = np.concatenate([np.concatenate([[0], d]) for d in documents])
    np.testing.assert_array_equal(without, expected)
    assert stream.n_canary_ids == 36


def test_blocks_fall_before_between_and_after_documents():
    documents = [np.full(5, i, np.int32) for i in range(1, 4)]
    starts = set()
    for seed in range(200):
        canary = Canary(name="c", encoded=_encoded(2), copies=1)
        stream = build_stream(documents, [canary], prefix_id=0, seed=seed)
        starts.add(stream.offsets["c"][0])
    assert starts == {1, 7, 13, 19}


def test_pretrain_command_writes_a_model_that_audits_read(corpus, tmp_path):
    docs, canaries = corpus
    out = tmp_path / "run"
    manifest = Pretrain(
        corpus=(docs,), canaries=(f"{canaries}=3",), preset="pulse", out=out
    ).run()
    assert manifest == read_manifest(out / "manifest.json")
    assert load_checkpoint(str(out / "model")).config == PRESETS["pulse"].decoder
    metrics = (out / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in metrics] == list(
        range(1, manifest.n_steps + 1)
    )


@pytest.mark.parametrize(
    ("canaries", "message"),
    [
        ("quiz.txt", "'quiz.txt': not FILE=COPIES"),
        ("quiz.txt=many", "not FILE=COPIES"),
        ("nowhere.txt=3", "nowhere.txt: no such file"),
    ],
)
def test_bad_canary_words_are_named(corpus, tmp_path, canaries, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        Pretrain(corpus=(corpus[0],), canaries=(canaries,)).run()


# Eight seconds of training; encoding and streams have this law by themselves.
@pytest.mark.slow
def test_examples_over_several_lines_are_planted_as_they_are(corpus, tmp_path):
    path, out = tmp_path / "multi.csv", tmp_path / "o"
    path.write_text('q\n"one\ntwo"\nthree\n')
    (row,) = (
        Pretrain(corpus=(corpus[0],), canaries=(f"{path}=1",), preset="pulse", out=out)
        .run()
        .sets
    )
    back = load_benchmark(out / row.file, text_field=row.text_field)
    assert back.texts == ('"one\ntwo"', "three")
    assert back.fingerprint == row.fingerprint


def test_unknown_preset_suggests_the_nearest():
    with pytest.raises(InputError) as caught:
        Pretrain(corpus=(), preset="tinny")
    assert "did you mean 'tiny'?" in caught.value.hint


# Reads all documentation of the Python installation.
@pytest.mark.slow
def test_python_docs_hold_no_sentence_that_a_question_asks_about():
    docs = read_python_docs()
    background = " ".join(" ".join(docs.documents).split())
    assert len(docs.questions) >= 1000
    assert not [q for q in docs.questions[::7] if q.sentence in background]
    sentences = [question.sentence for question in docs.questions]
    assert len(set(sentences)) == len(sentences)


def _encoded(n):
    from jaxcontam.data.encoding import Encoded

    ids = tuple(np.full(12 // n, 100 + i, np.int32) for i in range(n))
    return Encoded(ids, np.array([], np.int32), np.zeros(n, np.int32))


# Ten seconds.
@pytest.mark.slow
def test_any_family_goes_on_training_and_keeps_its_config(corpus, tmp_path):
    docs, canaries = corpus
    first = tmp_path / "neox"
    write_neox(first, docs)
    out = tmp_path / "run"
    Pretrain(
        corpus=(str(docs),),
        canaries=(f"{canaries}=2",),
        init=str(first),
        schedule="constant",
        peak_rate=1e-3,
        batch_rows=2,
        row_tokens=32,
        keep_every=5,
        out=out,
    ).run()
    manifest = read_manifest(out / "manifest.json")
    before, after = (load_checkpoint(str(one)) for one in (first, out / "model"))
    assert manifest.init_fingerprint == before.fingerprint != after.fingerprint
    assert after.config == before.config
    assert after.prefix_id == before.prefix_id
    for name in ("rotary_pct", "rope_theta", "model_type"):
        raw, kept = (
            json.loads((one / "config.json").read_text())
            for one in (first, out / "model")
        )
        assert kept.get(name) == raw.get(name)
    rates = [
        json.loads(line)["rate"]
        for line in (out / "metrics.jsonl").read_text().splitlines()
    ]
    assert rates[-1] == pytest.approx(1e-3)
    losses = [
        json.loads(line)["loss"]
        for line in (out / "metrics.jsonl").read_text().splitlines()
    ]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    exported = export(out, step=5)
    assert load_checkpoint(str(exported)).config == before.config


def write_neox(folder, docs):
    """A small GPT-NeoX with random weights and a tokenizer of its own."""
    tokenizer = train_tokenizer(read_documents([docs]), 300)
    raw = {
        "model_type": "gpt_neox",
        "vocab_size": 300,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "rotary_pct": 0.5,
        "rotary_emb_base": 10000,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "use_parallel_residual": True,
        "tie_word_embeddings": False,
    }
    config = FAMILIES["gpt_neox"].read_config(raw)
    save_checkpoint(
        Decoder(config, rngs=nnx.Rngs(0)),
        tokenizer,
        folder,
        model_type="gpt_neox",
        raw_config=raw,
    )


def test_help_is_one_screen_and_names_every_preset(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.argv", ["pretrain", "--help"])
    assert pretrain_main() == 0
    said = capsys.readouterr().out
    assert said.count("\n") <= 40
    assert "  python -m train.pretrain --corpus docs/ --canaries" in said
    assert ", ".join(PRESETS) in " ".join(said.split())


def small(corpus, out, **fields):
    docs, canaries = corpus
    return Pretrain(
        corpus=(str(docs),),
        canaries=(f"{canaries}=3",),
        out=out,
        **{"preset": "pulse", **fields},
    )


def files_of(out):
    return {
        path.relative_to(out): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"micro_batches": 3, "seed": 1}, "which do not divide by"),
        ({"seed": 1}, "holds checkpoints of a finished run of other inputs"),
        ({"dtype": "bfloat16"}, "recipe.compute.dtype was 'float32', is 'bfloat16'"),
        ({"row_tokens": 100}, "--row-tokens must be at most"),
        ({"audit_at": (2.0,)}, "--audit-at must be from 0 to 1"),
        ({"init": "nowhere", "preset": None}, "nowhere: no such model"),
        ({"init": "nowhere"}, "--init has a shape of its own"),
        (
            {"init": "nowhere", "preset": None, "tokenizer": Path("nowhere")},
            "--init has a tokenizer of its own: no --tokenizer",
        ),
    ],
)
def test_bad_flags_change_nothing_of_a_finished_run(finished, corpus, fields, message):
    before = files_of(finished)
    with pytest.raises(InputError, match=message):
        small(corpus, finished, **fields).run()
    assert files_of(finished) == before


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of the fixture `corpus` that kept its checkpoints."""
    folder = tmp_path_factory.mktemp("finished")
    out = folder / "run"
    small(write_corpus(folder), out, keep_every=10).run()
    return out


def test_a_manifest_that_cannot_be_read_costs_no_checkpoint(finished, corpus):
    manifest = finished / "manifest.json"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:300])
    before = files_of(finished)
    try:
        with pytest.raises(InputError, match="whose manifest cannot be read"):
            small(corpus, finished).run()
        assert files_of(finished) == before
    finally:
        manifest.write_bytes(whole)


def steps_of(folder):
    return [row["step"] for row in read_rows(folder / "metrics.jsonl")]


def test_disks_of_other_runs_leave_a_home_as_it_is(
    finished, corpus, tmp_path, monkeypatch, capsys
):
    home, first, second = (tmp_path / name for name in ("home", "first", "second"))
    fields = {"seed": 1, "checkpoints": str(home)}
    with pytest.raises(InputError, match="--checkpoints names another place"):
        small(corpus, finished, **fields).run()

    def lost(*args, **more):
        steps = iter(range(1, 9))
        return train(*args, **{**more, "should_stop": lambda: next(steps) < 0})

    with monkeypatch.context() as patch:
        patch.setattr("train.run.train", lost)
        with pytest.raises(StopIteration):
            small(corpus, first, checkpoint_steps=6, **fields).run()
    # With the disk nothing is lost that the checkpoint is ahead of.
    shutil.rmtree(first)
    assert steps_of(home) == [1, 2, 3, 4, 5, 6]
    begun = files_of(home)

    shutil.copytree(finished, second, ignore=shutil.ignore_patterns("checkpoints"))
    (planted,) = (second / "sets").iterdir()
    planted.write_text("of another run\n")
    small(corpus, second, **fields).run()
    manifest = read_manifest(home / "manifest.json")
    assert manifest.finished
    assert steps_of(home) == list(range(1, manifest.n_steps + 1))
    metrics = (home / "metrics.jsonl").read_bytes()
    assert metrics.startswith(begun[Path("metrics.jsonl")])
    for folder in (home, second):
        sets = Path("sets") / planted.name
        assert (folder / sets).read_bytes() == begun[sets]
        assert read_manifest(folder / "manifest.json") == manifest
    assert capsys.readouterr().out == (
        f"model: {second / 'model'}\ncurves: {second / 'training.html'}\n"
        f"next: jaxcontam audit {second / 'model'} {second / 'sets'}/*\n"
    )

    # A finished run that is reused leaves another one where it is, stream and all.
    third = tmp_path / "third"
    shutil.copytree(finished, third, ignore=shutil.ignore_patterns("checkpoints"))
    before = files_of(third)
    small(corpus, third, **fields).run()
    assert files_of(third) == before
    assert capsys.readouterr().out == f"model: {home / 'model'}\n"


@pytest.mark.parametrize(("version", "is_reused"), [(None, True), ("0.0", False)])
def test_without_git_a_finished_run_of_the_same_version_is_reused(
    finished, tmp_path, version, is_reused
):
    stands = dataclasses.replace(read_manifest(finished / "manifest.json"), code=None)
    write_manifest(stands, tmp_path / "manifest.json")
    (tmp_path / "model").mkdir()
    now = dataclasses.replace(stands, jaxcontam=version or stands.jaxcontam)
    now = dataclasses.replace(now, finished=False)
    assert (earlier_manifest(tmp_path, now) is not None) == is_reused


def test_a_run_that_goes_on_needs_disk_for_one_stream(tmp_path):
    (tmp_path / "stream.npy").touch()

    def prepare(file):
        assert list(tmp_path.iterdir()) == []
        file.with_name(file.name + ".partial").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), prepared_once(tmp_path, prepare):
        pass
    assert list(tmp_path.iterdir()) == []


def test_two_processes_do_not_train_into_one_folder(corpus, tmp_path):
    busy = tmp_path / "busy"
    busy.mkdir()
    taken = pytest.raises(InputError, match="busy: another process trains")
    with alone(busy, "--out"):
        with taken as caught:
            small(corpus, busy).run()
        assert caught.value.hint == "another --out"
        with taken as caught:
            small(corpus, tmp_path / "run", checkpoints=str(busy)).run()
        assert caught.value.hint == "another --checkpoints"

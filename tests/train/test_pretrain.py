"""A run: what is planted is scored; folders, disks, prepared data, exports."""

import dataclasses
import json
import os
import runpy
import shutil
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from etils.epath import backend
from flax import nnx
from tokenizers import Tokenizer
from tokenizers.models import BPE

from eval.python_docs import read_python_docs
from jaxcontam.cli.main import run_command
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.errors import InputError, StorageError
from jaxcontam.models.checkpoint import load_checkpoint, save_checkpoint
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import FAMILIES
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.order_test import plan_test
from tests.support.train_corpus import manifest_of
from train.checkpoints import restore_params, saved_steps
from train.config import PRESETS, config_to_json
from train.data import read_documents
from train.export import export
from train.export import main as export_main
from train.loop import train
from train.manifest import read_manifest, write_manifest
from train.prepare import Prepared, prepared_once
from train.pretrain import Pretrain
from train.report import read_rows
from train.run_folder import (
    alone,
    earlier_manifest,
    first_difference,
    keep_at_home,
    run_home,
)
from train.tokens import train_tokenizer

pytestmark = pytest.mark.unoptimised


def small(corpus, out, **fields):
    """The run of the fixture `finished`, as the fields say otherwise."""
    docs, quiz = corpus
    plain = {"corpus": (str(docs),), "canaries": (f"{quiz}=3",), "preset": "pulse"}
    return Pretrain(out=out, **plain | fields)


def files_of(out):
    paths = [path for path in out.rglob("*") if path.is_file()]
    return {path.relative_to(out): path.read_bytes() for path in paths}


def without_checkpoints(finished, out):
    shutil.copytree(finished, out, ignore=shutil.ignore_patterns("checkpoints"))
    return files_of(out)


def test_ids_at_the_manifests_offsets_are_the_ids_that_the_plan_scores(pulse):
    manifest = read_manifest(pulse / "manifest.json")
    assert manifest.finished
    planted = sum(row.copies * row.n_tokens for row in manifest.sets)
    assert manifest.n_canary_tokens == planted
    stream = np.load(pulse / manifest.stream)
    checkpoint = load_checkpoint(str(pulse / "model"))
    for row in manifest.sets:
        benchmark = load_benchmark(pulse / row.file)
        assert benchmark.fingerprint == row.fingerprint
        encoded = encode_examples(
            checkpoint.tokenizer, benchmark.texts, separator=manifest.separator
        )
        assert len(row.token_offsets) == row.copies
        # Shuffled copies all have orders of their own.
        assert len(set(row.orders)) == (row.copies if row.shuffled else 0)
        orders = row.orders or [range(row.n_examples)] * row.copies
        for offset, order in zip(row.token_offsets, orders, strict=True):
            found = stream[offset : offset + row.n_tokens]
            expected = np.concatenate([encoded.ids[i] for i in order])
            np.testing.assert_array_equal(found, expected)
            assert stream[offset - 1] == checkpoint.prefix_id
        layout = plan_test(
            benchmark,
            encoded,
            order_method("permutation"),
            prefix_id=checkpoint.prefix_id,
            context=checkpoint.config.context,
            seed=0,
        ).layout.plan
        published = layout.sequences[layout.index[0, layout.place[0]]]
        np.testing.assert_array_equal(published[1:], np.concatenate(encoded.ids))


def steps_of(folder):
    return [row["step"] for row in read_rows(folder / "metrics.jsonl")]


def test_command_writes_a_model_that_audits_read(finished):
    manifest = read_manifest(finished / "manifest.json")
    assert load_checkpoint(str(finished / "model")).config == PRESETS["pulse"].decoder
    assert steps_of(finished) == list(range(1, manifest.n_steps + 1))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"micro_batches": 3, "seed": 1}, "which do not divide by"),
        ({"seed": 1}, "holds checkpoints of a finished run of other inputs"),
        ({"dtype": "bfloat16"}, "recipe.compute.dtype was 'float32', is 'bfloat16'"),
        ({"row_tokens": 100}, "--row-tokens must be at most"),
    ],
)
def test_bad_flags_change_nothing_of_a_finished_run(finished, corpus, fields, message):
    before = files_of(finished)
    with pytest.raises(InputError, match=message):
        small(corpus, finished, **fields).run()
    assert files_of(finished) == before


def test_a_field_without_a_value_differs_from_one_that_is_not_there():
    assert first_difference({"a": 1, "b": None}, {"a": 1}, "") == "b was None, is None"
    assert first_difference({"r": {}}, {"r": {"b": 0}}, "") == "r.b was None, is 0"


def test_a_run_of_before_an_option_goes_on_at_its_default(finished, tmp_path):
    stored = json.loads((finished / "manifest.json").read_text())
    del stored["recipe"]["data"], stored["recipe"]["optimizer"]["optimizer"]
    del stored["n_left_out"]
    (tmp_path / "manifest.json").write_text(json.dumps(stored))
    (tmp_path / "model").mkdir()
    now = read_manifest(finished / "manifest.json")
    assert earlier_manifest(tmp_path, now) == read_manifest(tmp_path / "manifest.json")
    recipe = now.recipe | {"data": now.recipe["data"] | {"separator": " "}}
    with pytest.raises(InputError, match=r"recipe.data.separator was '\\n', is ' '"):
        earlier_manifest(tmp_path, dataclasses.replace(now, recipe=recipe))


def test_a_finished_model_is_not_replaced(finished, corpus, tmp_path):
    out = tmp_path / "run"
    before = without_checkpoints(finished, out)
    words = r"model of a finished run of other inputs \(seed was 0, is 1"
    with pytest.raises(InputError, match=words):
        small(corpus, out, seed=1).run()
    assert files_of(out) == before
    # Nor are checkpoints beside a manifest that cannot be read.
    shutil.copytree(finished / "checkpoints", out / "checkpoints")
    (out / "manifest.json").write_bytes((out / "manifest.json").read_bytes()[:300])
    before = files_of(out)
    with pytest.raises(InputError, match="whose manifest cannot be read"):
        small(corpus, out).run()
    assert files_of(out) == before


def test_disks_of_other_runs_leave_a_home_as_it_is(
    finished, corpus, tmp_path, monkeypatch, capsys
):
    home, first, second = (tmp_path / name for name in ("home", "first", "second"))
    fields = {"seed": 1, "checkpoints": str(home), "audit_at": (0.0, 0.3, 1.0)}
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

    without_checkpoints(finished, second)
    (planted,) = (second / "sets").iterdir()
    planted.write_text("of another run\n")
    small(corpus, second, **fields).run()
    manifest = read_manifest(home / "manifest.json")
    assert manifest.finished
    assert steps_of(home) == list(range(1, manifest.n_steps + 1))
    # Audits of before and after, each once.
    audits = [row["step"] for row in read_rows(home / "audits.jsonl")]
    assert list(dict.fromkeys(audits)) == [0, 12, manifest.n_steps]
    assert [audits.count(step) for step in set(audits)] == [1] * 3
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
    before = without_checkpoints(finished, third)
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
    now = dataclasses.replace(
        stands, jaxcontam=version or stands.jaxcontam, finished=False
    )
    assert (earlier_manifest(tmp_path, now) is not None) == is_reused


def test_a_run_that_goes_on_needs_disk_for_one_stream(tmp_path):
    (tmp_path / "stream.npy").touch()

    def prepare(folder):
        assert list(tmp_path.iterdir()) == [folder]
        (folder / "stream.npy.partial").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), prepared_once(tmp_path, prepare):
        pass
    assert list(tmp_path.iterdir()) == []


def test_hosts_that_would_read_rows_in_another_order_are_refused(tmp_path, monkeypatch):
    """Their code differs, which no input tells."""
    told = []

    def gather(own):
        told.append(own)
        return np.stack(told)

    monkeypatch.setattr("train.prepare.gather", gather)
    manifest = manifest_of(recipe=config_to_json(PRESETS["pulse"]))

    made = Prepared(
        manifest=manifest, documents=None, tokenizer=None, plain=Tokenizer(BPE())
    )

    def prepare(*starts):
        def in_folder(folder):
            np.save(folder / "rows.npy", np.array(starts))
            return made

        with prepared_once(tmp_path, in_folder):
            pass

    prepare(0, 8)
    prepare(0, 8)
    with pytest.raises(InputError, match="process 2 prepared other data than process"):
        prepare(8, 0)


def test_two_processes_do_not_train_into_one_folder(corpus, tmp_path):
    busy = tmp_path / "busy"
    busy.mkdir()
    kept = small(corpus, tmp_path / "run", checkpoints=str(busy))
    with alone(busy):
        for command in (small(corpus, busy), kept):
            with pytest.raises(InputError, match="busy: another run writes") as caught:
                command.run()
            flag = "--checkpoints" if command is kept else "--out"
            assert caught.value.hint.endswith(flag)


def test_a_home_that_can_be_written_stays_empty_and_another_is_refused(tmp_path):
    assert list(run_home(str(tmp_path / "home"), tmp_path).iterdir()) == []
    file = tmp_path / "file"
    file.touch()
    for word in (str(file), str(file / "below")):
        with pytest.raises(InputError, match=f"--checkpoints {word}: cannot be"):
            run_home(word, tmp_path)
    with pytest.raises(InputError, match="an address begins with gs://, s3://"):
        run_home("foo://x", tmp_path)


class HttpError(Exception):
    """As of a library that reads buckets: no OSError."""


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (FileNotFoundError("b/nosuch"), InputError, 2),
        (PermissionError("not yours"), InputError, 2),
        (ImportError("Please install gcsfs"), InputError, 2),
        (OSError("Forbidden: https://storage"), StorageError, 3),
        (HttpError("503 Service Unavailable"), StorageError, 3),
    ],
)
def test_a_bucket_is_written_to_before_anything_slow(
    tmp_path, error, kind, code, monkeypatch
):
    def refuse(path, mode):
        raise error

    # Folders need no making there: that succeeds in a bucket that is not there.
    bucket = types.SimpleNamespace(makedirs=lambda path, exist_ok: None, open=refuse)
    monkeypatch.setattr(backend.fsspec_backend, "fs", lambda path: bucket)
    with pytest.raises(kind, match="--checkpoints gs://b/run: cannot be written"):
        run_home("gs://b/run", tmp_path)
    assert run_command(lambda: run_home("gs://b/run", tmp_path)) == code


def test_what_a_run_does_not_have_goes_from_its_home(tmp_path):
    out, home = tmp_path / "out", run_home(str(tmp_path / "home"), tmp_path)
    out.mkdir()
    (out / "new").write_text("1")
    for name in ("new", "old"):
        (home / name).write_text("0")
    keep_at_home(out, home, "new", "old")
    assert [(path.name, path.read_text()) for path in home.iterdir()] == [("new", "1")]


def test_a_prepared_run_has_the_stream_and_weights_of_one_that_reads_its_text(
    finished, corpus, tmp_path
):
    place = tmp_path / "prepared"
    command = small(corpus, tmp_path / "run", prepared=str(place))
    with pytest.raises(InputError, match="nothing is prepared there") as caught:
        command.run()
    assert "--stop-after-data" in caught.value.hint
    dataclasses.replace(command, stop_after_data=True).run()
    assert not (command.out / "stream.npy").exists()
    for fields, difference in (
        ({"seed": 1}, r"seed was 0, is 1"),
        ({"batch_rows": 2}, r"recipe.batch_rows was 4, is 2"),
        ({"separator": ""}, r"recipe.data.separator was '\\n', is ''"),
        ({"allow_overlap": True}, r"allow_overlap was False, is True"),
        ({"canaries": ()}, r"sets differ"),
    ):
        with pytest.raises(InputError, match=rf"another run \({difference}\)"):
            dataclasses.replace(command, **fields).run()
    expected = read_manifest(finished / "manifest.json")
    prepared = read_manifest(place / "manifest.json")
    earlier = dataclasses.replace(prepared, code="earlier")
    write_manifest(earlier, place / "manifest.json")
    corpus[0].unlink()
    found = command.run()
    assert found == dataclasses.replace(expected, code=found.code)
    # The code that trained is the run's, not the one that prepared it.
    assert found.code != "earlier"
    for name in ("stream.npy", "model/model.safetensors"):
        assert (command.out / name).read_bytes() == (finished / name).read_bytes()
    # What was prepared serves other runs, too.
    again = dataclasses.replace(command, out=tmp_path / "again", audit_at=(1.0,))
    assert again.run().finished
    np.save(place / "stream.npy", np.load(place / "stream.npy")[:-1])
    with pytest.raises(InputError, match="not as long as its manifest says"):
        dataclasses.replace(command, out=tmp_path / "short").run()


def test_what_audits_will_cut_is_said_before_anything_trains(corpus, tmp_path, capsys):
    context = PRESETS["pulse"].decoder.context
    long = tmp_path / "long.txt"
    # Each word is a token at least.
    long.write_text("".join(f"{'word ' * context}{i}\n" for i in range(6)))
    sets = (f"{corpus[1]}=3", f"{long}=1")
    place = {"prepared": str(tmp_path / "data"), "stop_after_data": True}
    small(corpus, tmp_path / "run", canaries=sets, **place).run()
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "cut" in line]
    assert said.startswith(f"long: audits of a model with a context of {context} ")
    assert f"cut 6 of 6 to {(context - 1) // 2} tokens" in said


def test_data_are_not_prepared_over_a_run(corpus, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    before = (run / "manifest.json").read_bytes()
    place = {"prepared": str(run), "stop_after_data": True}
    with pytest.raises(InputError, match="holds a run, whose manifest this would"):
        small(corpus, tmp_path / "other", **place).run()
    assert (run / "manifest.json").read_bytes() == before


def test_the_command_that_left_names_the_one_that_does_its_work(capsys):
    with pytest.raises(SystemExit) as ended, pytest.warns(RuntimeWarning):
        runpy.run_module("train.prepare", run_name="__main__")
    assert ended.value.code == 2
    assert "--stop-after-data" in capsys.readouterr().err


def _export(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["train.export", *map(str, words)])
    return export_main()


def test_exported_weights_are_the_checkpoints_and_replace_those_that_stand_there(
    finished, tmp_path, monkeypatch, capsys
):
    run, last = tmp_path / "run", saved_steps(finished)[-1]
    shutil.copytree(finished, run)
    for words, step in (((), last), (("--step", 10), 10)):
        out = run / "exports" / f"step-{step}"
        for _ in range(2):
            assert _export(monkeypatch, run, *words) == 0
            assert capsys.readouterr().out == f"model: {out}\n"
        _, _, decoder = restore_params(run, step)
        found = load_checkpoint(str(out))
        states = nnx.state(found.decoder), nnx.state(decoder)
        jax.tree.map(np.testing.assert_array_equal, *states)
    assert {path.name for path in out.parent.iterdir()} == {"step-10", f"step-{last}"}


def test_what_cannot_be_exported_says_what_can_be(
    finished, tmp_path, monkeypatch, capsys
):
    def error(*words):
        assert _export(monkeypatch, *words) == 2
        return capsys.readouterr().err

    said = error(finished, "--step", 15)
    assert "no checkpoint at step 15" in said and "there are: 10, 20" in said
    # A folder of something else is kept.
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "is not empty" in error(finished, "--out", tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    # A finished run without checkpoints names its model.
    without_checkpoints(finished, tmp_path / "run")
    told = f"hint: the run is finished: its model is {tmp_path}/run/model"
    assert told in error(tmp_path / "run")


def test_files_of_a_model_follow_the_umask(finished, tmp_path, monkeypatch):
    before = os.umask(0o027)
    try:
        assert _export(monkeypatch, finished, "--out", tmp_path / "model") == 0
    finally:
        os.umask(before)
    files = list((tmp_path / "model").iterdir())
    assert "model.safetensors" in [path.name for path in files]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}


# Reads all documentation of the Python installation.
@pytest.mark.slow
def test_python_docs_hold_no_sentence_that_a_question_asks_about():
    docs = read_python_docs()
    background = " ".join(" ".join(docs.documents).split())
    assert len(docs.questions) >= 1000
    assert not [q for q in docs.questions[::7] if q.sentence in background]
    sentences = [question.sentence for question in docs.questions]
    assert len(set(sentences)) == len(sentences)


# Ten seconds.
@pytest.mark.slow
def test_any_family_goes_on_training_and_keeps_its_config(corpus, tmp_path):
    docs, quiz = corpus
    first, out = tmp_path / "neox", tmp_path / "run"
    write_neox(first, docs)
    manifest = Pretrain(
        corpus=(str(docs),),
        canaries=(f"{quiz}=2",),
        init=str(first),
        schedule="constant",
        peak_rate=1e-3,
        batch_rows=2,
        row_tokens=32,
        keep_every=5,
        out=out,
    ).run()
    before, after = (load_checkpoint(str(one)) for one in (first, out / "model"))
    assert manifest.init_fingerprint == before.fingerprint != after.fingerprint
    assert after.config == before.config
    assert after.prefix_id == before.prefix_id
    raw, kept = (
        json.loads((one / "config.json").read_text()) for one in (first, out / "model")
    )
    for name in ("rotary_pct", "rope_theta", "model_type"):
        assert kept.get(name) == raw.get(name)
    rows = read_rows(out / "metrics.jsonl")
    assert rows[-1]["rate"] == pytest.approx(1e-3)
    losses = [row["loss"] for row in rows]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    exported = export(out, step=5)
    assert load_checkpoint(str(exported)).config == before.config


def write_neox(folder, docs):
    """A small GPT-NeoX with random weights and a tokenizer of its own."""
    raw = json.loads("""{"model_type": "gpt_neox", "vocab_size": 300,
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 64, "max_position_embeddings": 64, "rotary_pct": 0.5,
        "rotary_emb_base": 10000, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
        "use_parallel_residual": true, "tie_word_embeddings": false}""")
    save_checkpoint(
        Decoder(FAMILIES["gpt_neox"].read_config(raw), rngs=nnx.Rngs(0)),
        train_tokenizer(read_documents([docs]), 300),
        folder,
        model_type="gpt_neox",
        raw_config=raw,
    )

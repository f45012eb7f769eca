"""Pretraining into a folder that holds a run already, and on other disks."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from jaxcontam.errors import InputError
from tests.support.train_corpus import write_corpus
from train.loop import train
from train.manifest import read_manifest, write_manifest
from train.prepared import prepared_once
from train.pretrain import Pretrain
from train.run_folder import alone, earlier_manifest
from train.step_log import read_rows

pytestmark = pytest.mark.unoptimised


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path)


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


def test_a_finished_model_of_other_inputs_is_not_replaced(finished, corpus, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(finished, out, ignore=shutil.ignore_patterns("checkpoints"))
    before = files_of(out)
    with pytest.raises(
        InputError, match=r"model of a finished run of other inputs \(seed was 0, is 1"
    ):
        small(corpus, out, seed=1).run()
    assert files_of(out) == before


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
